"""Split lines into sentences to translate, and regroup the results by line."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple, TypeVar

from clearhead.config import DecodeConfig
from clearhead.text.line_statistics import LineStatistics
from clearhead.text.placeholder_masking import Protected, protect
from clearhead.text.sentence_splitting import CutLine
from clearhead.tokenizers import Vocabulary
from clearhead.tokenizers.vocabulary import refuse_surrogates

T = TypeVar("T")

_CHARACTERS_OF_A_TOKEN = 64
"""Far more characters than the tokens of a text have on average."""


class Piece(NamedTuple):
    """A unit of translation: a whole line, or a sentence of a split line."""

    source: str
    """The text, preceded by the language tag if its line has one."""
    text: str
    """The text without the tag."""
    ids: list[int]
    sentences: int
    """Number of sentences in it."""
    protected: Protected
    """The text with its placeholders masked, and the originals of the masks."""
    language: str | None = None
    """Target language; None if neither its line nor a setting names one."""


class LinePart(NamedTuple):
    """A line, or a sentence of a line that is split."""

    number: int
    """Index of the line."""
    start: int
    """Offset in the line, including the white space before it."""
    end: int
    source: str
    """The text to translate: the part with the line's language tag, as normalized."""
    gap: str = ""
    """White space before it, if another sentence precedes it."""
    is_sentence: bool = False


class SegmentedLines(NamedTuple):
    """Lines split into units of translation."""

    pieces: list[Piece]
    """The pieces of all lines, in order."""
    gaps: list[tuple[str, ...]]
    """For each line the white space between its pieces; empty for a line that was not split."""

    def of_lines(self, results: Sequence[T]) -> list[Sequence[T]]:
        """Return the results of the pieces grouped by line.

        Args:
            results: One result for each piece.
        """
        at, found = 0, []
        for gaps in self.gaps:
            found.append(results[at : at + len(gaps) + 1])
            at += len(gaps) + 1
        return found

    def first_of_lines(self, values: Sequence[T], rest: T) -> list[T]:
        """Return one value for each piece: its line's value for the first piece of a line, `rest` for the others."""
        return [one for value, gaps in zip(values, self.gaps, strict=True) for one in (value, *[rest] * len(gaps))]

    def lines_done(
        self, on_progress: Callable[[int], None] | None, translated: Collection[int]
    ) -> Callable[[int], None] | None:
        """Return a progress callback that converts numbers of finished pieces to approximate numbers of lines.

        Args:
            on_progress: Called with the number of lines.
            translated: Indexes of the pieces to translate; lines without such a piece are not counted.
        """
        if on_progress is None or not any(self.gaps):
            return on_progress
        tell = on_progress
        own = set(translated)
        total = len(own)
        lines = sum(not own.isdisjoint(line) for line in self.of_lines(range(len(self.pieces))))
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
) -> SegmentedLines:
    """Split lines into sentences, unless they are to be translated whole; each sentence gets its line's language.

    With `always`, every line of several sentences is split. With `auto`, only those longer than the lines that the
    model was trained on (`LineStatistics.covers`), or longer than the input limit.

    Args:
        lines: Source lines.
        parts: Target language and text of each line, as returned by `Tokenizer.split_sources`.
        cuts: The sentences of each line.
        tokenizer: Tokenizes lines and sentences.
        config: Only `split`, `max_input_tokens`, `protect_numbers` and `source_lang` are used.
        trained: Statistics of the training lines; None if unknown.
        whole: For each line, whether it must not be split; if empty, none.
        unprotected: For each line, whether its placeholders are tokenized as text. If the vocabulary has no
            placeholder tokens, this is so for all lines.

    Raises:
        DataError: If a line contains an unpaired surrogate.
    """
    signs = [0 if is_text else tokenizer.num_placeholders for is_text in unprotected or [False] * len(parts)]
    numbers = config.protect_numbers
    protected = [
        protect(text, num_signs, with_numbers=numbers) for (_, text), num_signs in zip(parts, signs, strict=True)
    ]
    # Tokenize whole lines first, so that an error message counts lines.
    encoded = _encoded(zip((language for language, _ in parts), protected, strict=True), tokenizer, config)
    are_cut = [
        not stays and _is_cut(len(cut.sentences), len(ids), config, trained)
        for cut, ids, stays in zip(cuts, encoded, whole or [False] * len(cuts), strict=True)
    ]
    new = [
        (language, protect(sentence, num_signs, with_numbers=numbers))
        for (language, _), cut, is_cut, num_signs in zip(parts, cuts, are_cut, signs, strict=True)
        if is_cut
        for sentence in cut.sentences
    ]
    retokenized = iter(zip(new, _encoded(new, tokenizer, config), strict=True))
    pieces: list[Piece] = []
    for line, (language, text), own, ids, cut, is_cut in zip(
        lines, parts, protected, encoded, cuts, are_cut, strict=True
    ):
        if is_cut:
            tag = line[: len(line) - len(text)]
            for sentence, ((_, part), part_ids) in zip(cut.sentences, retokenized, strict=False):
                pieces.append(Piece(tag + sentence, sentence, part_ids, 1, part, language))
        else:
            pieces.append(Piece(line, text, ids, len(cut.sentences), own, language))
    return SegmentedLines(pieces, [cut.gaps if is_cut else () for cut, is_cut in zip(cuts, are_cut, strict=True)])


def _encoded(
    parts: Iterable[tuple[str | None, Protected]], tokenizer: Vocabulary, config: DecodeConfig
) -> list[list[int]]:
    """Tokenize texts; of a text that is certainly longer than the input limit, the beginning alone.

    A word of a million characters would otherwise take 150 MB, of which the model reads the first `max_input_tokens`.
    """
    texts = [(language, one.text) for language, one in parts]
    most = _CHARACTERS_OF_A_TOKEN * config.max_input_tokens
    found = tokenizer.encode_parts([(language, text[:most]) for language, text in texts], config.source_lang)
    if long := [number for number, (_, text) in enumerate(texts) if len(text) > most]:
        refuse_surrogates([text for _, text in texts])
        for number in long:
            if len(found[number]) <= config.max_input_tokens:  # such as a long word that is one unknown token
                found[number] = tokenizer.encode_parts([texts[number]], config.source_lang)[0]
    return found


def _is_cut(sentences: int, tokens: int, config: DecodeConfig, trained: LineStatistics | None) -> bool:
    if sentences == 1 or config.split == "never":
        return False
    if config.split == "always" or tokens > config.max_input_tokens:
        return True
    return trained is not None and not trained.covers(sentences, tokens)


def align_samples(groups: Sequence[Sequence[T]], log_prob: Callable[[T], float], seed: int) -> list[list[T]]:
    """Return samples of a line's sentences reordered such that the i-th of each form a sample of the line.

    The samples of each sentence arrive sorted by probability. Combining all the best, all the second best and so on
    would not be draws from the model. So they are shuffled, and the resulting lines are sorted by probability.

    Args:
        groups: Samples of each sentence, equally many.
        log_prob: Returns the log-probability of a sample.
        seed: Seed of the shuffle.
    """
    shuffled = [
        random.Random(f"{seed} {number}").sample(list(group), len(group)) for number, group in enumerate(groups)
    ]
    rows = sorted(zip(*shuffled, strict=True), key=lambda row: -sum(map(log_prob, row)))
    return [list(column) for column in zip(*rows, strict=True)]
