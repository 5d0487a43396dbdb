"""Changes of model directories that clearhead itself no longer makes."""

from __future__ import annotations

import json
from pathlib import Path

from clearhead.files import json_sha256


def forget_side_files(directory: Path) -> None:
    """Write the config.json of a model as an earlier clearhead did, which listed no side files."""
    path = directory / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    checksums = config.pop("checksums")
    del config["side_files"]
    path.write_text(json.dumps({**config, "checksums": {**checksums, "config.json": json_sha256(config)}}))
