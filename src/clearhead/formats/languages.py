"""Languages by name: the language code in a file name (`train.de.gz`), variants, and English names."""

from __future__ import annotations

from pathlib import Path

from babel import Locale, UnknownLocaleError, localedata

from clearhead.files.streams import COMPRESSIONS

LOCALES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ja")


def language_in_name(path: str) -> str | None:
    """Return the ISO 639-1 code at the end of a file's name, before `.gz` and the like; None if there is none.

    >>> language_in_name("train.de.gz"), language_in_name("notes.txt"), language_in_name("de")
    ('de', None, None)
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    if suffixes and suffixes[-1] in COMPRESSIONS:
        suffixes.pop()
    language = suffixes[-1][1:] if suffixes else ""
    return language if len(language) == 2 and language.isalpha() and localedata.exists(language) else None


def is_variant(language: str, asked: str) -> bool:
    """Return whether a language is the requested one or one of its variants.

    >>> is_variant("de_AT", "de"), is_variant("DE", "de"), is_variant("de", "de-AT"), is_variant("den", "de")
    (True, True, False, False)
    """
    found, wanted = (name.replace("_", "-").casefold() for name in (language, asked))
    return found == wanted or found.startswith(f"{wanted}-")


def english_name(code: str) -> str | None:
    """Return the English name of a language, or None if its code is unknown.

    >>> english_name("de"), english_name("pt-BR"), english_name("x1")
    ('German', 'Portuguese (Brazil)', None)
    """
    try:
        return Locale.parse(code.replace("_", "-"), sep="-").get_display_name("en")
    except (UnknownLocaleError, ValueError):
        return None
