"""What the tests of documents share."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import DataError
from clearhead.formats.document import Document, Filling
from clearhead.formats.document_files import read_document

TAG = re.compile(r"(</?[gx][0-9]+/?>)")


@pytest.fixture(scope="session")
def read(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Document]:
    """Return a function that writes a file and reads it as a document; unfilled it comes back byte for byte."""
    directory = tmp_path_factory.mktemp("documents")

    def read_written(name: str, content: str | bytes, **options: Any) -> Document:
        path = directory / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        document = read_document(str(path), **options)
        assert document.filled([None] * len(document.segments)) == path.read_bytes()
        return document

    return read_written


@pytest.fixture(scope="session")
def directory(read: Callable[..., Document]) -> Path:
    """Return where `read` writes."""
    return Path(read("letter.txt", "", paragraphs=True)._source.path).parent


@pytest.fixture(scope="session")
def fill() -> Callable[..., str]:
    """Return a function that puts translations into a document, all or those of a dict, and returns it as text."""

    def filled(document: Document, translations: Callable[[str], str] | dict[str, str]) -> str:
        if callable(translations):
            return document.filled([Filling(translations(one.text)) for one in document.segments]).decode()
        assert translations.keys() <= {one.text for one in document.segments}
        return document.filled(
            [Filling(translations[one.text]) if one.text in translations else None for one in document.segments]
        ).decode()

    return filled


@pytest.fixture(scope="session")
def places() -> Callable[[Document], list[tuple[int, str]]]:
    """Return a function from a document to line and text of its segments."""
    return lambda document: [(one.line, one.text) for one in document.segments]


@pytest.fixture
def in_capitals() -> Callable[[str], str]:
    """Return a translation that can be told at sight: capitals, and the tags as they are."""
    return lambda text: "".join(part if TAG.fullmatch(part) else part.upper() for part in TAG.split(text))


@pytest.fixture
def translated(in_capitals) -> Callable[[Document], bytes]:
    """Return what fills a document with that translation."""
    return lambda document: document.filled([Filling(in_capitals(segment.text)) for segment in document.segments])


@pytest.fixture
def survives_damage(read_text, translated) -> Callable[..., None]:
    """Return a check that files with damages are refused with a `DataError`, or read and filled."""

    def check(reader: Callable[..., Document], files: Iterable[bytes]) -> None:
        for content in files:
            with suppress(DataError):
                translated(read_text(reader, content))

    return check


@pytest.fixture
def read_text(tmp_path) -> Callable[..., Document]:
    """Return what reads a document from bytes or text, and checks that it comes back untouched."""

    def read(reader: Callable[..., Document], content: bytes | str, **options) -> Document:
        path: Path = tmp_path / "document"
        data = content if isinstance(content, bytes) else content.encode()
        path.write_bytes(data)
        document = reader(str(path), **options)
        assert document.filled([None] * len(document.segments)) == data
        return document

    return read
