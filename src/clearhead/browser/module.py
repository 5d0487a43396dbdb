"""The export of a model to a package for npm: an ES module with types, which translates in Node.js and in browsers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from shlex import quote
from typing import Any, Literal

from clearhead.browser.rules import RULES, rules_module
from clearhead.browser.writer import has_mark, model_files, model_settings, write_folder
from clearhead.bundle import Bundle
from clearhead.bundle.model_directory import require_new
from clearhead.inspection.page import TEXT_RULES, text_rules_module
from clearhead.pages import Html, constants_module, fill, script
from clearhead.runtime.version import NUMBER, full_version
from clearhead.translation.translator import Translator

MODEL = "web/model.js"
"""The module with the settings of the model and the addresses of its files, which is no file."""

_MARK = b"// A model of clearhead as a module: "
"""How the module begins, and no other file."""

_LONGEST_NAME = 214
"""Most characters of the name of a package."""


def write_module(
    bundle: Bundle, output: Path, name: str, precision: Literal["float32", "int8"], *, force: bool = False
) -> dict[str, int]:
    """Write a package for npm, which has the name of its folder; on an error nothing is left.

    Args:
        bundle: The model.
        output: Path of the new folder.
        name: Name of the model.
        precision: Precision of the weights, and of the products with them.
        force: Whether to replace an earlier package.

    Returns:
        The bytes of each file, by name.

    Raises:
        ConfigError: If a browser cannot run the model, or this installation has no core for browsers.
        ModelError: If the path exists or cannot be written, or the weights cannot be rounded.
    """
    refuse = partial(refuse_other_module, force=force)
    refuse(output)
    small, files = model_files(bundle, precision)
    settings = model_settings(small, name, files)
    contents = {
        "index.js": _module(settings),
        "index.d.ts": fill("module.d.ts").encode(),
        "README.md": _readme(small, output, settings),
        "LICENSE": _license().encode(),
        **files,
    }
    contents = {"package.json": _package(package_name(output), name, contents), **contents}
    write_folder(output, contents, refuse, contents)
    return {file: len(content) for file, content in contents.items()}


def refuse_other_module(output: Path, *, force: bool) -> None:
    """Require that nothing is in the place of a package or, with `force`, an earlier one.

    Raises:
        ModelError: If something else is there, or the place cannot be written.
    """
    require_new(output, lambda path: has_mark(path / "index.js", _MARK), force=force)


def package_name(output: Path) -> str:
    """Return the name of a folder as npm allows it.

    >>> package_name(Path("models/De-En (small)"))
    'de-en-small'
    """
    name = re.sub("[^a-z0-9._-]+", "-", output.absolute().name.lower()).strip("-._")
    return name[:_LONGEST_NAME] or "translator"


def _module(settings: Mapping[str, Any]) -> bytes:
    """Return the module: the scripts of a page's worker, without its explanations."""
    # Bundlers find files by this expression, with the name as it is.
    addresses = "".join(f'  "{file}": new URL("./{file}", import.meta.url),\n' for file in settings["files"])
    model = f"{constants_module('SETTINGS', settings)}export const FILES = {{\n{addresses}}};\n"
    made = {RULES: rules_module(), TEXT_RULES: text_rules_module(), MODEL: model}
    text = script("web/module.js", made=made, has_exports=True)
    return _MARK + f"clearhead {full_version()}, Apache License 2.0.\n{text}".encode()


def _readme(bundle: Bundle, output: Path, settings: Mapping[str, Any]) -> bytes:
    """Return a description with an example, whose result is that of clearhead."""
    source = settings["golden"][0]["source"]
    [translation] = Translator(bundle, bundle.directory).translate([source], one_line=True)
    return fill(
        "module.md",
        name=package_name(output),
        model=Html(settings["name"]),
        version=full_version(),
        folder=Html(quote(f"./{output.absolute().name}")),
        source=_quoted(source),
        translation=_quoted(translation.text),
    ).encode()


def _quoted(text: str) -> Html:
    """Return a text as JavaScript writes it, in one line."""
    return Html(json.dumps(text, ensure_ascii=False))


def _package(package: str, name: str, contents: Mapping[str, bytes]) -> bytes:
    """Return package.json."""
    facts = {
        "name": package,
        "version": NUMBER,
        "description": f"The model {name} as a translator for Node.js and browsers",
        "type": "module",
        "exports": {".": {"types": "./index.d.ts", "default": "./index.js"}},
        "files": list(contents),
        "sideEffects": False,
        "license": "Apache-2.0",
        "engines": {"node": ">=18"},
    }
    return (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()


def _license() -> str:
    """Return the license of clearhead, whose code is in the package."""
    try:
        text = distribution("clearhead").read_text("licenses/LICENSE")
    except PackageNotFoundError:  # PYTHONPATH names the sources
        text = None
    return text or (Path(__file__).parents[3] / "LICENSE").read_text(encoding="utf-8")
