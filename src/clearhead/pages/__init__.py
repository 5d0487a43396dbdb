"""Self-contained HTML pages: templates, CSS and JavaScript files of the package, filled with escaped values."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from posixpath import dirname, normpath
from string import Template
from types import MappingProxyType
from typing import Any

__all__ = ["Html", "constants_module", "content_policy", "data_block", "fill", "joined", "picture", "script", "style"]


class Html(str):
    """Text that is already HTML, and is not escaped again."""

    __slots__ = ()


def fill(name: str, /, **values: object) -> Html:
    """Return a template file of this folder with its `$names` replaced.

    Args:
        name: The file, such as `report.html`, or a `template` element of it, such as `report_parts.html#row`.
        values: Value for each name. Values other than `Html` are escaped, also for use in quoted attributes.

    Raises:
        KeyError: If a name in the file has no value, which is a programming error.
    """
    escaped = {key: value if isinstance(value, Html) else escape(str(value)) for key, value in values.items()}
    return Html(_template(name).substitute(escaped))


def joined(parts: Iterable[Html]) -> Html:
    """Join parts of a page."""
    return Html("".join(parts))


def style(*names: str) -> Html:
    """Return the style sheet shared by all pages, followed by the given ones."""
    return joined(Html(_read(name)) for name in ("style.css", *names))


def script(
    name: str,
    instead: Mapping[str, str] = MappingProxyType({}),
    made: Mapping[str, str] = MappingProxyType({}),
    *,
    has_exports: bool = False,
) -> Html:
    """Return a JavaScript module bundled with all its imports, because a page opened from disk cannot load modules.

    Modules import each other only by name (`import { a } from "./b.js";`); in the bundle they share one namespace.

    Args:
        name: The module, such as `explain/main.js`.
        instead: Modules that take the place of others.
        made: Text of modules that are no files.
        has_exports: Whether the bundle exports what the module does.
    """
    parts: dict[str, str] = {}

    def add(module: str) -> None:
        if module in parts:
            return
        parts[module] = ""  # stops the recursion if two modules import each other
        text = made.get(module) or _read(module)
        for other in _IMPORT.findall(text):
            path = normpath(f"{dirname(module)}/{other}")
            add(instead.get(path, path))
        del parts[module]  # moves the module after its imports
        own = _IMPORT.sub("", text)
        parts[module] = own if has_exports and module == name else _EXPORT.sub("", own)

    add(name)
    return Html("".join(parts.values()))


def constants_module(name: str, values: Any) -> str:
    """Return a JavaScript module that exports a value of plain types, for `script`."""
    return f"export const {name} = {data_block(values)};\n"


def picture(name: str) -> Html:
    """Return an SVG picture of this folder."""
    return Html(_read(name))


def data_block(value: Any) -> Html:
    """Return a value of plain types as JSON for a script element of type `application/json`."""
    # "</" would end the element and "<!--" would open a comment; the escape is equivalent in JSON.
    return Html(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c"))


def content_policy(*allowed: str, styles: Iterable[str], scripts: Iterable[str]) -> str:
    """Return a Content-Security-Policy that allows these styles and scripts, and nothing else.

    Args:
        *allowed: Further directives, such as `connect-src 'self'`.
        styles: The contents of the style elements.
        scripts: The contents of the script elements, or other sources in single quotes.
    """
    rules = [
        f"script-src {' '.join(map(_source, scripts))}",
        f"style-src {' '.join(map(_source, styles))}",
        *allowed,
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return "; ".join(["default-src 'none'", *rules])


def _source(text: str) -> str:
    return text if re.fullmatch("'[a-z-]+'", text) else f"'{_hash(text)}'"


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def _template(name: str) -> Template:
    file, _, part = name.partition("#")
    text = _read(file)
    return Template(dict(_PARTS.findall(text))[part] if part else text)


def _read(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


_IMPORT = re.compile(r'^import \{[^}]*\} from "([^"]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_PARTS = re.compile(r'<template id="(\w+)">\n(.*?)</template>', re.DOTALL)
