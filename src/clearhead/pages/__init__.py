"""Pages that need nothing else: HTML and CSS as files of the package, filled with escaped text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from html import escape
from importlib.resources import files
from string import Template

__all__ = ["Html", "fill", "joined", "style"]


class Html(str):
    """Text that is HTML already, and is not escaped again."""

    __slots__ = ()


def fill(name: str, /, **values: object) -> Html:
    """Return a file of this folder with its `$names` replaced.

    Args:
        name: The file, such as `data_doctor.html`, or a `template` element of it, such as `data_doctor_parts.html#row`.
        values: What stands for each name; all but `Html` is escaped, also for attributes in quotation marks.

    Raises:
        KeyError: If the file has a name without a value, which is a mistake of ours.
    """
    escaped = {key: value if isinstance(value, Html) else escape(str(value)) for key, value in values.items()}
    return Html(_template(name).substitute(escaped))


def joined(parts: Iterable[Html]) -> Html:
    """Return parts of a page one after the other."""
    return Html("".join(parts))


def style() -> Html:
    """Return the style sheet that all pages share."""
    return Html(_read("style.css"))


@cache
def _template(name: str) -> Template:
    file, _, part = name.partition("#")
    text = _read(file)
    return Template(dict(_PARTS.findall(text))[part] if part else text)


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


_PARTS = re.compile(r'<template id="(\w+)">\n(.*?)</template>', re.DOTALL)
