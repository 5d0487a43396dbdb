"""Translation of multi-line texts and HTML: lines are translated as by `clearhead translate`, white space is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from clearhead.formats.file_text import FileText
from clearhead.formats.html.document import HtmlDocument
from clearhead.text.languages import split_tag
from clearhead.text.quality_flags import merge_flags
from clearhead.text.translatable_lines import TextLine, text_lines
from clearhead.text.word_links import joined_links
from clearhead.tokenizers.vocabulary import refuse_surrogates
from clearhead.translation.documents import fillings, translate_document
from clearhead.translation.result import Alternative, Translation, best_combinations, join_translations, mean_quality
from clearhead.translation.translator import Translator


def translate_texts(
    translator: Translator,
    texts: Sequence[str],
    *,
    num_best: int = 1,
    scores: bool = True,
    alignments: bool = False,
    **settings: Any,
) -> list[Translation]:
    """Translate texts, all their lines together; blank lines and white space around lines are kept.

    Args:
        translator: The model.
        texts: The texts.
        num_best: Number of translations of each text; fewer if the search finds fewer.
        scores: Compute the scores of the translations.
        alignments: Link the words of each text with those of its translation.
        **settings: Keyword arguments of `Translator.translate`.

    Raises:
        ClearheadError: If `Translator.translate` fails.
    """
    cut = [list(text_lines(text)) for text in texts]
    lines = [line.text for of_text in cut for line in of_text if line.text]
    made = iter(translator.translate(lines, num_best=num_best, scores=scores, alignments=alignments, **settings))
    translations = []
    for text, of_text in zip(texts, cut, strict=True):
        own = [next(made) for line in of_text if line.text]
        languages = translator.bundle.tokenizer.language_tags
        sources = [split_tag(line.text, languages)[1] for line in of_text if line.text]
        translations.append(_joined(text, of_text, own, sources, num_best, scores, alignments=alignments))
    return translations


def _joined(
    text: str,
    lines: Sequence[TextLine],
    made: Sequence[Translation],
    sources: Sequence[str],
    num_best: int,
    scores: bool,
    *,
    alignments: bool,
) -> Translation:
    """Combine the translations of a text's lines, blank lines excluded, into its translation."""
    if not made:
        return Translation(text, text, 0.0 if scores else None, (), alignment=() if alignments else None)
    if len(made) == 1 and made[0].source == text:
        return made[0]
    rows = best_combinations([line.alternatives or (Alternative(line.text, line.score),) for line in made], num_best)
    texts = [_with_spaces(lines, [choice.text for choice in row]) for row in rows]
    totals = [None if any(one.score is None for one in row) else sum(one.score or 0.0 for one in row) for row in rows]
    different: dict[str, Alternative] = {}
    for written, total in zip(texts, totals, strict=True):
        different.setdefault(written, Alternative(written, total))
    whole = join_translations(text, made, [" "] * (len(made) - 1))
    best = tuple(different.values())
    parts = made[0].sentences if len(made) == 1 else tuple(made)
    links = None
    if alignments:
        of_lines = [line.alignment or () for line in made]
        links = tuple(joined_links(of_lines, sources, [choice.text for choice in rows[0]], text, best[0].text))
    return replace(
        whole,
        text=best[0].text,
        score=best[0].score,
        alternatives=best if num_best > 1 else (),
        sentences=parts,
        alignment=links,
        memory=made[0].memory if len(made) == 1 else None,
    )


def _with_spaces(lines: Sequence[TextLine], texts: Sequence[str]) -> str:
    remaining = iter(texts)
    return "".join(line.before + (next(remaining) if line.text else "") + line.after for line in lines)


def translate_html(translator: Translator, text: str, *, scores: bool = False, **settings: Any) -> Translation:
    """Translate the text nodes of an HTML page or fragment, as `clearhead translate page.html` does.

    Args:
        translator: The model.
        text: The HTML source.
        scores: Score the translations of the text nodes, which are the `sentences` of the result.
        **settings: Keyword arguments of `translate_document`.

    Raises:
        DataError: If it is not valid text, such as half of a surrogate pair.
        ClearheadError: If `Translator.translate` fails.
    """
    refuse_surrogates([text])
    document = HtmlDocument(FileText.of(text.encode(), "the text"))
    translated = translate_document(translator, document, name="the text", scores=scores, **settings)
    made = [segment.translation for segment in translated if segment.translation is not None]
    whole = Translation(text, document.filled(fillings(translated)).decode(), None, ())
    known = [part.score for part in made if part.score is not None]
    return replace(
        whole,
        score=sum(known) if scores and len(known) == len(made) else None,
        quality=mean_quality(made),
        tokens=tuple(token for part in made for token in part.tokens),
        source_truncated=any(part.source_truncated for part in made),
        output_truncated=any(part.output_truncated for part in made),
        sentences=tuple(made),
        warnings=merge_flags([part.warnings for part in made]),
        terms=None if settings.get("terms") is None else tuple(use for part in made for use in part.terms or ()),
    )
