"""What the tests of documents with markup share."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from clearhead.documents.document import Document, Filling

TAG = re.compile(r"(</?[gx][0-9]+/?>)")


@pytest.fixture
def in_capitals() -> Callable[[str], str]:
    """Return a translation that can be told at sight: capitals, and the tags as they are."""
    return lambda text: "".join(part if TAG.fullmatch(part) else part.upper() for part in TAG.split(text))


@pytest.fixture
def translated(in_capitals) -> Callable[[Document], bytes]:
    """Return what fills a document with that translation."""
    return lambda document: document.filled([Filling(in_capitals(segment.text)) for segment in document.segments])


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
