"""`clearhead review`: correct the translation of a document on a page."""

from __future__ import annotations

import os
import shlex
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import given, refuse_missing
from clearhead.cli.console import notice, progress
from clearhead.cli.options import OUTPUT, DecodeOptions, Model, with_option_groups
from clearhead.cli.rules import refuse_clashes
from clearhead.cli.search_options import MemoryOptions, TermOptions, report_unconsulted
from clearhead.cli.serve import ListenOptions, require_packages
from clearhead.cli.translate_documents import ReadingOptions, other_language, refuse_other_format, report_skipped
from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.formats.document import Document
    from clearhead.translation.correction_memory import CorrectionMemory
    from clearhead.translation.documents import TranslatedSegment
    from clearhead.translation.memory import Lookup
    from clearhead.translation.review import Review
    from clearhead.translation.review_files import ReviewFiles
    from clearhead.translation.translator import Translator


@with_option_groups
def review(
    context: typer.Context,
    document: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="The document (docs/documents.md); a text file is read as paragraphs of plain text."
        ),
    ],
    model: Model,
    output: Annotated[
        str | None,
        typer.Option(
            *OUTPUT,
            metavar="FILE",
            help="Document to write, with an extension of the same format; needed for a format of one language.",
            show_default="FILE itself, if it has a place for translations",
        ),
    ] = None,
    *,
    address: ListenOptions,
    decoding: DecodeOptions,
    terms: TermOptions,
    reading: ReadingOptions,
) -> None:
    """Review the translation of a document on a page: accept or edit each segment, the most doubtful first.

    Examples:
      clearhead review messages.po runs/de-en
      clearhead review letter.docx runs/de-en -o letter.en.docx --terms terms.tsv
      clearhead review manual.xlf runs/de-en --memory project.sqlite

    What is missing is translated, finished translations are kept. Each change is on disk at once, in a journal beside
    the document; a second later the document has it: entries of a .po are fuzzy until they are reviewed, and targets of
    an .xlf say so in their state. Accepted and edited pairs go into the first --memory that is a .sqlite file, which
    need not exist, and otherwise into one beside the document. Ctrl-C ends the review; the same command continues it.
    """
    refuse_clashes(context)
    refuse_missing([document])
    if document == "-" or is_standard_output(output or document):
        raise ConfigError("a review needs a file that can be written again; name one")
    require_packages("review")

    from clearhead.serving.review import review_app
    from clearhead.serving.server import bind, page_address, served_hosts
    from clearhead.serving.watch import served
    from clearhead.translation.review_files import open_review
    from clearhead.translation.translator import Translator

    if output is not None:
        refuse_other_format(document, output)
    has_others = bool(terms.memory or terms.terms)
    asked = reading.asked(document, has_others=has_others)
    with closing(bind(address.host, address.port)) as listener, open_review(document, output, asked) as files:
        read = files.read(partial(_read, asked=asked, is_in_place=files.is_in_place))
        report_skipped(document, read)
        if files.num_damaged:
            notice(f"{files.journal}: {files.num_damaged:,} changes in it are damaged and not used; check the segments")
        translator = Translator.load(model, device=decoding.device)
        if problem := other_language(read, translator, decoding.settings):
            notice(f"{document}: {problem}")
        languages = _languages(translator, reading, decoding)
        with _session(files, read, translator, terms, decoding.settings, languages) as (session, page):
            app = review_app(session, translator, decoding.settings, page, hosts=served_hosts((), listener))
            with served(app, listener):
                where = page_address(*listener.getsockname()[:2])
                done = f"{session.num_done:,} of {len(session):,} segments done"
                notice(f"{document}: {done}; review it at {where} and end with Ctrl-C")
                _wait()
        _end(session)


@contextmanager
def _session(
    files: ReviewFiles,
    document: Document,
    translator: Translator,
    terms: TermOptions,
    settings: dict[str, Any],
    languages: tuple[str | None, str | None],
) -> Iterator[tuple[Review, dict[str, object]]]:
    """Translate the missing segments; yield the review and the initial data of its page; then write the document.

    Raises:
        ConfigError: If a memory is for other languages, or a setting is impossible.
        DataError: If a memory or terms cannot be read, or the document cannot be written.
    """
    from clearhead.serving.review_page import page_data
    from clearhead.translation.correction_memory import without
    from clearhead.translation.review import Review

    corrections, others = _memories(terms, files, languages)
    memory = others.get("memory")
    with closing(corrections):
        neighbours = others.get("neighbours") or (corrections.nearest if len(corrections) else None)
        arguments = {**terms.arguments, **settings, "neighbours": neighbours}
        if read_terms := terms.reader(settings, *languages):
            arguments |= read_terms(translator)
        report_unconsulted(translator, arguments)
        changed = [document.segments[number] for number in files.changed if number < len(document.segments)]
        # Otherwise the memory would propose the reviewed text itself for a reviewed segment.
        corrected = without(corrections.match, {(segment.text, segment.context) for segment in changed})
        found = [corrected, *([memory] if memory else [])]
        translated = _translated(translator, document, files, found, arguments)
        checked: dict[str, Any] = {"terms": arguments.get("terms"), "memory": memory, "corrections": corrections}
        with _reporting_interruption(files), closing(Review(files, document, translated, **checked)) as session:
            session.save()
            if session.problem:
                raise DataError(session.problem)
            yield session, page_data(Path(files.path).name, languages, str(files.output))
        if terms.memory and len(corrections) and str(corrections.path) not in terms.memory:
            command = _merging(terms.memory, corrections.path, languages)
            notice(f"{', '.join(terms.memory)}: only read; write its pairs and those of this review with `{command}`")


def _read(path: str, *, asked: dict[str, Any], is_in_place: bool) -> Document:
    """Read the document.

    Raises:
        ConfigError: If it has no place for translations, and no other file is named for them.
        DataError: If it cannot be read.
    """
    from clearhead.files.streams import format_extension
    from clearhead.formats.document_files import is_document, read_document

    read = read_document(path, paragraphs=not is_document(path), **asked)
    if is_in_place and (format_extension(path) == ".pot" or not read.keeps_finished):
        raise ConfigError(f"{path} is no place for translations; name another file for them with --output")
    if not read.segments:
        raise ConfigError(f"{path} has no text to translate")
    return read


def _languages(
    translator: Translator, reading: ReadingOptions, decoding: DecodeOptions
) -> tuple[str | None, str | None]:
    """Return the languages of the review, as far as known."""
    from clearhead.translation.translator import target_language

    sources = translator.bundle.languages[0]
    source = reading.from_lang or decoding.source_lang or (sources[0] if len(sources) == 1 else None)
    return source, reading.to_lang or target_language(translator, decoding.settings) or None


def _memories(
    terms: TermOptions, files: ReviewFiles, languages: tuple[str | None, str | None]
) -> tuple[CorrectionMemory, dict[str, Any]]:
    """Return the memory that gets the pairs, and the look-ups of the others, as `MemoryOptions.lookups`.

    Raises:
        ConfigError: If one is for other languages.
        DataError: If one cannot be read.
    """
    from clearhead.formats.memory_database import EXTENSION
    from clearhead.translation.correction_memory import CorrectionMemory

    named = terms.memory or []
    beside = f"{files.output}.memory{EXTENSION}"
    own = next((path for path in named if path.endswith(EXTENSION) and _can_be_written(path)), beside)
    corrections = CorrectionMemory(Path(own), languages, **given(least=terms.fuzzy))
    corrections.match("")  # an impossible share is refused before anything is translated
    notice(f"accepted and edited pairs go into {own}, which has {len(corrections):,}")
    others = MemoryOptions(memory=[path for path in named if path != own])
    return corrections, others.lookups(*languages, least=terms.fuzzy)


def _merging(memories: list[str], corrections: Path, languages: tuple[str | None, str | None]) -> str:
    """Return the command that writes the pairs of memories and corrections into a new TMX, in which the last count.

    A memory is not written itself: a TMX may have notes, properties and languages that its pairs lack.
    """
    new = next(path for number in count(1) if not (path := corrections.with_suffix(f".{number}.tmx")).exists())
    said = zip(("--from-lang", "--to-lang"), languages, strict=True)
    named = [part for option, language in said if language for part in (option, language)]
    return shlex.join(["clearhead", "corpus", "convert", *memories, str(corrections), *named, "-o", str(new)])


def _can_be_written(path: str) -> bool:
    return os.access(path if os.path.exists(path) else os.path.dirname(path) or ".", os.W_OK)


def _translated(
    translator: Translator, document: Document, files: ReviewFiles, found: list[Lookup], arguments: dict[str, Any]
) -> list[TranslatedSegment]:
    """Translate the missing segments, and keep the translations in a file, from which a later review continues."""
    from clearhead.translation.correction_memory import first_of
    from clearhead.translation.documents import document_summary, origin_of, translate_document
    from clearhead.translation.journal import TranslationJournal, journal_path

    arguments = {"quality": True, **arguments}
    settings = {name: value for name, value in arguments.items() if name not in ("reuse_from", "neighbours")}
    # Translations in the file stay valid although the memory grows during a review.
    origin = origin_of(translator, consults=True, **settings)
    journal = TranslationJournal(journal_path(files.output), origin, notice=notice)
    with progress(f"translating {files.path}") as advance:
        translated = translate_document(
            translator,
            document,
            name=files.path,
            only_missing=True,
            memory=first_of(found),
            journal=journal,
            on_progress=advance,
            **arguments,
        )
    notice(document_summary(translated, name=files.path))
    return translated


@contextmanager
def _reporting_interruption(files: ReviewFiles) -> Iterator[None]:
    """Report where the changes are if the end of a review is interrupted, such as by a second Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        notice(f"{files.output} may lack the last changes; the same command continues from {files.journal}")
        raise


def _wait() -> None:
    """Wait for Ctrl-C, the end of the review."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        notice("")


def _end(session: Review) -> None:
    """Report the number of segments left; remove the journals of a finished review.

    Raises:
        DataError: If the document lacks a change.
    """
    from clearhead.translation.journal import journal_path

    files, left = session.files, len(session) - session.num_done
    if session.problem:
        raise DataError(session.problem)
    files.require_unchanged()
    if left or not files.is_in_place:
        more = f"{left:,} left; " if left else ""
        notice(f"wrote {files.output}; {more}the same command continues from {files.journal}")
    else:
        notice(f"wrote {files.output}; all of it is reviewed")
        files.remove()
        journal_path(files.output).unlink(missing_ok=True)
