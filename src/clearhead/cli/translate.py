"""`clearhead translate`: translate text line by line, or documents."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.bulk_work import BulkOptions, finished_parts, named_file
from clearhead.cli.checks import refuse_missing, refuse_mixing
from clearhead.cli.console import progress
from clearhead.cli.options import Model, TranslatorOptions, with_option_groups
from clearhead.cli.rules import ROWS, refuse_clashes
from clearhead.cli.search_options import SearchOptions, TermOptions, report_unconsulted
from clearhead.cli.translate_documents import AS_TEXT, DocumentOptions, translate_documents
from clearhead.cli.translation_notices import TranslationNotices
from clearhead.cli.translation_options import TranslationOptions
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from clearhead.formats.row_files import TranslatedRows
    from clearhead.translation.result import Translation
    from clearhead.translation.translator import Translator


START_LINES = 20
"""Lines in which the beginning of a format other than plain text is searched."""


Files = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="FILE",
        help="Text files, one segment per line; .gz, .xz and .zst are decompressed, - is standard input (the "
        "default). Several files are translated one after the other. Documents, recognized by their "
        "extension (docs/documents.md), are accepted as well: their text is translated, everything else in "
        "them is kept. To the rows of a .jsonl, .parquet or .arrow file a column is added, target if --columns "
        "names no other (docs/formats.md).",
    ),
]


@with_option_groups
def translate(
    context: typer.Context,
    model: Model,
    files: Files = None,
    *,
    outputs: TranslationOptions,
    decoding: TranslatorOptions,
    search: SearchOptions,
    terms: TermOptions,
    documents: DocumentOptions,
    bulk: BulkOptions,
) -> None:
    """Translate text line by line, or documents.

    Examples:
      clearhead translate runs/de-en < input.txt > output.txt
      clearhead translate runs/de-en letter.docx -o letter.en.docx
      clearhead translate runs/de-en input.txt --terms terms.tsv --format jsonl -o output.jsonl

    Text has one line of output per line of input, in the same order. In documents only the text changes. A line that
    is longer than the lines that the model was trained on is translated sentence by sentence. Suspicious translations
    are counted on stderr, and flagged in jsonl (docs/translation.md). If the translation of a document is interrupted,
    running the same command again resumes it, as with --ray.
    """
    paths = files or ["-"]
    refuse_missing(paths)
    rows = documents.rows(paths, outputs.output)
    are_documents = rows is None and documents.are_for(paths)
    refuse_clashes(context, {"a document": are_documents, ROWS: rows, "more than one FILE": len(paths) > 1})
    if not outputs.is_jsonl:
        refuse_mixing("--alignments", outputs.alignments, "translations")

    from clearhead.files import display_name, open_output, read_lines
    from clearhead.translation.lines import CHUNK_LINES, translate_lines
    from clearhead.translation.worker_pool import TranslatorTeam

    arguments: dict[str, Any] = {**outputs.arguments(search.nbest), **search.translate_arguments}
    arguments |= {**decoding.settings, **terms.arguments}
    languages, workers = (documents.from_lang, documents.to_lang), decoding.workers
    recalled, read_terms = terms.lookups(*languages, terms.fuzzy), terms.reader(decoding.settings, *languages)
    memory, arguments["neighbours"] = recalled.get("memory"), recalled.get("neighbours")

    device = decoding.device if bulk.ray is None else "cpu"  # the workers have the GPUs
    load = partial(TranslatorTeam.of, model, workers, device=device, ensemble=decoding.ensemble or ())
    if are_documents:
        on_ray = None if bulk.ray is None else partial(_lines_on_ray, bulk, model, decoding, outputs.output)
        translate_documents(load, paths, outputs, documents, memory, arguments, read_terms, workers, on_ray)
        return
    outputs.refuse_overwriting(paths)
    arguments |= {"alignments": outputs.alignments is not None, "one_line": not outputs.is_jsonl}
    arguments |= {"memory": memory, **search.line_arguments}
    if bulk.ray is not None:
        _translate_on_ray(bulk, model, decoding, paths[0], rows, documents, outputs, arguments, read_terms)
        return
    with load() as translator:
        arguments |= read_terms(translator) if read_terms else {}
        translator.translate([], **arguments)  # an impossible setting is refused before anything is read
        report_unconsulted(translator, arguments)
        opened = rows.opened if rows else open_output
        with outputs.writer(paths, search.nbest, opened) as writer, _bar(outputs.output) as advance:
            arguments |= {"only_if": outputs.only_if or 0.0, "on_progress": advance}
            for path in paths:
                name, before, is_typed = display_name(path), writer.count, _is_typed(path)
                check = None if documents.as_text or rows or is_typed else partial(_refuse_markup, path)
                # Whoever types a line wants to see its translation before typing the next.
                arguments |= {"name": name, "chunk_lines": 1 if is_typed else CHUNK_LINES * workers}
                notices, lines = TranslationNotices(name, translator), rows.lines() if rows else read_lines(path)
                for chunk in translate_lines(translator, lines, on_first=check, **arguments):
                    notices.add_left(chunk.left)
                    notices.add(list(zip(chunk.places, chunk.kept, strict=True)))
                    writer.write(chunk, name)
                    if is_typed:
                        notices.tell_flagged()
                notices.tell()
                if writer.report is not None:
                    writer.report.add_file(f"{name}: {writer.count - before:,} lines")


def _translate_on_ray(
    bulk: BulkOptions,
    model: Path,
    decoding: TranslatorOptions,
    path: str,
    rows: TranslatedRows | None,
    documents: DocumentOptions,
    outputs: TranslationOptions,
    arguments: dict[str, Any],
    read_terms: Callable[[Translator], dict[str, Any]] | None,
) -> None:
    """Translate the lines of a file on a Ray cluster, in parts that are kept beside the output until all are there."""
    from clearhead.files import display_name, open_output, read_lines
    from clearhead.translation.line_shards import Models, Translating, notable_lines

    output, name = named_file(outputs.output), display_name(path)
    models = Models(model, decoding.device, tuple(decoding.ensemble or ()))
    translator = models.load("cpu")  # the workers have the GPUs
    arguments |= read_terms(translator) if read_terms else {}
    translator.translate([], **arguments)  # an impossible setting is refused before anything is read
    lines = rows.lines() if rows else read_lines(path)
    start = list(islice(lines, START_LINES))
    if rows is None and not documents.as_text:
        _refuse_markup(path, start)
    work = Translating(outputs.is_jsonl, outputs.only_if or 0.0, arguments)
    notices, inputs = TranslationNotices(name, translator), [(name, chain(start, lines))]
    with (
        finished_parts(bulk, output, inputs, models, work, translator) as parts,
        (rows.opened if rows else open_output)(output) as out,
    ):
        for _, part in parts:
            out.write(part.text)
            out.flush()  # as one process does, which shows in compressed bytes
            notices.add_left(part.details["left"])
            notices.add(list(notable_lines(part)))
    notices.tell()


@contextmanager
def _lines_on_ray(
    bulk: BulkOptions,
    model: Path,
    decoding: TranslatorOptions,
    output: str | None,
    name: str,
    lines: Sequence[str],
    translator: Translator,
    arguments: Mapping[str, Any],
) -> Iterator[Mapping[str, Translation]]:
    """Translate the lines of a document on a Ray cluster, in parts that are kept until the block ends; by source."""
    from clearhead.translation.line_shards import Models, TranslatingParts, translations_in

    models = Models(model, decoding.device, tuple(decoding.ensemble or ()))
    inputs = [(f"the texts of {name}", lines)]
    work = TranslatingParts(arguments)
    with finished_parts(bulk, named_file(output), inputs, models, work, translator) as parts:
        yield {made.source: made for made in translations_in(parts)}


def _refuse_markup(path: str, lines: list[str]) -> None:
    from clearhead.formats.markup_start import refuse_markup

    refuse_markup("\n".join(lines[:START_LINES]), path, AS_TEXT)  # a pipe is read only now


def _is_typed(path: str) -> bool:
    return path == "-" and sys.stdin.isatty()


def _bar(output: str | None) -> AbstractContextManager[Callable[[int], None] | None]:
    """Return a progress bar, unless the translations themselves appear on the terminal."""
    if is_standard_output(output) and sys.stdout.isatty():
        return nullcontext()
    return progress("translating")
