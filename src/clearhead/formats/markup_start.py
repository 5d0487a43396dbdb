"""Files that are called plain text but begin with markup."""

from __future__ import annotations

import re

from clearhead.errors import DataError
from clearhead.files.streams import display_name

_MARKUP = re.compile(
    r"""[\s\ufeff]*+(?: <(?:\?xml|!doctype|html)\b  |  (?:\[\s*+)*+ \{\s*+ "(?:[^"\\]|\\.)*+" \s*+ : )""",
    re.IGNORECASE | re.VERBOSE,
)
"""The beginning of XML, of HTML, or of an object of JSON."""


def refuse_markup(start: str, path: str, otherwise: str = "") -> None:
    """Refuse a file that is called plain text but begins as XML, HTML or JSON.

    Args:
        start: The beginning of its text.
        path: The file; `-` is standard input.
        otherwise: What else the user can do.

    Raises:
        DataError: If it begins with markup.
    """
    if markup := _MARKUP.match(start):
        raise DataError(
            f"{display_name(path)} is no plain text, for it begins with {markup[0].strip()[:20]!r}; give it the "
            f"extension of its format{otherwise}"
        )
