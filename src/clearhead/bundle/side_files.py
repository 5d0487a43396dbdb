"""Side files of a model directory: added, listed, and read if they belong to the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from clearhead.bundle.model_directory import directory_identity, read_config, require_checksum, write_config
from clearhead.errors import ModelError
from clearhead.files import link_or_copy, new_directory, os_error_as, read_json

SHORTLIST_FILE = "shortlist.safetensors"
QUALITY_FILE = "quality.json"
ALIGNMENT_FILE = "alignment.json"

SideFiles = Mapping[str, Callable[[Path, Mapping[str, str]], None]]
"""Side files to write, by name: each is called with its path and with the hashes of the model (`Bundle.identity`)."""

SIDE_FILE_NAMES = (SHORTLIST_FILE, QUALITY_FILE, ALIGNMENT_FILE)
"""Files that a model may have; config.json lists those it has with their checksums, as `side_files`."""


def add_side_files(directory: Path, side_files: SideFiles, model: Mapping[str, str]) -> None:
    """Add side files to a model directory, or replace them, all at once; nothing else in it changes.

    Args:
        directory: The model directory.
        side_files: The side files.
        model: Hashes of the model that they were made for.

    Raises:
        ModelError: If another model is there by now, or the directory cannot be written.
    """
    before, config = directory_identity(directory), read_config(directory)
    if config["checksums"]["model.safetensors"] != model["model_sha256"]:
        raise ModelError(f"{directory} holds another model by now; run the command again")

    def refuse_replaced(final: Path) -> None:
        if directory_identity(final) != before:
            raise ModelError(f"{directory} was replaced or changed meanwhile; run the command again")

    with (
        os_error_as(ModelError, f"cannot write the model directory {directory}"),
        new_directory(directory, refuse=refuse_replaced) as temporary,
    ):
        for path in directory.iterdir():
            link_or_copy(path, temporary / path.name)
        for name, write in side_files.items():
            (temporary / name).unlink(missing_ok=True)  # not through a link
            write(temporary / name, model)
        (temporary / "config.json").unlink()
        write_config(temporary, config, {*config["side_files"], *side_files})


def side_file_path(directory: Path, name: str) -> Path:
    """Return the path of a side file that is read on request, after comparing it with its checksum.

    A file that is not listed need not exist, for its reader says best what is to be done.

    Raises:
        ModelError: If it is missing, damaged, or not part of the model.
    """
    path, listed = directory / name, read_config(directory)["side_files"]
    if name in listed:
        require_checksum(path, listed[name])
    elif path.is_file():
        raise ModelError(f"{path} is not part of this model: its config.json does not list it; remove it")
    return path


def read_side_files(directory: Path, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the side files that `config` lists, with the contents of those in JSON, None of others.

    Raises:
        ModelError: If one in JSON is missing or cannot be read.
    """
    names = config["side_files"]
    return {name: read_json(directory / name, ModelError) if name.endswith(".json") else None for name in names}
