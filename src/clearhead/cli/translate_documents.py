"""The part of `clearhead translate` for documents: translate files, keep their format, and report the results."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli.checks import refuse_binary, refuse_overwriting, refuse_report
from clearhead.cli.console import notice, progress
from clearhead.cli.options import OptionGroup
from clearhead.cli.search_options import report_unconsulted
from clearhead.cli.translation_notices import TranslationNotices
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output
from clearhead.formats.document_files import typed_columns, typed_names

if TYPE_CHECKING:
    from clearhead.cli.translation_options import TranslationOptions
    from clearhead.formats.document import Document
    from clearhead.formats.row_files import TranslatedRows
    from clearhead.translation.documents import TranslatedSegment
    from clearhead.translation.journal import TranslationJournal
    from clearhead.translation.memory import Lookup
    from clearhead.translation.report import TranslationReport
    from clearhead.translation.result import Translation
    from clearhead.translation.translator import Translator


AS_TEXT = "; --as-text translates every line of it as it is"
SHOWN_LINES = 10


class ReadingOptions(OptionGroup):
    """How documents are read; the languages also name those of a memory and of terms."""

    columns: str | None = typer.Option(
        None,
        metavar="A[,B]",
        help="Column of a .csv or .tsv file to replace by its translation, or two columns: the one to translate "
        "and the one for the translations. Numbers counted from 1, or names from the header line.",
        show_default="the only one",
        rich_help_panel="Documents",
    )
    keys: str | None = typer.Option(
        None,
        metavar="K,..",
        help="Keys of a .json file below which strings are translated, separated by commas: names such as label, "
        "or paths such as button.label.",
        show_default="all strings are",
        rich_help_panel="Documents",
    )
    from_lang: str | None = typer.Option(
        None,
        metavar="L",
        help="Language to translate from in a .tmx file; that of the sources in an .xlf file, if it names none; "
        "also the source language in a --memory or --terms with named languages.",
        show_default="the source language of the file",
        rich_help_panel="Documents",
    )
    to_lang: str | None = typer.Option(
        None,
        metavar="L",
        help="Language to translate into in a .tmx file, which may be missing there so far; that of the targets in "
        "an .xlf file, if it names none; also the target language in a --memory or --terms with named languages.",
        show_default="the other one of two",
        rich_help_panel="Documents",
    )
    skip_bad_units: bool = typer.Option(
        False,
        "--skip-bad-units",
        help="Keep the units of an .xlf or .tmx file that hold a character that XML forbids, instead of refusing "
        "the file; they are counted.",
    )

    def asked(self, path: str, *, has_others: bool) -> dict[str, Any]:
        """Return the options as arguments of `read_document`.

        Args:
            path: The document.
            has_others: Whether there is a memory or terms; the languages may be only theirs.

        Raises:
            ConfigError: If the columns or keys cannot be read.
        """
        from clearhead.formats.document_files import has_option

        languages = {"from_lang": self.from_lang, "to_lang": self.to_lang}
        return {
            "columns": None if self.columns is None else typed_columns("--columns", self.columns),
            "keys": None if self.keys is None else typed_names("--keys", self.keys),
            "skip_bad_units": self.skip_bad_units or None,
            **{name: language for name, language in languages.items() if not has_others or has_option(path, name)},
        }


class DocumentOptions(ReadingOptions):
    """Options that apply only to documents."""

    paragraphs: bool = typer.Option(
        False,
        "--paragraphs",
        help="Read plain text as paragraphs: lines up to a blank line are translated together, and wrapped like "
        "the source.",
    )
    as_text: bool = typer.Option(
        False,
        "--as-text",
        help="Translate the lines of any file, also of a document or of a format that is not read as one: its "
        "markup is text, too.",
    )
    only_missing: bool | None = typer.Option(
        None,
        "--only-missing/--retranslate",
        help="Keep finished translations of a document, or translate them again.",
        show_default="--only-missing for .po, .xlf, .tmx and two --columns",
    )

    def rows(self, paths: Sequence[str], output: str | None) -> TranslatedRows | None:
        """Return what is to be done with the rows of the first file that has rows; None for documents and text.

        Raises:
            ConfigError: As `TranslatedRows.of`.
            DataError: As `TranslatedRows.of`.
        """
        from clearhead.formats.document_files import is_row_file

        if self.as_text or (path := next(filter(is_row_file, paths), None)) is None:
            return None
        from clearhead.formats.row_files import TranslatedRows

        columns = [] if self.columns is None else typed_columns("--columns", self.columns)
        return TranslatedRows.of(path, columns, output)

    def are_for(self, paths: Sequence[str]) -> bool:
        """Return whether files are documents; otherwise they are lines of text.

        Raises:
            ConfigError: If only some files are documents.
            DataError: If the format of a file cannot be read.
        """
        from clearhead.formats.document_files import is_document, refuse_foreign_format

        if self.as_text:
            return False
        for path in paths:
            refuse_foreign_format(path, AS_TEXT)
        documents = [path for path in paths if is_document(path)]
        if documents and len(documents) < len(paths) and not self.paragraphs:
            other = next(path for path in paths if path not in documents)
            raise ConfigError(
                f"{documents[0]} is a document and {other} is lines of text; translate them apart, or the text with "
                f"--paragraphs"
            )
        return self.paragraphs or bool(documents)


def translate_documents(
    load: Callable[[], AbstractContextManager[Translator]],
    paths: Sequence[str],
    outputs: TranslationOptions,
    options: DocumentOptions,
    memory: Lookup | None,
    settings: Mapping[str, Any],
    read_terms: Callable[[Translator], Mapping[str, Any]] | None,
    workers: int,
    on_ray: Callable[..., AbstractContextManager[Mapping[str, Translation]]] | None,
) -> None:
    """Translate documents one after the other; each output file appears when it is complete.

    Args:
        load: Returns a context manager with the translator; called after all documents are read.
        paths: The documents.
        outputs: What is written: the documents, or a JSON object for each segment; where it goes, or the directory for
            several; and the review page.
        options: Options for documents.
        memory: Looks a segment up in the translation memory, if there is one.
        settings: Decoding settings, as in `translate_document`.
        read_terms: Returns the terminology for the translator, as further settings; None if there is none.
        workers: Processes that share the lines.
        on_ray: Translates the lines on a Ray cluster, given the document's name, its lines, the translator and
            settings; None: they are translated here.

    Raises:
        ConfigError: If an output has another extension than its document, an option does not apply, or a binary
            document would go to standard output unasked.
        DataError: If a document cannot be read, or an output cannot be written or is an input.
    """
    from clearhead.files import display_name, some_names
    from clearhead.formats.document_files import is_binary
    from clearhead.translation.report import reporting

    targets = _outputs(paths, outputs.output, is_jsonl=outputs.is_jsonl)
    if not outputs.is_jsonl and is_binary(paths[0]):
        refuse_binary(display_name(paths[0]), outputs.output)
    for target in targets:
        refuse_overwriting(target, paths)
    refuse_report(outputs.report, paths, targets)
    documents = _read(paths, options, has_others=memory is not None or read_terms is not None)
    with load() as translator, reporting(outputs.report, some_names(paths)) as pages:
        settings = {**settings, **(read_terms(translator) if read_terms else {})}
        translator.translate([], **settings)  # an impossible setting is refused before anything is written
        report_unconsulted(translator, settings)
        for path, document in zip(paths, documents, strict=True):
            if problem := other_language(document, translator, settings):
                notice(f"{display_name(path)}: {problem}")
        for path, document, target in zip(paths, documents, targets, strict=True):
            translated = _translate(
                translator,
                document,
                display_name(path),
                target,
                memory,
                settings,
                outputs,
                options,
                workers=workers,
                on_ray=on_ray,
            )
            _tell(display_name(path), document, translated, translator, pages)


def _read(paths: Sequence[str], options: DocumentOptions, *, has_others: bool) -> list[Document]:
    """Read documents, and report what is skipped in them.

    Raises:
        ConfigError: If an option does not apply.
        DataError: If one cannot be read.
    """
    from clearhead.formats.document_files import read_document

    documents = [
        read_document(path, paragraphs=options.paragraphs, **options.asked(path, has_others=has_others))
        for path in paths
    ]
    for path, document in zip(paths, documents, strict=True):
        report_skipped(path, document)
    return documents


def report_skipped(path: str, document: Document) -> None:
    """Report the skipped units of a document and its other remarks on stderr."""
    from clearhead.files import display_name
    from clearhead.text.lines import first_few

    if lines := document.skipped:
        shown = first_few([str(line) for line in lines], SHOWN_LINES)
        notice(f"{display_name(path)}: {len(lines):,} units skipped; XML forbids a character in them: lines {shown}")
    for remark in document.remarks:
        notice(f"{display_name(path)}: {remark}")


def _translate(
    translator: Translator,
    document: Document,
    name: str,
    output: str | None,
    memory: Lookup | None,
    settings: Mapping[str, Any],
    outputs: TranslationOptions,
    options: DocumentOptions,
    *,
    workers: int,
    on_ray: Callable[..., AbstractContextManager[Mapping[str, Translation]]] | None,
) -> list[TranslatedSegment]:
    from clearhead.files import open_output
    from clearhead.translation.documents import CHUNK_LINES, fillings, lines_to_translate, origin_of, translate_document
    from clearhead.translation.result import json_line
    from clearhead.translation.translator import match_repairer

    memory = memory and cache(memory)
    only_missing = document.keeps_finished if options.only_missing is None else options.only_missing
    terms, settings = settings.get("terms"), {**settings}
    reuse_from = settings.pop("reuse_from", None)  # of no effect on the translations in a journal
    neighbours = settings.pop("neighbours", None)
    lines = lines_to_translate(
        document,
        only_missing=only_missing,
        memory=memory,
        translates=partial(translator.translates, terms=terms),
        repairer=match_repairer(translator, reuse_from, terms, {"target_lang": settings.get("target_lang")}),
    )
    made = nullcontext(None) if on_ray is None else on_ray(name, lines, translator, settings)
    with made as translations, open_output(output) as out:
        journal = None
        if translations is None and output is not None and _is_lasting(output):
            journal = _journal(output, origin_of(translator, consults=neighbours is not None, **settings), name, lines)
        with _going_on_later(journal):
            with progress(f"translating {name}", total=len(lines)) as advance:
                translated = translate_document(
                    translator,
                    document,
                    name=name,
                    only_missing=only_missing,
                    memory=memory,
                    neighbours=neighbours,
                    reuse_from=reuse_from,
                    journal=journal,
                    finished=translations,
                    chunk_lines=CHUNK_LINES * workers,
                    on_progress=advance,
                    only_if=outputs.only_if,
                    **settings,
                )
            if outputs.is_jsonl:
                out.writelines(json_line(_object(segment)) + "\n" for segment in translated)
            else:
                out.buffer.write(document.filled(fillings(translated)))
    if journal is not None:
        journal.remove()
    return translated


def _journal(output: str, origin: Mapping[str, object], name: str, lines: Sequence[str]) -> TranslationJournal:
    """Open the journal beside an output, and report how many of the lines to translate are in it."""
    from clearhead.translation.journal import TranslationJournal, journal_path

    journal = TranslationJournal(journal_path(output), origin, notice=notice)
    if done := sum(line in journal.translations for line in lines):
        notice(f"{name}: going on, {done:,} of {len(lines):,} lines are in {journal.path}")
    return journal


@contextmanager
def _going_on_later(journal: TranslationJournal | None) -> Iterator[None]:
    """Report where partial results are kept if the translation is interrupted."""
    try:
        yield
    except BaseException:
        if journal is not None and journal.path.exists():
            notice(f"what is done is kept in {journal.path}; the same command continues from there")
        raise


def _outputs(paths: Sequence[str], output: str | None, *, is_jsonl: bool) -> list[str | None]:
    """Return the output path of each document.

    Raises:
        ConfigError: If several documents have no directory or the same name, or an output another extension than its
            document.
    """
    if output is not None and not is_standard_output(output) and _is_directory(output, len(paths)):
        if "-" in paths:
            raise ConfigError("standard input has no name to have in a directory; give --output a file")
        names = [Path(path).name + (".jsonl" if is_jsonl else "") for path in paths]
        if twice := [name for name, times in Counter(names).items() if times > 1]:
            raise ConfigError(
                f"several documents are called {twice[0]}, and {output} can hold one; translate them apart"
            )
        return [os.path.join(output, name) for name in names]
    if len(paths) > 1:
        raise ConfigError("several documents need a directory for their translations: --output DIR")
    if output is not None and _is_lasting(output) and not is_jsonl:
        refuse_other_format(paths[0], output)
    return [output]


def _is_directory(output: str, num_documents: int) -> bool:
    """Return whether an output is a directory, or may be made one: its name ends in / or has no extension."""
    if os.path.exists(output):
        return os.path.isdir(output)
    return output.endswith(os.sep) or (num_documents > 1 and not Path(output).suffix)


def refuse_other_format(path: str, output: str) -> None:
    """Make sure that the translation of a document has an extension of its format.

    Raises:
        ConfigError: If it has not.
    """
    from clearhead.files import display_name
    from clearhead.formats.document_files import is_document, is_same_format

    extension = Path(path).suffix.lower()
    is_alike = Path(output).suffix.lower() == extension or is_same_format(path, output)
    if not is_alike and (is_document(path) or is_document(output)):
        what = f"a {extension} file" if is_document(path) else "plain text"
        raise ConfigError(f"{output} must have another extension, for it will be {what}, as {display_name(path)} is")


def _is_lasting(output: str) -> bool:
    """Return whether an output is, or will be, a regular file."""
    return not is_standard_output(output) and (os.path.isfile(output) or not os.path.exists(output))


def _object(result: TranslatedSegment) -> dict[str, Any]:
    """Return the JSON object of a segment, translated or not."""
    place = {"line": result.segment.line, "place": result.segment.shown_place, "status": result.status}
    if result.translation is None or result.status == "left":
        text = result.segment.translation if result.status == "kept" else result.segment.text
        quality = {} if result.translation is None else {"quality": round(result.translation.quality or 0.0, 4)}
        return {**place, "source": result.segment.text, "text": text, **quality}
    assert result.length_ratio is not None
    from clearhead.translation.result import digits, translation_object

    return {
        **place,
        **translation_object(result.translation),
        "score_per_token": None if result.score_per_token is None else float(digits(result.score_per_token)),
        "length_ratio": round(result.length_ratio, 3),
    }


def other_language(document: Document, translator: Translator, settings: Mapping[str, Any]) -> str:
    """Return which target language the file names, if the model is known to translate into others; else nothing."""
    from clearhead.formats.xml.translation_units import are_related

    asked = settings.get("target_lang") or translator.bundle.decode.target_lang
    targets = [asked] if asked else translator.bundle.languages[1]
    others = [tag for tag in document.target_languages if not any(are_related(tag, target) for target in targets)]
    if not targets or not others:
        return ""
    named = ", ".join(sorted(others))
    return f"the file names {named} as its target language, and the model translates into {', '.join(targets)}"


def _tell(
    name: str,
    document: Document,
    translated: Sequence[TranslatedSegment],
    translator: Translator,
    report: TranslationReport | None,
) -> None:
    """Report on stderr, and on the review page, the segments by status and the suspicious translations."""
    from clearhead.translation.documents import document_summary, num_kept_copies

    left = [result.segment.shown_place for result in translated if result.status == "left"]
    done = [
        (result.segment.shown_place, result.translation)
        for result in translated
        if result.translation is not None and result.status != "left"
    ]
    flagged = sum(bool(translation.warnings) or translation.truncated for _, translation in done)
    notice(f"{document_summary(translated, name=name)}; {flagged:,} flagged")
    if copies := num_kept_copies(translated):
        notice(f"{name}: {copies:,} kept translations equal their sources; --retranslate translates them, too")
    notices = TranslationNotices(name, translator)
    notices.add(done)
    notices.add_left(left)
    notices.tell()
    if report is not None:
        report.add_document(translated, name=name, remarks=document.remarks)
