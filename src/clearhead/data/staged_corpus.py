"""The corpus read, cleaned and split: from text files to files of pairs that the next steps of preparation read.

Text is stored in JSON-lines files, so that memory holds only digests.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from clearhead.config import Config, DataConfig
from clearhead.config.choices import HoldOut
from clearhead.data.clean import DOCTOR, CleaningReport, clean, key_digest
from clearhead.data.doctor.checks import ONE_LANGUAGE_KINDS
from clearhead.data.doctor.cleaning import Cleaning
from clearhead.data.hold_out import choose_held_out, choose_rows, side_keys, without
from clearhead.data.inputs import Inputs
from clearhead.errors import ConfigError, DataError
from clearhead.files import display_name, new_file
from clearhead.formats import SentencePair
from clearhead.runtime.ray_shards import Actors, run_here_or_on_ray
from clearhead.text.languages import split_tag

_FIELDS = ("source", "target", "origin", "language", "text_at", "defect", "skipped")


PIECE_ROWS = 8_192
"""Rows of a piece, the share of a text that one process works on at a time."""

PAIRS_HELD_OUT_FROM = 150_000
"""Pairs to hold out from for each process at least, which take it some times as long as its start."""


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file of `StagedPairs`."""

    path: str
    start: int
    """Byte of the file at which the first row begins."""
    rows: int
    number: int
    """Number of the piece in its text, counted from 0."""

    def __iter__(self) -> Iterator[SentencePair]:
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for line in itertools.islice(file, self.rows):
                fields = json.loads(line)
                pair, links = SentencePair(*fields[: len(_FIELDS)]), fields[len(_FIELDS) :]
                yield replace(pair, links=tuple(map(tuple, links[0]))) if links else pair


@dataclass(frozen=True)
class StagedPairs:
    """A file of rows, mostly cleaned pairs; it can be iterated over repeatedly."""

    path: Path
    """File to write. JSON lines: the fields of a `SentencePair`, its links last, if it has any."""
    report: CleaningReport = field(default_factory=CleaningReport)
    """Counts of the pairs read for this file."""
    pieces: list[Piece] = field(default_factory=list)
    """The rows in pieces of at most `PIECE_ROWS`, once they are written; possibly each in a file of its own."""

    def write(self, pairs: Iterable[SentencePair]) -> None:
        """Write pairs to a new file."""
        pairs = iter(pairs)
        with open(self.path, "wb") as file:
            while some := list(itertools.islice(pairs, PIECE_ROWS)):
                self.pieces.append(Piece(str(self.path), file.tell(), len(some), len(self.pieces)))
                for pair in some:
                    # JSON escapes line feeds and carriage returns, so that each pair is one line whatever its text
                    # contains.
                    fields: list[Any] = [getattr(pair, name) for name in _FIELDS]
                    fields += [pair.links] if pair.links else []
                    file.write(json.dumps(fields, ensure_ascii=False).encode() + b"\n")

    def __iter__(self) -> Iterator[SentencePair]:
        return itertools.chain.from_iterable(self.pieces)

    @property
    def files(self) -> list[Path]:
        """The files of the pieces."""
        return [Path(path) for path in dict.fromkeys(piece.path for piece in self.pieces)]

    def remove(self) -> None:
        """Remove the file."""
        self.path.unlink()

    def to_dict(self) -> dict[str, Any]:
        """Return the counts, and what and where the pieces are, as JSON values."""
        pieces = [(Path(piece.path).name, piece.start, piece.rows) for piece in self.pieces]
        return {"file": self.path.name, "report": asdict(self.report), "pieces": pieces}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], directory: Path) -> Self:
        """Return what `to_dict` described, from files that are in a directory now."""
        pieces = [
            Piece(str(directory / name), start, rows, number)
            for number, (name, start, rows) in enumerate(values["pieces"])
        ]
        return cls(directory / values["file"], CleaningReport(**values["report"]), pieces)

    def of_rows(self, rows: set[int]) -> Iterator[SentencePair]:
        """Return the pairs of some rows, in order."""
        return (pair for row, pair in enumerate(self) if row in rows)


Item = TypeVar("Item")
Progress = Callable[[str, int], None]
"""Called with the name of a stage and the number of items done."""

PROGRESS_EVERY = 1_000


class StagedCorpus(NamedTuple):
    """All text of a run, cleaned and split."""

    train: StagedPairs
    valid: StagedPairs
    general: StagedPairs
    watched: set[int]
    """Rows of general text that are held out."""
    forbidden: set[bytes]
    """Digests of every side that must not be trained on."""
    lines: dict[str, int]
    """Number of lines of every file."""
    held_out_by: HoldOut | None
    """How the validation pairs were held out; None if they were given."""

    @property
    def files(self) -> list[Path]:
        """All files of it."""
        return [file for text in (self.train, self.valid, self.general) for file in text.files]

    def to_dict(self) -> dict[str, Any]:
        """Return all that is not in the files, as JSON values."""
        texts = {name: text.to_dict() for name, text in self._asdict().items() if isinstance(text, StagedPairs)}
        forbidden = sorted(key.hex() for key in self.forbidden)
        return {**self._asdict(), **texts, "watched": sorted(self.watched), "forbidden": forbidden}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], directory: Path) -> Self:
        """Return what `to_dict` described, from files that are in a directory now."""
        texts = {name: StagedPairs.from_dict(values[name], directory) for name in ("train", "valid", "general")}
        forbidden = set(map(bytes.fromhex, values["forbidden"]))
        return cls(**{**values, **texts, "watched": {*values["watched"]}, "forbidden": forbidden})

    @property
    def held_out(self) -> dict[str, Any]:
        """Whether and how the validation pairs were held out, for the report."""
        how = {} if self.held_out_by is None else {"held_out_by": self.held_out_by}
        return {"valid_held_out": self.train.report.held_out > 0, **how}


def read_corpus(
    config: Config,
    inputs: Inputs,
    directory: Path,
    on_progress: Progress,
    notice: Callable[[str], None],
    processes: int,
    actors: Actors | None,
) -> StagedCorpus:
    """Read, clean and split all text into files of a directory.

    Args:
        config: The settings for cleaning.
        inputs: The opened files.
        directory: Where the files are written.
        on_progress: Called about every thousand items.
        notice: Called with findings of `data.fix` and `data.drop` that cannot be looked for.
        processes: Processes that share the work, as far as the size of the text repays their start.
        actors: Those of a Ray cluster that share it instead.

    Raises:
        DataError: If no pair is left.
    """
    data, tags, seed = config.data.by_use, config.tokenizer.language_tags, config.train.seed
    train, valid, general = (StagedPairs(directory / f"{name}.jsonl") for name in ("train", "valid", "general"))
    lines: dict[str, int] = {}
    forbidden: set[bytes] = set()
    watched: set[int] = set()
    held_out_by: HoldOut | None = None

    def usable(
        pairs: Iterable[SentencePair], stage: str, staged: StagedPairs, unless: set[bytes]
    ) -> Iterator[SentencePair]:
        rows = with_progress(_counting_lines(pairs, lines), stage, on_progress)
        if staged is not valid and (data.fix or data.drop):
            rows = _doctored(rows, data, staged, on_progress, notice)
        return clean(rows, data, forbidden=unless, report=staged.report, language_tags=tags)

    def forbid(pairs: Iterable[SentencePair]) -> None:
        forbidden.update(key for pair in pairs for key in side_keys(pair))

    for path, segments in inputs.excluded:
        for number, segment in with_progress(segments, f"reading {path}", on_progress):
            lines[path] = number
            _, text = split_tag(segment, tags)
            if text.strip():
                forbidden.add(key_digest(text))
    if inputs.valid_pairs is not None:
        valid.write(usable(inputs.valid_pairs, "reading validation text", valid, set()))
        refuse_empty("validation", data, valid.report)
        forbid(valid)
    if inputs.general is not None:
        general.write(usable(inputs.general, "reading general text", general, forbidden))
        refuse_empty("general", data, general.report)
        watched = choose_rows(general.report.kept, data.valid_size, seed=seed, what="general text")
        forbid(general.of_rows(watched))

    kept = usable(inputs.pairs, "reading and cleaning", train, forbidden)
    if inputs.valid_pairs is not None:
        train.write(kept)
    else:
        all_kept, sizes = StagedPairs(train.path.with_name("kept.jsonl")), dict[str, int]()
        all_kept.write(_counted_by_file(kept, sizes))
        refuse_empty("training", data, train.report)
        held_out_by, rows = choose_held_out(data.hold_out, sizes, data.valid_size, seed=seed)
        valid.write(all_kept.of_rows(rows))
        valid.report.read = valid.report.kept = len(rows)
        forbid(valid)
        _hold_out(all_kept, rows, valid, train, on_progress, processes, actors)
        all_kept.remove()
    refuse_empty("training", data, train.report)

    sources = data.source + data.valid_source + data.general_source
    for source, target in zip(sources, data.target + data.valid_target + data.general_target, strict=True):
        lines[target] = lines.get(source, 0)
    for source, links in zip(data.source, data.alignments, strict=False):  # equal numbers, or the reader has raised
        lines[links] = lines.get(source, 0)
    return StagedCorpus(train, valid, general, watched, forbidden, lines, held_out_by)


def _hold_out(
    kept: StagedPairs,
    rows: set[int],
    valid: StagedPairs,
    train: StagedPairs,
    on_progress: Progress,
    processes: int,
    actors: Actors | None,
) -> None:
    """Divide the kept pairs into validation pairs and training pairs, and drop training pairs that share a side.

    Args:
        kept: All kept pairs.
        rows: The rows of the validation pairs.
        valid: The validation pairs.
        train: Receives the training pairs, in a file for each piece, and the counts.
        on_progress: Called after every piece.
        processes: Number of processes at most.
        actors: Those of a Ray cluster that do the work instead.
    """
    keys = frozenset(key for pair in valid for key in side_keys(pair))
    firsts = itertools.accumulate((piece.rows for piece in kept.pieces), initial=0)
    shards = [
        {**asdict(piece), "held_out": [row for row in range(piece.rows) if first + row in rows]}
        for first, piece in zip(firsts, kept.pieces, strict=False)
    ]
    processes = max(1, min(processes, train.report.kept // PAIRS_HELD_OUT_FROM))
    on_progress(stage := "holding out validation pairs", done := 0)
    work, rest = partial(_HoldingOut, train.path, keys), dict[int, Any]()
    with closing(run_here_or_on_ray(work, shards, processes=processes, actors=actors)) as results:
        for number, result in results:
            rest[number] = result
            on_progress(stage, done := done + shards[number]["rows"])
    for number in range(len(shards)):
        path, num_rows, report = rest[number]
        train.report.add(CleaningReport(**report))
        train.pieces.append(Piece(path, 0, num_rows, number))


class _HoldingOut:
    """Writes the training pairs of a piece into a file of their own.

    Args:
        path: The file of the training text, whose name those files extend.
        keys: Digests of the sides of all validation pairs.
    """

    def __init__(self, path: Path, keys: frozenset[bytes]) -> None:
        self._path, self._keys = path, keys

    def __call__(self, shard: Mapping[str, Any]) -> tuple[str, int, dict[str, Any]]:
        held_out, piece = {*shard["held_out"]}, Piece(*(shard[name] for name in ("path", "start", "rows", "number")))
        path = self._path.with_stem(f"{self._path.stem}-{piece.number}")
        with new_file(path) as new:
            rest = StagedPairs(new)
            rest.write(without(piece, held_out, self._keys, report=rest.report))
        return str(path), sum(written.rows for written in rest.pieces), asdict(rest.report)


def _doctored(
    rows: Iterable[SentencePair],
    data: DataConfig,
    staged: StagedPairs,
    on_progress: Progress,
    notice: Callable[[str], None],
) -> Iterator[SentencePair]:
    """Yield the rows that `Cleaning` mends or keeps, and count those that it drops.

    It reads the rows twice, so they are stored first.
    """
    raw = StagedPairs(staged.path.with_name(f"raw-{staged.path.name}"))
    raw.write(rows)
    on_progress("looking for what to mend", 0)
    examined = itertools.count(PROGRESS_EVERY, PROGRESS_EVERY)
    cleaning = Cleaning(raw, data.fix, data.drop, lambda _: on_progress("looking for what to mend", next(examined)))
    for line in cleaning.unchecked_lines():
        notice(line)
    for row in with_progress(cleaning.cleaned(), "mending", on_progress):
        if row.after is not None or not row.before.is_pair:
            yield row.after or row.before
        else:
            staged.report.read += 1
            staged.report.drop(DOCTOR + row.reasons[0], row.before.origin)
    staged.report.mended = dict(cleaning.changed)
    raw.remove()


def _counted_by_file(pairs: Iterable[SentencePair], sizes: dict[str, int]) -> Iterator[SentencePair]:
    for pair in pairs:
        path = pair.origin.rpartition(":")[0]
        sizes[path] = sizes.get(path, 0) + 1
        yield pair


def _counting_lines(pairs: Iterable[SentencePair], lines: dict[str, int]) -> Iterator[SentencePair]:
    for pair in pairs:
        path, _, number = pair.origin.rpartition(":")  # a display string; parsing it takes 0.13 s per million
        lines[path] = int(number)
        yield pair


def refuse_languages(config: Config) -> None:
    """Reject findings of language and script in text of several languages.

    Raises:
        ConfigError: If there are some.
    """
    asked = {*config.data.fix, *config.data.drop} & {*ONE_LANGUAGE_KINDS}
    if asked and config.tokenizer.language_tags:
        raise ConfigError(
            f"data.fix and data.drop: {', '.join(sorted(asked))} cannot be told in text of several languages "
            f"(tokenizer.language_tags); leave this out, and clean each language alone with `clearhead corpus clean`"
        )


def refuse_empty(what: str, data: DataConfig, report: CleaningReport) -> None:
    """Make sure that some pairs of a text are left.

    Args:
        what: `training`, `validation` or `general`.
        data: Names the files of the text.
        report: Counts of its pairs.

    Raises:
        DataError: If there are none.
    """
    if report.kept:
        return
    data = data.by_use
    names = {
        "training": data.source + data.target + data.pairs,
        "validation": data.valid_source + data.valid_target + data.valid_pairs,
        "general": data.general_source + data.general_target + data.general_pairs,
    }[what]
    files = ", ".join(map(display_name, names)) or "the pairs held out"
    if not report.read:
        raise DataError(f"empty corpus: there is no line in {files}")
    reasons = [
        f"{reason} {count} ({', '.join(report.examples[reason])})" for reason, count in report.dropped.items() if count
    ]
    if report.held_out:
        reasons.append(f"held out for validation {report.held_out}")
    raise DataError(
        f"empty corpus: none of the {report.read} {what} pairs of {files} is left; dropped: {'; '.join(reasons)}"
    )


def with_progress(items: Iterable[Item], stage: str, on_progress: Progress) -> Iterator[Item]:
    """Yield items, and report the number of those done, about every thousand."""
    count = 0
    on_progress(stage, count)
    for count, item in enumerate(items, start=1):
        if count % PROGRESS_EVERY == 0:
            on_progress(stage, count)
        yield item
    on_progress(stage, count)
