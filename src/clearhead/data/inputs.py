"""Input files of a run: opening them, their languages, and detecting changes since preparation."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

from clearhead.config import Config, DataConfig
from clearhead.errors import ConfigError, DataError
from clearhead.files import os_error_as, read_lines
from clearhead.formats import (
    GivenLinks,
    PairFile,
    SentencePair,
    Wanted,
    described,
    different_languages,
    expand_paths,
    holds_pairs,
    in_common,
    language_in_name,
    read_pairs,
    read_parallel,
)

ROLES = (
    "source",
    "target",
    "alignments",
    "pairs",
    "valid_source",
    "valid_target",
    "valid_pairs",
    "general_source",
    "general_target",
    "general_pairs",
    "corrections",
    "exclude",
)
"""Settings of `[data]` that name files."""

EXPANDED = ("pairs", "valid_pairs", "general_pairs", "corrections", "exclude")
"""Settings that may also name directories and patterns."""

MOST_LISTED = 10
"""Most files listed in a message."""

MOST_MALFORMED = 0.01
"""Largest tolerated share of rows of a file that are no pairs; they are counted and skipped, and more are an error."""


@dataclass(frozen=True)
class InputFile:
    """Identity of an input file."""

    path: str
    """Path as in the configuration."""
    bytes: int | None
    """Size; `None` for standard input and pipes, which can be read only once."""
    sha256: str | None
    """Hash of the file on disk, compressed or not; `None` if there is no size."""
    lines: int | None = None
    """Line on which the last segment begins; `None` until the file has been read."""
    read_as: str | None = None
    """Detected format of a file of pairs or links; `None` until it has been opened, and for other files."""


class Inputs(NamedTuple):
    """All input files of a configuration, opened; the pairs can be streamed once."""

    pairs: Iterator[SentencePair]
    valid_pairs: Iterator[SentencePair] | None
    """`None` if no file is named and some pairs must be held out."""
    general: Iterator[SentencePair] | None
    """General text, for training without forgetting; `None` if no file is named."""
    excluded: list[tuple[str, Iterator[tuple[int, str]]]]
    """Every file of text that must not be trained on, with its segments and their line numbers."""
    files: list[InputFile]
    """Size and hash of every file, each path once."""
    read_as: dict[str, str]
    """Detected formats of files of pairs and links; files that can be read only once are added when they are opened."""
    weights: Mapping[str, float]
    """Number of times an epoch contains the pairs of a file, by its path; empty if not configured."""
    entries: Mapping[str, int]
    """Place of a file's entry in `data.pairs`, from 1, by the path of the file."""
    roles: dict[str, list[str]]
    """The files of each setting, with directories and patterns expanded."""
    opened: list[PairFile]
    """The opened files of training pairs; files that can be read only once are added when they are opened."""

    def several_targets(self) -> str | None:
        """Return why training is refused if the training pairs are in several target languages, by their files."""
        message = different_languages(self.opened, "target")
        return message and (
            f"{message}; for a model of several languages, tag each line (tokenizer.language_tags); if all is as it "
            f"should be, add --force-data"
        )


def open_inputs(config: Config, *, notice: Callable[[str], None] | None = None) -> Inputs:
    """Open all files named in the configuration, line-aligned ones first, and report errors at once.

    Args:
        config: Names the files, and says which of their columns to read, and in which direction.
        notice: Called with the detected format of files of pairs, when `Inputs.read_as` gets them.

    Raises:
        ConfigError: If no training text is named, files of pairs do not have the configured columns, or a file has two
            weights.
        DataError: If sources and targets, or files of links, differ in number, a format is not known, files are missing
            (all of them are named) or cannot be read, a directory or pattern matches no file, or standard input is
            named twice. Streaming the pairs raises the errors of the readers.
    """
    data = config.data
    if not (data.source or data.target or data.pairs or data.corrections):
        raise ConfigError(
            "there is no training text: set data.source and data.target (--source F --target F), "
            "or data.pairs (--pairs F.tsv)"
        )
    read_as = dict.fromkeys(data.alignments, "links of words")

    opened: list[PairFile] = []

    def tell(files: Sequence[PairFile]) -> None:
        read_as.update({file.path: file.read_as for file in files})
        opened.extend(file for file in files if file.path in data.by_use.pairs)
        if notice is not None:
            for line in described(files):
                notice(line)

    of_use = data.by_use
    lines = read_parallel(of_use.source, of_use.target, swap=data.swap, links=_given_links(config), notice=notice)
    general_lines = read_parallel(of_use.general_source, of_use.general_target, swap=data.swap)
    valid_lines = read_parallel(data.valid_source, data.valid_target, swap=data.swap)
    standing = {role: [expand_paths([path], notice=notice) for path in getattr(data, role)] for role in EXPANDED}
    weight_of_file = _weights(standing["pairs"], data.weights)
    data = data.model_copy(update={role: tuple(chain.from_iterable(files)) for role, files in standing.items()})
    roles = {role: list(getattr(data, role)) for role in ROLES}
    if missing := [path for path in dict.fromkeys(_paths(data)) if path != "-" and not os.path.exists(path)]:
        raise DataError(f"there is no such file: {', '.join(missing)}")
    if (times := _paths(data).count("-")) > 1:
        raise DataError(f"standard input (-) is named {times} times, but it can be read only once")
    of_use = data.by_use
    of_pairs = (*of_use.pairs, *data.valid_pairs, *of_use.general_pairs, *filter(holds_pairs, data.exclude))
    if data.columns is not None and not of_pairs:
        raise ConfigError(
            f"columns {data.columns[0]},{data.columns[1]}: no file of pairs is named that could have them; leave "
            f"data.columns (--columns) out, or name one with --pairs"
        )
    choice: dict[str, Any] = {"wanted": Wanted(data.columns, data.from_lang, data.to_lang), "on_open": tell}
    pairs = read_pairs(of_use.pairs, **choice, swap=data.swap, tolerated=MOST_MALFORMED)
    choice["columns_may_be_missing"] = bool(of_use.pairs)  # then some of these have them
    valid_pairs = read_pairs(data.valid_pairs, **choice, swap=data.swap, tolerated=MOST_MALFORMED)
    general_pairs = read_pairs(of_use.general_pairs, **choice, swap=data.swap, tolerated=MOST_MALFORMED)
    excluded = [(path, _segments(path, **choice, swap=data.swap)) for path in data.exclude]
    is_given = data.valid_source or data.valid_target or data.valid_pairs
    files = [identified_file(path) for path in dict.fromkeys(_paths(data))]
    is_general = of_use.general_source or of_use.general_target or of_use.general_pairs
    return Inputs(
        chain(lines, pairs),
        chain(valid_lines, valid_pairs) if is_given else None,
        chain(general_lines, general_pairs) if is_general else None,
        excluded,
        files,
        read_as,
        weight_of_file,
        {file: place for place, files in enumerate(standing["pairs"], start=1) for file in files},
        roles,
        opened,
    )


def _given_links(config: Config) -> GivenLinks | None:
    data = config.data
    if not data.alignments:
        return None
    by_character = data.alignment_words == "characters"
    tagged = config.tokenizer.language_tags
    return GivenLinks(data.alignments, data.alignment_base, by_character, tagged, is_swapped=data.swap)


def _segments(path: str, swap: bool, **choice: Any) -> Iterator[tuple[int, str]]:
    """Yield the segments of a file of text to exclude, with their line numbers; of pairs, both sides."""
    if not holds_pairs(path):
        return enumerate(read_lines(path), start=1)
    pairs = read_pairs([path], **choice, swap=swap)
    return ((pair.line, text) for pair in pairs for text in (pair.source, pair.target))


def source_language(config: Config) -> str | None:
    """Return the language of the sources: from the settings, else from the endings of all their file names."""
    language = config.decode.source_lang or languages(config.data)[0]
    return language and language.partition("@")[0]


def languages(data: DataConfig, opened: Sequence[PairFile] = ()) -> tuple[str | None, str | None]:
    """Return the languages of source and target: from the settings, else from their files, if all agree.

    Line-aligned files are named after their language; files of pairs, if they are `opened`, may name it.
    """

    def agreed(asked: str | None, paths: Sequence[str], named: Sequence[str | None]) -> str | None:
        codes = {*map(language_in_name, paths), *([in_common(named)] if data.pairs else ())}
        return asked or (codes.pop() if len(codes) == 1 else None)

    # A file that is opened has its sides exchanged already.
    first, second = ([file.languages[side ^ data.swap] for file in opened] for side in (False, True))
    sides = agreed(data.from_lang, data.source, first), agreed(data.to_lang, data.target, second)
    return sides[::-1] if data.swap else sides


def missing_inputs(config: Config) -> list[str]:
    """Return the configured paths that do not exist, including directories and patterns without a file."""
    data = config.data
    return [*dict.fromkeys(path for role in ROLES for path in getattr(data, role) if not _files_of(role, path))]


def entry_sizes(config: Config) -> list[int]:
    """Return the number of files of each entry of `data.pairs`, which share its weight; a missing file counts."""
    return [len(_files_of("pairs", path) or [path]) for path in config.data.pairs]


def _files_of(role: str, path: str) -> list[str]:
    """Return the files that a path of a setting refers to; empty if there are none."""
    try:
        files = expand_paths([path]) if role in EXPANDED else [path]
    except DataError:
        return []
    return [file for file in files if file == "-" or os.path.exists(file)]


def changed_inputs(report: Mapping[str, Any], before: Config, now: Config) -> list[str]:
    """Compare the configured files with those of the prepared data, by role and position.

    Args:
        report: Contents of the `report.json` that `prepare` wrote.
        before: Configuration of the last training, which names the files where they were found then.
        now: The current configuration.

    Returns:
        A line for every file that differs, was added or was left out. The same file under another path, such as a
        relative one from another directory, counts as the same. Files that are missing now cannot be compared (see
        `missing_inputs`), nor can standard input and pipes.
    """
    prepared = {file["path"]: InputFile(file["path"], file["bytes"], file["sha256"]) for file in report["files"]}
    lines = []
    identified: dict[str, InputFile] = {}
    for role in ROLES:
        missing = {path for path in getattr(now.data, role) if not _files_of(role, path)}
        old = report["roles"].get(role, [])  # of a run made before there was this setting
        last, new = (
            [file for path in getattr(data, role) for file in _files_of(role, path) or [path]]
            for data in (before.data, now.data)
        )
        if len(old) != len(new):
            if missing & {*last}:
                continue  # a directory or the matches of a pattern were removed, so their former files are unknown
            lines.append(
                f"data.{role}: files named before: {len(old)} ({_listed(old, new)}), and now: {len(new)} "
                f"({_listed(new, old)})"
            )
            continue
        for index, (was, is_now) in enumerate(zip(old, new, strict=True)):
            if is_now in missing and last[index : index + 1] == [is_now]:
                continue  # it was compared when the run was last trained, and has been removed since
            where = f"data.{role}" if len(old) == 1 else f"data.{role}, file {index + 1}"
            if is_now not in identified:
                identified[is_now] = identified_file(is_now)
            lines += _difference(where, prepared[was], identified[is_now])
    return lines


def _difference(where: str, old: InputFile, new: InputFile) -> list[str]:
    """Return a description of how a file differs from the prepared one, if it does."""
    if old.sha256 is None or new.sha256 is None:
        return (
            [] if old.path == new.path else [f"{where} was {old.path} and now is {new.path}, which cannot be compared"]
        )
    if old.sha256 == new.sha256:
        return []
    if old.path != new.path:
        return [f"{where} was {old.path} and now is {new.path}, which has other content"]
    if old.bytes != new.bytes:
        return [f"{where}: {new.path} has {new.bytes} bytes, the prepared data was made of {old.bytes}"]
    return [f"{where}: {new.path} has the same size as before but other content"]


def _listed(paths: Sequence[str], others: Sequence[str]) -> str:
    """Return a list of paths for a message; if there are many, only those not among the others."""
    if len(paths) <= MOST_LISTED:
        return ", ".join(paths) or "none"
    known = {*others}
    own = [path for path in paths if path not in known]
    if not own:
        return "all of them among the others"
    return "among them " + ", ".join(own[:MOST_LISTED]) + (" and more" if len(own) > MOST_LISTED else "")


def _weights(standing: Sequence[Sequence[str]], weights: Sequence[float]) -> dict[str, float]:
    """Return the weight of every file.

    Args:
        standing: The files of each entry of `data.pairs`.
        weights: One for each entry, or none at all.

    Raises:
        ConfigError: If a file belongs to several entries with different weights.
    """
    by_file: dict[str, float] = {}
    for files, weight in zip(standing, weights, strict=True) if weights else ():
        for file in files:
            if by_file.setdefault(file, weight) != weight:
                raise ConfigError(
                    f"data.weights: {file} is in data.pairs more than once, with the weights {by_file[file]} and "
                    f"{weight}; name it once"
                )
    return by_file


def _paths(data: DataConfig) -> list[str]:
    return [path for role in ROLES for path in getattr(data, role)]


def is_pipe(path: str) -> bool:
    """Return whether a path is standard input, or a pipe or device, which can be read only once."""
    return path == "-" or (os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path))


def identified_file(path: str) -> InputFile:
    """Return the identity of a file, which is read for it.

    Raises:
        DataError: If it cannot be read.
    """
    # Hashing a pipe would consume its text.
    if not os.path.isfile(path):
        return InputFile(path, None, None)
    with os_error_as(DataError, f"cannot read {path}"), open(path, "rb") as file:
        return InputFile(path, os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())
