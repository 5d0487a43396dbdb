"""Document formats by file extension, and how to read a document."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import COMPRESSIONS
from clearhead.formats.document import Document
from clearhead.formats.gettext.document import read_po
from clearhead.formats.html.document import read_html
from clearhead.formats.json_document import read_json_strings
from clearhead.formats.markdown.document import read_markdown
from clearhead.formats.plain_text_document import read_paragraphs
from clearhead.formats.subtitles.document import read_subrip, read_webvtt
from clearhead.formats.tables.document import read_csv, read_tsv
from clearhead.formats.tmx.document import read_tmx
from clearhead.formats.word.document import read_docx
from clearhead.formats.xliff.document import read_xliff


class DocumentFormat(NamedTuple):
    """Reader and options of a document format."""

    read: Callable[..., Document]
    """Reader; takes the path, and the options as keyword arguments."""
    options: tuple[str, ...] = ()
    """Names of the reader's options, such as `columns`; None means that an option is not set."""


DOCUMENTS: dict[str, DocumentFormat] = {
    ".csv": DocumentFormat(read_csv, ("columns",)),
    ".docx": DocumentFormat(read_docx),
    ".htm": DocumentFormat(read_html),
    ".html": DocumentFormat(read_html),
    ".json": DocumentFormat(read_json_strings),
    ".markdown": DocumentFormat(read_markdown),
    ".md": DocumentFormat(read_markdown),
    ".po": DocumentFormat(read_po),
    ".srt": DocumentFormat(read_subrip),
    ".tmx": DocumentFormat(read_tmx, ("from_lang", "to_lang")),
    ".tsv": DocumentFormat(read_tsv, ("columns",)),
    ".vtt": DocumentFormat(read_webvtt),
    ".xlf": DocumentFormat(read_xliff),
    ".xliff": DocumentFormat(read_xliff),
}
"""Lower-case extension to format. Files with any other extension are plain text."""


def is_document(path: str) -> bool:
    """Return whether the file's extension is that of a document; compressed documents count, plain text does not.

    >>> is_document("messages.JSON"), is_document("film.srt.gz"), is_document("letter.txt"), is_document("-")
    (True, True, False, False)
    """
    return _extension(path) in DOCUMENTS


def read_document(path: str, *, paragraphs: bool = False, **options: Any) -> Document:
    """Read a document, or the paragraphs of plain text.

    Args:
        path: The file; `-` is plain text on standard input.
        paragraphs: Read a file that is no document (see `is_document`) as paragraphs of plain text.
        **options: Options of single formats, such as `columns`; an option that is None is not set.

    Raises:
        ConfigError: If the format does not have an option, or the file does not contain what it names.
        DataError: If the file cannot be read, is compressed, is larger than `MOST_BYTES`, or is damaged.
    """
    extension, asked = _extension(path), {name: value for name, value in options.items() if value is not None}
    found = DOCUMENTS.get(extension)
    if found is None and not paragraphs:
        raise DataError(f"cannot tell the format of {path}; documents end in {', '.join(sorted(DOCUMENTS))}")
    # Every format needs the whole file and random access to it, so a compressed file would have to be unpacked first.
    if (packed := Path(path).suffix.lower()) in COMPRESSIONS:
        raise DataError(f"{path} is a compressed document ({packed}); decompress it first")
    known = ("paragraphs",) if found is None else found.options
    given = [*asked, *(["paragraphs"] if paragraphs else [])]
    if idle := [f"--{name.replace('_', '-')}" for name in given if name not in known]:
        what = "plain text" if found is None else f"a {extension} file"
        raise ConfigError(f"{path}: {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no meaning for {what}")
    return read_paragraphs(path) if found is None else found.read(path, **asked)


def _extension(path: str) -> str:
    """Return the file's extension in lower case, ignoring the extension of a compression."""
    name = Path(path)
    return Path(name.stem if name.suffix.lower() in COMPRESSIONS else name.name).suffix.lower()
