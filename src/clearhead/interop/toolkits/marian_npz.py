"""Marian's own models: an .npz file, its vocabularies, and decoder.yml with their names and search settings."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead.bundle import Bundle, read_card
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, ModelError
from clearhead.files import require_regular
from clearhead.interop.imported import Imported, as_model, as_vocabulary, origin_info, read_settings, require_told
from clearhead.interop.key_table import ONE_ROW, SAME, TRANSPOSED, TYINGS, KeyRow, KeyTable, Layout, numbered
from clearhead.interop.readers.foreign_config import TheirConfig, parse_yaml, read_yaml
from clearhead.interop.readers.foreign_weights import require_finite
from clearhead.interop.readers.pickles import require_unpacked
from clearhead.interop.rewrites import resolved, with_rows
from clearhead.interop.vocabularies.huggingface_files import MARIAN_CODE, file_base64, own_pieces, sentencepiece_side
from clearhead.tokenizers.foreign import VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import sentencepiece_ends

DEFAULTS: Mapping[str, Any] = {
    "output-omit-bias": False,
    "tied-embeddings": False,
    "tied-embeddings-all": False,
    "tied-embeddings-src": False,
    "transformer-dropout": 0.0,
    "transformer-dropout-attention": 0.0,
    "transformer-dropout-ffn": 0.0,
    "transformer-ffn-activation": "swish",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
}
"""Defaults of Marian for options that files omit; earlier versions did not have all of them."""

_ONLY: Mapping[str, tuple[Any, str]] = {
    "type": ("transformer", "other models are not supported"),
    "lemma-dim-emb": (0, "factored vocabularies are not supported"),
    "right-left": (False, "it writes from the end"),
    "transformer-decoder-autoreg": ("self-attention", "other layers are not supported"),
    "transformer-decoder-dim-ffn": (0, "encoder and decoder share one width"),
    "transformer-decoder-ffn-depth": (0, "our feed-forward networks have two layers"),
    "transformer-ffn-depth": (2, "our feed-forward networks have two layers"),
    "transformer-no-projection": (False, "our attention has an output projection"),
    "transformer-pool": (False, "our decoder attends to all of the source"),
    "transformer-tied-layers": ([], "our layers have weights of their own"),
    "transformer-train-position-embeddings": (False, "its positions are computed"),
    "ulr": (False, "its embeddings are a matrix"),
}
"""Options that must have one value if they are present, and the reason."""

MATRIX = Layout("a matrix", (2,), SAME.split, SAME.join)
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}  # Marian's gelu is x * sigmoid(1.702 x), which we lack


def config_from(options: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of a model, except the vocabulary and its special tokens.

    Args:
        options: Options in `special:model.yml`.

    Raises:
        ConfigError: Naming every option that our model cannot express.
    """
    their = TheirConfig(options, DEFAULTS)
    for option, (value, reason) in _ONLY.items():
        their.require(option, value, reason)
    # Dropout ("d") does not affect the model's shape.
    before, behind, top, embedding = (
        str(their[f"transformer-{place}"]).replace("d", "")
        for place in ("preprocess", "postprocess", "postprocess-top", "postprocess-emb")
    )
    norms = {("", "an"): "post", ("n", "a"): "pre"}
    if (before, behind) not in norms or top not in ("", "n") or embedding not in ("", "n"):
        their.problems.append(
            f"transformer-preprocess, -postprocess, -postprocess-top and -postprocess-emb are {before!r}, {behind!r}, "
            f"{top!r} and {embedding!r} but for dropout; our norms stand before ('n', 'a') or behind ('', 'an') a "
            f"sub-layer, and 'n' or nothing on top and on the embedding"
        )
    if (activation := str(their["transformer-ffn-activation"])) not in _ACTIVATIONS:
        their.problems.append(f"transformer-ffn-activation is {activation!r}; those we have: {', '.join(_ACTIVATIONS)}")
    shares_both = bool(their["tied-embeddings-src"] or their["tied-embeddings-all"])
    shares_output = bool(their["tied-embeddings"] or their["tied-embeddings-all"])
    return their.model_config(
        d_model=their["dim-emb"],
        d_ff=their["transformer-dim-ffn"],
        num_heads=their["transformer-heads"],
        num_encoder_layers=their.layers("enc-depth"),
        num_decoder_layers=their.layers("dec-depth"),
        dropout=their["transformer-dropout"],
        attention_dropout=their["transformer-dropout-attention"],
        feed_forward_dropout=their["transformer-dropout-ffn"],
        norm=norms.get((before, behind)),
        norm_eps=1e-6,
        final_norm=top == "n",
        embedding_norm=embedding == "n",
        activation=_ACTIVATIONS.get(activation),
        attention_bias=True,
        output_bias=not their["output-omit-bias"],
        positions="sinusoidal_t2t",
        tying=TYINGS[shares_both, shares_output],
    )


def key_table(config: ModelConfig, *, has_old_output: bool) -> KeyTable:
    """Return the key table of a model.

    Args:
        config: Our settings of the model.
        has_old_output: Whether the output matrix has the input axis first, as in earlier versions.
    """
    config = resolved(config)
    suffix = "_pre" if config.norm == "pre" else ""
    layer = [*_attention("self_attn", "self", suffix), *_feed_forward(suffix)]
    cross = _attention("cross_attn", "context", suffix)
    rows = _embeddings(config, has_old_output)
    for side, embedding, parts, count in (
        ("encoder", "source_embedding", layer, config.num_encoder_layers),
        ("decoder", "target_embedding", [*layer, *cross], config.num_decoder_layers),
    ):
        for number in range(count):
            rows += numbered(parts, 1, ours=f"{side}.layers.{number}.", theirs=f"{side}_l{number + 1}_")
        if config.final_norm:
            rows += _norm(f"{side}.final_norm", f"{side}_top", "")
        if config.embedding_norm:
            rows += _norm(f"{embedding}.norm", f"{side}_emb", "_pre")
    return KeyTable(tuple(rows))


def _embeddings(config: ModelConfig, has_old_output: bool) -> list[KeyRow]:
    if config.tying in ("three-way", "embeddings"):
        rows = [KeyRow(("source_embedding.weight",), "Wemb", MATRIX)]
    else:
        sides = {"source": "encoder", "target": "decoder"}
        rows = [KeyRow((f"{ours}_embedding.weight",), f"{theirs}_Wemb", MATRIX) for ours, theirs in sides.items()]
    if config.tying in ("embeddings", "none"):
        name, layout = ("W", TRANSPOSED) if has_old_output else ("Wt", MATRIX)
        rows.append(KeyRow(("output_proj.weight",), f"decoder_ff_logit_out_{name}", layout))
    if config.output_bias:
        rows.append(KeyRow(("output_proj.bias",), "decoder_ff_logit_out_b", ONE_ROW))
    return rows


def _attention(ours: str, theirs: str, suffix: str) -> list[KeyRow]:
    rows = _norm(f"{ours}_residual.norm", f"{theirs}_Wo", suffix)
    for letter, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
        rows += _linear(f"{ours}.{name}", theirs, letter)
    return rows


def _feed_forward(suffix: str) -> list[KeyRow]:
    return [
        *_norm("feed_forward_residual.norm", "ffn_ffn", suffix),
        *_linear("feed_forward.up_proj", "ffn", "1"),
        *_linear("feed_forward.down_proj", "ffn", "2"),
    ]


def _linear(ours: str, theirs: str, letter: str) -> list[KeyRow]:
    return [
        KeyRow((f"{ours}.weight",), f"{theirs}_W{letter}", TRANSPOSED),
        KeyRow((f"{ours}.bias",), f"{theirs}_b{letter}", ONE_ROW),
    ]


def _norm(ours: str, theirs: str, suffix: str) -> list[KeyRow]:
    return [
        KeyRow((f"{ours}.weight",), f"{theirs}_ln_scale{suffix}", ONE_ROW),
        KeyRow((f"{ours}.bias",), f"{theirs}_ln_bias{suffix}", ONE_ROW),
    ]


LIBRARY, KIND = "Marian", "marian-nmt"

_OPTIONS = "special:model.yml"


def is_marian(path: Path) -> bool:
    """Return whether a path looks like a Marian model: an .npz file, or a directory with one."""
    return path.suffix == ".npz" or any(path.glob("*.npz"))


def import_marian(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a Marian model.

    Args:
        path: The .npz file, or the directory with it, the vocabularies and `decoder.yml`.
        kind: Ignored; Marian has only one kind of model.
        source_lang: Source language; the model has no source-language tokens.
        target_lang: Default target language.

    Raises:
        ConfigError: Naming every option that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    weights, search = _files(path)
    options, parameters = _read_npz(weights)
    config = config_from(options)
    table = key_table(config, has_old_output="decoder_ff_logit_out_W" in parameters)
    tensors = table.from_theirs(require_finite(parameters, weights), origin=str(weights))
    vocabs = search.get("vocabs") or options.get("vocabs")
    if not isinstance(vocabs, list) or len(vocabs) != 2:
        raise ConfigError(f"{weights}: vocabs is {vocabs!r:.100}, and must name two vocabularies")
    sides = [_pieces(weights.parent, str(name), side) for name, side in zip(vocabs, ("source", "target"), strict=True)]
    file, tensors, config = _with_vocabulary(config, tensors, sides, weights)
    vocabulary = as_vocabulary(file, weights.parent)
    require_told(weights, vocabulary.languages, None, target_lang)
    decode = read_settings(
        weights,
        beam_size=search.get("beam-size", 12),
        length_penalty=search.get("normalize", 0.0),
        length_penalty_form="power",
        familiar=False,
        source_lang=source_lang,
        target_lang=target_lang,
    )
    notes = []
    if search.get("word-penalty", 0):
        notes.append(f"word-penalty = {search['word-penalty']!r:.50} is not taken over: our search has no such setting")
    bundle = Bundle(as_model(config, tensors, weights), vocabulary, decode, origin_info(LIBRARY, KIND, path, [weights]))
    card = read_card(weights.parent)
    return Imported(bundle, LIBRARY, KIND, tuple(notes), card, why_unproven="it has no Python")


def _files(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the path of the weights and the content of `decoder.yml`."""
    directory = path if path.is_dir() else path.parent
    own = [] if path.is_dir() else [path.with_name(f"{path.name}.decoder.yml")]
    others = [] if own else sorted(directory.glob("*.decoder.yml"))
    search = next((read_yaml(file) for file in (*own, directory / "decoder.yml", *others) if file.is_file()), {})
    if not path.is_dir():
        return path, search
    # Its paths belong to another machine; the files are expected in this directory.
    named = search.get("models") or [file.name for file in sorted(directory.glob("*.npz"))]
    if not isinstance(named, list) or len(named) != 1:
        raise ModelError(f"{path} does not hold one model of Marian, but {named!r:.200}; name the .npz file of one")
    return directory / Path(str(named[0])).name, search


def _read_npz(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the options, and the parameters in float32."""
    try:
        require_regular(path)
        require_unpacked(path)
        with np.load(path, allow_pickle=False) as arrays:
            tensors = {name: arrays[name] for name in arrays.files}
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror or error}") from None
    except (ValueError, EOFError, KeyError, MemoryError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise ModelError(f"{path} is damaged, or no model of Marian: {error!s:.200}") from None
    text = tensors.pop(_OPTIONS, None)
    if text is None:
        raise ModelError(f"{path} has no {_OPTIONS}, and is no model of Marian")
    if others := [name for name, array in tensors.items() if array.dtype.kind != "f"]:
        raise ModelError(f"{path}: {others[0]} is in {tensors[others[0]].dtype}, and read are floating-point numbers")
    options = parse_yaml(text.tobytes().rstrip(b"\0").decode("utf-8", "replace"), f"{path}: {_OPTIONS}")
    return options, {name: torch.from_numpy(array.astype(np.float32)) for name, array in tensors.items()}


def _pieces(directory: Path, name: str, side: str) -> tuple[Path, list[str], int, int]:
    """Return the path of a side's sentencepiece model, the pieces of its vocabulary, and the ids of end and unknown."""
    path = directory / Path(name).name
    if path.suffix == ".spm":
        pieces, (end, unknown) = own_pieces(path), sentencepiece_ends(file_base64(path))
        if end < 0:
            raise ModelError(f"{path} has no end token, and every text of Marian has one")
        return path, pieces, end, unknown
    if path.suffix not in (".yml", ".yaml", ".json"):
        raise ConfigError(f"the vocabulary {path} is none of .spm, .yml and .json; factored ones are not supported")
    model = directory / f"{side}.spm"
    if not model.is_file():
        raise ModelError(
            f"{directory} has no {model.name}, the sentencepiece model that gives the pieces of {path.name}; "
            f"models whose text was cut up by other programs are not supported"
        )
    ids = read_yaml(path, as_texts=True)
    by_id = {int(number): piece for piece, number in ids.items() if isinstance(number, str) and number.isdecimal()}
    if sorted(by_id) != [*range(len(ids))]:
        raise ModelError(f"{path} is damaged: it must give every piece a number of its own, from 0 on")
    pieces = [by_id[number] for number in range(len(ids))]
    return model, pieces, _required_id(path, pieces, "</s>", 0, "eos"), _required_id(path, pieces, "<unk>", 1, "UNK")


def _required_id(path: Path, pieces: Sequence[str], name: str, of_nematus: int, name_of_nematus: str) -> int:
    """Return the id of a piece as Marian finds it: vocabularies of Nematus have it at a fixed id, by another name."""
    if pieces[of_nematus : of_nematus + 1] in ([name_of_nematus], [""]):
        return of_nematus
    if name not in pieces:
        raise ModelError(f"the vocabulary {path} has no piece {name}")
    return pieces.index(name)


def _with_vocabulary(
    config: ModelConfig,
    tensors: Mapping[str, Tensor],
    sides: Sequence[tuple[Path, list[str], int, int]],
    weights: Path,
) -> tuple[VocabularyFile, dict[str, Tensor], ModelConfig]:
    """Return the vocabulary, and the model with one more row on both sides.

    Marian starts translations from a zero embedding; the new row is that embedding.
    """
    source = tensors["source_embedding.weight"]
    rows = [len(matrix) for matrix in (source, tensors.get("target_embedding.weight", source))]
    made: list[VocabularySide] = []
    for (path, pieces, end, unknown), number in zip(sides, rows, strict=True):
        if len(pieces) > number:
            raise ModelError(f"{weights} has rows for {number:,} pieces, and {path.name} belongs to {len(pieces):,}")
        padded = [*pieces, *[None] * (max(rows) - len(pieces)), "<pad>"]
        codes = [i for i, piece in enumerate(padded) if piece == "<pad>" or MARIAN_CODE.fullmatch(piece or "")]
        made.append(sentencepiece_side(path, padded, sorted({*codes, end, unknown}), unknown))
    read = sides[0][1]
    languages = {match[1]: i for i, piece in enumerate(read) if (match := MARIAN_CODE.fullmatch(piece)) is not None}
    size, ends = max(rows) + 1, (sides[0][2], sides[1][2])
    ids: dict[str, Any] = {"pad_id": size - 1, "bos_id": size - 1, "eos_id": ends[1], "vocab_size": size}
    file = VocabularyFile(
        source=made[0],
        target=None if made[0] == made[1] else made[1],
        source_frame=(*(("target_lang",) if languages else ()), "text", ends[0]),
        target_frame=("text", ends[1]),
        languages=languages,
        **ids,
    )
    settings = {**config.model_dump(), **ids, "output_bias": True}
    return file, with_rows(tensors, size), ModelConfig(**settings)
