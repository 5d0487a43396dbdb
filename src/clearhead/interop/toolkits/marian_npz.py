"""What a model of Marian itself holds: its options, and which of our tensors its parameters are.

Its sinusoids have tensor2tensor's wavelengths (`sinusoidalPositionEmbeddings` in marian-dev); the conversions of
Hugging Face and CTranslate2 take the paper's for them, so scores of a model that came through them differ a little.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clearhead.config import ModelConfig
from clearhead.interop.equivalent import resolved
from clearhead.interop.key_table import ONE_ROW, SAME, TRANSPOSED, KeyTable, Layout, Row, numbered
from clearhead.interop.readers.their_config import TheirConfig

__all__ = ["config_from", "key_table"]

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
"""What Marian takes for options that files leave out; earlier versions did not have them all."""

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
"""Options that must have one value, if they are there, and why."""

MATRIX = Layout("a matrix", (2,), SAME.split, SAME.join)
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}  # its gelu is x * sigmoid(1.702 x), which ours is not


def config_from(options: Mapping[str, Any]) -> ModelConfig:
    """Return our settings of a model; the vocabulary and its special tokens are not among them.

    Args:
        options: Those of `special:model.yml`.

    Raises:
        ConfigError: Naming every option that our model cannot express.
    """
    their = TheirConfig(options, DEFAULTS)
    for option, (value, reason) in _ONLY.items():
        their.require(option, value, reason)
    # What is dropped in training says nothing of the model.
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
    tyings = {(True, True): "three-way", (False, True): "decoder", (True, False): "embeddings", (False, False): "none"}
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
        tying=tyings[shares_both, shares_output],
    )


def key_table(config: ModelConfig, *, has_old_output: bool) -> KeyTable:
    """Return the parameters of a model with these settings.

    Args:
        config: The settings.
        has_old_output: Whether the matrix of the output is stored as earlier versions did, with the input first.
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


def _embeddings(config: ModelConfig, has_old_output: bool) -> list[Row]:
    if config.tying in ("three-way", "embeddings"):
        rows = [Row(("source_embedding.weight",), "Wemb", MATRIX)]
    else:
        sides = {"source": "encoder", "target": "decoder"}
        rows = [Row((f"{ours}_embedding.weight",), f"{theirs}_Wemb", MATRIX) for ours, theirs in sides.items()]
    if config.tying in ("embeddings", "none"):
        name, layout = ("W", TRANSPOSED) if has_old_output else ("Wt", MATRIX)
        rows.append(Row(("output_proj.weight",), f"decoder_ff_logit_out_{name}", layout))
    if config.output_bias:
        rows.append(Row(("output_proj.bias",), "decoder_ff_logit_out_b", ONE_ROW))
    return rows


def _attention(ours: str, theirs: str, suffix: str) -> list[Row]:
    rows = _norm(f"{ours}_residual.norm", f"{theirs}_Wo", suffix)
    for letter, name in (("q", "q_proj"), ("k", "k_proj"), ("v", "v_proj"), ("o", "out_proj")):
        rows += _linear(f"{ours}.{name}", theirs, letter)
    return rows


def _feed_forward(suffix: str) -> list[Row]:
    return [
        *_norm("feed_forward_residual.norm", "ffn_ffn", suffix),
        *_linear("feed_forward.up_proj", "ffn", "1"),
        *_linear("feed_forward.down_proj", "ffn", "2"),
    ]


def _linear(ours: str, theirs: str, letter: str) -> list[Row]:
    return [
        Row((f"{ours}.weight",), f"{theirs}_W{letter}", TRANSPOSED),
        Row((f"{ours}.bias",), f"{theirs}_b{letter}", ONE_ROW),
    ]


def _norm(ours: str, theirs: str, suffix: str) -> list[Row]:
    return [
        Row((f"{ours}.weight",), f"{theirs}_ln_scale{suffix}", ONE_ROW),
        Row((f"{ours}.bias",), f"{theirs}_ln_bias{suffix}", ONE_ROW),
    ]
