"""Translate the segments of a document: selection, lines, journal, and the result of each segment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Literal, Unpack

from clearhead.bundle.model_directory import read_config
from clearhead.bundle.side_files import SHORTLIST_FILE
from clearhead.config import DecodeChanges
from clearhead.decoding import Sampling
from clearhead.formats.document import MEMORY_NOTE, Document, DocumentSegment, Filling, LengthLimit, Suggestion
from clearhead.formats.inline_tags import repaired_tags, tokens
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.version import full_version
from clearhead.text.format_strings import checked_format
from clearhead.text.icu_messages import message_runs
from clearhead.text.line_statistics import length_ratio
from clearhead.text.lines import first_few
from clearhead.text.placeholders import has_words
from clearhead.text.quality_flags import KINDS, MOST_SHOWN, Flag, merge_flags
from clearhead.text.translatable_lines import TextLine, segment_lines
from clearhead.translation.alignment import alignment_head
from clearhead.translation.journal import TranslationJournal
from clearhead.translation.markup_restoration import places_markup
from clearhead.translation.match_repair import NO_REPAIRS, MatchRepairer
from clearhead.translation.memory import Lookup, Retrieve, match_of
from clearhead.translation.quality import Calibration, calibration_of
from clearhead.translation.result import TERM_REASONS, MemoryMatch, Translation, join_translations
from clearhead.translation.terminology import Terms
from clearhead.translation.translator import Translator, match_repairer, target_language

CHUNK_LINES = 500
"""Lines translated between two journal entries: enough to sort by length, few enough to lose in a crash."""

Status = Literal["translated", "kept", "without_words", "reused", "left"]


@dataclass(frozen=True, slots=True)
class TranslatedSegment:
    """The result for one segment."""

    segment: DocumentSegment
    status: Status
    """`kept`: it already has a finished translation. `without_words`: it has nothing to translate. `reused`: its
    translation is that of a translation memory. `left`: its translation is not used, for its quality is below what was
    asked for."""
    translation: Translation | None = None
    """Set for `translated`, `reused` and `left`."""

    @property
    def score_per_token(self) -> float | None:
        """Log-probability per token, in nats (`Translation.score_per_token`); None without a translation."""
        return None if self.translation is None else self.translation.score_per_token

    @property
    def length_ratio(self) -> float | None:
        """Length of the translation divided by that of its source, smoothed towards 1 for short texts.

        None without a translation.
        """
        return None if self.translation is None else length_ratio(self.segment.text, self.translation.text)


def translate_document(
    translator: Translator,
    document: Document,
    *,
    name: str = "",
    only_missing: bool = False,
    scores: bool = True,
    quality: bool = False,
    only_if: float | None = None,
    sampling: Sampling | None = None,
    mbr: int | None = None,
    terms: Terms | None = None,
    memory: Lookup | None = None,
    neighbours: Retrieve | None = None,
    reuse_from: float | None = None,
    journal: TranslationJournal | None = None,
    finished: Mapping[str, Translation] | None = None,
    chunk_lines: int = CHUNK_LINES,
    on_progress: Callable[[int], None] | None = None,
    plain: bool = False,
    **settings: Unpack[DecodeChanges],
) -> list[TranslatedSegment]:
    """Translate the segments of a document line by line; equal lines are translated once.

    White space around and between lines is kept. In an ICU message with branches (plural, select), each run of words
    is translated by itself and the rest is kept. A run whose translation lacks its arguments is left untranslated and
    flagged. If a segment has a format, such as `c-format`, reordered arguments get numbers, and a segment whose
    translation lacks one, or has one of another type, is left untranslated and flagged. Segments that
    `Translator.translates` leaves as they are, such as numbers or placeholders alone, are not changed. If there is a
    translation, `Document.language` is set.

    Args:
        translator: A translator, or a team.
        document: The document as read.
        name: Name of its file, for messages.
        only_missing: Keep segments that have a finished translation.
        scores: Score the translations.
        quality: Estimate their quality.
        only_if: Leave segments untranslated whose translation has a lower quality.
        sampling: Draw translations at random instead of searching for the best.
        mbr: Samples drawn of each line for minimum Bayes risk decoding.
        terms: Terms that translations must use.
        memory: Returns the translation memory's match for a segment; a segment with a reused match is not translated.
            Of different translations of its source, that of the same context or between the same segments is taken.
        neighbours: Returns the pairs most similar to a text, which the model consults, as for `Translator.translate`.
        reuse_from: Minimum similarity of a match that is repaired and reused, as for `Translator.translate`.
        journal: Finished translations are read from it and appended to it; opened with `origin_of` the same
            translator and settings.
        finished: Translations by their source, made by the same translator and settings; replaces the journal.
        chunk_lines: Lines translated between two journal entries.
        on_progress: Called with the number of lines finished, of those that `lines_to_translate` returns.
        plain: Search and score by the readable code alone.
        **settings: Fields of `DecodeConfig`, as for `Translator.translate`.

    Raises:
        ConfigError: As `Translator.translate`, naming the line of the segment.
        DataError: As `Translator.translate`; or if the journal cannot be written.
        ModelError: As `Translator.translate`.
    """
    search = partial(translator.translate, sampling=sampling, mbr=mbr, terms=terms, neighbours=neighbours, **settings)
    is_judged = quality or only_if is not None
    translate = partial(search, scores=scores, quality=is_judged, plain=plain, one_line=True, name=name)
    translate([])  # reject invalid settings before any work
    target_lang = translator.decode_config(settings).target_lang
    translates = partial(translator.translates, terms=terms)
    repairer = match_repairer(translator, reuse_from, terms, settings)
    matches = _matches(document, memory, only_missing, translates, repairer)
    to_translate = list(_with_words(document, only_missing, matches, translates))
    for line, text in ((segment.line, part.text) for segment, parts in to_translate for part in parts):
        # Line by line, so that an error names the line of the file.
        translator.pair_encoder.split_sources([text], target_lang, name=name, first=line)
    lines = _distinct_lines(to_translate)
    before = journal.translations if journal else finished or {}
    done = {line: before[line] for line in lines if line in before}
    if on_progress is not None and done:
        on_progress(len(done))
    waiting = (line for line in lines if line not in done)
    while chunk := list(islice(waiting, chunk_lines)):
        translations = translate(chunk, on_progress=on_progress)
        if journal is not None:
            journal.add(translations)
        done.update((translation.source, translation) for translation in translations)
    has_messages = any(message_runs(segment.text) for segment in document.segments)
    made = (
        _translated(segment, only_missing, done, matches.get(place), translates, repairer)
        for place, segment in enumerate(document.segments)
    )
    written = (_writable(document, place, result, has_messages) for place, result in enumerate(made))
    translated = [_left_if_unsure(result, only_if) for result in written]
    if any(filling is not None for filling in fillings(translated)):
        document.language = target_language(translator, settings)
    return _with_length_flags(translated)


def lines_to_translate(
    document: Document,
    *,
    only_missing: bool = False,
    memory: Lookup | None = None,
    translates: Callable[[str], bool] = has_words,
    repairer: MatchRepairer = NO_REPAIRS,
) -> list[str]:
    """Return the distinct lines to translate, in order.

    Args:
        document: As for `translate_document`, like the next two arguments.
        only_missing: Keep segments that have a finished translation.
        memory: Returns the translation memory's match for a segment.
        translates: Returns whether a line is translated, as `Translator.translates`.
        repairer: Repairs matches (`match_repairer`).
    """
    matches = _matches(document, memory, only_missing, translates, repairer)
    return _distinct_lines(_with_words(document, only_missing, matches, translates))


def _distinct_lines(segments: Iterable[tuple[DocumentSegment, list[TextLine]]]) -> list[str]:
    return list(dict.fromkeys(part.text for _, parts in segments for part in parts))


def _matches(
    document: Document,
    memory: Lookup | None,
    only_missing: bool,
    translates: Callable[[str], bool],
    repairer: MatchRepairer,
) -> dict[int, MemoryMatch]:
    """Return the translation memory matches of the segments to translate, by segment number."""
    if memory is None:
        return {}
    places = [
        place
        for place, segment in enumerate(document.segments)
        if not (only_missing and segment.is_finished)
        and any(part.is_translated for part in _parts(segment.text, translates))
    ]
    texts: list[str | None] = [None, *(segment.text for segment in document.segments), None]
    matches = {}
    for place in places:
        segment, around = document.segments[place], (texts[place], texts[place + 2])
        if (match := match_of(memory, segment.text, segment.context, around)) is not None:
            matches[place] = repairer(segment.text, match)
    return matches


def document_summary(translated: Sequence[TranslatedSegment], *, name: str) -> str:
    """Return how many segments of a document have each status, in one line that begins with its name."""
    counts = Counter(result.status for result in translated)
    return (
        f"{name}: {len(translated):,} segments: {counts['translated']:,} translated, {counts['kept']:,} kept, "
        f"{counts['without_words']:,} without words"
        + (f", {counts['reused']:,} reused" if counts["reused"] else "")
        + (f", {counts['left']:,} left" if counts["left"] else "")
    )


def num_kept_copies(translated: Sequence[TranslatedSegment]) -> int:
    """Return how many kept translations have the letters and digits of their sources, as in a file that was prefilled.

    Sources without words do not count.
    """
    kept = (result.segment for result in translated if result.status == "kept")
    return sum(_letters(result.text) == _letters(result.translation) for result in kept if has_words(result.text))


def _letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


def fillings(translated: Sequence[TranslatedSegment]) -> list[Filling | None]:
    """Return the arguments of `Document.filled`: translations, each with its notes for the reader."""
    return [
        None if each.translation is None or each.status == "left" else _filling(each.translation) for each in translated
    ]


def _filling(translation: Translation) -> Filling:
    match = translation.memory
    notes = [f"{KINDS[flag.kind].meaning}: {flag.detail}" for flag in translation.warnings if flag.kind == "empty"]
    suggestion = None
    if match is not None:
        suggestion = Suggestion(match.source, match.target, match.similarity, is_used=match.is_reused)
        what = f"repaired: {suggestion}" if match.repaired is not None else "reused" if match.is_reused else suggestion
        notes.append(f"{MEMORY_NOTE}, {suggestion.percent} %: {what}")
    for use in translation.terms or ():
        if use.reason is not None:
            reason, without = TERM_REASONS[use.reason], f"; without it: {use.without}" if use.without else ""
            what = f"term missed: {use.source} -> {use.target}" if not use.form else f"{use.source} -> {use.form}"
            notes.append(f"{what} ({reason}{without})")
    return Filling(translation.text, "\n".join(map(on_one_line, notes)), suggestion)


def on_one_line(text: str) -> str:
    """Return a text with escapes in place of characters that cannot be printed, such as line ends."""
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in text)


def origin_of(
    translator: Translator,
    *,
    scores: bool = True,
    quality: bool = False,
    sampling: Sampling | None = None,
    mbr: int | None = None,
    terms: Terms | None = None,
    plain: bool = False,
    consults: bool = False,
    **settings: Unpack[DecodeChanges],
) -> dict[str, object]:
    """Return everything that determines the translations of a `TranslationJournal`; batch size does not.

    Args:
        translator: A model from a directory, or a team.
        scores: Whether translations are scored.
        quality: Whether their quality is estimated.
        sampling: How samples are drawn, if at all.
        mbr: Samples drawn of each line for minimum Bayes risk decoding.
        terms: Terms that translations must use.
        plain: Whether the readable code alone searches and scores.
        consults: Whether the model consults a memory; which pairs it has is not compared.
        **settings: Fields of `DecodeConfig`, as for `Translator.translate`.

    Raises:
        ConfigError: If a setting is unknown or impossible.
        ModelError: If the file naming the alignment head is damaged or belongs to another model.
    """
    bundles = translator.bundle, *translator.ensemble
    config = translator.decode_config(settings)
    aligns = places_markup(translator.bundle.tokenizer, translator.config, config)
    return {
        "version": full_version(),
        "models": [[bundle.model_sha256, bundle.tokenizer.sha256] for bundle in bundles],
        "info": translator.bundle.info,  # such as the statistics of the training lines
        "settings": config.model_dump(mode="json", exclude={"batch_tokens"}),
        "heads": [alignment_head(bundle) for bundle in bundles] if aligns else [],
        "scores": scores,
        **({"quality": [*(calibration_of(translator.bundle) or Calibration())]} if quality else {}),
        "sampling": None if sampling is None else sampling.model_dump(mode="json"),
        "mbr": mbr,
        **({"plain": True} if plain else {}),
        **({"consults": True} if consults else {}),
        **({"shortlist": _shortlist_sha256(translator)} if config.shortlist else {}),
        **({} if terms is None else {"terms": [[term.source, *term.forms] for term in terms.terms]}),
    }


def _shortlist_sha256(translator: Translator) -> str | None:
    directory = translator.bundle.directory
    return None if directory is None else read_config(directory)["side_files"].get(SHORTLIST_FILE)


def _with_words(
    document: Document, only_missing: bool, matches: Mapping[int, MemoryMatch], translates: Callable[[str], bool]
) -> Iterator[tuple[DocumentSegment, list[TextLine]]]:
    """Yield the segments to translate, each with its lines that are translated."""
    for place, segment in enumerate(document.segments):
        is_reused = place in matches and matches[place].is_reused
        if not is_reused and not (only_missing and segment.is_finished):
            yield segment, [part for part in _parts(segment.text, translates) if part.is_translated]


def _parts(text: str, translates: Callable[[str], bool]) -> Iterator[TextLine]:
    check_interruption()
    yield from segment_lines(text, translates)


def _translated(
    segment: DocumentSegment,
    only_missing: bool,
    done: Mapping[str, Translation],
    match: MemoryMatch | None,
    translates: Callable[[str], bool],
    repairer: MatchRepairer,
) -> TranslatedSegment:
    if only_missing and segment.is_finished:
        return TranslatedSegment(segment, "kept")
    if match is not None and match.is_reused:
        return _reused(segment, match)
    parts = list(_parts(segment.text, translates))
    if not any(part.is_translated for part in parts):
        return TranslatedSegment(segment, "without_words")
    text, translations, unfit = "", [], []
    for part in parts:
        words = part.written(done[part.text].text if part.is_translated else part.text)
        if words is None:
            unfit.append(part.text)
        if part.is_translated:
            translation = done[part.text]
            translations.append(_left(translation) if words is None else translation)
        text += part.before + (part.written(part.text) or "" if words is None else words) + part.after
    gaps = [" "] * (len(translations) - 1)
    if match is not None and (match := repairer.by_model(segment.text, match, text.strip())).is_reused:
        return _reused(segment, match)
    whole = join_translations(segment.text, translations, gaps) if gaps else translations[0]
    if unfit:
        flag = Flag("placeholders", f"left as it was, for its translation lacks an argument: {'; '.join(unfit)}")
        whole = replace(whole, warnings=merge_flags([whole.warnings, [flag]]))
    return TranslatedSegment(segment, "translated", replace(whole, source=segment.text, text=text, memory=match))


def _reused(segment: DocumentSegment, match: MemoryMatch) -> TranslatedSegment:
    own = segment.text.strip()
    start = segment.text.index(own)
    text = segment.text[:start] + match.reused + segment.text[start + len(own) :]
    translation = Translation(segment.text, text, None, (), warnings=match.flags, memory=match)
    return TranslatedSegment(segment, "reused", translation)


def _writable(document: Document, place: int, result: TranslatedSegment, has_messages: bool) -> TranslatedSegment:
    """Return the result of a segment; its source text, flagged, if the format cannot express the translation.

    A link that is moved, for it is lost, empty or inside another, is flagged. Where a document has ICU messages with
    branches, its other texts with arguments are messages, too.
    """
    if result.translation is None:
        return result
    text, problem = result.translation.text, ""
    if format := format_of_segment(result.segment, has_messages):
        text, problem = checked_format(result.segment.text, text, format)
    if problem := problem or document.problem(place, text):
        return _changed(result, _left(result.translation), result.segment.text, f"left as it was: {problem}")
    moved = repaired_tags(text, result.segment.text, result.segment.links)[1] if result.segment.links else ()
    return _changed(result, result.translation, text, first_few(moved, MOST_SHOWN, "; "))


def format_of_segment(segment: DocumentSegment, has_messages: bool) -> str:
    """Return the format of a segment, as in `DocumentSegment`; in a document with ICU messages, also `icu-format`.

    Args:
        segment: The segment.
        has_messages: Whether the document has ICU messages with branches.
    """
    is_message = has_messages and "{" in segment.text and not message_runs(segment.text)
    return segment.format or ("icu-format" if is_message else "")


def _left_if_unsure(result: TranslatedSegment, least: float | None) -> TranslatedSegment:
    is_unsure = least is not None and result.translation is not None and result.translation.is_below(least)
    return replace(result, status="left") if is_unsure else result


def _with_length_flags(results: Sequence[TranslatedSegment]) -> list[TranslatedSegment]:
    """Return the results, with translations flagged that are together longer than the file allows for their unit."""
    lengths = Counter[LengthLimit]()
    for result in results:
        if (limit := result.segment.limit) is not None:
            text = result.segment.translation or result.segment.text
            if result.translation is not None and result.status != "left":
                text = result.translation.text
            lengths[limit] += length_of(text)
    flags = {limit: flag for limit, length in lengths.items() if (flag := length_flag(limit, length))}
    return [
        replace(each, translation=replace(old, warnings=merge_flags([old.warnings, [flag]])))
        if (old := each.translation) is not None and each.segment.limit and (flag := flags.get(each.segment.limit))
        else each
        for each in results
    ]


def length_of(text: str) -> int:
    """Return the number of characters of a text with tags that count towards a `LengthLimit`."""
    return sum(len(token) for token in tokens(text) if isinstance(token, str))


def length_flag(limit: LengthLimit, length: int) -> Flag | None:
    """Return the flag of translations that have together more characters than the file allows for their unit."""
    if length <= limit.most:
        return None
    return Flag("too_long", f"{length:,} characters, and the file allows {limit.most:,}")


def _changed(result: TranslatedSegment, translation: Translation, text: str, remark: str) -> TranslatedSegment:
    """Return the result of a segment with another text, flagged as `placeholders` if there is a remark."""
    flags = [Flag("placeholders", remark)] if remark else []
    warnings = merge_flags([translation.warnings, flags])
    return replace(result, translation=replace(translation, text=text, warnings=warnings))


def _left(translation: Translation) -> Translation:
    """Return a translation that is not used, with all its terms marked as missing."""
    if translation.terms is None:
        return translation
    left = (replace(use, form="", reason="left", without=None) for use in translation.terms)
    return replace(translation, terms=tuple(left))
