"""Which files are documents, told by their extension, and how each is read."""

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

__all__ = ["DOCUMENTS", "DocumentFormat", "is_document", "read_document"]


class DocumentFormat(NamedTuple):
    """How files of an extension are read."""

    read: Callable[..., Document]
    """Takes the path, and the options by name."""
    options: tuple[str, ...] = ()
    """What may be asked for, such as `columns`; None is always what is not asked for."""


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
"""Extension, in small letters, to format. Files of another one are plain text."""


def is_document(path: str) -> bool:
    """Tell by its extension whether a file is a document, not plain text; a compressed document is one too.

    >>> is_document("messages.JSON"), is_document("film.srt.gz"), is_document("letter.txt"), is_document("-")
    (True, True, False, False)
    """
    return _extension(path) in DOCUMENTS


def read_document(path: str, *, paragraphs: bool = False, **options: Any) -> Document:
    """Read a document, or the paragraphs of plain text.

    Args:
        path: The file; `-` is plain text on standard input.
        paragraphs: Read a file that `is_document` does not know as plain text in paragraphs.
        **options: What some formats can be asked for, such as `columns`; those that are None are not asked for.

    Raises:
        ConfigError: If an option has no meaning for the file, or asks for what is not in it.
        DataError: If the file cannot be read, is compressed, is larger than `MOST_BYTES`, or is damaged.
    """
    extension, asked = _extension(path), {name: value for name, value in options.items() if value is not None}
    found = DOCUMENTS.get(extension)
    if found is None and not paragraphs:
        raise DataError(f"cannot tell the format of {path}; documents end in {', '.join(sorted(DOCUMENTS))}")
    # Every format reads its file whole and looks back in it, so a compressed one would need to be unpacked anyway.
    if (packed := Path(path).suffix.lower()) in COMPRESSIONS:
        raise DataError(f"{path} is a compressed document ({packed}); decompress it first")
    known = ("paragraphs",) if found is None else found.options
    given = [*asked, *(["paragraphs"] if paragraphs else [])]
    if idle := [f"--{name.replace('_', '-')}" for name in given if name not in known]:
        what = "plain text" if found is None else f"a {extension} file"
        raise ConfigError(f"{path}: {', '.join(idle)} {'has' if len(idle) == 1 else 'have'} no meaning for {what}")
    return read_paragraphs(path) if found is None else found.read(path, **asked)


def _extension(path: str) -> str:
    """Return what the name ends in, in small letters, that of a compression left out."""
    name = Path(path)
    return Path(name.stem if name.suffix.lower() in COMPRESSIONS else name.name).suffix.lower()
