"""The segments of a document translated: which are, what became of each, and how sure the model is of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Unpack

from clearhead.config import DecodeChanges
from clearhead.decoding import Sampling
from clearhead.formats.document import MEMORY_NOTE, Document, Filling, Segment, Suggestion
from clearhead.runtime.version import __version__
from clearhead.text.icu_messages import MessageRun, message_runs
from clearhead.text.line_statistics import length_ratio
from clearhead.text.placeholders import words_alone
from clearhead.text.quality_flags import Flag, merge_flags
from clearhead.translation.alignment import alignment_head
from clearhead.translation.journal import TranslationJournal
from clearhead.translation.result import TERM_REASONS, MemoryMatch, Translation, join_translations
from clearhead.translation.terminology import Terms
from clearhead.translation.translator import Translator

__all__ = [
    "CHUNK_LINES",
    "TextLine",
    "TranslatedSegment",
    "fillings",
    "lines_to_translate",
    "matches_of",
    "origin_of",
    "text_lines",
    "translate_document",
]

CHUNK_LINES = 500
"""Lines translated between two entries in the journal: enough to sort by length, few enough to lose them."""

Status = Literal["translated", "kept", "without_words", "reused"]


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """What became of a segment."""

    segment: Segment
    status: Status
    """`kept`: it has a finished translation. `without_words`: there is nothing to translate. `reused`: its translation
    is that of a translation memory."""
    translation: Translation | None = None
    """If it was translated, or is reused."""

    @property
    def score_per_token(self) -> float | None:
        """As of `Translation`; None without one."""
        return None if self.translation is None else self.translation.score_per_token

    @property
    def length_ratio(self) -> float | None:
        """How many times longer the translation is than its source, short ones drawn towards 1; None without one."""
        return None if self.translation is None else length_ratio(self.segment.text, self.translation.text)


class TextLine(NamedTuple):
    """A line of a text, or of what has words in an ICU message with branches."""

    before: str
    """White space, and in a message its syntax."""
    text: str
    after: str
    """White space and the line end, and in a message its syntax."""
    has_words: bool
    run: MessageRun | None = None
    """In a message, what the line is of."""

    def written(self, translation: str) -> str | None:
        """Return a translation as the segment is to have it; None if it cannot be put into the message."""
        return translation if self.run is None else self.run.written(translation, self.text)


def translate_document(
    translator: Translator,
    document: Document,
    *,
    name: str = "",
    only_missing: bool = False,
    scores: bool = True,
    sampling: Sampling | None = None,
    mbr: int | None = None,
    terms: Terms | None = None,
    matches: Mapping[int, MemoryMatch] = MappingProxyType({}),
    journal: TranslationJournal | None = None,
    chunk_lines: int = CHUNK_LINES,
    on_progress: Callable[[int], None] | None = None,
    **settings: Unpack[DecodeChanges],
) -> list[TranslatedSegment]:
    """Translate the segments of a document, each line of a segment by itself, equal ones once.

    White space around lines and between them stays. Of an ICU message with branches (plural, select) each stretch of
    words is translated by itself, and all else in it stays; one that comes back without its arguments stays too, and
    is flagged. Segments without a word, such as numbers or placeholders alone, are left as they are.

    Args:
        translator: A model, or a team.
        document: What was read.
        name: File it was read from, for messages.
        only_missing: Leave segments as they are that have a finished translation.
        scores: As of `Translator.translate`, like `sampling`, `mbr` and the settings.
        sampling: As there.
        mbr: As there.
        terms: As there.
        matches: As of `matches_of`; those that are to be reused are not translated.
        journal: Keeps what is done, and has what was; opened for `origin_of` the same translator and settings.
        chunk_lines: Lines that are translated between two entries in it.
        on_progress: Called with the number of lines finished, of those that `lines_to_translate` returns.
        **settings: As there.

    Raises:
        ConfigError: As `Translator.translate`, naming the line of the segment.
        DataError: As there; or if the journal cannot be written.
        ModelError: As there.
    """
    how: dict[str, Any] = {"scores": scores, "sampling": sampling, "mbr": mbr, **settings}
    if terms is not None:
        how["terms"] = terms
    translator.translate([], **how)  # an impossible setting is refused first
    target_lang = translator.decode_config(settings).target_lang
    for segment, parts in _with_words(document, only_missing, matches):
        for part in parts:  # so that the line of the file is named
            translator.speller.split_sources([part.text], target_lang, name=name, first=segment.line)
    lines = lines_to_translate(document, only_missing=only_missing, matches=matches)
    done = {line: journal.translations[line] for line in lines if line in journal.translations} if journal else {}
    if on_progress is not None and done:
        on_progress(len(done))
    waiting = (line for line in lines if line not in done)
    while chunk := list(islice(waiting, chunk_lines)):
        translations = translator.translate(chunk, one_line=True, name=name, on_progress=on_progress, **how)
        if journal is not None:
            journal.add(translations)
        done.update(zip(chunk, translations, strict=True))
    return [
        _translated(segment, only_missing, done, matches.get(place)) for place, segment in enumerate(document.segments)
    ]


def matches_of(
    document: Document, match: Callable[[str], MemoryMatch | None], *, only_missing: bool = False
) -> dict[int, MemoryMatch]:
    """Return what a translation memory has for the segments with words, by their places.

    Args:
        document: What was read.
        match: Returns what it has for a text.
        only_missing: Leave out segments that have a finished translation.
    """
    found = (
        (place, match(segment.text))
        for place, segment in enumerate(document.segments)
        if not (only_missing and segment.is_finished) and any(part.has_words for part in _parts(segment.text))
    )
    return {place: one for place, one in found if one is not None}


def lines_to_translate(
    document: Document, *, only_missing: bool = False, matches: Mapping[int, MemoryMatch] = MappingProxyType({})
) -> list[str]:
    """Return the different lines with words of the segments of a document that are not reused, in order."""
    wanted = (part.text for _, parts in _with_words(document, only_missing, matches) for part in parts)
    return list(dict.fromkeys(wanted))


def fillings(translated: Sequence[TranslatedSegment]) -> list[Filling | None]:
    """Return what `Document.filled` takes: translations, and what whoever reads the document should know of them."""
    return [None if one.translation is None else _filling(one.translation) for one in translated]


def _filling(translation: Translation) -> Filling:
    match = translation.memory
    notes = []
    suggestion = None
    if match is not None:
        suggestion = Suggestion(match.source, match.target, match.similarity, is_used=match.is_reused)
        notes.append(f"{MEMORY_NOTE}, {suggestion.percent} %: " + ("reused" if match.is_reused else str(suggestion)))
    for use in translation.terms or ():
        if not use.form:
            notes.append(f"term missed: {use.source} -> {use.target} ({TERM_REASONS[use.reason or 'unmet']})")
    return Filling(translation.text, "\n".join(map(_on_one_line, notes)), suggestion)


def _on_one_line(text: str) -> str:
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def origin_of(
    translator: Translator,
    *,
    scores: bool = True,
    sampling: Sampling | None = None,
    mbr: int | None = None,
    terms: Terms | None = None,
    **settings: Unpack[DecodeChanges],
) -> dict[str, Any]:
    """Return what makes the translations of a `TranslationJournal`; what is computed at once changes none.

    Args:
        translator: A model from a directory, or a team.
        scores: As of `translate_document`, like all others.
        sampling: As there.
        mbr: As there.
        terms: As there.
        **settings: As there.

    Raises:
        ConfigError: If a setting is unknown or impossible.
        ModelError: If what says which head places markup is damaged, or another model's.
    """
    bundles = translator.bundle, *translator.ensemble
    config = translator.decode_config(settings)
    heads = [alignment_head(bundle) for bundle in bundles] if translator.places_markup(config) else []
    return {
        "version": __version__,
        "models": [[bundle.model_sha256, bundle.tokenizer.sha256] for bundle in bundles],
        "info": translator.bundle.info,  # such as what the training lines were like
        "settings": config.model_dump(mode="json", exclude={"batch_tokens"}),
        "heads": heads,
        "scores": scores,
        "sampling": None if sampling is None else sampling.model_dump(mode="json"),
        "mbr": mbr,
        **({} if terms is None else {"terms": [[term.source, *term.forms] for term in terms.terms]}),
    }


def _with_words(
    document: Document, only_missing: bool, matches: Mapping[int, MemoryMatch]
) -> Iterator[tuple[Segment, list[TextLine]]]:
    """Yield the segments to translate, each with its lines that have words."""
    for place, segment in enumerate(document.segments):
        is_reused = place in matches and matches[place].is_reused
        if not is_reused and not (only_missing and segment.is_finished):
            yield segment, [part for part in _parts(segment.text) if part.has_words]


def _parts(text: str) -> Iterator[TextLine]:
    at = 0
    for run in message_runs(text):
        for number, part in enumerate(text_lines(run.text)):
            before = text[at : run.start] if number == 0 else ""
            yield part._replace(before=before + part.before, run=run)
        at = run.end
    if at:
        yield TextLine(text[at:], "", "", has_words=False)
    else:
        yield from text_lines(text)


def text_lines(text: str) -> Iterator[TextLine]:
    """Yield the lines of a text, each with the white space around it."""
    for line in text.splitlines(keepends=True):
        own = line.strip()
        start = len(line) - len(line.lstrip())
        yield TextLine(line[:start], own, line[start + len(own) :], any(map(str.isalpha, words_alone(own))))


def _translated(
    segment: Segment, only_missing: bool, done: Mapping[str, Translation], match: MemoryMatch | None
) -> TranslatedSegment:
    if only_missing and segment.is_finished:
        return TranslatedSegment(segment, "kept")
    if match is not None and match.is_reused:
        own = segment.text.strip()
        start = segment.text.index(own)
        text = segment.text[:start] + match.target + segment.text[start + len(own) :]
        return TranslatedSegment(segment, "reused", Translation(segment.text, text, None, (), memory=match))
    parts = list(_parts(segment.text))
    if not any(part.has_words for part in parts):
        return TranslatedSegment(segment, "without_words")
    text, made, unfit = "", [], []
    for part in parts:
        words = part.written(done[part.text].text if part.has_words else part.text)
        if words is None:
            unfit.append(part.text)
        if part.has_words:
            made.append(_left(done[part.text]) if words is None else done[part.text])
        text += part.before + (part.written(part.text) or "" if words is None else words) + part.after
    whole = made[0] if len(made) == 1 else join_translations(segment.text, made, [" "] * (len(made) - 1))
    if unfit:
        kept = Flag("placeholders", f"left as it was, for its translation lacks an argument: {'; '.join(unfit)}")
        whole = replace(whole, warnings=merge_flags([whole.warnings, [kept]]))
    return TranslatedSegment(segment, "translated", replace(whole, source=segment.text, text=text, memory=match))


def _left(translation: Translation) -> Translation:
    """Return a translation that is not used, so that it has no terms."""
    if translation.terms is None:
        return translation
    return replace(translation, terms=tuple(replace(use, form="", reason="left") for use in translation.terms))
