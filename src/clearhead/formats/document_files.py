"""Document formats by file extension, and how to read a document."""

from __future__ import annotations

import codecs
import csv
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import COMPRESSIONS, format_extension, open_binary
from clearhead.formats.languages import GETTEXT, XLIFF, is_language

if TYPE_CHECKING:
    from clearhead.formats.document import Document


class DocumentFormat(NamedTuple):
    """A document format, and the options of its reader."""

    reader: str
    """Module and name of its reader, which is imported when it is needed: all of them take a fifth of a second."""
    options: tuple[str, ...] = ()
    """Names of the reader's options, such as `columns`; None means that an option is not set."""
    is_binary: bool = False
    """Whether its files are no text, which a terminal cannot show."""

    def read(self, path: str, asked: Mapping[str, Any]) -> Document:
        """Read a file with options of the reader."""
        module, _, name = self.reader.rpartition(".")
        document: Document = getattr(import_module(f"clearhead.formats.{module}"), name)(path, **asked)
        return document


_LONGEST_NUMBER = 6
"""Digits of the number of a column; longer ones are names."""
OF_UNITS = ("from_lang", "to_lang", "skip_bad_units")
DOCUMENTS: dict[str, DocumentFormat] = {
    ".csv": DocumentFormat("tables.document.read_csv", ("columns",)),
    ".docx": DocumentFormat("word.document.read_docx", is_binary=True),
    **dict.fromkeys((".htm", ".html"), DocumentFormat("html.document.read_html")),
    ".json": DocumentFormat("json_document.read_json_strings", ("keys",)),
    **dict.fromkeys((".markdown", ".md"), DocumentFormat("markdown.document.read_markdown")),
    **dict.fromkeys(GETTEXT, DocumentFormat("gettext.document.read_po")),
    ".srt": DocumentFormat("subtitles.document.read_subrip"),
    ".tmx": DocumentFormat("tmx.document.read_tmx", OF_UNITS),
    ".tsv": DocumentFormat("tables.document.read_tsv", ("columns",)),
    ".vtt": DocumentFormat("subtitles.document.read_webvtt"),
    **dict.fromkeys(XLIFF, DocumentFormat("xliff.document.read_xliff", OF_UNITS)),
}
"""Lower-case extension to format."""

ROW_FILES = {
    **dict.fromkeys((".jsonl", ".ndjson"), "JSON lines"),
    ".parquet": "Parquet",
    **dict.fromkeys((".arrow", ".feather"), "Arrow"),
}
"""Extension to format of files of rows with named columns (`row_files`), which are no documents."""

_CATALOGUE = "convert it to XLIFF or PO, with Okapi's Tikal or the Translate Toolkit, for example, and back afterwards"

UNREAD: dict[str, str] = {
    **dict.fromkeys(
        (".arb", ".ftl", ".idml", ".ini", ".lua", ".odp", ".php", ".plist", ".pptx", ".properties"), _CATALOGUE
    ),
    **dict.fromkeys((".resw", ".resx", ".strings", ".stringsdict", ".toml", ".ts", ".xcstrings"), _CATALOGUE),
    **dict.fromkeys((".xml", ".yaml", ".yml"), _CATALOGUE),
    **dict.fromkeys((".json5", ".jsonc"), "remove its comments and save it as .json"),
    **dict.fromkeys((".mdown", ".mdx", ".mkd", ".qmd", ".rmd"), "if all of it is Markdown, name a copy of it .md"),
    **dict.fromkeys((".shtml", ".xht", ".xhtml"), "name a copy of it .html"),
    ".mo": "make a .po of it, with msgunfmt, for example",
    ".po~": "it is the backup of a catalogue; rename a copy of it to .po",
    ".ppt": "save it as .pptx, and convert that to XLIFF, with Okapi's Tikal, for example",
    **dict.fromkeys((".doc", ".odt", ".pages", ".pdf", ".rtf"), "save it as .docx"),
    **dict.fromkeys((".numbers", ".ods", ".xls", ".xlsx"), "save the sheet as .csv"),
    **dict.fromkeys((".adoc", ".epub", ".org", ".rst", ".tex"), "convert it to .md or .docx, with pandoc, for example"),
    **dict.fromkeys(
        (".ass", ".lrc", ".sbv", ".scc", ".ssa", ".sub", ".ttml"),
        "convert it to .srt or .vtt, with ffmpeg, for example",
    ),
    **dict.fromkeys(ROW_FILES, "make a .tsv or .csv of the texts to translate"),
}
"""Extensions of well-known formats that are not read as documents, with what can be done."""

PLAIN_TEXT = ("", ".text", ".txt")
"""Extensions of plain text; the name of a language is one, too, such as `.de`."""

_START_BYTES = 4096


def is_document(path: str) -> bool:
    """Return whether the file's extension is that of a document; compressed documents count, plain text does not.

    >>> is_document("messages.JSON"), is_document("film.srt.gz"), is_document("letter.txt"), is_document("-")
    (True, True, False, False)
    """
    return format_extension(path) in DOCUMENTS


def is_row_file(path: str) -> bool:
    """Return whether the extension of a file is one of `ROW_FILES`.

    >>> is_row_file("corpus.jsonl.gz"), is_row_file("corpus.PARQUET"), is_row_file("corpus.tsv")
    (True, True, False)
    """
    return format_extension(path) in ROW_FILES


def is_binary(path: str) -> bool:
    """Return whether a document is no text, which a terminal cannot show."""
    return is_document(path) and DOCUMENTS[format_extension(path)].is_binary


def has_option(path: str, option: str) -> bool:
    """Return whether the reader of a document has an option.

    >>> has_option("memory.tmx", "to_lang"), has_option("messages.po", "to_lang")
    (True, False)
    """
    return is_document(path) and option in DOCUMENTS[format_extension(path)].options


def is_same_format(path: str, other: str) -> bool:
    """Return whether two names are of the same format of documents.

    >>> is_same_format("messages.pot", "messages.po"), is_same_format("a.csv", "a.tsv"), is_same_format("a", "b")
    (True, False, False)
    """
    kind = DOCUMENTS.get(format_extension(path))
    return kind is not None and kind == DOCUMENTS.get(format_extension(other))


def is_plain_text(path: str) -> bool:
    """Return whether the file's extension is one of plain text: none, `.txt`, `.text`, or a language.

    >>> is_plain_text("letter.TXT.gz"), is_plain_text("train.de"), is_plain_text("-"), is_plain_text("page.mdx")
    (True, True, True, False)
    """
    extension = format_extension(path)
    return extension not in UNREAD and (extension in PLAIN_TEXT or is_language(extension[1:]))


def refuse_foreign_extension(path: str, otherwise: str = "") -> None:
    """Refuse a file that is neither a document nor plain text, instead of translating its markup as text.

    Args:
        path: The file.
        otherwise: What else the user can do.

    Raises:
        DataError: If its extension is another; the message says what can be done.
    """
    if is_document(path) or is_plain_text(path):
        return
    extension = format_extension(path)
    advice = UNREAD.get(
        extension, f"convert it to one of {', '.join(sorted(DOCUMENTS))}; if it is plain text, name a copy of it .txt"
    )
    raise DataError(f"{path}: {extension} files are not read as documents; {advice}{otherwise}")


def refuse_foreign_format(path: str, otherwise: str = "") -> None:
    """Refuse a file that is neither a document nor plain text, by its extension and its beginning.

    Args:
        path: The file; of standard input and of pipes, which can be read only once, the beginning is not read.
        otherwise: What else the user can do.

    Raises:
        DataError: If it is another, or it cannot be read.
    """
    refuse_foreign_extension(path, otherwise)
    if path != "-" and not is_document(path) and Path(path).is_file():
        from clearhead.formats.markup_start import refuse_markup

        with open_binary(path) as stream:
            start = stream.read(_START_BYTES)
        encoding = "utf-16" if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8"
        refuse_markup(start.decode(encoding, "replace"), path, otherwise)


def read_document(path: str, *, paragraphs: bool = False, **options: Any) -> Document:
    """Read a document, or the paragraphs of plain text.

    Args:
        path: The file; `-` is plain text on standard input.
        paragraphs: Read a file that is no document (see `is_document`) as paragraphs of plain text.
        **options: Options of single formats, such as `columns`; an option that is None is not set.

    Raises:
        ConfigError: If the format does not have an option, or the file does not contain what it names.
        DataError: If the file cannot be read, is compressed, is larger than `MOST_BYTES`, or is damaged, or its format
            cannot be read.
    """
    refuse_foreign_format(path)
    extension, asked = format_extension(path), {name: value for name, value in options.items() if value is not None}
    kind = DOCUMENTS.get(extension)
    if kind is None and not paragraphs:
        raise DataError(f"cannot tell the format of {path}; documents end in {', '.join(sorted(DOCUMENTS))}")
    # Every format needs the whole file and random access to it, so a compressed file would have to be unpacked first.
    if (packed := Path(path).suffix.lower()) in COMPRESSIONS:
        raise DataError(f"{path} is a compressed document ({packed}); decompress it first")
    known = ("paragraphs",) if kind is None else kind.options
    given = [*asked, *(["paragraphs"] if paragraphs else [])]
    if idle := [f"--{name.replace('_', '-')}" for name in given if name not in known]:
        what = "plain text" if kind is None else f"a {extension} file"
        raise ConfigError(f"{path}: {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no meaning for {what}")
    if kind is not None:
        return kind.read(path, asked)
    from clearhead.formats.plain_text_document import read_paragraphs

    return read_paragraphs(path)


def typed_names(option: str, value: str) -> list[str]:
    """Return the names in the value of an option, separated by commas; quotation marks enclose one with a comma.

    Raises:
        ConfigError: If they cannot be read.
    """
    try:
        return [name.strip() for name in next(csv.reader([value], skipinitialspace=True, strict=True), [])]
    except csv.Error as error:
        raise ConfigError(f"{option} {value}: {error}") from None


def typed_columns(option: str, value: str) -> list[int | str]:
    """Return the columns in the value of an option as numbers or names.

    Raises:
        ConfigError: If they cannot be read.
    """
    names = typed_names(option, value)
    return [int(name) if name.isdecimal() and len(name) <= _LONGEST_NUMBER else name for name in names]
