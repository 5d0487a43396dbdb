"""Control characters escaped, so that names and quotations in a message cannot give commands to a terminal."""

from __future__ import annotations

import re

# Line feeds and tabs lay out a message; the marks of direction at the end can reverse what is shown.
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def for_terminal(text: str) -> str:
    r"""Return a text with its control characters as escape sequences of Python, except line feeds and tabs.

    >>> for_terminal("\x1b[2Jé.txt is\n\u202ecut off")
    '\\x1b[2Jé.txt is\n\\u202ecut off'
    """
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
