"""Import of fairseq's Transformers: post- or pre-norm, computed or learned positions, a dictionary for each side.

Based on its public source (0.12.2: checkpoint_utils.py, data/dictionary.py, data/encoders).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.interop.huggingface.families.bart import computed_positions, stack_rows
from clearhead.interop.imported import Imported
from clearhead.interop.key_table import KeyTable, LeftOut, embedding_rows
from clearhead.interop.readers.foreign_config import TheirConfig
from clearhead.interop.readers.foreign_weights import read_checkpoint, settings_in, tensors_in
from clearhead.interop.rewrites import resolved
from clearhead.interop.toolkits.shared import checkpoint_at, put_together, text_notes
from clearhead.interop.vocabularies.word_vocabulary import (
    find_subwords,
    read_lines,
    require_rows,
    word_side,
    word_vocabulary,
)

PAD, EOS = 1, 2
"""Ids in every dictionary; positions are numbered from `PAD` + 1."""
SOURCE, TARGET = "encoder.embed_tokens.weight", "decoder.embed_tokens.weight"
"""Names of the embeddings."""
_OUTPUT = "decoder.output_projection.weight"

ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
}
"""Names of activations in fairseq to ours."""

DEFAULTS: Mapping[str, Any] = {
    "activation_dropout": 0.0,
    "activation_fn": "relu",
    "attention_dropout": 0.0,
    "decoder_learned_pos": False,
    "decoder_normalize_before": False,
    "dropout": 0.1,
    "encoder_learned_pos": False,
    "encoder_normalize_before": False,
    "layernorm_embedding": False,
    "max_source_positions": 1_024,
    "max_target_positions": 1_024,
    "no_scale_embedding": False,
    "no_token_positional_embeddings": False,
    "share_all_embeddings": False,
    "share_decoder_input_output_embed": False,
}
"""Defaults of fairseq's architectures for settings that old files omit."""

_ELSEWHERE: Mapping[str, Any] = {
    "adaptive_input": False,
    "adaptive_softmax_cutoff": None,
    "base_layers": 0,
    "char_inputs": False,
    "cross_self_attention": False,
    "decoder_layers_to_keep": None,
    "encoder_layers_to_keep": None,
    "no_cross_attention": False,
    "scale_attn": False,
    "scale_fc": False,
    "scale_heads": False,
    "scale_resids": False,
}
"""Settings of features that our model lacks, and the value that disables each."""


def config_from(
    values: Mapping[str, Any], source_size: int, target_size: int, *, ends_with_norm: bool, origin: object
) -> ModelConfig:
    """Return our settings of a model.

    Args:
        values: Arguments of the model, by their command-line names.
        source_size: Number of words in the source dictionary.
        target_size: Number of words in the target dictionary.
        ends_with_norm: Whether a pre-norm model has a norm after its last layers.
        origin: The file, for messages.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
    """
    their = TheirConfig(values, DEFAULTS, origin=origin)
    if "transformer" not in (arch := str(values.get("arch", "transformer"))):
        their.problems.append(f"arch is {arch!r:.100}, but must be a transformer")
    their.nothing_else(_ELSEWHERE)
    is_pre = bool(their.same("encoder_normalize_before", "decoder_normalize_before"))
    if is_pre:
        their.require("no_decoder_final_norm", False, "both stacks of our model end alike")
    for field in ("decoder_input_dim", "decoder_output_dim"):
        if field in values:
            their.same(field, "decoder_embed_dim")
    learned = bool(their.same("encoder_learned_pos", "decoder_learned_pos"))
    positions = "learned" if learned else "sinusoidal_t2t"
    if their["no_token_positional_embeddings"]:
        positions = "none"
    is_shared = bool(their["share_all_embeddings"])
    tied = "three-way" if is_shared else "decoder" if their["share_decoder_input_output_embed"] else "none"
    return their.model_config(
        vocab_size=target_size,
        source_vocab_size=None if source_size == target_size else source_size,
        d_model=their.same("encoder_embed_dim", "decoder_embed_dim"),
        d_ff=their.same("encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
        num_heads=their.same("encoder_attention_heads", "decoder_attention_heads"),
        num_encoder_layers=their.layers("encoder_layers"),
        num_decoder_layers=their.layers("decoder_layers"),
        dropout=their["dropout"],
        attention_dropout=their["attention_dropout"],
        feed_forward_dropout=their["activation_dropout"] or values.get("relu_dropout") or 0.0,
        norm="pre" if is_pre else "post",
        final_norm=is_pre and ends_with_norm,
        activation=their.activation("activation_fn", known=ACTIVATIONS),
        attention_bias=True,
        positions=positions,
        max_positions=their.same("max_source_positions", "max_target_positions") if learned else 1_024,
        first_position=PAD + 1 if positions == "sinusoidal_t2t" else 0,
        tying=tied,
        embedding_scale=not their["no_scale_embedding"],
        embedding_norm=bool(their["layernorm_embedding"]),
        pad_id=PAD,
        bos_id=EOS,
        eos_id=EOS,
    )


def key_table(config: ModelConfig) -> KeyTable:
    """Return the key table of a model."""
    config = resolved(config)
    rows = [*embedding_rows(config.tying, SOURCE, TARGET, _OUTPUT), *stack_rows(config, "")]
    copies = "copies of the layer's other tensors, which fairseq makes anew when it loads them"
    left_out = [
        *computed_positions(config, ""),
        *(
            LeftOut(f"encoder.layers.*.{module}_{kind}", copies)
            for module in ("in_proj", "out_proj", "fc1", "fc2")
            for kind in ("weight", "bias")
        ),
        LeftOut("*.version", "says of which form the file is"),
        LeftOut("*.embed_positions._float_tensor", "says of which type the numbers are"),
    ]
    return KeyTable(tuple(rows), tuple(left_out))


def ends_with_norm(state: Mapping[str, Tensor]) -> bool:
    """Return whether a pre-norm model has final norms; the first versions of the file format have none."""
    version = state.get("decoder.version")
    return version is not None and version.numel() == 1 and version.item() > 2


def upgraded(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of old files with current names, and with attention projections split."""
    norms = {
        "encoder": ("self_attn_layer_norm", "final_layer_norm"),
        "decoder": ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
    }
    upgraded: dict[str, Tensor] = {}
    for name, tensor in state.items():
        module, dot, kind = name.rpartition("_attn.in_proj_")
        if dot and tensor.dim():
            parts = zip("qkv", tensor.chunk(3), strict=False)
            upgraded |= {f"{module}_attn.{part}_proj.{kind}": value for part, value in parts}
            continue
        for number, norm in enumerate(norms.get(name.split(".")[0], ())):
            name = name.replace(f".layer_norms.{number}.", f".{norm}.")
        upgraded[_OUTPUT if name == "decoder.embed_out" else name] = tensor
    return upgraded


_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
_BOS, _UNK = 0, 3
_MULTIPLE = 8


def import_fairseq(path: Path, kind: str | None, source_lang: str | None, target_lang: str | None) -> Imported:
    """Read a fairseq checkpoint.

    Args:
        path: The checkpoint, or its directory.
        kind: Ignored; fairseq has only one kind of model.
        source_lang: Source language, part of the dictionary's file name; None for the one in the checkpoint.
        target_lang: Target language, part of the dictionary's file name; None for the one in the checkpoint.

    Raises:
        ConfigError: Naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    file = checkpoint_at(path, ".pt", ("checkpoint_best.pt", "checkpoint_last.pt", "model.pt"))
    checkpoint = read_checkpoint(file)
    values, state = _settings(checkpoint, file), upgraded(tensors_in(checkpoint, "model", file))
    languages = (source_lang or values.get("source_lang"), target_lang or values.get("target_lang"))
    if not all(isinstance(language, str) and re.fullmatch(r"[\w.-]+", language) for language in languages):
        raise ModelError(
            f"{file} does not say its languages, which name its dictionaries: say --source-lang and --target-lang"
        )
    dictionaries = [
        _dictionary(file.parent / f"dict.{language}.txt", state.get(name), file)
        for language, name in zip(languages, (SOURCE, TARGET), strict=True)
    ]
    config = config_from(values, *map(len, dictionaries), ends_with_norm=ends_with_norm(state), origin=file)
    tensors = key_table(config).from_theirs(state, origin=str(file))
    source, target = (
        word_side(pieces, special=(_BOS, PAD, EOS), unk_id=_UNK, subwords=find_subwords(file.parent, str(language)))
        for pieces, language in zip(dictionaries, languages, strict=True)
    )
    vocabulary = word_vocabulary(config, source, target, ("text", EOS))
    arch = str(values.get("arch", "transformer"))
    search = settings_in(values.get("generation")) or {}
    return put_together(
        "fairseq",
        arch if re.fullmatch(r"[\w.-]{1,100}", arch) else "transformer",
        file,
        config,
        tensors,
        vocabulary,
        files=[file],
        languages=(languages[0], None),
        notes=text_notes(source, target),
        beam_size=search.get("beam", 5),
        length_penalty=search.get("lenpen", 1.0),
        length_penalty_form="power",
    )


def _settings(checkpoint: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Return the arguments of a model: old files have them in `args`, later files in groups in `cfg`."""
    if (args := settings_in(checkpoint.get("args"))) is not None:
        return args
    groups = settings_in(checkpoint.get("cfg")) or {}
    if (model := settings_in(groups.get("model"))) is None:
        raise ModelError(f"{path} says nothing of its model: neither args nor cfg.model holds settings by name")
    parts = {part: settings_in(model.pop(part, None)) or {} for part in ("encoder", "decoder")}
    task = settings_in(groups.get("task")) or {}
    return {
        "arch": model.get("_name", "transformer"),
        **{field: task.get(field) for field in ("source_lang", "target_lang")},
        **model,
        **{f"{part}_{field}": value for part, fields in parts.items() for field, value in fields.items()},
        "generation": groups.get("generation"),
    }


def _dictionary(path: Path, embedding: Tensor | None, checkpoint: Path) -> list[str]:
    """Return the words of a dictionary, as many as its embedding has rows; an embedding of None is not checked."""
    words = list(_SPECIAL)
    known = set(words)
    for number, line in enumerate(read_lines(path), start=1):
        word, _, count = line.rstrip().rpartition(" ")
        overwrites = count == "#fairseq:overwrite"
        if overwrites:
            word, _, count = word.rpartition(" ")
        if not word or not count.isdecimal():
            raise ModelError(f"{path}, line {number}: {line!r:.60} is no word with its count")
        if word in known and not overwrites:
            raise ModelError(f"{path}, line {number}: the word {word!r:.60} is in it twice")
        words.append(word)
        known.add(word)
    if embedding is not None:
        padding = -len(words) % _MULTIPLE
        if embedding.dim() and len(embedding) == len(words) + padding:
            words += [f"madeupword{number:04d}" for number in range(padding)]
        require_rows(words, embedding, words=path, weights=f"the embedding in {checkpoint}")
    return words
