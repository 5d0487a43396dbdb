"""The files a run is trained on: where their pairs come from, and whether they are still what they were."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from clearhead.config import Config, DataConfig
from clearhead.corpora import SentencePair, read_pairs, read_parallel
from clearhead.errors import ConfigError, DataError

__all__ = ["InputFile", "changed_inputs", "input_files", "missing_inputs", "training_pairs", "validation_pairs"]


@dataclass(frozen=True)
class InputFile:
    """What identifies an input file."""

    path: str
    """As the configuration names it."""
    bytes: int | None
    """Size; `None` for standard input and pipes, which can be read only once."""
    sha256: str | None
    """Hash of the file as it lies on disk, compressed or not; `None` where there is no size."""
    lines: int | None = None
    """Lines of text; `None` until it has been read."""


def training_pairs(data: DataConfig) -> Iterator[SentencePair]:
    """Stream every training pair, line-aligned files first.

    Raises:
        ConfigError: At once, if no training text is named.
        DataError: At once, if sources and targets differ in number or a format is not known; later, as the readers say.
    """
    if not (data.source or data.target or data.pairs):
        raise ConfigError(
            "there is no training text: set data.source and data.target (--source F --target F), "
            "or data.pairs (--pairs F.tsv)"
        )
    return chain(read_parallel(data.source, data.target), read_pairs(data.pairs))


def validation_pairs(data: DataConfig) -> Iterator[SentencePair] | None:
    """Stream every validation pair, or return `None` if no file is named and some must be held out.

    Raises:
        DataError: As `training_pairs`.
    """
    if not (data.valid_source or data.valid_target or data.valid_pairs):
        return None
    return chain(read_parallel(data.valid_source, data.valid_target), read_pairs(data.valid_pairs))


def input_files(config: Config) -> list[InputFile]:
    """Return the size and hash of every file the configuration reads, each path once.

    Raises:
        DataError: If files are missing (all of them are named), cannot be read, or standard input is named twice.
    """
    if missing := missing_inputs(config):
        raise DataError(f"there is no such file: {', '.join(missing)}")
    if (times := _paths(config.data).count("-")) > 1:
        raise DataError(f"standard input (-) is named {times} times, but it can be read only once")
    return [_identified(path) for path in dict.fromkeys(_paths(config.data))]


def missing_inputs(config: Config) -> list[str]:
    """Return the paths the configuration names where nothing is."""
    return [path for path in dict.fromkeys(_paths(config.data)) if path != "-" and not os.path.exists(path)]


def changed_inputs(report: Mapping[str, Any], config: Config) -> list[str]:
    """Compare the files of a configuration with those that prepared data was made of.

    Args:
        report: What `prepare` wrote to `report.json`.
        config: What is asked for now.

    Returns:
        A line for every file that differs, was added or was left out. Files that are missing now are in
        `missing_inputs` instead; standard input and pipes cannot be compared.
    """
    before = {file["path"]: file for file in report["files"]}
    missing = set(missing_inputs(config))
    now = {path: _identified(path) for path in dict.fromkeys(_paths(config.data)) if path not in missing}
    # The same file under another path, a relative one from another directory for example, is the same file.
    known, given = ({file["sha256"] for file in before.values()}, {file.sha256 for file in now.values()})
    lines = [
        f"{path} was not part of the prepared data"
        for path, file in now.items()
        if path not in before and (file.sha256 is None or file.sha256 not in known)
    ]
    lines += [
        f"{path} was part of the prepared data and is no longer named"
        for path, file in before.items()
        if path not in now and path not in missing and (file["sha256"] is None or file["sha256"] not in given)
    ]
    for path, new in now.items():
        old = before.get(path)
        if old is None or old["sha256"] is None:
            continue
        if new.bytes != old["bytes"]:
            lines.append(f"{path} has {new.bytes} bytes, the prepared data was made of {old['bytes']}")
        elif new.sha256 != old["sha256"]:
            lines.append(f"{path} has the same size as before but other content")
    return lines


def _paths(data: DataConfig) -> list[str]:
    return [
        *(data.source + data.target + data.pairs),
        *(data.valid_source + data.valid_target + data.valid_pairs),
        *data.exclude,
    ]


def _identified(path: str) -> InputFile:
    # Hashing a pipe would swallow the text it carries.
    if not os.path.isfile(path):
        return InputFile(path, None, None)
    try:
        with open(path, "rb") as file:
            return InputFile(path, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from None
