"""Languages by their names: which one the name of a file ends in (`train.de.gz`), and which are variants of which."""

from __future__ import annotations

from pathlib import Path

from babel import localedata

from clearhead.corpora.text_files import COMPRESSIONS

__all__ = ["is_variant", "language_in_name"]


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


def is_variant(language: str, asked: str) -> bool:
    """Tell whether a language is the one asked for, or one of its variants.

    >>> is_variant("de_AT", "de"), is_variant("DE", "de"), is_variant("de", "de-AT"), is_variant("den", "de")
    (True, True, False, False)
    """
    found, wanted = (name.replace("_", "-").casefold() for name in (language, asked))
    return found == wanted or found.startswith(f"{wanted}-")
