"""Ids that programs make of the words of headings, and the links in a page that name them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator

from clearhead.text.unicode_forms import normalized

_LINK = re.compile(r"""\]\([ \t]*+<?#([^)>\s]+)|\]:[ \t]*+<?#([^>\s]+)|\bhref=["']#([^"']+)""")
_OWN_ID = re.compile(r"""\{[ \t]?#([\w:.-]++)[^{}\n]*+\}|\b(?:id|name)=["']([^"']+)|^\(([\w-]+)\)=""", re.MULTILINE)
_NO_WORD = re.compile(r"[^\w\s-]")
_SPACES = re.compile(r"\s")
_RUN_OF_SPACES = re.compile(r"[-\s]+")


def linked_ids(text: str) -> frozenset[str]:
    """Return the ids that links of a page name, except those that the page gives itself.

    >>> sorted(linked_ids("[a](#red-boat) [b](#oar) <a href='#x'> <a name='oar'>"))
    ['red-boat', 'x']
    """
    return _ids(_LINK, text) - _ids(_OWN_ID, text)


def has_own_ids(heading: str) -> bool:
    """Return whether a heading gives its id itself, as `{#id}`."""
    return _OWN_ID.search(heading) is not None


def heading_ids(headings: Iterable[str]) -> Iterator[frozenset[str]]:
    """Yield for each heading of a page the ids that programs make of its words.

    GitHub and most others keep all letters, and number the same id with a hyphen; Python-Markdown keeps ASCII, and
    numbers it with an underscore.

    >>> [sorted(ids) for ids in heading_ids(["Rote  Boote, 2!", "Öl", "Öl"])]
    [['rote--boote-2', 'rote-boote-2'], ['ol', 'öl'], ['ol_1', 'öl-1']]
    """
    times: Counter[tuple[str, str]] = Counter()
    for heading in headings:
        plain = normalized(heading, "NFKD").encode("ascii", "ignore").decode()
        ids = set()
        for made, mark in (
            (_SPACES.sub("-", _NO_WORD.sub("", heading).strip().lower()), "-"),
            (_RUN_OF_SPACES.sub("-", _NO_WORD.sub("", plain).strip().lower()), "_"),
        ):
            number = times[made, mark]
            times[made, mark] += 1
            ids.add(f"{made}{mark}{number}" if number else made)
        yield frozenset(ids)


def _ids(pattern: re.Pattern[str], text: str) -> frozenset[str]:
    return frozenset(name for match in pattern.finditer(text) for name in match.groups() if name)
