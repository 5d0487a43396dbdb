"""Languages by code: the code in a file name (`train.de.gz`), and variants."""

from __future__ import annotations

from pathlib import Path

from clearhead.files.streams import COMPRESSIONS
from clearhead.text.language_names import is_two_letter_code


def language_in_name(path: str) -> str | None:
    """Return the ISO 639-1 code at the end of a file's name, before `.gz` and the like; None if there is none.

    >>> language_in_name("train.de.gz"), language_in_name("notes.txt"), language_in_name("de")
    ('de', None, None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    language = suffixes[-1][1:] if suffixes else ""
    return language if is_two_letter_code(language) else None


def is_variant(language: str, asked: str) -> bool:
    """Return whether a language is the requested one or one of its variants.

    >>> is_variant("de_AT", "de"), is_variant("DE", "de"), is_variant("de", "de-AT"), is_variant("den", "de")
    (True, True, False, False)
    """
    found, wanted = (name.replace("_", "-").casefold() for name in (language, asked))
    return found == wanted or found.startswith(f"{wanted}-")
