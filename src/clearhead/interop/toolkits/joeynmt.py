"""Import of Transformers of JoeyNMT 1 and 2: post- or pre-norm, with words, subword-nmt or sentencepiece.

Based on its public source (2.3 and 1.5: config.py, vocabulary.py, tokenizers.py, prediction.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ConfigError
from clearhead.interop.imported import Imported
from clearhead.interop.key_table import TYINGS, KeyRow, KeyTable, embedding_rows, numbered, pair
from clearhead.interop.readers.foreign_config import TheirConfig, read_yaml
from clearhead.interop.readers.foreign_weights import read_checkpoint, tensors_in
from clearhead.interop.rewrites import resolved
from clearhead.interop.toolkits.shared import (
    checkpoint_at,
    flat_positions,
    put_together,
    section,
    stored_positions,
    text_notes,
)
from clearhead.interop.vocabularies.word_vocabulary import read_lines, require_rows, word_side, word_vocabulary
from clearhead.tokenizers.foreign import VocabularySide

UNK, PAD, BOS, EOS = range(4)
"""Ids of the special tokens in every vocabulary."""
SOURCE, TARGET = "src_embed.lut.weight", "trg_embed.lut.weight"
"""Names of the embeddings."""
_OUTPUT = "decoder.output_layer.weight"

DEFAULTS: Mapping[str, Any] = {"activation": "relu", "alpha": 1.0, "dropout": 0.1, "layer_norm": None, "type": None}
"""Defaults of JoeyNMT's layers for settings that a configuration omits."""


def config_from(
    model: Mapping[str, Any], source_size: int, target_size: int, *, is_first_version: bool, origin: object
) -> ModelConfig:
    """Return our settings of a model.

    Args:
        model: Section `model` of the configuration.
        source_size: Number of words in the source vocabulary.
        target_size: Number of words in the target vocabulary.
        is_first_version: Whether the model is one of JoeyNMT 1, which has norms before every sub-layer and after the
            stacks. It counts only if the configuration has no `layer_norm`; JoeyNMT 2 then mixes both orders.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
    """
    problems: list[str] = []
    is_shared, tied = bool(model.get("tied_embeddings")), bool(model.get("tied_softmax"))
    read = []
    for name in ("encoder", "decoder"):
        part = section(model, name, origin, within="model.")
        holder = "encoder" if is_shared else name  # with shared embeddings the decoder's settings are not used
        embedding = section(
            section(model, holder, origin, within="model."), "embeddings", origin, within=f"model.{holder}."
        )
        values = {**part, "scale": bool(embedding.get("scale")), "embedding_dim": embedding.get("embedding_dim")}
        read.append(TheirConfig(values, DEFAULTS, within=f"model.{name}.", problems=problems, origin=origin))
    encoder, decoder = read
    for their in read:
        their.require("type", "transformer", "other networks are not supported")
        their.require("alpha", 1.0, "our residual connections have no other factor")
        their.same("embedding_dim", "hidden_size")
    encoder.agree(decoder, "hidden_size", "ff_size", "num_heads", "layer_norm", "activation", "scale")
    norm = encoder["layer_norm"] or ("pre" if is_first_version else None)
    if norm not in ("pre", "post"):
        problems.append(f"model.encoder.layer_norm is {norm!r}, but must be 'pre' or 'post'")
    return encoder.model_config(
        vocab_size=target_size,
        source_vocab_size=None if source_size == target_size else source_size,
        d_model=encoder["hidden_size"],
        d_ff=encoder["ff_size"],
        num_heads=encoder["num_heads"],
        num_encoder_layers=encoder.layers("num_layers"),
        num_decoder_layers=decoder.layers("num_layers"),
        dropout=encoder["dropout"],
        attention_dropout=encoder["dropout"],
        feed_forward_dropout=encoder["dropout"],
        norm=norm,
        norm_eps=1e-6,
        activation=encoder.activation("activation"),
        attention_bias=True,
        tying=TYINGS[is_shared, tied],
        embedding_scale=encoder["scale"],
        pad_id=PAD,
        bos_id=BOS,
        eos_id=EOS,
    )


def _attention(ours: str, theirs: str) -> list[KeyRow]:
    names = {"q_proj": "q_layer", "k_proj": "k_layer", "v_proj": "v_layer", "out_proj": "output_layer"}
    return [row for name, there in names.items() for row in pair(f"{ours}.{name}", f"{theirs}.{there}")]


_FEED_FORWARD = (
    *pair("feed_forward.up_proj", "feed_forward.pwff_layer.0"),
    *pair("feed_forward.down_proj", "feed_forward.pwff_layer.3"),
    *pair("feed_forward_residual.norm", "feed_forward.layer_norm"),
)
ENCODER_LAYER = (
    *_attention("self_attn", "src_src_att"),
    *pair("self_attn_residual.norm", "layer_norm"),
    *_FEED_FORWARD,
)
DECODER_LAYER = (
    *_attention("self_attn", "trg_trg_att"),
    *pair("self_attn_residual.norm", "x_layer_norm"),
    *_attention("cross_attn", "src_trg_att"),
    *pair("cross_attn_residual.norm", "dec_layer_norm"),
    *_FEED_FORWARD,
)


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of a model."""
    config = resolved(config)
    rows = embedding_rows(config.tying, SOURCE, TARGET, _OUTPUT)
    for side, layer, count in (
        ("encoder", ENCODER_LAYER, config.num_encoder_layers),
        ("decoder", DECODER_LAYER, config.num_decoder_layers),
    ):
        rows += numbered(layer, count, ours=f"{side}.layers.{{i}}.", theirs=f"{side}.layers.{{i}}.")
        if config.final_norm:
            rows += pair(f"{side}.final_norm", f"{side}.layer_norm")
    return KeyTable(tuple(rows), tuple(stored_positions(config)))


_SPECIAL = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
"""Special tokens in the order of their ids, by setting, with their default names."""


def import_joeynmt(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a JoeyNMT model.

    Args:
        path: The checkpoint, or its directory.
        kind: Ignored; JoeyNMT has only one kind of model.
        source_lang: Source language; None for the one in the configuration.
        target_lang: Must be None: the model has no target-language tokens.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others, or PyYAML is not installed.
    """
    file = checkpoint_at(path, ".ckpt", ("best.ckpt", "latest.ckpt"))
    origin = file.parent / "config.yaml"
    values = read_yaml(origin)
    data, testing = section(values, "data", origin), section(values, "testing", origin, optional=True)
    state = flat_positions(tensors_in(read_checkpoint(file), "model_state", file))
    special = section(data, "special_symbols", origin, optional=True)
    if special.get("sep_token") or special.get("lang_tags"):
        raise ConfigError(f"{origin}: data.special_symbols has prompts or languages, which our model is not told")
    first = [str(special.get(name, token)) for name, token in _SPECIAL.items()]
    sides, notes = [], []
    for name, embedding in (("src", SOURCE), ("trg", TARGET)):
        words = file.parent / f"{name}_vocab.txt"
        pieces = list(dict.fromkeys([*first, *read_lines(words)]))
        if embedding in state:
            require_rows(pieces, state[embedding], words=words, weights=f"{embedding} in {file}")
        settings = _side_settings(data, name, origin)
        side = _side(settings, pieces, f"{origin}: data.{name}", file.parent)
        sides.append(side)
        notes += text_notes(side) if settings.get("is_split") else _notes(settings)
    source, target = sides
    config = config_from(
        section(values, "model", origin),
        len(source.pieces),
        len(target.pieces),
        is_first_version="encoder.layer_norm.weight" in state,
        origin=origin,
    )
    penalty = testing.get("beam_alpha", testing.get("alpha", 0))
    return put_together(
        "JoeyNMT",
        "transformer",
        file,
        config,
        key_table(config).from_theirs(state, origin=str(file)),
        word_vocabulary(config, source, target, ("text", EOS)),
        files=[file],
        languages=(source_lang or _side_settings(data, "src", origin).get("lang"), target_lang),
        notes=tuple(dict.fromkeys(notes)),
        beam_size=testing.get("beam_size", 1),
        length_penalty=0 if penalty == -1 else penalty,  # -1 disables it
        length_penalty_form="gnmt",
    )


def _side_settings(data: Mapping[str, Any], name: str, origin: Path) -> dict[str, Any]:
    """Return the text settings of one side; JoeyNMT 1 has one group for both sides, and the language of each."""
    if isinstance(language := data.get(name), str):
        return {"lang": language, "level": data.get("level"), "lowercase": data.get("lowercase"), "is_split": True}
    return section(data, name, origin, within="data.")


def _side(settings: Mapping[str, Any], pieces: Sequence[str], where: str, directory: Path) -> VocabularySide:
    """Return the tokenizer of one side; JoeyNMT copies the subword file into the checkpoint's directory."""
    level, how = settings.get("level"), settings.get("tokenizer_type", settings.get("bpe_type", "sentencepiece"))
    files = settings.get("tokenizer_cfg") or {}
    if level not in ("word", "bpe") or how not in ("sentencepiece", "subword-nmt") or not isinstance(files, dict):
        raise ConfigError(
            f"{where} is split by {level!r:.40} and {how!r:.40}: known are words, sentencepiece, subword-nmt"
        )
    if files.get("separator", "@@") != "@@":
        raise ConfigError(f"{where}.tokenizer_cfg.separator is {files['separator']!r:.40}, but must be '@@'")
    subwords = None
    if level == "bpe" and not settings.get("is_split"):
        key = "model_file" if how == "sentencepiece" else "codes"
        if not isinstance(files.get(key), str):
            raise ConfigError(f"{where}.tokenizer_cfg.{key} is missing")
        subwords = directory / Path(files[key]).name
    return word_side(
        pieces,
        special=(PAD, BOS, EOS),
        unk_id=UNK,
        subwords=subwords,
        within_pieces=subwords is not None,
        lowercase=bool(settings.get("lowercase")),
    )


def _notes(settings: Mapping[str, Any]) -> list[str]:
    """Return notes on JoeyNMT's text processing before and after the model that clearhead does not do."""
    notes = []
    if settings.get("normalize"):
        notes.append(
            "it learned text in Unicode's form NFKC with plain quotation marks (normalize), which is not made here"
        )
    if (settings.get("tokenizer_cfg") or {}).get("pretokenizer") == "moses":
        notes.append("it learned text that was tokenized by Moses (pretokenizer), which is not done here")
    return notes
