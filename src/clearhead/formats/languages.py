"""Languages by code: the code in a file name (`train.de.gz`), and variants; extensions that both readers know."""

from __future__ import annotations

from collections.abc import Iterable

from clearhead.files.streams import format_extension
from clearhead.text.languages import codes_by_name, is_two_letter_code, usual_code


def language_in_name(path: str) -> str | None:
    """Return the ISO 639-1 code at the end of a file's name, before `.gz` and the like; None if there is none.

    >>> language_in_name("train.de.gz"), language_in_name("notes.txt"), language_in_name("de")
    ('de', None, None)
    """
    language = format_extension(path)[1:]
    return language if is_two_letter_code(language) else None


def is_language(name: str) -> bool:
    """Return whether a name is the code or the name of a language, possibly with region and script.

    Other codes of three letters for a language that has such a code itself do not count: extensions look like them.

    >>> is_language("de"), is_language("pt_BR"), is_language("eng_Latn"), is_language("xsl"), is_language("")
    (True, True, True, False, False)
    """
    own = name.replace("_", "-").partition("-")[0].lower()
    usual = codes_by_name().get(own, "")
    return usual == own != "" or is_two_letter_code(usual)


def is_variant(language: str, asked: str) -> bool:
    """Return whether a language is the requested one or one of its variants.

    >>> is_variant("de_AT", "de"), is_variant("DE", "de"), is_variant("de", "de-AT"), is_variant("den", "de")
    (True, True, False, False)
    """
    named, wanted = (name.replace("_", "-").casefold() for name in (language, asked))
    return named == wanted or named.startswith(f"{wanted}-")


def without_region(code: str) -> str:
    """Return the code of a language without region and script, in its usual form.

    >>> without_region("de-AT"), without_region("ZH_Hant"), without_region("deu")
    ('de', 'zh', 'de')
    """
    return usual_code(code.replace("_", "-").partition("-")[0].lower())


def in_common(codes: Iterable[str | None]) -> str | None:
    """Return the language that files name, without its region where they differ in it; None for several languages.

    >>> in_common(["de-AT", None]), in_common(["de-AT", "de"]), in_common(["de", "fr"]), in_common([None])
    ('de-AT', 'de', None, None)
    """
    named = {code for code in codes if code}
    alike = named if len(named) == 1 else {without_region(code) for code in named}
    return next(iter(alike)) if len(alike) == 1 else None


GETTEXT = (".po", ".pot")
"""Catalogues of gettext as text; a `.pot` is a template, without translations."""
XLIFF = (".mqxliff", ".mxliff", ".sdlxliff", ".txlf", ".xlf", ".xliff")
"""XLIFF files, also those of memoQ, Phrase, Trados and Wordfast."""
