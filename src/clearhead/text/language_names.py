"""Codes, aliases and names of languages, of Unicode CLDR: a table made from Babel by `docs/generate.py`.

Babel itself, whose data takes 32 MB, is needed only for the built-in corpus and for English names (`english_name`).
"""

from __future__ import annotations

import json
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
