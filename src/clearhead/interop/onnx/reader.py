"""Import of ONNX directories that clearhead exported.

A graph describes a computation, not a model, so ONNX files of other programs cannot be imported.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.bundle import read_card
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import read_json, require_regular
from clearhead.interop.huggingface.reader import changed_search
from clearhead.interop.imported import Imported, can_prove, origin_info
from clearhead.interop.onnx.parity import prove_onnx
from clearhead.interop.readers.foreign_weights import require_finite
from clearhead.interop.round_trip import KEY, own_bundle, read_origin
from clearhead.interop.vocabularies.huggingface_files import part_of, their_vocabulary
from clearhead.runtime.installation import pip_install

LIBRARY, KIND = "ONNX", "onnx"
MOST_FILE_BYTES = 2**31
_FILES = ("encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx")


def import_onnx(directory: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a directory written by `clearhead export --to onnx`.

    Args:
        directory: Directory of the three ONNX files, `config.json` and the vocabulary.
        kind: Ignored; ONNX directories have only one kind of model.
        source_lang: Source language, for a model with source-language tokens; None for that of the export.
        target_lang: Default target language; None for that of the export.

    Raises:
        ConfigError: If clearhead did not write it, or its weights are quantized.
        ModelError: If a file is missing or damaged, or does not fit the others; or if onnx is not installed.
    """
    values = read_json(directory / "config.json", ModelError)
    origin, notes = read_origin(values, directory / "config.json", ModelConfig())
    if origin is None:
        raise ConfigError(
            f"{directory} was not exported by clearhead (config.json has no {KEY!r}), and ONNX files of other programs "
            f"do not say which model they compute; import the model that they were made of"
        )
    if notes:
        raise ModelError(notes[0])
    if importlib.util.find_spec("onnx") is None:
        raise ModelError(f"not installed: onnx, which reads such files; {pip_install('interop')}")
    tensors: dict[str, Tensor] = {}
    for name in _FILES:
        for weight, tensor in _weights(directory / name).items():
            if not tensors.setdefault(weight, tensor).equal(tensor):
                raise ModelError(f"{directory / name} has another {weight} than the files beside it")
    require_finite(tensors, directory)
    info = origin_info(LIBRARY, KIND, directory, [directory / name for name in _FILES])
    anew = partial(their_vocabulary, directory, part_of(str(values.get("model_type")), values), origin.model)
    asked = {"source_lang": source_lang, "target_lang": target_lang}
    changed = changed_search(directory, origin.decode, is_decoder_alone=origin.model.is_decoder_alone)
    bundle, more = own_bundle(origin, directory, (origin.model, tensors), info, anew, **asked, **changed)
    compare = partial(prove_onnx, directory, bundle, precision="float32") if can_prove("onnxruntime") else None
    return Imported(bundle, LIBRARY, KIND, tuple(more), read_card(directory), compare)


def _weights(path: Path) -> dict[str, Tensor]:
    """Return the weights in a file, by name."""
    import onnx
    from google.protobuf.message import DecodeError

    try:
        require_regular(path)
        if path.stat().st_size > MOST_FILE_BYTES:
            raise ModelError(f"{path} is larger than 2 GiB, where such files end")
        file = onnx.load(path, load_external_data=False)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except DecodeError as error:
        raise ModelError(f"{path} is no ONNX file, or is cut off ({error})") from None
    tensors = {}
    for stored in file.graph.initializer:
        if stored.name.endswith(".int8"):
            raise ConfigError(
                f"{path} holds weights that were rounded to 8-bit integers, and what they were before is lost; import "
                f"the model it was exported from, or an export in float32"
            )
        if stored.name.startswith("constant_"):
            continue
        if stored.data_location == onnx.TensorProto.EXTERNAL or stored.data_type != onnx.TensorProto.FLOAT:
            raise ModelError(f"{path}: {stored.name:.200} is not in float32 inside the file, as clearhead writes it")
        try:
            values = onnx.numpy_helper.to_array(stored)
        except ValueError as error:
            raise ModelError(f"{path}: {stored.name:.200} is damaged ({error})") from None
        tensors[stored.name] = torch.from_numpy(np.array(values))
    return tensors
