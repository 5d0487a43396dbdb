"""Which lines are translated sentence by sentence, and what is then translated in one go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from clearhead.config import DecodeConfig
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import Protected, protect
from clearhead.text.sentence_splitting import CutLine
from clearhead.tokenizers import Vocabulary

__all__ = ["Piece", "Pieces", "align_samples", "cut_lines"]

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Piece:
    """What is translated in one go: a line, or a sentence of one that is split."""

    source: str
    """As a line of its own: behind the language tag, if its line has one."""
    text: str
    """Without the tag."""
    ids: list[int]
    sentences: int
    """How many it has."""
    protected: Protected
    """The text as it is spelled, and what its signs stand for."""
    language: str | None = None
    """Which it is to be translated into, where its line or a setting says so."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """Lines, cut into what is translated in one go."""

    pieces: list[Piece]
    """Of all lines, in order."""
    gaps: list[tuple[str, ...]]
    """For each line the white space between its pieces; one that is whole has none."""

    def of_lines(self, results: Sequence[T]) -> list[Sequence[T]]:
        """Return, for each line, what was made of its pieces.

        Args:
            results: One for each piece.
        """
        at, found = 0, []
        for gaps in self.gaps:
            found.append(results[at : at + len(gaps) + 1])
            at += len(gaps) + 1
        return found

    def first_of_lines(self, values: Sequence[T], rest: T) -> list[T]:
        """Return for each piece the value of its line if it is the first of it, else `rest`."""
        return [one for value, gaps in zip(values, self.gaps, strict=True) for one in (value, *[rest] * len(gaps))]

    def lines_done(self, on_progress: Callable[[int], None] | None) -> Callable[[int], None] | None:
        """Return what is told of finished pieces, and tells of about as many lines as that makes; blank ones count not.

        Args:
            on_progress: Told of lines.
        """
        if on_progress is None or not any(self.gaps):
            return on_progress
        tell = on_progress
        total = sum(bool(piece.text.strip()) for piece in self.pieces)
        lines = total - sum(map(len, self.gaps))
        done = 0

        def tell_of_lines(pieces: int) -> None:
            nonlocal done
            before, done = done * lines // total, done + pieces
            if advance := done * lines // total - before:
                tell(advance)

        return tell_of_lines


def cut_lines(
    lines: Sequence[str],
    parts: Sequence[tuple[str | None, str]],
    cuts: Sequence[CutLine],
    tokenizer: Vocabulary,
    config: DecodeConfig,
    trained: LineStatistics | None,
    whole: Sequence[bool] = (),
    unprotected: Sequence[bool] = (),
) -> Pieces:
    """Cut lines into sentences, those that are not to be translated whole; each gets the language of its line.

    With `always` these are all lines of several sentences; with `auto` those of them that are longer than what the
    model was trained on (`LineStatistics.covers`), or than what is read at all.

    Args:
        lines: Source lines.
        parts: The language and the text of each, as of `Tokenizer.split_sources`.
        cuts: The sentences of each.
        tokenizer: Spells lines and sentences.
        config: Of which `split`, `max_input_tokens` and `protect_numbers` count.
        trained: What the training lines were like; None if that is not known.
        whole: For each line whether it stays whole in any case; none does if not given.
        unprotected: For each line whether its placeholders are spelled as text, as those of all lines are by a
            vocabulary that has no tokens for them.

    Raises:
        DataError: If a line holds half of a surrogate pair.
    """
    signs = [0 if is_text else tokenizer.num_placeholders for is_text in unprotected or [False] * len(parts)]
    numbers = config.protect_numbers
    protected = [
        protect(text, num_signs, with_numbers=numbers) for (_, text), num_signs in zip(parts, signs, strict=True)
    ]
    # Whole at first, so that a message counts lines.
    spelled = _spelled(zip((language for language, _ in parts), protected, strict=True), tokenizer, config)
    are_cut = [
        not stays and _is_cut(len(cut.sentences), len(ids), config, trained)
        for cut, ids, stays in zip(cuts, spelled, whole or [False] * len(cuts), strict=True)
    ]
    new = [
        (language, protect(sentence, num_signs, with_numbers=numbers))
        for (language, _), cut, is_cut, num_signs in zip(parts, cuts, are_cut, signs, strict=True)
        if is_cut
        for sentence in cut.sentences
    ]
    respelled = iter(zip(new, _spelled(new, tokenizer, config), strict=True))
    pieces: list[Piece] = []
    for line, (language, text), own, ids, cut, is_cut in zip(
        lines, parts, protected, spelled, cuts, are_cut, strict=True
    ):
        if is_cut:
            tag = line[: len(line) - len(text)]
            for sentence, ((_, part), part_ids) in zip(cut.sentences, respelled, strict=False):
                pieces.append(Piece(tag + sentence, sentence, part_ids, 1, part, language))
        else:
            pieces.append(Piece(line, text, ids, len(cut.sentences), own, language))
    return Pieces(pieces, [cut.gaps if is_cut else () for cut, is_cut in zip(cuts, are_cut, strict=True)])


def _spelled(
    parts: Iterable[tuple[str | None, Protected]], tokenizer: Vocabulary, config: DecodeConfig
) -> list[list[int]]:
    return tokenizer.encode_parts([(language, one.text) for language, one in parts], config.source_lang)


def _is_cut(sentences: int, tokens: int, config: DecodeConfig, trained: LineStatistics | None) -> bool:
    if sentences == 1 or config.split == "never":
        return False
    if config.split == "always" or tokens > config.max_input_tokens:
        return True
    return trained is not None and not trained.covers(sentences, tokens)


def align_samples(groups: Sequence[Sequence[T]], log_prob: Callable[[T], float], seed: int) -> list[list[T]]:
    """Return the samples of a line's sentences such that those at the same place make a sample of the line.

    The samples of each sentence come in the order of their probability; a line of all the best, one of all the second
    best and so on would be no draw from the model. They are shuffled, and the lines then stand in that order.

    Args:
        groups: For each sentence its samples, equally many.
        log_prob: Of one of them.
        seed: Equal seeds shuffle alike.
    """
    shuffled = [
        random.Random(f"{seed} {number}").sample(list(group), len(group)) for number, group in enumerate(groups)
    ]
    rows = sorted(zip(*shuffled, strict=True), key=lambda row: -sum(map(log_prob, row)))
    return [list(column) for column in zip(*rows, strict=True)]
