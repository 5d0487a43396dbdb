"""From files of text to everything training reads: cleaned, tokenised stores, the tokenizer, and a report.

    input files -> clean -> hold out -> learn the tokenizer -> tokenise -> train.arrow, valid.arrow, report.json

Text waits between the steps in files of JSON lines, so that memory holds 16 bytes a pair and no text.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from clearhead.config import Config, TokenizerConfig
from clearhead.corpora import SentencePair, read_lines
from clearhead.data.clean import CleaningReport, clean, key_digest
from clearhead.data.inputs import input_files, training_pairs, validation_pairs
from clearhead.data.store import PairStore, StoreWriter
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.tokenizer import Tokenizer, split_tag

__all__ = ["Prepared", "automatic_vocab_size", "open_prepared", "prepare"]

Progress = Callable[[str, int], None]
"""Called with the name of a stage and the items done in it."""

PROGRESS_EVERY = 1_000
# Fewer bytes cannot fill a vocabulary, which begins with the 256 bytes and a few special tokens.
LEAST_TEXT_BYTES = 300
# A tenth of the corpus at most is held out, and that must be a pair at least.
LEAST_PAIRS_TO_HOLD_OUT = 10
FRESH = "run the same command with --fresh to prepare the data again"


@dataclass(frozen=True)
class Prepared:
    """What training reads."""

    train: PairStore
    """Training pairs."""
    valid: PairStore
    """Validation pairs, given or held out."""
    tokenizer: Tokenizer
    """The vocabulary both stores are written in."""
    report: dict[str, Any]
    """Contents of `report.json`: where every pair that was read went, and what the input files were."""


def prepare(config: Config, directory: Path, *, on_progress: Progress | None = None) -> Prepared:
    """Read, clean and tokenise the corpus; write `directory` and, beside it, `tokenizer.json`.

    Everything is built in `DIRECTORY.partial` and renamed at the end: a run that is killed or fails leaves nothing that
    could be taken for prepared data. Prepared data that is already there is replaced.

    Args:
        config: Which files, and how to clean and tokenise them.
        directory: `data/` of a run directory.
        on_progress: Called about every thousand items.

    Raises:
        ConfigError: If no text is named, or the vocabulary asked for is too small or more than the corpus yields.
        DataError: If a file cannot be used, no pair is left, the corpus is too small, or the disk is full.
    """
    partial = directory.with_name(directory.name + ".partial")
    try:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
        _build(config, partial, on_progress or _silent)
        _publish(partial, directory)
    except OSError as error:
        raise DataError(f"cannot write the prepared data {directory}: {error.strerror or error}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return open_prepared(directory)


def open_prepared(directory: Path) -> Prepared:
    """Open what `prepare` made.

    Raises:
        DataError: If it is missing or damaged, or the tokenizer beside it is not the one it was made with.
    """
    path = directory / "report.json"
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        made_with = report["tokenizer"]["sha256"]
        tokenizer = Tokenizer.load(directory.parent / "tokenizer.json")
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}; {FRESH}") from None
    except (ValueError, KeyError, TypeError):
        raise DataError(f"{path} is damaged; {FRESH}") from None
    except ClearheadError as error:
        raise DataError(f"{error}; {FRESH}") from None
    if tokenizer.sha256 != made_with:
        raise DataError(f"{directory} was not made with {directory.parent / 'tokenizer.json'}; {FRESH}")
    train, valid = (PairStore.open(directory / name) for name in ("train.arrow", "valid.arrow"))
    return Prepared(train, valid, tokenizer, report)


def automatic_vocab_size(num_pairs: int) -> int:
    """Return how many pieces to learn from a corpus of `num_pairs` training pairs, if the configuration does not say.

    >>> automatic_vocab_size(29_000)
    8000
    """
    for below, vocab_size in ((15_000, 4_000), (100_000, 8_000), (1_000_000, 16_000)):
        if num_pairs < below:
            return vocab_size
    return 32_000


def _build(config: Config, partial: Path, on_progress: Progress) -> None:
    files = input_files(config)
    tags = config.tokenizer.language_tags
    train_pairs, valid_pairs = training_pairs(config.data), validation_pairs(config.data)
    train_report, valid_report = CleaningReport(), CleaningReport()
    train_text, valid_text = partial / "train.jsonl", partial / "valid.jsonl"
    lines: dict[str, int] = {}

    forbidden = _excluded_keys(config, lines, on_progress)
    if valid_pairs is not None:
        counted = _progress(_counting_lines(valid_pairs, lines), "reading validation text", on_progress)
        kept = clean(counted, config.data, forbidden=set(), report=valid_report, language_tags=tags)
        _write_text(valid_text, _adding_keys(kept, forbidden, tags))
        _refuse_empty("validation", valid_report)

    counted = _progress(_counting_lines(train_pairs, lines), "reading and cleaning", on_progress)
    kept = clean(counted, config.data, forbidden=forbidden, report=train_report, language_tags=tags)
    if valid_pairs is not None:
        _write_text(train_text, kept)
    else:
        kept_text = partial / "kept.jsonl"
        _write_text(kept_text, kept)
        _refuse_empty("training", train_report)
        rows = _rows_to_hold_out(config, train_report.kept)
        _hold_out(kept_text, rows, (train_text, valid_text), (train_report, valid_report), tags, on_progress)
        kept_text.unlink()
    _refuse_empty("training", train_report)

    tokenizer = _learned_tokenizer(train_text, config.tokenizer, train_report.kept, on_progress)
    tokenizer.save(partial / "tokenizer.json")
    tokens = {}
    for name, text, report in (("train", train_text, train_report), ("valid", valid_text, valid_report)):
        stage = "tokenising" if name == "train" else "tokenising validation text"
        pairs = _progress(_read_text(text), stage, on_progress)
        tokens[name] = _write_store(
            partial / f"{name}.arrow", pairs, tokenizer, max_length=config.data.max_length, report=report
        )
        text.unlink()
        report.check()
    _refuse_empty("training", train_report)
    _refuse_empty("validation", valid_report)

    data = config.data
    for source, target in zip(data.source + data.valid_source, data.target + data.valid_target, strict=True):
        lines[target] = lines.get(source, 0)
    report_json = {
        "train": train_report.to_dict(),
        "valid": valid_report.to_dict(),
        "valid_held_out": valid_pairs is None,
        "files": [asdict(replace(file, lines=lines.get(file.path, 0))) for file in files],
        "tokenizer": {
            "kind": config.tokenizer.kind,
            "vocab_size": tokenizer.vocab_size,
            "sha256": tokenizer.sha256,
        },
        "tokens": tokens["train"],
    }
    text_json = json.dumps(report_json, ensure_ascii=False, indent=2)
    (partial / "report.json").write_text(text_json + "\n", encoding="utf-8")


def _publish(partial: Path, directory: Path) -> None:
    for path in partial.iterdir():
        _sync(path)
    # The old data goes first: killed between these lines, a run finds no data, never data of another tokenizer.
    if directory.exists():
        shutil.rmtree(directory)
    os.replace(partial / "tokenizer.json", directory.parent / "tokenizer.json")
    os.replace(partial, directory)
    _sync(directory.parent)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _excluded_keys(config: Config, lines: dict[str, int], on_progress: Progress) -> set[bytes]:
    keys = set()
    for path in config.data.exclude:
        for number, line in enumerate(_progress(read_lines(path), f"reading {path}", on_progress), start=1):
            lines[path] = number
            _, text = split_tag(line, config.tokenizer.language_tags)
            if text.strip():
                keys.add(key_digest(text))
    return keys


def _counting_lines(pairs: Iterable[SentencePair], lines: dict[str, int]) -> Iterator[SentencePair]:
    for pair in pairs:
        path, _, number = pair.origin.rpartition(":")
        lines[path] = int(number)
        yield pair


def _keys(pair: SentencePair, tags: tuple[str, ...]) -> tuple[bytes, bytes]:
    return key_digest(split_tag(pair.source, tags)[1]), key_digest(pair.target)


def _adding_keys(pairs: Iterable[SentencePair], keys: set[bytes], tags: tuple[str, ...]) -> Iterator[SentencePair]:
    for pair in pairs:
        keys.update(_keys(pair, tags))
        yield pair


def _rows_to_hold_out(config: Config, num_pairs: int) -> set[int]:
    if num_pairs < LEAST_PAIRS_TO_HOLD_OUT:
        raise DataError(
            f"the corpus has {num_pairs} usable pairs, and {LEAST_PAIRS_TO_HOLD_OUT} are needed to hold some out for "
            f"validation; give more text, or validation files (--valid-source F --valid-target F, or --valid-pairs F)"
        )
    count = min(config.data.valid_size, num_pairs // LEAST_PAIRS_TO_HOLD_OUT)
    random = np.random.Philox(key=config.train.seed).random_raw(num_pairs)
    return set(np.argsort(random, kind="stable")[:count].tolist())


def _hold_out(
    kept_text: Path,
    rows: set[int],
    texts: tuple[Path, Path],
    reports: tuple[CleaningReport, CleaningReport],
    tags: tuple[str, ...],
    on_progress: Progress,
) -> None:
    """Divide the kept pairs into training and validation; a training pair that shares a side is dropped as leakage."""
    keys: set[bytes] = set()
    for row, pair in enumerate(_read_text(kept_text)):
        if row in rows:
            keys.update(_keys(pair, tags))
    train_report, valid_report = reports
    with open(texts[0], "w", encoding="utf-8") as train, open(texts[1], "w", encoding="utf-8") as valid:
        for row, pair in enumerate(_progress(_read_text(kept_text), "holding out validation pairs", on_progress)):
            if row in rows:
                train_report.hold_out()
                valid_report.read += 1
                valid_report.kept += 1
                valid.write(_text_line(pair))
            elif keys.isdisjoint(_keys(pair, tags)):
                train.write(_text_line(pair))
            else:
                train_report.drop_kept("leakage", pair.origin)


def _learned_tokenizer(text: Path, config: TokenizerConfig, num_pairs: int, on_progress: Progress) -> Tokenizer:
    def sides() -> Iterator[str]:
        for pair in _read_text(text):
            yield split_tag(pair.source, config.language_tags)[1]
            yield pair.target

    num_bytes = 0
    for side in sides():
        num_bytes += len(side.encode())
        if num_bytes >= LEAST_TEXT_BYTES:
            break
    else:
        raise DataError(
            f"the training text ({num_bytes} bytes) is smaller than the smallest vocabulary "
            f"({LEAST_TEXT_BYTES} bytes and special tokens); give more text"
        )
    tokenizer = Tokenizer.train(
        _progress(sides(), "learning the vocabulary", on_progress),
        kind=config.kind,
        vocab_size=config.vocab_size or automatic_vocab_size(num_pairs),
        split_digits=config.split_digits,
        language_tags=config.language_tags,
    )
    if config.vocab_size is not None and tokenizer.vocab_size < config.vocab_size:
        raise ConfigError(
            f"tokenizer.vocab_size ({config.vocab_size}) is more than the {tokenizer.vocab_size} pieces this corpus "
            f"yields; set it to at most {tokenizer.vocab_size}"
        )
    return tokenizer


def _write_store(
    path: Path, pairs: Iterator[SentencePair], tokenizer: Tokenizer, *, max_length: int, report: CleaningReport
) -> dict[str, int]:
    """Tokenise pairs into a store, drop the too long ones, and return the tokens of each side."""
    tokens = {"source": 0, "target": 0}
    with StoreWriter(path) as store:
        while some := list(islice(pairs, PROGRESS_EVERY)):
            sources = tokenizer.encode_sources([pair.source for pair in some])
            targets = tokenizer.encode_targets([pair.target for pair in some])
            for pair, source_ids, target_ids in zip(some, sources, targets, strict=True):
                if max(len(source_ids), len(target_ids)) > max_length:
                    report.drop_kept("too_many_tokens", pair.origin)
                    continue
                store.append(pair.source, pair.target, source_ids, target_ids)
                tokens["source"] += len(source_ids)
                tokens["target"] += len(target_ids)
    return tokens


def _refuse_empty(what: str, report: CleaningReport) -> None:
    if report.kept:
        return
    if not report.read:
        raise DataError(f"empty corpus: the {what} files hold no line")
    reasons = [
        f"{reason} {count} ({', '.join(report.examples[reason])})" for reason, count in report.dropped.items() if count
    ]
    if report.held_out:
        reasons.append(f"held out for validation {report.held_out}")
    raise DataError(
        f"empty corpus: none of the {report.read} {what} pairs is left; dropped: {'; '.join(reasons)}"
    )


def _write_text(path: Path, pairs: Iterable[SentencePair]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(map(_text_line, pairs))


def _text_line(pair: SentencePair) -> str:
    return json.dumps([pair.source, pair.target, pair.origin], ensure_ascii=False) + "\n"


def _read_text(path: Path) -> Iterator[SentencePair]:
    # JSON escapes line feeds and carriage returns, so that a pair is a line whatever its text holds.
    with open(path, encoding="utf-8") as file:
        for line in file:
            yield SentencePair(*json.loads(line))


def _progress[T](items: Iterable[T], stage: str, on_progress: Progress) -> Iterator[T]:
    count = 0
    on_progress(stage, count)
    for count, item in enumerate(items, start=1):  # noqa: B007 - the last count is reported after the loop
        if count % PROGRESS_EVERY == 0:
            on_progress(stage, count)
        yield item
    on_progress(stage, count)


def _silent(stage: str, count: int) -> None:
    pass
