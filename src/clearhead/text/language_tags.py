"""The tag that may head a source line and names the language to translate into, such as `<2de>`.

It is a token of the vocabulary and no part of the text (Johnson et al. 2017; the paper translates into one language).
"""

from __future__ import annotations

import re
from collections.abc import Collection

__all__ = ["LANGUAGE", "language_tag", "split_tag", "tagged_language"]

LANGUAGE = r"[^\s<>]+"
"""Pattern of the name of a language."""

_TAG = re.compile(rf"\s*<2({LANGUAGE})> ?")


def language_tag(language: str) -> str:
    """Return the tag that asks for a translation into `language`.

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def tagged_language(token: str) -> str | None:
    """Return the language that a token of a vocabulary is the tag of, or None."""
    return token[2:-1] if token.startswith("<2") and token.endswith(">") else None


def split_tag(text: str, languages: Collection[str]) -> tuple[str | None, str]:
    """Split a leading language tag, and the white space before and one space after it, off a source line.

    What looks like a tag is one, also where its language is unknown: `<2`, a name that begins with a letter, `>`. Where
    there are no languages there are no tags, and everything is text.

    >>> split_tag("<2de> Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", ["de", "fr"])
    ('xx', 'Good morning')
    >>> split_tag("<2xx> Good morning", [])
    (None, '<2xx> Good morning')
    """
    match = _TAG.match(text) if languages else None
    if match is None or not (match[1] in languages or match[1][0].isalpha()):
        return None, text
    return match[1], text[match.end() :]
