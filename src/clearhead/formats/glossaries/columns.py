"""Which columns of a glossary hold terms and translations, by their header or by the languages of a TBX file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from clearhead.errors import ConfigError
from clearhead.files.streams import display_name
from clearhead.formats.languages import is_variant
from clearhead.formats.pair import Wanted
from clearhead.formats.tables.columns import TAG, language_named
from clearhead.text.languages import codes_by_name
from clearhead.text.lines import first_few

_WORDS = {
    "source": "source src original quelle quellsprache origen origine bron",
    "target": "target tgt trg ziel zielsprache cible destino vertaling translation translations translated übersetzung "
    "übersetzungen traduction traductions traducción traduzione tradução tłumaczenie",
    "term": "term terms entry begriff benennung terme termes término termine termo termin",
    "form": "form forms variant variants inflection inflections formen varianten formes variantes",
    "note": "note notes comment comments remark remarks definition definitions description context domain category pos "
    "status usage example examples id no nr bemerkung anmerkung kommentar kontext kategorie quellenangabe remarque "
    "commentaire définition contexte domaine nota notas comentario definición opmerking",
    "": "text language lang sprache langue idioma the of",
}
"""Words of a header by what their column holds, in several languages; those of the empty key say nothing."""
_HOLDS = {word: what for what, words in _WORDS.items() for word in words.split()}
_SIDES = ("source", "target", "term", "form", "note")
"""What a column holds, what decides first: `source term` holds the source, `term variants` other forms."""
_WORD = re.compile(rf"(?:{TAG.pattern})|[^\W_]+")
_LONGEST_NAME = 50
"""Characters of the longest cell that is taken for the name of a column."""
_LONGEST_CODE = 5
"""Characters of a language with its region."""
_LENGTH_OF_WORDS = 3
"""Characters of the codes of languages that may be words."""


class ColumnRole(NamedTuple):
    """What the name of a column says."""

    language: str
    """Language of its texts; empty if the name has none."""
    holds: str
    """One of `_SIDES`; empty if the name is only a language."""


class TermColumns(NamedTuple):
    """The columns of a glossary, counted from 0."""

    source: int
    """Column of the terms."""
    forms: tuple[int, ...]
    """Columns of the translations, the one with the required translation first."""


def role_of(name: str, wanted: Wanted = Wanted()) -> ColumnRole | None:
    """Return what the name of a column says; None if it is no name of a column.

    Args:
        name: The name.
        wanted: Languages whose codes are never taken for words: `id` is Indonesian if that is requested. Codes of three
            letters, such as `cat`, are words unless they are requested.

    >>> role_of("English term"), role_of("fr_FR")
    (ColumnRole(language='en', holds='term'), ColumnRole(language='fr-FR', holds=''))
    >>> role_of("Comments"), role_of("gearbox")
    (ColumnRole(language='', holds='note'), None)
    """
    asked = {language_named(language) or language for language in (wanted.from_lang, wanted.to_lang) if language}

    def language_of(word: str) -> str:
        code = language_named(word) or ""
        return "" if len(word) == _LENGTH_OF_WORDS and code not in asked else code

    if name.strip() in asked:
        return ColumnRole(name.strip(), "")
    words = [match[0] for match in _WORD.finditer(name)] if len(name) <= _LONGEST_NAME else []
    sides, language = set(), ""
    if _HOLDS.get(name.strip().casefold()) is None and (language := language_of(name.strip())):
        return ColumnRole(language, "")
    for word in words:
        if (side := _HOLDS.get(word.casefold())) is not None:
            sides.add(side)
        elif not language and (said := language_of(word)):
            language = said
        elif not (language and len(word) == 2 and word.isupper()):  # a region, as in `English (UK)`
            return None
    holds = next((side for side in _SIDES if side in sides), "")
    return ColumnRole(language, holds) if language or holds else None


def names_columns(row: Sequence[str], wanted: Wanted = Wanted()) -> bool:
    """Return whether a row is a header: its names say two or more different things.

    A term and its translation mean the same, so that they are no header even if both could be names of columns. Nor is
    a row with the codes of its languages behind both, as DeepL writes them.

    Args:
        row: The texts of its cells.
        wanted: As for `role_of`.

    >>> names_columns(["Term", "Translation", "Note"]), names_columns(["term", "Begriff"])
    (True, False)
    >>> names_columns(["dog", "Hund", "en", "de"])
    False
    """
    roles = [role_of(cell, wanted) for cell in row]
    if len(row) == 4 and roles[0] is roles[1] is None and all(len(cell.strip()) <= _LONGEST_CODE for cell in row[2:]):
        return False
    return len({role for role in roles if role is not None}) >= 2


def term_columns(path: str, names: Sequence[str], roles: Sequence[ColumnRole | None], wanted: Wanted) -> TermColumns:
    """Choose the columns of terms and translations.

    The requested languages decide; a variant such as `en-GB` counts for `en`, and `en` for `en-GB`. A side without a
    column of its language is the column that is called source or target. With no language known, the two columns of a
    glossary in two languages are read in their order.

    Args:
        path: The file, for messages.
        names: Names of all columns, for messages.
        roles: What they say.
        wanted: The requested languages.

    Raises:
        ConfigError: If the choice is ambiguous.
    """
    named = [at for at, role in enumerate(roles) if role and role.language and role.holds not in ("form", "note")]
    source = _columns_of(roles, named, wanted.from_lang, ("source", "term"))
    target = _columns_of(roles, named, wanted.to_lang, ("target",))
    others = [at for at in named if at not in {*source, *target}]
    if not source and not target and len(others) == 2:
        source, target = others[:1], others[1:]
    elif not source and wanted.from_lang is None and len(others) == 1:
        source = others
    elif not target and wanted.to_lang is None and len(others) == 1:
        target = others
    if len(source) != 1 or not target or source == target:
        asked = ", ".join(f"{lang!r}" for lang in (wanted.from_lang, wanted.to_lang) if lang) or "none"
        raise ConfigError(
            f"{display_name(path)}: it is not clear where terms and translations are; it has "
            f"{first_few([repr(name[:40]) for name in names if name.strip()], 20)}, and the languages asked for are "
            f"{asked}; name two of its languages with --from-lang and --to-lang (in Python from_lang and to_lang), or "
            f"call two columns 'source' and 'target'"
        )
    languages = {"", *(role.language for at in target if (role := roles[at]))}
    forms = [at for at, role in enumerate(roles) if role and role.holds == "form" and role.language in languages]
    return TermColumns(source[0], (*target, *forms))


def _columns_of(
    roles: Sequence[ColumnRole | None], named: Sequence[int], language: str | None, sides: Sequence[str]
) -> list[int]:
    """Return the columns of a language, which all are named alike; else those of the first side that has any."""
    asked = codes_by_name().get((language or "").casefold(), language) or ""
    fits: list[Callable[[str], bool]] = [
        lambda own: is_variant(own, asked) and is_variant(asked, own),
        lambda own: is_variant(own, asked),
        lambda own: is_variant(asked, own),
    ]
    for fit in fits if asked else ():
        own = [at for at in named if (role := roles[at]) and fit(role.language)]
        if own:
            return own if len({role.language for at in own if (role := roles[at])}) == 1 else []
    for side in sides:
        there = [at for at, role in enumerate(roles) if role and role.holds == side and not (asked and role.language)]
        if there:
            return there
    return []
