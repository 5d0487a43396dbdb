"""The model directory: its files and their checksums, where it is found, and which directories it may replace.

config.json             the model's shape, versions, checksums of it and the other files, how it was trained
model.safetensors       the weights, also rounded ones; their metadata contain the hash of the tokenizer they belong to
tokenizer.json          the vocabulary
generation_config.json  the default decode settings
golden.jsonl            sentences with the translations and scores of the model when it was saved
README.md               the model card
shortlist.safetensors   the shortlist of `clearhead optimize`, if it was run; read only on request
quality.json            the constants of its quality estimate, fitted at the end of training
alignment.json          the best head for word alignment, chosen in training or by `clearhead optimize`

The last three are side files (`side_files.py`): a model may lack them. The directory is written whole, and its
checksums cover every file but the card. A file of such a name that config.json does not list is not part of the model,
and is ignored.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, get_args

from clearhead.config.choices import StoredPrecision
from clearhead.errors import ModelError
from clearhead.files import (
    blocked_by,
    file_sha256,
    is_utf8,
    json_sha256,
    os_error_as,
    read_json,
    readable_version,
    write_json,
)
from clearhead.runtime.version import full_version

FORMAT_VERSION = 2
"""Increased when another version of clearhead could misread a model directory."""

ROUNDED_FORMAT = 3
"""Format of a model whose matrices are stored in 8 bits or in bfloat16; other models have `FORMAT_VERSION`."""

CHECKED_FILES = ("model.safetensors", "tokenizer.json", "generation_config.json", "golden.jsonl")
"""Files of every model, whose checksums are in config.json beside its own; the card may be edited."""


def model_directory(path: str | Path) -> Path:
    """Return the model directory of a path: the path itself or its `model/`.

    Raises:
        ModelError: If there is none, or it cannot be accessed.
    """
    if not isinstance(path, str | Path):
        raise ModelError(f"a model is named by the path of its directory, not by {type(path).__name__}")
    path = Path(path)
    # An error is, for example, a name that is too long, or a directory without search permission.
    with os_error_as(ModelError, f"no model at {path}"):
        for directory in map(readable_version, (path, path / "model")):
            if (directory / "config.json").is_file():
                return directory
        is_there = path.exists()
    if not is_there:
        raise ModelError(f"no model at {path}: there is no such directory")
    if (path / "config.toml").is_file():
        raise ModelError(f"{path} is a run without a model; `clearhead train {shlex.quote(str(path))}` continues it")
    raise ModelError(f"no model at {path}: it holds no config.json; name a model directory or a run directory")


def directory_identity(path: str | Path) -> tuple[int, int] | None:
    """Return values that change when another model replaces the directory; None if there is no model."""
    try:
        status = model_directory(path).stat()
    except (ModelError, OSError):
        return None
    return status.st_ino, status.st_mtime_ns


def refuse_foreign(directory: Path) -> None:
    """Require that a model may be written to a directory: it is absent or empty, or holds an older model.

    Raises:
        ModelError: If it holds something else, its path is not UTF-8, or a directory above it is none or read-only.
    """
    if not is_utf8(directory):
        raise ModelError(f"cannot write a model to {directory}: its path is not UTF-8; choose another name")
    if directory.exists() and not _is_model_or_empty(directory):
        raise ModelError(f"{directory} exists and is not a model directory; choose another name, or remove it first")
    _refuse_blocked(directory)


def refuse_model(directory: Path) -> None:
    """Require that a directory holds no model, for commands that replace one only with --force.

    Raises:
        ModelError: If it holds one.
    """
    if (readable_version(directory) / "config.json").is_file():
        raise ModelError(f"there is a model at {directory}; give -o another name, or --force to replace it")


def require_new(path: Path, is_export: Callable[[Path], bool], *, force: bool) -> None:
    """Require that `export` may write to a path: nothing is there or, with `force`, an earlier export.

    Args:
        path: The path of a directory, or of a page in a single file.
        is_export: Returns whether an existing path holds what this export writes.
        force: Whether that is replaced; so is an empty directory.

    Raises:
        ModelError: If something else is there, the path is not UTF-8, or a directory above it is none or read-only.
    """
    if not is_utf8(path):
        raise ModelError(f"cannot write to {path}: its path is not UTF-8; choose another name")
    there = readable_version(path)
    if there.exists():
        may_go = is_export(there) or (there.is_dir() and not any(there.iterdir()))
        if not (may_go and force):
            instead = "--force to replace it" if may_go else "remove it first: it is not what this export writes"
            raise ModelError(f"{path} is there already; choose another name, or {instead}")
    _refuse_blocked(path)


def is_small_model(directory: Path) -> bool:
    """Return whether a path holds what `export --to clearhead` writes: a model whose matrices are rounded."""
    return _model_values(directory).get("precision") is not None


def _refuse_blocked(directory: Path) -> None:
    if above := blocked_by(directory.resolve()):
        raise ModelError(f"cannot write to {directory}: {above} is not a directory that may be changed")


def read_config(directory: Path) -> dict[str, Any]:
    """Return the values in config.json of a model directory.

    Raises:
        ModelError: If it cannot be read, is damaged, or is from another library or in another format.
    """
    path = directory / "config.json"
    config = read_json(path, ModelError)
    version = config.get("format_version")
    if config.get("model_type") != "clearhead" or type(version) is not int:  # true is an int too
        hint = f"`clearhead import {shlex.quote(str(directory))} -o NEW` makes one of a model of another library"
        is_ours = config.get("model_type") == "clearhead"
        raise ModelError(f"{path} does not describe a clearhead model" + ("" if is_ours else f"; {hint}"))
    if version not in (FORMAT_VERSION, ROUNDED_FORMAT):
        raise ModelError(
            f"{directory} was written by clearhead {config.get('clearhead_version')} in format {version}; this is "
            f"clearhead {full_version()}, which reads formats {FORMAT_VERSION} and {ROUNDED_FORMAT}: "
            + ("upgrade with pip" if version > ROUNDED_FORMAT else "train or import the model again")
        )
    precision = config.get("precision")
    if (precision is not None) != (version == ROUNDED_FORMAT) or precision not in (None, *get_args(StoredPrecision)):
        raise ModelError(
            f"{path} is damaged: its 'precision' must be one of {', '.join(get_args(StoredPrecision))} in format "
            f"{ROUNDED_FORMAT}, and missing in format {FORMAT_VERSION}; copy the model directory again, whole"
        )
    checksums = config.get("checksums")
    if not isinstance(checksums, dict) or set(checksums) != {*CHECKED_FILES, "config.json"}:
        raise ModelError(f"{path} is damaged: its checksums are incomplete; copy the model directory again, whole")
    side_files = config.get("side_files")
    if not isinstance(side_files, dict) or any(Path(name).name != name for name in side_files):
        raise ModelError(
            f"{path} is damaged: its 'side_files' are not those of a model; copy the model directory again"
        )
    if not isinstance(config.get("clearhead_version"), str):
        raise ModelError(f"{path} is damaged: its 'clearhead_version' is no text; copy the model directory again")
    if not isinstance(config.get("info"), dict):
        raise ModelError(f"{path} is damaged: its 'info' is not an object; copy the model directory again, whole")
    return config


def write_config(directory: Path, values: Mapping[str, Any], side_files: Collection[str]) -> None:
    """Write config.json, the last file of a model directory, with the checksums of all others.

    Args:
        directory: The directory, with all other files.
        values: The rest of config.json.
        side_files: Names of its side files.
    """
    config = {name: value for name, value in values.items() if name != "checksums"}
    config["side_files"] = {name: file_sha256(directory / name) for name in sorted(side_files)}
    checksums = {name: file_sha256(directory / name) for name in CHECKED_FILES}
    write_json(directory / "config.json", {**config, "checksums": {**checksums, "config.json": json_sha256(config)}})


def verify_checksums(directory: Path, config: Mapping[str, Any]) -> None:
    """Compare every file of a model directory with its checksum.

    Args:
        directory: The directory.
        config: Its config.json, from `read_config`.

    Raises:
        ModelError: If one differs, or cannot be read.
    """
    checksums = config["checksums"]
    for name, sha256 in {**{name: checksums[name] for name in CHECKED_FILES}, **config["side_files"]}.items():
        require_checksum(directory / name, sha256)
    said = {name: value for name, value in config.items() if name != "checksums"}
    if json_sha256(said) != checksums["config.json"]:
        raise ModelError(
            f"{directory / 'config.json'} is damaged or was edited: it does not match its own checksum; copy the whole "
            f"directory again"
        )


def require_checksum(path: Path, sha256: str) -> None:
    """Compare a file with its checksum in config.json.

    Raises:
        ModelError: If they differ, or the file cannot be read.
    """
    try:
        actual = file_sha256(path)
    except FileNotFoundError:
        raise ModelError(f"{path} is missing: the model directory is incomplete; copy it again, whole") from None
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    if actual != sha256:
        raise ModelError(
            f"{path} is damaged or belongs to another model: its SHA-256 is not the one in config.json; "
            f"copy the whole directory again"
        )


def _is_model_or_empty(directory: Path) -> bool:
    if not directory.is_dir():
        return False
    # Weights alone prove nothing: checkpoints and other libraries' models have them too.
    return not any(directory.iterdir()) or bool(_model_values(directory))


def _model_values(directory: Path) -> dict[str, Any]:
    """Return what `config.json` of a model says; nothing if it is not one of a model."""
    try:
        values = read_json(directory / "config.json", ModelError)
    except ModelError:
        return {}
    return values if values.get("model_type") == "clearhead" else {}
