"""Translate lines part by part, so that each sentence of a long text is available as soon as it is translated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any, Unpack

from clearhead.config import DecodeChanges
from clearhead.text.sentence_splitting import space_before
from clearhead.tokenizers import require_texts
from clearhead.translation.memory import Lookup, left_to_translate, matches_of
from clearhead.translation.result import Translation
from clearhead.translation.segmentation import LinePart
from clearhead.translation.terminology import Terms
from clearhead.translation.translator import Translator

MOST_PARTS_AT_ONCE = 16
"""Most parts translated together. The first group has one part, so that its translation is there early."""


@dataclass(frozen=True, slots=True)
class TranslatedPart:
    """The translation of a line, or of a sentence of a line that is split."""

    number: int
    """Index of the line."""
    start: int
    """Offset in the line, including the white space before it."""
    end: int
    text: str
    """Its translation, with the white space before it."""
    translation: Translation
    """Its translation alone, with score, tokens and warnings."""


def translate_parts(
    translator: Translator,
    lines: list[str],
    *,
    num_best: int = 1,
    terms: Terms | None = None,
    memory: Lookup | None = None,
    alignments: bool = False,
    quality: bool = False,
    **settings: Unpack[DecodeChanges],
) -> Iterator[list[TranslatedPart]]:
    """Translate lines part by part; yield groups of parts, in order, as soon as they are translated.

    A line that `Translator.translate` splits has a part for each sentence (`PreprocessedLines.sentences`), every other
    line is a part. The parts of a line joined are the line; their texts joined are its translation.

    Args:
        translator: A translator, or a team.
        lines: Source lines.
        num_best: As for `Translator.translate`, like the following arguments.
        terms: Terms that translations must use.
        memory: Looks a line up in a translation memory.
        alignments: Align the words of each part with those of its translation.
        quality: Estimate the quality of each part's translation.
        **settings: Fields of `DecodeConfig` to change.

    Raises:
        ClearheadError: As `Translator.translate`.
    """
    lines = require_texts(lines, "lines")
    recall = None if memory is None else cache(memory)
    to_translate = left_to_translate(lines, matches_of(recall, lines))
    read = translator.preprocessor(to_translate, translator.decode_config(settings))
    sentences = read.sentences(list(translator.bundle.tokenizer.language_tags))
    parts = [
        part
        for number, (line, own) in enumerate(zip(lines, sentences, strict=True))
        for part in own or [LinePart(number, 0, len(line), line)]
    ]
    asked = {"num_best": num_best, "terms": terms, "alignments": alignments, "quality": quality}
    how: dict[str, Any] = {**asked, **settings}
    of_sentences = {**how, "split": "never", "familiar": False}
    written = ""  # translation so far of the current line
    for group in _growing(parts):
        own_how = of_sentences if group[0].is_sentence else {**how, "memory": recall}
        found = []
        for part, made in zip(group, translator.translate([part.source for part in group], **own_how), strict=True):
            written = written if part.start else ""
            text = space_before(made.text, written, part.gap) + made.text
            written += text
            found.append(TranslatedPart(part.number, part.start, part.end, text, made))
        yield found


def _growing(parts: Iterable[LinePart]) -> Iterator[list[LinePart]]:
    """Yield groups of parts to translate together, each all sentences or all lines; their sizes double."""
    size = 1
    for _, alike in groupby(parts, lambda part: part.is_sentence):
        own = list(alike)
        while own:
            yield own[:size]
            del own[:size]
            size = min(2 * size, MOST_PARTS_AT_ONCE)
