"""The checksums of a model directory, computed anew by somebody who has changed its files.

They tell damage, not malice: whoever changes a file can compute them anew. So the attacks do.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

TORCH_NAMES = {"F32": "torch.float32", "F64": "torch.float64", "F16": "torch.float16", "BF16": "torch.bfloat16"}
TORCH_NAMES |= {"I64": "torch.int64", "I32": "torch.int32", "I16": "torch.int16", "I8": "torch.int8"}
TORCH_NAMES |= {"U8": "torch.uint8", "BOOL": "torch.bool"}

UNREADABLE = (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError)


def read_tensors_file(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return the header of a safetensors file and all that follows it."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8 : 8 + size]), raw[8 + size :]


def write_tensors_file(path: Path, header: Any, body: bytes) -> None:
    """Write a safetensors file, whatever its header says."""
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def sign(directory: Path) -> None:
    """Make every checksum of a model directory agree with what lies there, as far as it can be read."""
    tokenizer = _sha256(directory / "tokenizer.json")
    with suppress(*UNREADABLE):
        _sign_weights(directory / "model.safetensors", tokenizer)
    with suppress(*UNREADABLE):
        _sign_shortlist(directory / "shortlist.safetensors", _sha256(directory / "model.safetensors"), tokenizer)
    with suppress(*UNREADABLE):
        _sign_config(directory)


def _sign_weights(path: Path, tokenizer: str) -> None:
    header, body = read_tensors_file(path)
    if header["__metadata__"]["tokenizer_sha256"] != tokenizer:
        header["__metadata__"]["tokenizer_sha256"] = tokenizer
        write_tensors_file(path, header, body)


def _sign_config(directory: Path) -> None:
    path = directory / "config.json"
    text = path.read_text(encoding="utf-8")
    config = json.loads(text)
    beside = config["side_files"]
    old = {**config["checksums"], **beside}
    new = {name: _sha256(directory / name) if (directory / name).is_file() else value for name, value in old.items()}
    said = {name: value for name, value in config.items() if name != "checksums"}
    if beside:
        said["side_files"] = {name: new[name] for name in beside}
    new["config.json"] = hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
    for name in old:  # replaced in the text, so that all else stays as crafted: repeated keys, spaces, numbers
        text = text.replace(f'"{name}": "{old[name]}"', f'"{name}": "{new[name]}"')
    path.write_text(text, encoding="utf-8")


def _sign_shortlist(path: Path, model: str, tokenizer: str) -> None:
    header, body = read_tensors_file(path)
    digest = hashlib.sha256()
    for name in sorted(header.keys() - {"__metadata__"}):
        tensor = header[name]
        start, end = tensor["data_offsets"]
        digest.update(f"{name} {TORCH_NAMES[tensor['dtype']]} {tuple(tensor['shape'])}".encode())
        digest.update(body[start:end])
    header["__metadata__"] |= {
        "sha256": digest.hexdigest(),
        "model_sha256": model,
        "tokenizer_sha256": tokenizer,
    }
    write_tensors_file(path, header, body)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""
