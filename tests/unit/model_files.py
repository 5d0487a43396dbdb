"""Changes of model directories that clearhead itself no longer makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from clearhead.files import json_sha256


def rewrite_config(directory: Path, **values: Any) -> None:
    """Replace values of a model's config.json, with its checksum; None removes one."""
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    checksums = config.pop("checksums")
    config = {name: value for name, value in {**config, **values}.items() if value is not None}
    path.write_text(json.dumps({**config, "checksums": {**checksums, "config.json": json_sha256(config)}}))


def forget_side_files(directory: Path) -> None:
    """Write the config.json of a model as an earlier clearhead did, which listed no side files."""
    rewrite_config(directory, side_files=None)
