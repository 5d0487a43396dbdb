"""Codes, names, plural forms and direction of languages, of Unicode CLDR: a table that `docs/generate.py` makes.

It is made from Babel, whose data takes 32 MB; Babel itself is needed only for the built-in corpus and for English names
(`english_name`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

LOCALES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ja")
"""Languages of the built-in corpus; the names of all languages in these are known."""


def is_two_letter_code(language: str) -> bool:
    """Return whether a text is the ISO 639-1 code of a language, in small letters.

    >>> is_two_letter_code("de"), is_two_letter_code("xx"), is_two_letter_code("deu")
    (True, False, False)
    """
    return language in _table()["two_letter_codes"]


def usual_code(code: str) -> str:
    """Return the code that CLDR uses instead of another code of a language, possibly with a country.

    >>> usual_code("deu"), usual_code("swc"), usual_code("yue")
    ('de', 'sw_CD', 'yue')
    """
    return str(_table()["aliases"].get(code, code))


def english_name(code: str) -> str | None:
    """Return the English name of a language, or None if its code is unknown.

    >>> english_name("de"), english_name("pt-BR"), english_name("x1")
    ('German', 'Portuguese (Brazil)', None)
    """
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("_", "-"), sep="-").get_display_name("en")
    except (UnknownLocaleError, ValueError):
        return None


def plural_forms(language: str) -> str:
    """Return the rule of a language's plural forms as gettext writes it; empty if it is unknown.

    >>> plural_forms("de-AT"), plural_forms("pt_BR"), plural_forms("ja"), plural_forms("xx")
    ('nplurals=2; plural=(n != 1);', 'nplurals=2; plural=(n > 1);', 'nplurals=1; plural=0;', '')
    """
    rules: dict[str, str] = _table()["plural_forms"]
    return next((rules[code] for code in _shortened(language) if code in rules), "")


def is_right_to_left(language: str) -> bool:
    """Return whether a language is written from right to left.

    >>> is_right_to_left("ar-EG"), is_right_to_left("pa_Arab"), is_right_to_left("pa"), is_right_to_left("de")
    (True, True, False, False)
    """
    return not set(_table()["right_to_left"]).isdisjoint(_shortened(language))


def _shortened(language: str) -> Iterator[str]:
    """Yield a language with region and script, in the form of CLDR, and without them."""
    parts = language.replace("-", "_").split("_")
    parts = [usual_code(parts[0].lower()), *(part.title() if len(part) > 2 else part.upper() for part in parts[1:])]
    return ("_".join(parts[:length]) for length in range(len(parts), 0, -1))


@cache
def codes_by_name() -> dict[str, str]:
    """Return a mapping from codes and casefolded names of languages to codes.

    >>> codes = codes_by_name()
    >>> codes["german"], codes["deutsch"], codes["deu"], codes["de"]
    ('de', 'de', 'de', 'de')
    """
    names: dict[str, str] = _table()["names"]
    found = {name: code for code, all_names in names.items() for name in all_names.split("; ")}
    return found | _table()["aliases"] | dict(zip(names, names, strict=True))


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return table
