"""White lists of model settings: what an engine, or a writer of another format, was written for.

Whatever is not listed is refused, so that a choice added to `ModelConfig` is not computed as another one.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from clearhead.config.model import ModelConfig

Known = Mapping[str, Container[object]]
"""For each setting, the values that code was written for."""


class _Any:
    """Contains every value."""

    def __contains__(self, value: object) -> bool:
        return True


ANY = _Any()
EITHER = (False, True)

SIZES: Known = dict.fromkeys(
    (
        *("vocab_size", "source_vocab_size", "d_model", "d_ff", "num_heads", "d_k", "d_v"),
        *("num_encoder_layers", "num_decoder_layers", "norm_eps", "max_positions", "first_position"),
        *("relative_attention_num_buckets", "relative_attention_max_distance", "num_segments"),
        *("dropout", "attention_dropout", "feed_forward_dropout"),
        *("num_placeholders", "pad_id", "bos_id", "eos_id"),
    ),
    ANY,
)
"""Numbers that name no other computation: sizes, positions, ids, and what acts in training alone."""

POSITIONS = ("sinusoidal", "sinusoidal_halves", "sinusoidal_t2t", "learned", "rotary")

COMMON: Known = {
    **SIZES,
    "norm": ("post", "pre"),
    "norm_kind": ("layer", "rms"),
    "final_norm": (None, *EITHER),
    "activation": ("relu", "gelu", "gelu_tanh", "silu"),
    **dict.fromkeys(("gated", "attention_scale", "attention_bias", "feed_forward_bias", "output_bias"), EITHER),
    **dict.fromkeys(("output_scale", "embedding_scale", "embedding_norm"), EITHER),
    "output_transform": (False,),
    "num_target_segments": (0,),
    "positions": POSITIONS,
    "tying": ("three-way", "decoder", "embeddings", "none"),
}
"""Settings and values that every engine and writer computes. Each of their lists begins with these, and adds or narrows
some. A new value belongs here only if all of them compute it."""


def unknown_settings(config: ModelConfig, known: Known) -> list[str]:
    """Return each setting whose value is not known, such as `model.norm_kind = 'rms'`.

    A setting that is not listed is known at its default alone, which leaves out what it adds.

    Args:
        config: Settings of a model.
        known: The white list.
    """
    defaults = {name: field.default for name, field in type(config).model_fields.items()}
    return [
        f"model.{name} = {value!r}"
        for name, default in defaults.items()
        if (value := getattr(config, name)) not in known.get(name, (default,))
    ]
