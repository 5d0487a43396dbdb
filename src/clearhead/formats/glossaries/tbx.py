"""Glossaries in TBX (ISO 30042): versions 2 (`martif`) and 3 (`tbx`, in the styles DCA and DCT), and TBX-Min.

Each term of a concept in the source language has all terms of the concept in the target language as its forms, the
preferred ones first. Deprecated, superseded and obsolete terms are no forms; in a source they are found like others.
Notes, definitions and everything else are left out.
"""

from __future__ import annotations

from collections.abc import Iterator

from clearhead.errors import DataError
from clearhead.files.streams import display_name
from clearhead.formats.glossaries.columns import ColumnRole, term_columns
from clearhead.formats.glossaries.tables import GlossaryRow
from clearhead.formats.pair import Wanted
from clearhead.formats.xml.elements import MAX_SIZE, XmlElement, elements
from clearhead.formats.xml.events import LANGUAGE, read_events
from clearhead.formats.xml.translation_units import MAX_LANGUAGES, language_of, spelt_alike

_ROOTS = {"martif": "termEntry", "tbx": "conceptEntry", "TBX": "entry"}
"""Root elements, with the elements of their concepts."""
_LANGUAGES = {"langSet", "langSec", "langGroup"}
_TERMS = {"tig", "ntig", "termSec", "termGroup"}
"""Elements of a language's terms, with all that is said of them."""
_STATUS = {"administrativeStatus", "normativeAuthorization", "termStatus"}
"""Elements, or types of a `termNote`, that say whether a term is to be used."""
_NOT_TO_USE = ("deprecated", "superseded", "notrecommended", "obsolete", "forbidden")
_PREFERRED = ("preferred", "standardized", "legal", "regulated")
"""Beginnings of their values, such as `deprecatedTerm-admn-sts`."""


def read_tbx(path: str, wanted: Wanted) -> Iterator[GlossaryRow]:
    """Yield the terms of a TBX file, which is read twice.

    Args:
        path: The file; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Languages of terms and translations.

    Raises:
        ConfigError: If the choice of languages is ambiguous.
        DataError: If the file cannot be read, or is no TBX.
    """
    languages: dict[str, str] = {}
    for concept in _concepts(path):
        for language, _ in _terms(concept):
            if len(languages) < MAX_LANGUAGES:
                languages.setdefault(spelt_alike(language), language)
    if not languages:
        return
    roles = [ColumnRole(spelt_alike(language), "") for language in languages]
    chosen = term_columns(path, list(languages.values()), roles, wanted)
    source, target = ([*languages][at] for at in (chosen.source, chosen.forms[0]))
    for concept in _concepts(path):
        sources: list[str] = []
        preferred: list[str] = []
        forms: list[str] = []
        for language, group in _terms(concept):
            text, status = _text_of_term(group), _status(group)
            if spelt_alike(language) == source:
                sources.append(text)
            elif spelt_alike(language) == target and not status.startswith(_NOT_TO_USE):
                (preferred if status.startswith(_PREFERRED) else forms).append(text)
        own = [form for form in (*preferred, *forms) if form]
        for text in filter(None, sources if own else ()):
            yield GlossaryRow(f"{display_name(path)}:{concept.tag.line}", text, own)


def _concepts(path: str) -> Iterator[XmlElement]:
    name = display_name(path)
    root, found = elements(read_events(path), set(_ROOTS.values()), max_size=MAX_SIZE)
    if root.name not in _ROOTS:
        raise DataError(f"{name} is no TBX file: its first element is <{root.name[:40]}>, not {', '.join(_ROOTS)}")
    for concept, _ in found:
        if concept.size > MAX_SIZE:
            raise DataError(f"{name}, line {concept.tag.line}: the concept is longer than {MAX_SIZE:,} characters")
        if concept.tag.name == _ROOTS[root.name]:
            yield concept


def _terms(concept: XmlElement) -> Iterator[tuple[str, XmlElement]]:
    """Yield the groups of a concept's terms, each with its language."""
    for language in concept.elements:
        if language.tag.name in _LANGUAGES:
            code = language_of(language.tag.attributes, LANGUAGE, "lang")
            yield from ((code, group) for group in language.elements if group.tag.name in _TERMS)


def _text_of_term(group: XmlElement) -> str:
    """Return the term of a group, without its markup."""
    term = next((element for element in (group, *group.within()) if element.tag.name == "term"), None)
    return " ".join(_text(term).split()) if term is not None else ""


def _text(element: XmlElement) -> str:
    return "".join(part if isinstance(part, str) else _text(part) for part in element.parts)


def _status(group: XmlElement) -> str:
    """Return whether a term is to be used, in small letters; empty if nothing is said."""
    for element in group.within():
        if element.tag.name in _STATUS or element.tag.attributes.get("type") in _STATUS:
            return element.text.strip().casefold()
    return ""
