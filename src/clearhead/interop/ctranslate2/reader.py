"""Import of CTranslate2 directories with their tokenizer; quantized weights become float32."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

from torch import Tensor

from clearhead.bundle import Bundle, read_card
from clearhead.config import ModelConfig
from clearhead.config.choices import ForeignPrecision
from clearhead.config.decode import is_language
from clearhead.errors import ConfigError, ModelError
from clearhead.files import read_json
from clearhead.interop.ctranslate2.model_bin import read_model_bin
from clearhead.interop.ctranslate2.parity import prove_ctranslate2
from clearhead.interop.ctranslate2.pieces import SubwordPieces, listed_pieces, read_pieces
from clearhead.interop.ctranslate2.shape import read_variables
from clearhead.interop.ctranslate2.vocabulary import ctranslate2_vocabulary, tokenizer_side
from clearhead.interop.imported import (
    TOLERANCE,
    Imported,
    as_model,
    as_vocabulary,
    can_prove,
    origin_info,
    read_settings,
    require_told,
    stating,
)
from clearhead.interop.readers.foreign_config import optional_json
from clearhead.interop.readers.foreign_weights import require_finite
from clearhead.interop.rewrites import undone, with_rows
from clearhead.interop.round_trip import own_bundle, read_origin
from clearhead.interop.vocabularies.vocabulary_files import OWN_VOCABULARY

LIBRARY, KIND = "CTranslate2", "ctranslate2"

_ITS_SEARCH = {"beam_size": 2, "length_penalty": 1.0, "length_penalty_form": "power"}
"""Defaults of `translate_batch`; the files of a model store no search settings."""
_UNSAID = {"dropout", "attention_dropout", "feed_forward_dropout"}


def import_ctranslate2(directory: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a CTranslate2 directory, or a package of Argos Translate, which has one in its folder `model`.

    Args:
        directory: Directory of `model.bin`, `config.json`, the vocabulary and a tokenizer; or of `model`, the tokenizer
            and `metadata.json`.
        kind: Ignored; CTranslate2 has only one kind of model.
        source_lang: Source language, for a model with source-language tokens; None to require it when translating.
        target_lang: Default target language.

    Raises:
        ConfigError: Naming every variable or field that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    package = directory
    inside = package / "model"
    directory = inside if (inside / "model.bin").exists() else package
    source_lang = source_lang or _package_language(package)
    path = directory / "model.bin"
    values = read_json(directory / "config.json", ModelError)
    file = read_model_bin(path)
    if file.specification != "TransformerSpec":
        raise ConfigError(f"{path} holds a {file.specification:.50}, and only a TransformerSpec translates")
    require_finite(file.tensors, path)
    settings, tensors = read_variables(file, _epsilon(values, directory), path)
    starts_from_zeros = bool(file.attributes.get("decoder/start_from_zero_embedding"))
    pieces = read_pieces(directory, values, starts_from_zeros=starts_from_zeros)
    origin, more = read_origin(values, directory / "config.json", ModelConfig())
    is_ours = origin is not None and not more
    pad_id = origin.model.pad_id if origin is not None and is_ours else pieces.padding
    config, tensors = _with_vocabulary(
        settings, tensors, pieces, pad_id, directory, starts_from_zeros=starts_from_zeros
    )
    notes = []
    if file.stored_in != ("float32",):
        stored = ", ".join(file.stored_in)
        notes.append(f"the weights were stored in {stored}; here they are in float32, without what the rounding lost")
    if (directory / "vmap.txt").exists():
        notes.append("vmap.txt is not taken over: `clearhead optimize` learns which tokens translate which")
    info = origin_info(LIBRARY, KIND, package, [path])
    anew = partial(ctranslate2_vocabulary, package, pieces, config)
    told = {"source_lang": source_lang, "target_lang": target_lang}
    if origin is not None:
        if origin.vocabulary_sha256 is None:
            tokenizer_side(directory / "tokenizer.json", pieces)  # raises if the tokenizer belongs to another model
        unsaid = _UNSAID if "max_positions" in settings else {*_UNSAID, "max_positions"}
        was = undone(origin.model, (), config, tensors, unsaid=unsaid) if is_ours else (config, tensors)
        bundle, others = own_bundle(origin, directory, was, info, anew, **told)
        if origin.vocabulary_sha256 is not None and not others and listed_pieces(bundle.tokenizer) != pieces:
            raise ModelError(f"{directory}: the lists of tokens are not those of {OWN_VOCABULARY}")
        more += others
    else:
        vocabulary = as_vocabulary(anew(), directory)
        require_told(directory, vocabulary.languages, source_lang, target_lang)
        most = min(config.max_length or 1_024, 1_024)
        decode = read_settings(directory, **_ITS_SEARCH, **told, familiar=False, max_input_tokens=most)
        info = stating(info, source_lang, _package_language(package, "to_code"))
        bundle = Bundle(as_model(config, tensors, path), vocabulary, decode, info)
    compare = partial(_compare, directory, bundle, pieces, file.stored_in) if can_prove(KIND) else None
    return Imported(bundle, LIBRARY, KIND, (*notes, *more), read_card(package), compare)


def _package_language(package: Path, side: Literal["from_code", "to_code"] = "from_code") -> str | None:
    """Return a language that a package of Argos Translate names; None if there is none."""
    code = (optional_json(package / "metadata.json") or {}).get(side)
    return code if isinstance(code, str) and is_language(code) else None


def _epsilon(values: Mapping[str, Any], directory: Path) -> float | None:
    epsilon = values.get("layer_norm_epsilon")
    if epsilon is None or (isinstance(epsilon, int | float) and 0 < epsilon <= 1):
        return epsilon
    raise ConfigError(f"{directory / 'config.json'}: layer_norm_epsilon is {epsilon!r:.50}, no number from 0 to 1")


def _with_vocabulary(
    settings: Mapping[str, Any],
    tensors: Mapping[str, Tensor],
    pieces: SubwordPieces,
    pad_id: int | None,
    directory: Path,
    *,
    starts_from_zeros: bool,
) -> tuple[ModelConfig, dict[str, Tensor]]:
    """Return settings and tensors that include the special token ids.

    If decoding starts from a zero embedding, or the vocabulary has no padding token, both sides get one more token.
    """
    sizes = {
        "source": len(source := tensors["source_embedding.weight"]),
        "target": len(tensors.get("target_embedding.weight", source)),
    }
    for side, tokens in (("source", pieces.source), ("target", pieces.target)):
        if len(tokens) != sizes[side]:
            raise ModelError(
                f"{directory}: the {side} vocabulary has {len(tokens):,} tokens, and model.bin rows for {sizes[side]:,}"
            )
    if starts_from_zeros or pad_id is None:
        pad_id = max(sizes.values())
        tensors = with_rows(tensors, pad_id + 1)
        settings, sizes = {**settings, "output_bias": True}, dict.fromkeys(sizes, pad_id + 1)
    config = ModelConfig(
        **settings,
        vocab_size=sizes["target"],
        source_vocab_size=None if sizes["source"] == sizes["target"] else sizes["source"],
        pad_id=pad_id,
        bos_id=pad_id if starts_from_zeros else pieces.target.index(pieces.start),
        eos_id=pieces.target.index(pieces.eos),
    )
    return config, dict(tensors)


def _compare(
    directory: Path, bundle: Bundle, pieces: SubwordPieces, stored_in: Sequence[str], sources: Sequence[str]
) -> str:
    """Compare scores with CTranslate2.

    Weights stored in 16 bits are read exactly, but sinusoidal positions stored with them are computed by our model.
    """
    if any(name.startswith("int") for name in stored_in):
        return prove_ctranslate2(directory, bundle, sources, "int8", pieces, tolerance=TOLERANCE)
    kind: ForeignPrecision = "float32" if tuple(stored_in) == ("float32",) else "float16"
    return prove_ctranslate2(directory, bundle, sources, kind, pieces)
