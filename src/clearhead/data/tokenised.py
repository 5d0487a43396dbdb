"""Tokenisation of cleaned pairs into a store; of the training text in pieces, by several processes or a Ray cluster.

The pieces depend on the text alone, and each becomes a part of the store. So the store and all counts are the same for
any number of processes, and for work that was ended and continued.
"""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import closing, contextmanager
from dataclasses import asdict
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.config import Config, DecodeConfig
from clearhead.data.augment import KINDS, altered
from clearhead.data.clean import CleaningReport
from clearhead.data.hold_out import side_keys
from clearhead.data.inputs import source_language
from clearhead.data.staged_corpus import PROGRESS_EVERY, Piece, Progress, StagedCorpus
from clearhead.data.store import EpochWeights, StorePart, StoreWriter
from clearhead.errors import DataError
from clearhead.files import file_sha256, json_sha256, new_file
from clearhead.files.finished_steps import FinishedSteps
from clearhead.formats import SentencePair
from clearhead.runtime.ray_shards import Actors, run_here_or_on_ray
from clearhead.runtime.shards import FEWER_PROCESSES
from clearhead.text.line_statistics import LineCounter
from clearhead.text.placeholder_masking import Protected, protected_pair
from clearhead.text.word_links import Link, link_tokens, words_of
from clearhead.tokenizers import Vocabulary

LEAST_PAIRS = 25_000
"""Pairs for each process at least, which take it some five times as long as its start."""

_OfFiles = tuple[Mapping[str, float], Mapping[str, int]]
"""Weights and entries of files, by their paths; see `EpochWeights`."""


class TrainingCounts(NamedTuple):
    """What is counted of training pairs while they are tokenized."""

    report: CleaningReport
    """Counts of the pairs, from which those over the length limit are dropped."""
    lines: LineCounter
    weights: EpochWeights
    tokens: Counter[str]
    """Tokens of each side, end tokens included."""
    altered: Counter[str]
    """Altered copies, by kind; `report`, `weights` and `tokens` do not count them."""

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON values, for `add`."""
        return {
            "report": asdict(self.report),
            "lines": self.lines.to_dict(),
            "weights": self.weights.added(),
            "tokens": dict(self.tokens),
            "altered": dict(self.altered),
        }

    def add(self, following: Mapping[str, Any]) -> None:
        """Add the counts of the pairs that follow, by their `to_dict`."""
        self.report.add(CleaningReport(**following["report"]))
        self.lines.update(following["lines"])
        for run in following["weights"]:
            self.weights.add(*run)
        self.tokens.update(following["tokens"])
        self.altered.update(following["altered"])


class TokenisedPieces:
    """The training text in tokenised pieces, each a finished step.

    Args:
        steps: Where they are kept; `text` is finished.
        corpus: The training text, and the sides that must not be trained on, not even in altered copies.
        tokenizer: The vocabulary.
        config: The length limit, and the settings of the tokenizer and of copies.
        of_files: Weights and entries of files, by their paths; see `EpochWeights`.
    """

    def __init__(
        self, steps: FinishedSteps, corpus: StagedCorpus, tokenizer: Vocabulary, config: Config, of_files: _OfFiles
    ) -> None:
        self._steps, self._train, self._config, self._of_files = steps, corpus.train, config, of_files
        self._start = f"tokenised-{json_sha256([steps.sha256('text'), tokenizer.sha256])[:16]}-"
        start = steps.directory / self._start
        self._work = partial(_PieceTokenizer, start, tokenizer, config, of_files, corpus.forbidden)

    def make(self, on_progress: Progress, notice: Callable[[str], None], processes: int, actors: Actors | None) -> None:
        """Tokenize the pieces that are not finished, and altered copies of them; drop pairs over the length limit.

        Args:
            on_progress: Called after every piece.
            notice: Called with the number of pairs that were finished before, and with the speed of actors.
            processes: Processes that share the pieces; fewer, if the text is too short to repay their start.
            actors: Those of a Ray cluster that share them instead.
        """
        pieces = self._train.pieces
        missing = [asdict(piece) for piece in pieces if self._steps.get(self._name(piece.number)) is None]
        count = sum(piece["rows"] for piece in missing)
        done = sum(piece.rows for piece in pieces) - count
        if done:
            notice(f"{done:,} pairs were tokenised before")
        on_progress("tokenising", done)
        processes, began = max(1, min(processes, count // LEAST_PAIRS)), time.monotonic()
        results = run_here_or_on_ray(self._work, missing, processes=processes, actors=actors, advice=FEWER_PROCESSES)
        with closing(results):
            for number, (result, files) in results:
                self._steps.add(self._name(number), result, files)
                on_progress("tokenising", done := done + pieces[number].rows)
        if actors and count:
            notice(actors.speed("pairs", count, time.monotonic() - began))

    def join(self, store: StoreWriter) -> TrainingCounts:
        """Append all pieces to a store, then all altered copies, and return what was counted of them.

        Raises:
            DataError: If a piece was damaged or removed meanwhile.
        """
        counts, copies = _zero(self._config, self._of_files, self._train.report), list[StorePart]()
        needs_room = not self._has_room_for_both()
        for piece in self._train.pieces:
            name = self._name(piece.number)
            if (result := self._steps.get(name)) is None:
                raise DataError(f"{name} was damaged or removed meanwhile; the same command makes it again")
            first, *others = (StorePart(str(self._steps.directory / file), *rest) for file, *rest in result["parts"])
            store.append_part(first)
            copies += others
            counts.add(result["counts"])
            if needs_room:
                self._steps.remove(name, [first.path])
        for part in copies:
            store.append_part(part)
        return counts

    def _has_room_for_both(self) -> bool:
        """Return whether the disk has room for the store beside the pieces, which are then kept to the end."""
        size = sum(path.stat().st_size for path in self._steps.directory.glob(f"{self._start}*.arrow"))
        return size < shutil.disk_usage(self._steps.directory).free

    def _name(self, number: int) -> str:
        return f"{self._start}{number:08}"


class _PieceTokenizer:
    """Tokenizes pieces of the training text, and altered copies of them, each into a part of the store.

    Args:
        start: Where the parts are written, and how their names begin.
        tokenizer: As for `TokenisedPieces`, and so are the others.
    """

    def __init__(
        self, start: Path, tokenizer: Vocabulary, config: Config, of_files: _OfFiles, forbidden: Set[bytes]
    ) -> None:
        self._start, self._tokenizer, self._config = start, tokenizer, config
        self._of_files, self._forbidden = of_files, forbidden

    def __call__(self, shard: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        piece, counts = Piece(**shard), _zero(self._config, self._of_files, CleaningReport())
        parts: list[StorePart] = []
        with self._part(piece, "pairs", parts) as store:
            counts.tokens.update(
                fill(store, iter(piece), self._tokenizer, self._config, counts.report, counts.lines, counts.weights)
            )
        if self._config.data.augment:
            with self._part(piece, "copies", parts) as copies:
                self._add_altered(copies, piece, counts)
        files = {Path(part.path).name: file_sha256(part.path) for part in parts}
        named = [(Path(part.path).name, *part[1:]) for part in parts]
        return {"parts": named, "counts": counts.to_dict()}, files

    @contextmanager
    def _part(self, piece: Piece, name: str, parts: list[StorePart]) -> Iterator[StoreWriter]:
        path = self._start.with_name(f"{self._start.name}{piece.number:08}.{name}.arrow")
        with new_file(path) as new, StoreWriter(new, with_links=bool(self._config.data.alignments)) as store:
            yield store
        parts.append(store.as_part(path))

    def _add_altered(self, store: StoreWriter, piece: Piece, counts: TrainingCounts) -> None:
        """Append altered copies and count them, except those too long or among the forbidden sides."""
        data, seed = self._config.data, self._config.train.seed + piece.number
        copies = altered(piece, seed=seed, max_characters=data.max_characters)
        usable = ((kind, pair) for kind, pair in copies if self._forbidden.isdisjoint(side_keys(pair)))
        while some := list(islice(usable, PROGRESS_EVERY)):
            encoded = _encoded([pair for _, pair in some], self._tokenizer, self._config.decode)
            for (kind, _), (pair, source_ids, target_ids, links) in zip(some, encoded, strict=True):
                if max(len(source_ids), len(target_ids)) <= data.max_length:
                    store.append(pair.source, pair.target, source_ids, target_ids, links)
                    counts.lines.add_characters(pair.text, pair.target)
                    counts.altered[kind] += 1


def _zero(config: Config, of_files: _OfFiles, report: CleaningReport) -> TrainingCounts:
    lines, kinds = LineCounter(source_language(config)), KINDS if config.data.augment else ()
    return TrainingCounts(report, lines, EpochWeights(*of_files), Counter(), Counter(dict.fromkeys(kinds, 0)))


def fill(
    store: StoreWriter,
    pairs: Iterator[SentencePair],
    tokenizer: Vocabulary,
    config: Config,
    report: CleaningReport,
    lines: LineCounter | None = None,
    weights: EpochWeights | None = None,
) -> dict[str, int]:
    """Tokenize pairs into a store, drop those over the length limit, and return the tokens of each side."""
    tokens = {"source": 0, "target": 0}
    while some := list(islice(pairs, PROGRESS_EVERY)):
        for pair, source_ids, target_ids, links in _encoded(some, tokenizer, config.decode):
            if max(len(source_ids), len(target_ids)) > config.data.max_length:
                report.drop_kept("too_many_tokens", pair.origin)
                continue
            store.append(pair.source, pair.target, source_ids, target_ids, links)
            if lines is not None:
                lines.add(pair.text, pair.target, len(source_ids), len(target_ids))
            if weights is not None:
                weights.add_of(pair)
            tokens["source"] += len(source_ids)
            tokens["target"] += len(target_ids)
    return tokens


def _encoded(
    pairs: Sequence[SentencePair], tokenizer: Vocabulary, decode: DecodeConfig
) -> Iterator[tuple[SentencePair, list[int], list[int], list[Link]]]:
    """Yield each pair with the ids of both sides and the links of its tokens."""
    asked = decode.target_lang if tokenizer.tells_languages else None
    languages, texts = [pair.language or asked for pair in pairs], [(pair.text, pair.target) for pair in pairs]
    if tokenizer.num_placeholders:
        sides = [protected_pair(*both, with_numbers=decode.protect_numbers) for both in texts]
    else:
        sides = [(Protected(source), Protected(target)) for source, target in texts]
    parts = [(language, source.text) for language, (source, _) in zip(languages, sides, strict=True)]
    sources = tokenizer.encode_parts(parts, decode.source_lang)
    targets = tokenizer.encode_targets([target.text for _, target in sides], languages)
    for pair, (source, target), source_ids, target_ids in zip(pairs, sides, sources, targets, strict=True):
        links: list[Link] = []
        if pair.links:
            links = link_tokens(
                pair.links,
                source.restored_spans(source.text, tokenizer.source_spans(source_ids, source.text)),
                target.restored_spans(target.text, tokenizer.target_spans(target_ids, target.text)),
                words_of(pair.text),
                words_of(pair.target),
            )
        yield pair, source_ids, target_ids, links
