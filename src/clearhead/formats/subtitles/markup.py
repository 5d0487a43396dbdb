r"""Markup within cues: tags of SubRip and WebVTT, and codes of ASS such as `{\an8}`, which SubRip players know too."""

from __future__ import annotations

import re

_ASS = r"\{\\[^{}]*\}"
SUBRIP_MARKUP = re.compile(rf"</?(?:b|i|u|s|font)(?:\s[^<>]*)?>|{_ASS}", re.IGNORECASE)
WEBVTT_MARKUP = re.compile(rf"<[^<>]*>|{_ASS}")
"""All tags of WebVTT: formatting, voices, languages, times; players do not show unknown ones either."""

_TAG = re.compile(r"<(/?)([a-zA-Z]+)")
_SWITCH = re.compile(r"\{\\([bisu])([0-9]+)\}")


def form_and_name(markup: str) -> tuple[str, str]:
    r"""Return the form of markup (`open`, `close` or `alone`), and the name that the tags of a pair have in common.

    >>> form_and_name("<c.red>"), form_and_name("</c>"), form_and_name("<00:01.500>")
    (('open', 'c'), ('close', 'c'), ('alone', ''))
    >>> form_and_name(r"{\i1}"), form_and_name(r"{\i0}"), form_and_name(r"{\an8}")
    (('open', '\\i'), ('close', '\\i'), ('alone', ''))
    """
    if tag := _TAG.match(markup):
        return "close" if tag[1] else "open", tag[2].lower()
    if switch := _SWITCH.fullmatch(markup):
        return "open" if int(switch[2]) else "close", f"\\{switch[1]}"
    return "alone", ""
