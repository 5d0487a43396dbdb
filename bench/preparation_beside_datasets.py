"""Preparation of a training text by clearhead and by Hugging Face `datasets`: the same steps, pairs a second.

    python bench/preparation_beside_datasets.py --source train.de --target train.en --pairs 300000

Both read two files of lines, drop pairs with an empty or too long side and all but the first of equal pairs, tokenize
both sides with the same `tokenizer.json`, and write Arrow files. clearhead also looks for wrong pairs and for sides
that are in the validation text, masks placeholders, and counts statistics of the lines. The text is
made as in `preparation.py`; each process has one thread. Needs `pip install datasets`.
"""

from __future__ import annotations

import hashlib
import os
import resource
import shutil
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import tokenizers

from clearhead.config import Config
from clearhead.data.prepare import prepare
from clearhead.files import read_lines
from clearhead.runtime.threads import set_num_threads
from clearhead.tokenizers import Tokenizer, load_vocabulary
from preparation import parser_of, write_recombined

SETTINGS = Config.from_dict({"data": {"max_ratio": 1_000.0, "augment": False}}).data


def by_clearhead(made: list[str], directory: Path, processes: int) -> int:
    """Prepare the text into a directory, and return the number of pairs kept."""
    valid = {name: [str(directory.parent / "valid")] for name in ("valid_source", "valid_target")}
    files = {"source": [made[0]], "target": [made[1]], **valid}
    config = Config.from_dict({"data": {**SETTINGS.model_dump(exclude_unset=True), **files}})
    tokenizer = load_vocabulary(directory.parent / "tokenizer.json")
    return len(prepare(config, directory / "data", tokenizer=tokenizer, is_forced=True, processes=processes).train)


def by_datasets(made: list[str], directory: Path, processes: int) -> int:
    """Do the same with `datasets`, and return the number of pairs kept."""
    os.environ["HF_DATASETS_CACHE"] = str(directory)
    import datasets

    tokenizer, seen = tokenizers.Tokenizer.from_file(str(directory.parent / "tokenizer.json")), set[bytes]()
    tokenizer.encode_special_tokens = True
    end = tokenizer.token_to_id("</s>")
    workers = processes if processes > 1 else None

    def examined(rows: dict[str, list[str]]) -> dict[str, list[Any]]:
        pairs = list(zip(rows["source"], rows["target"], strict=True))
        return {
            "is_usable": [
                bool(source.strip() and target.strip()) and max(len(source), len(target)) <= SETTINGS.max_characters
                for source, target in pairs
            ],
            "digest": [hashlib.blake2b("\n".join(pair).encode(), digest_size=8).digest() for pair in pairs],
        }

    def are_first(rows: dict[str, list[Any]]) -> list[bool]:
        are_new = []
        for is_usable, digest in zip(rows["is_usable"], rows["digest"], strict=True):
            are_new.append(is_usable and digest not in seen)
            seen.add(digest)
        return are_new

    def encoded(rows: dict[str, list[str]]) -> dict[str, list[list[int]]]:
        return {
            f"{side}_ids": [
                [*line.ids, end] for line in tokenizer.encode_batch_fast(rows[side], add_special_tokens=False)
            ]
            for side in ("source", "target")
        }

    def are_short(rows: dict[str, list[list[int]]]) -> list[bool]:
        both = zip(rows["source_ids"], rows["target_ids"], strict=True)
        return [max(map(len, sides)) <= SETTINGS.max_length for sides in both]

    datasets.disable_progress_bars()
    sides = [
        datasets.load_dataset("text", data_files=path, split="train").rename_column("text", side)
        for path, side in zip(made, ("source", "target"), strict=True)
    ]
    pairs = datasets.concatenate_datasets(sides, axis=1).map(examined, batched=True, num_proc=workers)
    kept = pairs.filter(are_first, batched=True).remove_columns(["is_usable", "digest"])
    ids = kept.map(encoded, batched=True, num_proc=workers)
    short = ids.filter(are_short, batched=True, num_proc=workers)
    short.save_to_disk(str(directory / "data"), num_proc=workers)
    return len(short)


WAYS = {"clearhead": by_clearhead, "datasets": by_datasets}


def measure(way: str, made: list[str], directory: str, processes: int) -> tuple[int, float, float]:
    """Return the number of pairs that a way keeps, the seconds it takes, and its processor time in all processes."""
    set_num_threads(processes)
    os.environ["RAYON_NUM_THREADS"] = "1"  # of the tokenizers library, in each process
    Path(directory).mkdir()
    started = time.perf_counter()
    kept = WAYS[way](made, Path(directory), processes)
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return kept, time.perf_counter() - started, sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Print a line for each preparation, and the fastest by way and number of processes."""
    given = parser_of(__doc__).parse_args()
    fastest: dict[tuple[str, int], float] = {}
    with TemporaryDirectory() as name:
        directory = Path(name)
        made = write_recombined([given.source, given.target], given.pairs, directory)
        (directory / "valid").write_text("a line that is in no text of training\n")
        lines = (line for path in (given.source, given.target) for line in read_lines(path))
        Tokenizer.train(lines, vocab_size=8_000).save(directory / "tokenizer.json")
        for _ in range(given.rounds):
            for processes in given.processes:
                for way in WAYS:
                    with ProcessPoolExecutor(1, get_context("spawn")) as executor:
                        task = executor.submit(measure, way, made, str(directory / "made"), processes)
                        kept, seconds, used = task.result()
                    shutil.rmtree(directory / "made")
                    print(
                        f"{way}, {processes} processes: {seconds:.1f} s, processor time {used:.1f} s, {kept:,} kept",
                        flush=True,
                    )
                    fastest[way, processes] = min(seconds, fastest.get((way, processes), seconds))
    for (way, processes), seconds in fastest.items():
        print(f"{way}, {processes} processes: {given.pairs / seconds:,.0f} pairs a second")


if __name__ == "__main__":
    main()
