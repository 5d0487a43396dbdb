"""Generate docs/api.md: what `import clearhead` offers, from signatures and docstrings, which griffe reads."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import griffe

import clearhead
from clearhead import errors
from clearhead.config.settings import Settings

ROOT = Path(clearhead.__file__).parents[2]

HEAD = """# Python

This page lists the names that `import clearhead as ch` offers. They keep their meaning as [versions.md](versions.md)
says; all other names may change. For example, equation 1 on two tokens, and the weights with which the second attends
to both:

```python
>>> import torch
>>> import clearhead as ch
>>> q = k = v = torch.eye(2).reshape(1, 1, 2, 2)
>>> output, weights = ch.scaled_dot_product_attention(q, k, v)
>>> [round(weight, 2) for weight in weights[0, 0, 1].tolist()]
[0.33, 0.67]

```

A model is loaded with [`Translator.load`](#translatorload); [own-text.md](own-text.md) trains one. This page is
generated from the docstrings of `src/clearhead/` by `docs/generate.py`.
"""


def api_page() -> str:
    """Return the page of the public names, sorted as `clearhead.__all__` is."""
    lines = HEAD.splitlines()
    for name in clearhead.__all__:
        thing = getattr(clearhead, name)
        lines += ["", f"## {name}"]
        lines += _module(thing) if inspect.ismodule(thing) else _object(name, thing)
        if thing is clearhead.ClearheadError:
            lines += ["", "Its kinds, in `clearhead.errors`:", "", *_kinds(thing)]
    return "\n".join(lines) + "\n"


def _object(name: str, thing: type | object) -> Iterator[str]:
    """Yield what is said of a class, with its public attributes and methods, or of a function."""
    home = importlib.import_module(thing.__module__)
    read = _visited(home)[thing.__qualname__]
    yield from _signature_and_text(read, name)
    file = Path(inspect.getfile(home)).relative_to(ROOT).as_posix()
    yield from ("", f"Source: [{Path(file).name}](../{file})")
    if not isinstance(read, griffe.Class):
        return
    members = [one for member, one in read.members.items() if not member.startswith("_") and one.has_docstring]
    methods = [one for one in members if callable(getattr(thing, one.name, None))]
    if inspect.isclass(thing) and issubclass(thing, Settings):
        yield from ("", "Its fields are in [settings.md](settings.md).")
        members = methods
    if fields := [one for one in members if one not in methods]:
        yield from ("", "| attribute | |", "| --- | --- |")
        yield from (f"| `{one.name}` | {_cell(one.docstring.value)} |" for one in fields)
    for one in methods:
        yield from ("", f"### {name}.{one.name}", *_signature_and_text(one, one.name))


def _module(module: object) -> Iterator[str]:
    """Yield what is said of a module, with its functions in a table."""
    read = _visited(module)
    yield from ("", read.docstring.value, "", "| function | |", "| --- | --- |")
    for name, one in read.functions.items():
        if not name.startswith("_"):
            yield f"| `{name}` | {_cell(one.docstring.value.split(chr(10) * 2)[0])} |"


def _kinds(error: type) -> Iterator[str]:
    """Yield a list of the errors below one, each below the one that it is a kind of."""
    for kind in sorted(error.__subclasses__(), key=lambda one: one.__name__):
        if kind.__module__ == errors.__name__:
            yield f"- `{kind.__name__}`: {' '.join((kind.__doc__ or '').split())}"
            yield from (f"  {line}" for line in _kinds(kind))


def _visited(module: object) -> griffe.Module:
    path = Path(inspect.getfile(module))
    return griffe.visit(module.__name__, path, path.read_text(encoding="utf-8"), docstring_parser="google")


def _signature_and_text(read: griffe.Object, name: str) -> Iterator[str]:
    """Yield the call of a function or class, and its docstring as Markdown."""
    called = read.members.get("__init__", read) if isinstance(read, griffe.Class) else read
    if isinstance(called, griffe.Function):
        signature = called.signature(name=name).replace("(self, ", "(").replace("(self)", "()").replace("(cls, ", "(")
        yield from ("", "```python", *_wrapped(signature.replace(" -> None", "")), "```")
    for section in read.docstring.parsed if read.docstring else []:
        match section.kind.value:
            case "text":
                for paragraph in section.value.split("\n\n"):
                    session = paragraph.startswith(">>>")
                    yield from ("", *(["```python"] if session else []), *paragraph.splitlines())
                    yield from ["", "```"] if session else []
            case "parameters" | "raises" | "attributes" as kind:
                yield from ("", f"| {kind} | |", "| --- | --- |")
                for one in section.value:
                    yield f"| `{one.annotation if kind == 'raises' else one.name}` | {_cell(one.description)} |"
            case "returns" | "yields" as kind:
                text = " ".join(_cell(one.description) for one in section.value)
                yield from ("", f"{kind.capitalize()}: {text}")
            case "admonition":
                yield from ("", "```python", *section.value.description.splitlines(), "```")
            case other:
                raise ValueError(f"{read.path}: a section of kind {other} in its docstring")


def _wrapped(signature: str) -> list[str]:
    """Return a call in one line, or else with an argument in each."""
    if len(signature) <= 100:
        return [signature]
    start, arguments, end = re.fullmatch(r"([^(]*\()(.*)(\)[^)]*)", signature, re.DOTALL).groups()
    parts = re.split(r", (?![^\[(]*[\])])", arguments)
    return [start, *(f"    {part}," for part in parts), end]


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
