"""Contents, changes and refusals of model directories."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearhead.errors import ModelError
from clearhead.files import json_sha256


def message_of(call: Callable[..., object], *arguments: object, **settings: object) -> str:
    """Return the message of the `ModelError` that a call raises."""
    with pytest.raises(ModelError) as caught:
        call(*arguments, **settings)
    return str(caught.value)


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of each file of a directory."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def edit_config(directory: Path, **changes: object) -> None:
    """Change keys of config.json but not its checksum; `...` removes one."""
    path = directory / "config.json"
    config = {**json.loads(path.read_text(encoding="utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}), encoding="utf-8")


def rewrite_config(directory: Path, **values: Any) -> None:
    """Replace values of a model's config.json, with its checksum; None removes one."""
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    checksums = config.pop("checksums")
    config = {name: value for name, value in {**config, **values}.items() if value is not None}
    path.write_text(json.dumps({**config, "checksums": {**checksums, "config.json": json_sha256(config)}}))
