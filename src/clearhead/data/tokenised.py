"""Tokenisation of cleaned pairs into a store; of the training text in pieces, by several processes.

The pieces depend on the text alone, and each becomes a part of the store. So the store and all counts are the same for
any number of processes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import closing
from functools import partial
from itertools import islice
from typing import NamedTuple

from clearhead.config import Config, DecodeConfig
from clearhead.data.augment import KINDS, altered
from clearhead.data.clean import CleaningReport
from clearhead.data.hold_out import side_keys
from clearhead.data.inputs import source_language
from clearhead.data.staged_corpus import PROGRESS_EVERY, Piece, Progress, StagedCorpus
from clearhead.data.store import EpochWeights, StorePart, StoreWriter
from clearhead.formats import SentencePair
from clearhead.runtime.shards import run_shards
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

    def add(self, following: TrainingCounts) -> None:
        """Add the counts of the pairs that follow."""
        self.report.add(following.report)
        self.lines.update(following.lines)
        self.weights.extend(following.weights)
        self.tokens.update(following.tokens)
        self.altered.update(following.altered)


def fill_with_training_text(
    store: StoreWriter,
    corpus: StagedCorpus,
    tokenizer: Vocabulary,
    config: Config,
    weights: Mapping[str, float],
    entries: Mapping[str, int],
    *,
    on_progress: Progress,
    processes: int,
) -> TrainingCounts:
    """Tokenize the training text into a store, then altered copies of it; drop pairs over the length limit, count all.

    Args:
        store: Where the pairs are appended.
        corpus: The training text, and the sides that must not be trained on, not even in altered copies.
        tokenizer: The vocabulary.
        config: The length limit, and the settings of the tokenizer and of copies.
        weights: Weights of files, by their paths.
        entries: As for `EpochWeights`.
        on_progress: Called after every piece.
        processes: Processes that share the pieces; fewer, if the text is too short to repay their start.
    """
    train, counts = corpus.train, _zero(config, (weights, entries), corpus.train.report)
    work = partial(_PieceTokenizer, tokenizer, config, (weights, entries), corpus.forbidden)
    processes = max(1, min(processes, train.report.kept // LEAST_PAIRS))
    copies: list[StorePart] = []
    on_progress("tokenising", done := 0)
    with closing(run_shards(work, train.pieces, workers=processes)) as results:
        for piece, (parts, counted) in zip(train.pieces, results, strict=True):
            store.append_part(parts[0])
            copies += parts[1:]
            counts.add(counted)
            on_progress("tokenising", done := done + piece.rows)
    for part in copies:
        store.append_part(part)
    return counts


class _PieceTokenizer:
    """Tokenizes pieces of the training text, and altered copies of them, each into a part of the store."""

    def __init__(self, tokenizer: Vocabulary, config: Config, weights: _OfFiles, forbidden: Set[bytes]) -> None:
        self._tokenizer, self._config, self._weights, self._forbidden = tokenizer, config, weights, forbidden

    def __call__(self, piece: Piece) -> tuple[list[StorePart], TrainingCounts]:
        counts = _zero(self._config, self._weights, CleaningReport())
        with self._store(piece, "pairs") as store:
            counts.tokens.update(
                fill(store, iter(piece), self._tokenizer, self._config, counts.report, counts.lines, counts.weights)
            )
        if not self._config.data.augment:
            return [store.part], counts
        with self._store(piece, "copies") as copies:
            self._add_altered(copies, piece, counts)
        return [store.part, copies.part], counts

    def _store(self, piece: Piece, name: str) -> StoreWriter:
        path = piece.path.with_name(f"{name}-{piece.number}.arrow")
        return StoreWriter(path, with_links=bool(self._config.data.alignments))

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


def _zero(config: Config, weights: _OfFiles, report: CleaningReport) -> TrainingCounts:
    lines, kinds = LineCounter(source_language(config)), KINDS if config.data.augment else ()
    return TrainingCounts(report, lines, EpochWeights(*weights), Counter(), Counter(dict.fromkeys(kinds, 0)))


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
