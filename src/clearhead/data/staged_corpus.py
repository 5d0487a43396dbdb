"""The corpus read, cleaned and split: from text files to files of pairs that the next steps of preparation read.

Text is stored in JSON-lines files, so that memory holds only digests.
"""

from __future__ import annotations

import itertools
import json
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar

from clearhead.config import Config, DataConfig
from clearhead.config.choices import HoldOut
from clearhead.data.clean import DIGEST_BYTES, DOCTOR, CleaningReport, clean, key_digest
from clearhead.data.doctor.checks import ONE_LANGUAGE_KINDS
from clearhead.data.doctor.cleaning import Cleaning
from clearhead.data.hold_out import choose_held_out, choose_rows, rows_among, side_keys
from clearhead.data.inputs import Inputs
from clearhead.errors import ConfigError, DataError
from clearhead.files import display_name
from clearhead.formats import SentencePair
from clearhead.runtime.shards import FEWER_PROCESSES, run_shards
from clearhead.text.languages import split_tag

_FIELDS = ("source", "target", "origin", "language", "text_at", "defect", "skipped")
_fields_of = operator.attrgetter(*_FIELDS)

PIECE_ROWS = 8_192
"""Rows of a piece, the share of a text that one process works on at a time."""

PAIRS_SHARED_FROM = 150_000
"""Pairs that are read before other processes start to share the work on them."""
_MOST_BESIDE_READING = 2
"""Most processes that compute digests while this process reads; each needs about as long for a piece as reading."""


@dataclass(frozen=True)
class Piece:
    """Consecutive rows of a file of `StagedPairs`."""

    path: str
    start: int
    """Byte of the file at which the first row begins."""
    rows: int
    number: int
    """Number of the piece in its text, counted from 0."""
    left_out: tuple[int, ...] = ()
    """Rows of the file, counted from the start of the piece, that no longer belong to it."""

    def __iter__(self) -> Iterator[SentencePair]:
        return self.of_rows({*range(self.rows + len(self.left_out))}.difference(self.left_out))

    def of_rows(self, rows: Set[int]) -> Iterator[SentencePair]:
        """Return the pairs of some rows of the file, counted from the start of the piece, in order."""
        with open(self.path, "rb") as file:
            file.seek(self.start)
            for row, line in enumerate(itertools.islice(file, self.rows + len(self.left_out))):
                if row in rows:
                    fields = json.loads(line.decode())
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
    """The rows in pieces of at most `PIECE_ROWS`, once they are written."""

    def write(self, pairs: Iterable[SentencePair]) -> None:
        """Write pairs to a new file."""
        for _ in self.written(pairs):
            pass

    def written(self, pairs: Iterable[SentencePair]) -> Iterator[Piece]:
        """Write pairs to a new file, and yield each piece as soon as it can be read."""
        pairs, encoded = iter(pairs), json.JSONEncoder(ensure_ascii=False).encode
        with open(self.path, "wb") as file:
            while some := list(itertools.islice(pairs, PIECE_ROWS)):
                self.pieces.append(Piece(str(self.path), file.tell(), len(some), len(self.pieces)))
                for pair in some:
                    # JSON escapes line feeds and carriage returns, so that each pair is one line whatever its text
                    # contains.
                    fields = [*_fields_of(pair), pair.links] if pair.links else _fields_of(pair)
                    file.write(encoded(fields).encode() + b"\n")
                file.flush()
                yield self.pieces[-1]

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
        pieces = [(Path(piece.path).name, piece.start, piece.rows, piece.left_out) for piece in self.pieces]
        return {"file": self.path.name, "report": asdict(self.report), "pieces": pieces}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], directory: Path) -> Self:
        """Return what `to_dict` described, from files that are in a directory now."""
        pieces = [
            Piece(str(directory / name), start, rows, number, left_out)
            for number, (name, start, rows, left_out) in enumerate(values["pieces"])
        ]
        return cls(directory / values["file"], CleaningReport(**values["report"]), pieces)

    def of_rows(self, rows: Set[int]) -> Iterator[SentencePair]:
        """Return the pairs of some rows, in order; no row must have been left out."""
        first = 0
        for piece in self.pieces:
            if own := {row for row in range(piece.rows) if first + row in rows}:
                yield from piece.of_rows(own)
            first += piece.rows

    def sample(self, most: int) -> Iterator[SentencePair]:
        """Return all pairs, in order; of a text of more than `most` pairs, every second piece alone, or every third."""
        return itertools.chain.from_iterable(self.pieces[:: max(1, -(-self.report.kept // most))])


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
) -> StagedCorpus:
    """Read, clean and split all text into files of a directory.

    Args:
        config: The settings for cleaning.
        inputs: The opened files.
        directory: Where the files are written.
        on_progress: Called about every thousand items.
        notice: Called with findings of `data.fix` and `data.drop` that cannot be looked for.
        processes: Processes that share the work, as far as the size of the text repays their start.

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
        sizes, side_keys_of_rows = dict[str, int](), directory / "side_keys"
        write_side_keys(train.written(_counted_by_file(kept, sizes)), side_keys_of_rows, processes)
        refuse_empty("training", data, train.report)
        held_out_by, rows = choose_held_out(data.hold_out, sizes, data.valid_size, seed=seed)
        on_progress("holding out validation pairs", 0)
        valid.write(train.of_rows(rows))
        valid.report.read = valid.report.kept = len(rows)
        forbid(valid)
        hold_out(train, rows, valid, side_keys_of_rows)
        side_keys_of_rows.unlink()
    refuse_empty("training", data, train.report)

    sources = data.source + data.valid_source + data.general_source
    for source, target in zip(sources, data.target + data.valid_target + data.general_target, strict=True):
        lines[target] = lines.get(source, 0)
    for source, links in zip(data.source, data.alignments, strict=False):  # equal numbers, or the reader has raised
        lines[links] = lines.get(source, 0)
    return StagedCorpus(train, valid, general, watched, forbidden, lines, held_out_by)


def write_side_keys(pieces: Iterator[Piece], path: Path, processes: int) -> None:
    """Write the `side_keys` of all rows, while the pieces are still being read.

    Args:
        pieces: Pieces that are written; the next one is read when other processes have enough to do.
        path: The file.
        processes: Number of other processes at most.
    """
    head = list(itertools.islice(pieces, -(-PAIRS_SHARED_FROM // PIECE_ROWS)))
    workers = min(processes, _MOST_BESIDE_READING) if len(head) * PIECE_ROWS >= PAIRS_SHARED_FROM else 1
    results = run_shards(_make_keys, itertools.chain(head, pieces), workers=workers, advice=FEWER_PROCESSES)
    with open(path, "wb") as file, closing(results):
        file.writelines(results)


def _make_keys() -> Callable[[Piece], bytes]:
    return lambda piece: b"".join(key for pair in piece for key in side_keys(pair))


def hold_out(train: StagedPairs, rows: Set[int], valid: Iterable[SentencePair], side_keys_of_rows: Path) -> None:
    """Leave the validation pairs out of the training text, and pairs that share a side with one.

    Args:
        train: The training text and its report.
        rows: The rows of the validation pairs.
        valid: The validation pairs.
        side_keys_of_rows: The file of `write_side_keys`.
    """
    keys, first = frozenset(key for pair in valid for key in side_keys(pair)), 0
    with open(side_keys_of_rows, "rb") as file:
        for place, piece in enumerate(train.pieces):
            held_out = {row for row in range(piece.rows) if first + row in rows}
            leaking = rows_among(file.read(piece.rows * 2 * DIGEST_BYTES), keys) - held_out
            for _ in held_out:
                train.report.hold_out()
            for pair in piece.of_rows(leaking):
                train.report.drop_kept("leakage", pair.origin)
            left_out = tuple(sorted(held_out | leaking))
            train.pieces[place] = replace(piece, rows=piece.rows - len(left_out), left_out=left_out)
            first += piece.rows


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
