"""Language tags: a tag at the start of a source line names the target language, such as `<2de>`.

A tag is a token of the vocabulary and not part of the text (Johnson et al. 2017; the paper translates into one
language). `>>de<<`, as OPUS-MT's models are told the language, is the same tag.
"""

from __future__ import annotations

import re
from collections.abc import Collection

LANGUAGE = r"[^\s<>]+"
"""Pattern of the name of a language."""

TAG = re.compile(rf"\s*(?:<2(?P<ours>{LANGUAGE})>|>>(?P<marian>{LANGUAGE})<<) ?")
CODE = re.compile(r"[a-z]{2,3}(_\w+)?")
"""What an unknown name in `>>` and `<<` must look like to be a language; another, such as `>>Note<<`, is text."""


def language_tag(language: str) -> str:
    """Return the tag that requests a translation into `language`.

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def tagged_language(token: str) -> str | None:
    """Return the language of a tag token, or None for another token."""
    return token[2:-1] if token.startswith("<2") and token.endswith(">") else None


def split_tag(text: str, languages: Collection[str]) -> tuple[str | None, str]:
    """Split a leading language tag off a source line, with the white space before it and one space after it.

    Anything of the form of a tag is one, even if its language is unknown: `<2`, a name that begins with a letter, `>`;
    or `>>`, a code of two or three letters, `<<`. If there are no languages, there are no tags, and everything is text.

    >>> split_tag("<2de> Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", ["de", "fr"])
    ('xx', 'Good morning')
    >>> split_tag(">>de<< Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", [])
    (None, '<2xx> Good morning')
    """
    match = TAG.match(text) if languages else None
    if match is None:
        return None, text
    name = match["ours"] or match["marian"]
    is_like_one = name[0].isalpha() if match["ours"] else CODE.fullmatch(name)
    return (name, text[match.end() :]) if name in languages or is_like_one else (None, text)
