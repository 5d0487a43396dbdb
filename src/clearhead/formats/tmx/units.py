"""Units of TMX files (1.1 to 1.4): their texts in every language, as elements; and the check that a file is TMX."""

from __future__ import annotations

from clearhead.errors import DataError
from clearhead.formats.xml.elements import XmlElement
from clearhead.formats.xml.events import LANGUAGE, StartTag
from clearhead.formats.xml.translation_units import language_of

UNITS = {"header", "tu"}
"""Names of the elements to read: the header, which names the source language, and the units."""


def refuse_other(root: StartTag, name: str) -> None:
    """Raise `DataError` if the first element of a file is not that of a TMX.

    Args:
        root: Its start tag.
        name: Name of the file in messages.
    """
    if root.name != "tmx":
        raise DataError(f"{name}, line {root.line}: the first element is <{root.name}>; a TMX has <tmx>")


def texts_of(unit: XmlElement) -> list[tuple[str, XmlElement | None]]:
    """Return the texts of a unit with their languages, in order; texts of an unnamed language are omitted.

    Languages without a text (a `tuv` without `seg`) come last, with None.
    """
    texts = [
        (language, version.first_children().get("seg"))
        for version in unit.children("tuv")
        if (language := language_of(version.tag.attributes, LANGUAGE, "lang"))
    ]
    return sorted(texts, key=lambda text: text[1] is None)
