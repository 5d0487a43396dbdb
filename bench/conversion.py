"""One set of weights in every engine's form: clearhead's, Hugging Face's, what CTranslate2 converts that to, Marian's.

Post-norm models become Hugging Face's Marian, pre-norm models its Pegasus, by `clearhead.interop`. CTranslate2 takes
two things of a Marian model for granted, as Marian's own files have them: the last token is the padding, which it cuts
off, and the start token's embedding is zero. `comparable` makes a model of that kind, and all engines run it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.files.tensors import model_tensors, write_weights
from clearhead.interop.huggingface.state import export_state, exportable_as
from clearhead.interop.toolkits.marian_npz import key_table
from clearhead.model import Transformer

__all__ = [
    "comparable",
    "convert_by_marian",
    "kind_of",
    "padding_last",
    "write_clearhead",
    "write_ctranslate2",
    "write_huggingface",
    "write_marian",
]

KINDS = ("marian", "pegasus")
"""Forms of Hugging Face that CTranslate2 converts and that hold our models."""

VOCABULARY = ("source_embedding.weight", "target_embedding.weight", "output_proj.weight", "output_proj.bias")
"""Tensors whose first axis counts tokens."""


def kind_of(config: ModelConfig) -> str:
    """Return the form that a model can be written in.

    Raises:
        ConfigError: If there is none.
    """
    able = exportable_as(config)
    for kind in KINDS:
        if kind in able:
            return kind
    raise ConfigError(
        f"this model cannot be compared: it fits none of the forms that CTranslate2 converts "
        f"({', '.join(KINDS)}), as the presets tiny, small and paper-base do"
    )


def padding_last(token: int, config: ModelConfig) -> int:
    """Return the id that `comparable` gives to a token (and, as it swaps two, the token it gives an id)."""
    last = config.vocab_size - 1
    return {0: last, last: 0}.get(token, token)


def comparable(config: ModelConfig, tensors: Mapping[str, Tensor]) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return a model whose last token is the padding and, if post-norm, whose start token's embedding is zero.

    Args:
        config: Settings of a model whose padding is token 0 and whose vocabulary is joint.
        tensors: All tensors of the model.
    """
    assert config.pad_id == 0, config.pad_id
    assert config.source_vocab_size in (None, config.vocab_size), config.source_vocab_size
    order = torch.tensor([padding_last(token, config) for token in range(config.vocab_size)])
    changed = {name: tensor[order] if name in VOCABULARY else tensor.clone() for name, tensor in tensors.items()}
    if kind_of(config) == "marian":
        table = "target_embedding.weight" if "target_embedding.weight" in changed else "source_embedding.weight"
        changed[table][config.bos_id] = 0.0
    return config.model_copy(update={"pad_id": config.vocab_size - 1}), changed


def write_clearhead(directory: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write settings and weights alone: the engines are given ids, so no tokenizer is needed."""
    directory.mkdir()
    (directory / "config.json").write_text(config.model_dump_json())
    write_weights(directory / "model.safetensors", tensors, {"format": "pt"})


def write_huggingface(directory: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write a directory for `from_pretrained`.

    Raises:
        ConfigError: If there is no form for it.
    """
    kind = kind_of(config)
    fields, state = export_state(kind, config, tensors)
    if kind == "pegasus":
        # CTranslate2 looks for what Google's own files say, and transformers itself takes for granted.
        fields |= {"normalize_before": True, "normalize_embedding": False}
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(fields))
    write_weights(directory / "model.safetensors", state, {"format": "pt"})


class _Pieces:
    """As much of a tokenizer as CTranslate2's converter asks for: names for the ids."""

    def __init__(self, config: ModelConfig) -> None:
        self.eos_token, self.unk_token = "</s>", "<unk>"
        # Where it asks for the padding (Pegasus), it means what the decoder starts with.
        self.pad_token = "<s>"
        # It needs some unknown token, which the ids never hold; 3 is ours.
        special = {config.pad_id: "<pad>", config.bos_id: "<s>", config.eos_id: "</s>", 3: "<unk>"}
        self._names = {special.get(number, str(number)): number for number in range(config.vocab_size)}

    def get_vocab(self) -> dict[str, int]:
        return self._names


def write_ctranslate2(directory: Path, huggingface: Path, config: ModelConfig, *, precision: str) -> None:
    """Convert a directory of `write_huggingface` by CTranslate2's own converter.

    Args:
        directory: Where to.
        huggingface: Where from.
        config: Of the same model.
        precision: `float32` or `int8`, of the stored weights.
    """
    import transformers
    from ctranslate2.converters import TransformersConverter

    class Converter(TransformersConverter):  # type: ignore[misc]
        def load_tokenizer(self, *_: Any, **__: Any) -> _Pieces:
            return _Pieces(config)

    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    Converter(str(huggingface)).convert(str(directory), quantization=None if precision == "float32" else precision)


def write_marian(directory: Path, config: ModelConfig, tensors: Mapping[str, Tensor]) -> None:
    """Write Marian's own files, in 8 bits; its positions are others, so its outputs are too, on the same work.

    The output matrix is written apart from the embedding, inputs first: only in this form does Marian compute the
    vocabulary in 8 bits, and correctly (it leaves a tied one in float32, and one with outputs first is wrong).

    Args:
        directory: Where to.
        config: Of a post-norm model.
        tensors: All of its tensors.
    """
    biased = config.model_copy(update={"attention_bias": True, "output_bias": True, "tying": "embeddings"})
    zeros = {name: torch.zeros_like(tensor) for name, tensor in model_tensors(Transformer(biased)).items()}
    output = {"output_proj.weight": tensors["source_embedding.weight"]}
    state = key_table(biased, has_old_output=True).to_theirs({**zeros, **output, **tensors})
    options = {
        "type": "transformer",
        "version": "v1.12.0",
        "dim-vocabs": [config.vocab_size] * 2,
        "dim-emb": config.d_model,
        "enc-depth": config.num_encoder_layers,
        "dec-depth": config.num_decoder_layers,
        "transformer-dim-ffn": config.d_ff,
        "transformer-ffn-activation": config.activation,
        "transformer-heads": config.num_heads,
        "transformer-postprocess": "dan",
        "transformer-preprocess": "",
        "tied-embeddings-src": True,
    }
    text = "".join(f"{name}: {json.dumps(value)}\n" for name, value in options.items())
    directory.mkdir()
    arrays = {name: tensor.numpy() for name, tensor in state.items()}
    np.savez(directory / "model.npz", **arrays, **{"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)})
    names = {config.eos_id: "</s>", config.pad_id: "<unk>"}
    vocabulary = (f'"{names.get(number, number)}": {number}\n' for number in range(config.vocab_size))
    (directory / "vocab.yml").write_text("".join(vocabulary))
    convert_by_marian("-f", str(directory / "model.npz"), "-t", str(directory / "model.bin"), "-g", "intgemm8")


def convert_by_marian(*arguments: str) -> None:
    """Run pymarian's `convert`."""
    convert = "import sys, _pymarian; sys.exit(_pymarian.main(['convert', *sys.argv[1:]]))"
    done = subprocess.run([sys.executable, "-c", convert, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"pymarian's convert failed:\n{done.stderr[-2_000:]}")
