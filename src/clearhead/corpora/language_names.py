"""The language that the name of a file says its text is in, as is the custom with parallel text: `train.de.gz`."""

from __future__ import annotations

from pathlib import Path

from babel import localedata

from clearhead.corpora.text_files import COMPRESSIONS

__all__ = ["language_in_name"]


def language_in_name(path: str) -> str | None:
    """Return the two letters of a language (ISO 639-1) that a file's name ends in, before `.gz` and its like, or None.

    >>> language_in_name("train.de.gz"), language_in_name("notes.txt"), language_in_name("de")
    ('de', None, None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    language = suffixes[-1][1:] if suffixes else ""
    return language if len(language) == 2 and language.isalpha() and localedata.exists(language) else None
