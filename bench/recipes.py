"""Default settings beside a preset chosen by hand: quality of both on several corpora for several time limits.

    python bench/recipes.py runs/recipes --data DATA --count     # on an idle machine: steps that fit into the minutes
    python bench/recipes.py runs/recipes --data DATA             # trains that many, cell by cell; prints the table

DATA has one directory per corpus, with `train` and `val` in two languages, one segment per line, such as
`multi30k/train.de.gz`. A finished cell is not trained again, and an interrupted one is resumed. The steps are fixed, so
other programs on the machine do not change the result; several of these may run at once, with different `--corpora` and
`--threads 1`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from clearhead.runtime.threads import prepare_openmp

prepare_openmp()  # before PyTorch is loaded, as the command does

import torch  # noqa: E402

from clearhead.bundle import load_bundle  # noqa: E402
from clearhead.config.nested import merge  # noqa: E402
from clearhead.data.prepare import prepare  # noqa: E402
from clearhead.runtime.device import resolve_device  # noqa: E402
from clearhead.runtime.threads import set_num_threads  # noqa: E402
from clearhead.training.layers import Layers  # noqa: E402
from clearhead.training.plan import make_plan  # noqa: E402
from clearhead.training.run import train_from_values  # noqa: E402


@dataclass(frozen=True)
class Corpus:
    """Parallel text in a directory of DATA."""

    directory: str
    source: str
    target: str
    pairs: int | None = None
    """Number of pairs of the training text, drawn at random; None for all."""


CORPORA = {
    "Multi30k de-en": Corpus("multi30k", "de", "en"),
    "Tatoeba 10,000 de-en": Corpus("tatoeba-de-en", "de", "en", 10_000),
    "Tatoeba 30,000 de-en": Corpus("tatoeba-de-en", "de", "en", 30_000),
    "Tatoeba 156,000 de-en": Corpus("tatoeba-de-en", "de", "en"),
    "Bible de-en": Corpus("bible-de-en", "de", "en"),
    "Python docs en-fr": Corpus("python-docs-en-fr", "en", "fr"),
    "Tanaka en-ja": Corpus("tanaka-en-ja", "en", "ja"),
}

_ADAM = {"optimizer": "adam", "weight_decay": 0.0, "validate_every": 500, "checkpoint_every": 500}
_BEFORE = {"data": {"augment": False}, "model": {"dropout": 0.1}}

RECIPES: Mapping[str, Mapping[str, Any]] = {
    "plan": {},
    "tiny": {**_BEFORE, "preset": "tiny", "train": {**_ADAM, "learning_rate": 3e-3, "warmup_steps": 400}},
    "small": {**_BEFORE, "preset": "small", "train": {**_ADAM, "learning_rate": 1.5e-3, "warmup_steps": 1_000}},
}
"""The default settings, and the two presets as they were before there was a plan: `tiny` for a corpus of less than
100,000 pairs, `small` for a larger one."""

MINUTES = (2, 5, 8, 20)
_SECONDS_TO_START = 4.0


def main() -> None:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, metavar="OUT", help="directory of the runs")
    parser.add_argument("--data", type=Path, required=True, metavar="DATA", help="directory of the corpora")
    parser.add_argument("--count", action="store_true", help="count the steps that fit into the minutes here and now")
    parser.add_argument("--print", action="store_true", help="print the table of what is there already")
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA), metavar="NAME")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=["plan", "tiny"], metavar="NAME")
    parser.add_argument("--minutes", nargs="+", type=float, default=MINUTES, metavar="MINUTES")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    set_num_threads(options.threads)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.count:
        for name in options.corpora:
            _count(name, options)
    elif not options.print:
        for minutes, name, recipe in product(options.minutes, options.corpora, options.recipes):
            _train(name, recipe, minutes, options)
    if not options.count:
        _print_table(options)


def _count(name: str, options: argparse.Namespace) -> None:
    """Write how many steps of every recipe fit into the minutes on this machine."""
    start = time.monotonic()
    values = _settings(name, options)
    data = prepare(Layers().with_("file", {**values, "out": "."}).config, options.out / f"{_plain(name)}.data")
    spent = time.monotonic() - start + _SECONDS_TO_START
    path = options.out / f"{_plain(name)}.json"
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for recipe, minutes in product(options.recipes, options.minutes):
        asked = merge(values, RECIPES[recipe], {"out": ".", "train": {"max_minutes": minutes}})
        plan = make_plan(Layers().with_("file", asked), data, torch.device(resolve_device("auto")), spent=spent)
        counts[f"{recipe} {minutes:g}"] = plan.steps
        print(f"{name}, {recipe}, {minutes:g} minutes: {plan.steps:,} steps of {plan.config.preset}", flush=True)
    path.write_text(json.dumps(counts), encoding="utf-8")


def _train(name: str, recipe: str, minutes: float, options: argparse.Namespace) -> None:
    path = options.out / f"{_plain(name)}.json"
    counts = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if (cell := f"{recipe} {minutes:g}") not in counts:
        raise SystemExit(f"{path} does not say how many steps make {minutes:g} minutes of {recipe}: run with --count")
    run = _run(options.out, name, recipe, minutes)
    asked = {"out": str(run), "train": {"max_steps": counts[cell]}}
    train_from_values(merge(_settings(name, options), RECIPES[recipe], asked))


def _print_table(options: argparse.Namespace) -> None:
    print(
        "| corpus | minutes | "
        + " | ".join(f"{recipe}: chrF | BLEU" for recipe in options.recipes)
        + f" | {options.recipes[0]} |"
    )
    print("| --- " * (3 + 2 * len(options.recipes)) + "|")
    for name, minutes in product(options.corpora, options.minutes):
        runs = [_run(options.out, name, recipe, minutes) for recipe in options.recipes]
        infos = [load_bundle(run).info if (run / "report.html").exists() else None for run in runs]
        scores = [
            f"{info['metrics']['valid_chrf']:.1f} | {info['metrics']['valid_bleu']:.1f}" if info else " | "
            for info in infos
        ]
        chosen = f"{infos[0]['preset']}, {infos[0]['training']['steps']:,} steps" if infos[0] else ""
        print(f"| {name} | {minutes:g} | {' | '.join(scores)} | {chosen} |")


def _settings(name: str, options: argparse.Namespace) -> dict[str, Any]:
    corpus = CORPORA[name]

    def file(part: str, language: str) -> str:
        return str(options.data / corpus.directory / f"{part}.{language}.gz")

    train = [file("train", language) for language in (corpus.source, corpus.target)]
    if corpus.pairs is not None:
        train = _sampled(train, corpus.pairs, options.out / _plain(name))
    valid = [file("val", language) for language in (corpus.source, corpus.target)]
    return {
        "data": {
            **{side: [path] for side, path in zip(("source", "target"), train, strict=True)},
            **{side: [path] for side, path in zip(("valid_source", "valid_target"), valid, strict=True)},
        }
    }


def _sampled(files: Sequence[str], pairs: int, out: Path) -> list[str]:
    """Write the same lines of all the files."""
    texts = [list(_lines(file)) for file in files]
    chosen = sorted(random.Random(1).sample(range(len(texts[0])), pairs))
    paths = [f"{out}.{Path(file).name.removesuffix('.gz')}" for file in files]
    for path, lines in zip(paths, texts, strict=True):
        if not Path(path).exists():
            Path(path).write_text("".join(lines[number] for number in chosen), encoding="utf-8")
    return paths


def _lines(file: str) -> Iterator[str]:
    with gzip.open(file, "rt", encoding="utf-8", newline="\n") as lines:
        yield from lines


def _run(out: Path, name: str, recipe: str, minutes: float) -> Path:
    return out / f"{_plain(name)}-{recipe}-{minutes:g}"


def _plain(name: str) -> str:
    return name.lower().replace(" ", "-").replace(",", "")


if __name__ == "__main__":
    main()
