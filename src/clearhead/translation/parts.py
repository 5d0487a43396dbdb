"""Translate lines part by part, so that each sentence of a long text is available as soon as it is translated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import NamedTuple, Unpack

from clearhead.config import DecodeChanges
from clearhead.text.languages import split_tag
from clearhead.text.sentence_splitting import space_before
from clearhead.tokenizers import require_texts
from clearhead.translation.memory import Lookup, Retrieve, left_to_translate, matches_of
from clearhead.translation.options import TranslateOptions
from clearhead.translation.result import Translation
from clearhead.translation.segment import SegmentedLine
from clearhead.translation.terminology import Terms
from clearhead.translation.translator import Translator, match_repairer

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


class _Part(NamedTuple):
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


def translate_parts(
    translator: Translator,
    lines: list[str],
    *,
    num_best: int = 1,
    terms: Terms | None = None,
    memory: Lookup | None = None,
    neighbours: Retrieve | None = None,
    reuse_from: float | None = None,
    alignments: bool = False,
    quality: bool = False,
    **settings: Unpack[DecodeChanges],
) -> Iterator[list[TranslatedPart]]:
    """Translate lines part by part; yield groups of parts, in order, as soon as they are translated.

    A line that `Translator.translate` splits has a part for each sentence, unless it must stay whole; every other line
    is a part. The parts of a line joined are the line; their texts joined are its translation.

    Args:
        translator: A translator, or a team.
        lines: Source lines.
        num_best: As for `Translator.translate`, like the following arguments.
        terms: Terms that translations must use.
        memory: Looks a line up in a translation memory.
        neighbours: Returns the pairs most similar to a text.
        reuse_from: Minimum similarity of a match that is repaired and reused.
        alignments: Align the words of each part with those of its translation.
        quality: Estimate the quality of each part's translation.
        **settings: Fields of `DecodeConfig` to change.

    Raises:
        ClearheadError: As `Translator.translate`.
    """
    lines = require_texts(lines, "lines")
    recall = None if memory is None else cache(memory)
    repairer = match_repairer(translator, reuse_from, terms, settings)
    matches = {number: repairer(lines[number], match) for number, match in matches_of(recall, lines).items()}
    to_translate = left_to_translate(lines, matches)
    read = translator.preprocessor(to_translate, translator.decode_config(settings), "", TranslateOptions())
    tags = list(translator.bundle.tokenizer.language_tags)
    parts = [
        part
        for number, line in enumerate(read)
        for part in ([] if repairer.needs_model(lines[number], matches.get(number)) else _sentences(number, line, tags))
        or [_Part(number, 0, len(lines[number]), lines[number])]
    ]
    consulting = partial(translator.translate, num_best=num_best, terms=terms, neighbours=neighbours)
    translate = partial(consulting, alignments=alignments, quality=quality)
    of_sentences: DecodeChanges = {**settings, "split": "never", "familiar": False}
    written = ""  # translation so far of the current line
    for group in _growing(parts):
        sources = [part.source for part in group]
        if group[0].is_sentence:
            translations = translate(sources, **of_sentences)
        else:
            translations = translate(sources, memory=recall, reuse_from=reuse_from, **settings)
        translated = []
        for part, translation in zip(group, translations, strict=True):
            written = written if part.start else ""
            text = space_before(translation.text, written, part.gap) + translation.text
            written += text
            translated.append(TranslatedPart(part.number, part.start, part.end, text, translation))
        yield translated


def _sentences(number: int, line: SegmentedLine, tags: Sequence[str]) -> list[_Part]:
    """Return the sentences of a line that can be translated one by one; none if it must stay whole.

    A line in capitals that is normalized stays whole, because the case of its translation depends on the whole. So does
    one with a list marker, and one with a sentence that begins like a language tag, which is text only within its line.

    Args:
        number: Index of the line.
        line: The line in segments.
        tags: Languages of the vocabulary.
    """
    if not line.is_split or line.form.in_capitals or line.form.marker:
        return []
    if any(split_tag(segment.source, tags)[1] != segment.text for segment in line.segments):
        return []
    sentences, start = [], 0
    at = len(line.source.rstrip()) - sum(len(segment.gap + segment.original) for segment in line.segments)
    for segment in line.segments:
        at += len(segment.gap + segment.original)
        sentences.append(_Part(number, start, at, segment.source, segment.gap, is_sentence=True))
        start = at
    sentences[-1] = sentences[-1]._replace(end=len(line.source))
    return sentences


def _growing(parts: Iterable[_Part]) -> Iterator[list[_Part]]:
    """Yield groups of parts to translate together, each all sentences or all lines; their sizes double."""
    size = 1
    for _, alike in groupby(parts, lambda part: part.is_sentence):
        own = list(alike)
        while own:
            yield own[:size]
            del own[:size]
            size = min(2 * size, MOST_PARTS_AT_ONCE)
