"""`clearhead translate`: translate text line by line, or documents."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import StrEnum
from itertools import compress, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import refuse_missing, refuse_mixing, refuse_overwriting, refuse_report
from clearhead.cli.console import progress
from clearhead.cli.from_settings import option
from clearhead.cli.memory import TermOptions
from clearhead.cli.options import OUTPUT, AlignBy, Model, Plain, TranslatorOptions, with_option_groups
from clearhead.cli.rules import refuse_clashes
from clearhead.cli.search_options import SearchOptions
from clearhead.cli.translate_documents import AS_TEXT, DocumentOptions, translate_documents
from clearhead.cli.translation_notices import TranslationNotices
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from collections.abc import Callable

    from clearhead.translation.result import Translation
    from clearhead.translation.translator import Translator


CHUNK_LINES = 2_000
"""Lines read, translated and written at a time: enough to sort by length, few enough to limit memory use."""

START_LINES = 20
"""Lines in which the beginning of a format other than plain text is searched."""


class OutputFormat(StrEnum):
    """Output format of translations."""

    text = "text"
    jsonl = "jsonl"


@with_option_groups
def translate(
    context: typer.Context,
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text files, one segment per line; .gz, .xz and .zst are decompressed, - is standard input (the "
            "default). Several files are translated one after the other. Documents, recognized by their "
            "extension (docs/documents.md), are accepted as well: their text is translated, everything else in "
            "them is kept.",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            *OUTPUT,
            metavar="FILE",
            help="Output file; .gz, .xz and .zst are compressed. The translation of a document must have an "
            "extension of its format. For several documents name a directory; each translation gets the name "
            "of its document.",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            help="text: one translation per line. jsonl: one JSON object per line, with source, text, score (as "
            "computed by `clearhead score`), quality (with --quality), utility (with --mbr: the mean chrF against the "
            "other samples), "
            "tokens, alignment (with --alignments), alternatives, truncated, source_truncated, "
            "output_truncated, sentences (if the line was split or normalized), warnings, warning_details, "
            "terms (with --terms) and memory (with --memory). For a document: one object per segment, with its "
            "line number and more (docs/documents.md).",
        ),
    ] = OutputFormat.text,
    *,
    decoding: TranslatorOptions,
    search: SearchOptions,
    terms: TermOptions,
    documents: DocumentOptions,
    protect_numbers: Annotated[bool, option("decode.protect_numbers")] = False,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="PAGE.html",
            help="Also write an HTML page of the translations to review first: suspicious translations, worst first, "
            "with the reasons, then those of which the model is least certain.",
        ),
    ] = None,
    quality: Annotated[
        bool,
        typer.Option(
            "--quality",
            help="With --format jsonl: add the model's own estimate of the quality of each translation, from 0 to 1. "
            "It is the model's doubt, not the truth (docs/translation.md).",
        ),
    ] = False,
    only_if: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            metavar="Q",
            help="Leave untranslated what has a quality below Q: a line stays blank, a segment of a document as it is. "
            "They are counted on stderr.",
            show_default="all are translated",
        ),
    ] = None,
    alignments: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write word alignments: for each line, pairs such as 3-5 of source word and target word, both "
            "counted from 0 (Pharaoh format). With jsonl the objects contain them as well; - writes them to the "
            "objects only (docs/alignment.md).",
        ),
    ] = None,
    align_by: AlignBy = None,
    plain: Plain = False,
) -> None:
    """Translate text line by line, or documents.

    Examples:
      clearhead translate runs/de-en < input.txt > output.txt
      clearhead translate runs/de-en letter.docx -o letter.en.docx
      clearhead translate runs/de-en input.txt --terms terms.tsv --format jsonl -o output.jsonl

    Text has one line of output per line of input, in the same order. In documents only the text changes. A line that
    is longer than the lines that the model was trained on is translated sentence by sentence. Suspicious translations
    are counted on stderr, and flagged in jsonl (docs/translation.md). If the translation of a document is interrupted,
    running the same command again resumes it.
    """
    paths = files or ["-"]
    refuse_missing(paths)
    are_documents = documents.are_for(paths)
    refuse_clashes(context, {"a document": are_documents})
    is_jsonl = output_format is OutputFormat.jsonl
    if not is_jsonl:
        refuse_mixing("--alignments", alignments, "translations")

    from clearhead.files import display_name, open_output, some_names
    from clearhead.formats.markup_start import refuse_markup
    from clearhead.text.word_links import pharaoh
    from clearhead.translation.worker_pool import TranslatorTeam

    settings: dict[str, Any] = {
        "scores": is_jsonl or search.nbest > 1 or report is not None,
        "quality": quality or only_if is not None or report is not None,
        "align_by": align_by,
        "plain": plain,
        "protect_numbers": protect_numbers or None,
        **search.translate_arguments,
        **decoding.settings,
        **terms.settings,
    }
    memory = terms.lookup(documents.from_lang, documents.to_lang)
    workers = decoding.workers

    def load() -> AbstractContextManager[Translator]:
        return TranslatorTeam.of(model, workers, device=decoding.device, ensemble=decoding.ensemble or ())

    if are_documents:
        translate_documents(
            load,
            paths,
            output,
            report,
            documents,
            memory,
            settings,
            is_jsonl=is_jsonl,
            workers=workers,
            only_if=only_if,
        )
        return
    refuse_overwriting(output, paths)
    refuse_report(report, paths, [output, alignments])
    refuse_overwriting(alignments, paths)
    if alignments is not None and output is not None and os.path.realpath(alignments) == os.path.realpath(output):
        raise ConfigError(f"--alignments {alignments} is where the translations go; name another file")
    settings |= {
        "alignments": alignments is not None,
        "one_line": not is_jsonl,
        "memory": memory,
        **search.line_arguments,
    }
    count = 0
    with load() as translator, ExitStack() as opened:
        translator.translate([], **settings)  # an impossible setting is refused before anything is read
        pages = None
        if report is not None:
            from clearhead.translation.review_page import reporting

            # Begun first, the report is written last: what comes of it does no harm to the translations.
            pages = opened.enter_context(reporting(report, some_names(paths)))
        out = opened.enter_context(open_output(output))
        advance = opened.enter_context(_bar(output))
        links = None
        if alignments is not None and not is_standard_output(alignments):
            links = opened.enter_context(open_output(alignments))
        for path in paths:
            name = display_name(path)
            notices, before = TranslationNotices(name, translator), count
            for first, lines in _chunks(path, workers):
                if first == 1 and not (documents.as_text or _is_typed(path)):
                    refuse_markup("\n".join(lines[:START_LINES]), path, AS_TEXT)  # a pipe is read only now
                translations = translator.translate(lines, name=name, first=first, on_progress=advance, **settings)
                places = [f"line {number}" for number in range(first, first + len(lines))]
                if pages is not None:
                    pages.add(translations, name=name, places=places)
                if only_if is not None:
                    notices.add_left(compress(places, (one.is_below(only_if) for one in translations)))
                    translations = [one.left_out() if one.is_below(only_if) else one for one in translations]
                notices.add(translations, places=places)
                for index, translation in enumerate(translations, start=count):
                    out.write(_written(translation, index, output_format, search.nbest))
                if links is not None:
                    links.writelines(pharaoh(translation.alignment or ()) + "\n" for translation in translations)
                out.flush()
                count += len(translations)
                if _is_typed(path):
                    notices.tell_flagged()
            notices.tell()
            if pages is not None:
                pages.add_file(f"{name}: {count - before:,} lines")


def _bar(output: str | None) -> AbstractContextManager[Callable[[int], None] | None]:
    """Return a progress bar, unless the translations themselves appear on the terminal."""
    if is_standard_output(output) and sys.stdout.isatty():
        return nullcontext()
    return progress("translating")


def _chunks(path: str, workers: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file in chunks, with the line number of the first line of each."""
    from clearhead.files import read_lines

    # Whoever types a line wants to see its translation before typing the next.
    size = 1 if _is_typed(path) else CHUNK_LINES * workers
    lines = read_lines(path)
    first = 1
    while chunk := list(islice(lines, size)):
        yield first, chunk
        first += len(chunk)


def _is_typed(path: str) -> bool:
    return path == "-" and sys.stdin.isatty()


def _written(translation: Translation, index: int, output_format: OutputFormat, num_best: int) -> str:
    from clearhead.translation.json_output import digits, json_line, translation_object

    if output_format is OutputFormat.jsonl:
        return json_line(translation_object(translation)) + "\n"
    if num_best == 1:
        return translation.text + "\n"
    best = translation.alternatives or [translation]
    return "".join(f"{index} ||| {one.text} ||| {digits(one.score)}\n" for one in best)
