"""Every setting of every part, each with its one default, unit and source.

The sections are frozen pydantic models. Where a default is `None`, the words beside it say what that means. `preset`,
`tokenizer.vocab_size`, `train.learning_rate` and `train.max_steps` are then chosen when a run starts, and the run's
`config.toml` says what was chosen; `auto` stays there as it is, so that a run may go on where another device is. This
module imports no torch, so that reading a configuration is instant.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    model_validator,
)

from clearhead.errors import ConfigError, nearest_name

__all__ = [
    "MOST_SAMPLES",
    "MOST_STEPS",
    "Config",
    "DataConfig",
    "DecodeConfig",
    "DecodePrecision",
    "ModelConfig",
    "Sampling",
    "TokenizerConfig",
    "TrainConfig",
    "parse_toml",
    "read_toml",
]

MOST_TOML_CHARACTERS = 8 * 2**20
"""Longest configuration that is read."""

DecodePrecision = Literal["fp32", "bf16x3", "bf16", "int8"]
"""What matrix products are computed in while translating."""

MOST_STEPS = 1_000_000_000
"""Most optimiser steps of a run."""

MOST_SAMPLES = 10_000
"""Most translations of one line that can be asked for."""

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]

# No setting is without bounds: a file that was damaged or made up must not ask for more than a machine can have. Each
# bound is far above what anybody uses.
Steps = Annotated[PositiveInt, Field(le=MOST_STEPS)]
Tokens = Annotated[PositiveInt, Field(le=100_000_000)]
Items = Annotated[PositiveInt, Field(le=100_000_000)]
Pieces = Annotated[PositiveInt, Field(le=10_000_000)]
Width = Annotated[PositiveInt, Field(le=1_000_000)]
Layers = Annotated[NonNegativeInt, Field(le=1_000)]
Minutes = Annotated[PositiveFloat, Field(le=10_000_000.0)]
Rate = Annotated[PositiveFloat, Field(le=1e9)]
NonNegativeRate = Annotated[NonNegativeFloat, Field(le=1e9)]
SmallNumber = Annotated[PositiveFloat, Field(le=1.0)]
Segments = Annotated[NonNegativeInt, Field(le=10_000)]
TokenId = Annotated[NonNegativeInt, Field(lt=10_000_000)]
Position = Annotated[NonNegativeInt, Field(le=10_000_000)]
Seed = Annotated[int, Field(ge=0, lt=2**32)]


_is_within: ContextVar[bool] = ContextVar("is_within", default=False)


class Settings(BaseModel):
    """A frozen section; unknown keys and values that cannot be read as their type are refused.

    Raises:
        ConfigError: Naming every unknown key (with the nearest known one) and every impossible value.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

    def __init__(self, **values: Any) -> None:
        if _is_within.get():
            super().__init__(**values)  # the section around this one gathers the problems of all
            return
        token = _is_within.set(True)
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise ConfigError("; ".join(_explain(type(self), problem) for problem in error.errors())) from None
        finally:
            _is_within.reset(token)


class DataConfig(Settings):
    """`[data]`: the parallel text and what is kept of it."""

    source: tuple[str, ...] = ()
    """Files with one source segment a line; `.gz`, `.xz` and `.zst` are decompressed, `-` is standard input."""
    target: tuple[str, ...] = ()
    """Files with the translations, line by line beside `source`."""
    pairs: tuple[str, ...] = ()
    """Files that hold both sides, such as tab-separated `.tsv`."""
    valid_source: tuple[str, ...] = ()
    """Validation source files; without any, `valid_size` pairs are held out of the training text."""
    valid_target: tuple[str, ...] = ()
    """Validation target files, line by line beside `valid_source`."""
    valid_pairs: tuple[str, ...] = ()
    """Validation files that hold both sides."""
    exclude: tuple[str, ...] = ()
    """Text files, one segment a line (test sets, say): training pairs with a side in them are dropped as leakage."""
    valid_size: Items = 1_000
    """Pairs held out for validation when none are given; at most a tenth of the corpus."""
    max_characters: Items = 3_000
    """Pairs with a longer side, in characters, are dropped before anything else reads them."""
    max_length: Tokens = 256
    """Pairs with a longer side, in tokens, are dropped."""
    max_ratio: Rate = 6.0
    """Pairs whose longer side has more than this many times the characters of the shorter are dropped; sides under
    20 characters count as 20, so that short segments are not judged."""
    drop_duplicates: bool = True
    """Drop pairs that stand in the corpus already, letter for letter."""


class TokenizerConfig(Settings):
    """`[tokenizer]`: the joint subword vocabulary."""

    kind: Literal["bpe", "unigram", "wordpiece"] = "bpe"
    """Byte-pair encoding (paper section 5.1, EN-DE), unigram, or word-piece (EN-FR)."""
    vocab_size: Pieces | None = None
    """Pieces in the vocabulary, special tokens included; chosen from the corpus size if not set (paper: 37,000)."""
    split_digits: bool = True
    """Keep every digit a piece of its own, so that numbers are copied rather than memorised."""
    language_tags: tuple[str, ...] = ()
    """Languages whose tag, such as `<2de>`, may head a source line to name the language it is translated into."""

    @model_validator(mode="after")
    def _tags_can_be_told_apart(self) -> Self:
        for language in self.language_tags:
            if not re.fullmatch(r"[^\s<>]+", language) or self.language_tags.count(language) > 1:
                raise ValueError(
                    f"tokenizer.language_tags: {language!r} must be there once, not empty, without spaces, "
                    f"'<' and '>'; for example ['de', 'fr']"
                )
        return self


class ModelConfig(Settings):
    """`[model]`: the shape of the Transformer; the defaults are the paper's base model (Table 3)."""

    vocab_size: Pieces = 37_000
    """Rows of the shared embedding; set from the tokenizer when training (paper section 5.1: about 37,000)."""
    source_vocab_size: Pieces | None = None
    """Rows of the source embedding where source and target have vocabularies of their own; for models built in Python,
    as `clearhead train` makes one joint vocabulary."""
    d_model: Width = 512
    """Width of the model (paper section 3.1)."""
    d_ff: Width = 2048
    """Width inside the feed-forward network (paper section 3.3)."""
    num_heads: Width = 8
    """Attention heads, h in the paper (section 3.2.2)."""
    d_k: Width | None = None
    """Width of a query and a key in each head; `d_model / num_heads` if not set (section 3.2.2; Table 3, row B)."""
    d_v: Width | None = None
    """Width of a value in each head; `d_model / num_heads` if not set (paper section 3.2.2)."""
    num_encoder_layers: Layers = 6
    """Encoder layers, N in the paper (section 3.1); 0 makes a decoder alone, as in GPT."""
    num_decoder_layers: Layers = 6
    """Decoder layers, N in the paper (section 3.1); 0 makes an encoder alone, as in BERT."""
    dropout: Probability = 0.1
    """Dropout on every sub-layer's output and on embedding plus position (paper section 5.4)."""
    attention_dropout: Probability = 0.0
    """Dropout on attention weights. Section 5.4 has none there; section 6.3, of parsing, speaks of "attention and
    residual" dropout without a rate; the reference implementation came to have 0.1."""
    feed_forward_dropout: Probability = 0.0
    """Dropout inside the feed-forward network, likewise."""
    norm: Literal["post", "pre"] = "post"
    """`post`: LayerNorm(x + Sublayer(x)), as the paper prints it; `pre`: x + Sublayer(LayerNorm(x)) and one more norm
    after the last layer, which trains stably at higher rates (tensor2tensor's later default)."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """LayerNorm (paper section 3.1), or RMSNorm without mean and bias (Zhang and Sennrich 2019)."""
    norm_eps: SmallNumber = 1e-5
    """Added to the variance inside a norm."""
    final_norm: bool | None = None
    """Whether one more norm ends encoder and decoder; if not set, only with `norm = "pre"`. `torch.nn.Transformer` has
    it always, the paper never."""
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = "relu"
    """Of the feed-forward network: ReLU (paper equation 2), GELU (BERT), its tanh form (GPT-2), SiLU."""
    gated: bool = False
    """Gate the feed-forward network with a third projection (Shazeer 2020); SwiGLU is `silu` with this."""
    attention_bias: bool = False
    """Biases in the projections of attention; the paper's equation and parameter counts have none."""
    feed_forward_bias: bool = True
    """Biases in the feed-forward network (paper equation 2)."""
    output_bias: bool = False
    """A bias in the linear map before the softmax."""
    positions: Literal["sinusoidal", "sinusoidal_halves", "sinusoidal_t2t", "learned", "rotary", "none"] = "sinusoidal"
    """`sinusoidal`, interleaved as in section 3.5; `sinusoidal_halves`, sines and then cosines (Marian);
    `sinusoidal_t2t`, these with the wavelengths of tensor2tensor and fairseq; `learned` (Table 3, row E); `rotary`
    inside self-attention (Su et al. 2021); `none`."""
    max_positions: Pieces = 1_024
    """Rows of learned positions: no sequence may be longer."""
    first_position: Position = 0
    """Position of the first token, for sinusoids; models made with fairseq count from 2."""
    num_segments: Segments = 0
    """Kinds of source segments with a vector of their own (BERT: 2)."""
    tying: Literal["three-way", "decoder", "embeddings", "none"] = "three-way"
    """Which matrices are one: source embedding, target embedding and output (paper section 3.4); `decoder`, target
    embedding and output; `embeddings`, source and target embedding; `none`."""
    embedding_scale: bool = True
    """Multiply embeddings by sqrt(d_model) (paper section 3.4)."""
    embedding_norm: bool = False
    """A norm over embedding plus position (BERT, BART)."""
    pad_id: TokenId = 0
    """Id of the padding token. This and the next two are set from the tokenizer when training; they are free for models
    built in Python."""
    bos_id: TokenId = 1
    """Id that starts every target (the outputs "shifted right" of figure 1); published models start with their padding
    token (Marian) or their end token (BART, NLLB, GPT-2)."""
    eos_id: TokenId = 2
    """Id that ends every source and every target."""

    @property
    def key_dim(self) -> int:
        """Width of a query and a key in one head, d_k in the paper."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_dim(self) -> int:
        """Width of a value in one head, d_v in the paper."""
        return self.d_v or self.d_model // self.num_heads

    @property
    def max_length(self) -> int | None:
        """Most tokens of a sequence, where the positions have an end."""
        return self.max_positions if self.positions == "learned" else None

    @model_validator(mode="after")
    def _shapes_fit(self) -> Self:
        divides_heads = self.d_k is None or self.d_v is None
        is_sinusoidal = self.positions.startswith("sinusoidal")
        step = math.lcm(2 if is_sinusoidal else 1, self.num_heads if divides_heads else 1)
        below = self.d_model - self.d_model % step
        nearest = ", ".join(str(width) for width in (below, below + step) if width)
        if divides_heads and self.d_model % self.num_heads:
            raise ValueError(
                f"model.d_model ({self.d_model}) must be a multiple of model.num_heads ({self.num_heads}); "
                f"nearest that fit: {nearest}"
            )
        if is_sinusoidal and self.d_model % 2:
            raise ValueError(
                f"model.d_model ({self.d_model}) must be even: sinusoidal positions come in pairs of sine and cosine "
                f"(section 3.5); nearest that fit: {nearest}"
            )
        if self.positions == "rotary" and self.key_dim % 2:
            raise ValueError(
                f"model.d_k ({self.key_dim}) must be even: rotary positions turn pairs of components; "
                f"nearest that fit: {self.key_dim + 1}"
            )
        return self

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        if self.num_encoder_layers + self.num_decoder_layers == 0:
            raise ValueError("model.num_encoder_layers and model.num_decoder_layers must not both be 0")
        if self.num_encoder_layers == 0 and (self.source_vocab_size is not None or self.num_segments):
            raise ValueError(
                "a decoder alone (model.num_encoder_layers = 0) has no source, so there can be no "
                "model.source_vocab_size and no model.num_segments"
            )
        shares_embeddings = self.num_decoder_layers > 0 and self.tying in ("three-way", "embeddings")
        if self.source_vocab_size is not None and shares_embeddings:
            raise ValueError(
                f"model.tying = {self.tying!r} makes source and target embedding one matrix, so there can be no "
                f"model.source_vocab_size ({self.source_vocab_size}); tyings without: 'decoder', 'none'"
            )
        if self.first_position and not self.positions.startswith("sinusoidal"):
            raise ValueError(
                f"model.first_position ({self.first_position}) is for sinusoids; with model.positions = "
                f"{self.positions!r} it must be 0"
            )
        return self

    @model_validator(mode="after")
    def _special_tokens_fit(self) -> Self:
        special = (self.pad_id, self.bos_id, self.eos_id)
        smallest = min(self.vocab_size, self.source_vocab_size or self.vocab_size)
        if max(special) >= smallest:
            raise ValueError(f"model.pad_id, bos_id, eos_id {special} must lie below model.vocab_size ({smallest})")
        # What starts a target may also be what pads or ends: of a target the decoder hides what comes later, never a
        # token for what it is, and the loss counts what is written, not what is read. But an end that were padding
        # would count for nothing.
        if self.pad_id == self.eos_id:
            raise ValueError(f"model.pad_id and model.eos_id must differ, both are {self.pad_id}")
        return self


class TrainConfig(Settings):
    """`[train]`: optimisation, how long it runs and what it keeps."""

    batch_tokens: Tokens = 25_000
    """Target tokens per optimiser step (paper section 5.1: about as many, and 25,000 source tokens)."""
    micro_batch_tokens: Tokens = 8_192
    """Target tokens computed at once, padding included; a larger step is accumulated from several parts. The gradient
    is the same, but for the dropout drawn."""
    max_steps: Steps | None = None
    """Optimiser steps after which training ends; if neither this nor `max_minutes` is set, those of 30 passes over the
    corpus, 100,000 at most."""
    max_minutes: Minutes | None = None
    """Minutes after which training ends, counted over all resumed parts and with data preparation; no limit if not
    set."""
    optimizer: Literal["adam", "adamw", "muon"] = "adam"
    """Adam as in section 5.3; with decoupled weight decay; or Muon for the matrices inside layers (Jordan et al. 2024)
    and Adam for the rest."""
    adam_betas: tuple[Probability, Probability] = (0.9, 0.98)
    """Decay of the two moment estimates (paper section 5.3)."""
    adam_eps: SmallNumber = 1e-9
    """Keeps the division stable (paper section 5.3)."""
    weight_decay: NonNegativeRate = 0.0
    """Decoupled weight decay per unit of learning rate, of matrices only; `adam` has none."""
    learning_rate: Rate | None = None
    """Peak rate; if not set, what the schedule of section 5.3 peaks at: (d_model * warmup_steps) ** -0.5."""
    warmup_steps: Steps = 4_000
    """Optimiser steps of linear warm-up (paper section 5.3)."""
    schedule: Literal["noam", "linear", "cosine", "constant"] = "noam"
    """After warm-up: `noam` falls with the inverse square root of the step (equation 3), `linear` and `cosine` fall
    to zero at the end given by max_steps or, if that is not set, max_minutes; `constant` stays."""
    label_smoothing: Probability = 0.1
    """Probability mass spread over the vocabulary (paper section 5.4)."""
    clip_norm: NonNegativeRate = 1.0
    """Largest norm of the gradient of one step; 0 leaves it as it is."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Precision of matrix products; `auto` is bf16 where the hardware has it (GPUs; CPUs with AMX), fp32 elsewhere. All
    else stays fp32 on a CPU; on a GPU it is what torch.autocast makes of it. On a CPU that multiplies no bfloat16
    (neither AMX nor AVX-512 BF16), bf16 computes in fp32."""
    compile: bool = False
    """Compile the model with torch.compile; the first steps take minutes, the later ones less time."""
    validate_every: Steps = 500
    """Optimiser steps between validations (loss of all pairs, BLEU of greedy translations)."""
    validate_sentences: Items = 1_000
    """Validation pairs translated for BLEU, from the start of the set."""
    checkpoint_every: Steps = 500
    """Optimiser steps between checkpoints."""
    checkpoint_minutes: Minutes = 10.0
    """Minutes after which a checkpoint is written even where `checkpoint_every` asks for none."""
    keep_checkpoints: Items = 5
    """Newest checkpoints kept, at least as many as `average_last`; the best by validation is kept as well."""
    average_last: Items = 5
    """Checkpoints averaged at the end (paper section 6.1: 5 for base, 20 for big); used if validation prefers it."""
    patience: Steps = 10
    """Validations without a better one after which training ends."""
    seed: Seed = 1
    """Seed of initialisation, batch order and dropout."""

    @model_validator(mode="after")
    def _schedule_has_an_end(self) -> Self:
        if self.schedule in ("linear", "cosine") and self.max_steps is None and self.max_minutes is None:
            raise ValueError(
                f"train.schedule = {self.schedule!r} falls to zero at the end of training, so it needs "
                f"train.max_steps or train.max_minutes; schedules without an end: 'noam', 'constant'"
            )
        return self


class DecodeConfig(Settings):
    """`[decode]`: how the model writes its translations."""

    beam_size: Annotated[PositiveInt, Field(le=1_000)] = 4
    """Hypotheses kept at every step; 1 is greedy search (paper section 6.1: 4)."""
    length_penalty: Annotated[NonNegativeFloat, Field(le=10.0)] = 0.6
    """Exponent alpha of the length penalty, which divides a hypothesis' log-probability (paper section 6.1: 0.6)."""
    length_penalty_form: Literal["gnmt", "power"] = "gnmt"
    """`gnmt`: ((5 + length) / 6) ** alpha, the paper's; `power`: length ** alpha, as in Hugging Face and fairseq."""
    extra_length: Annotated[PositiveInt, Field(le=10_000)] = 50
    """Target tokens allowed beyond the number of source tokens (paper section 6.1: 50); a translation that is ended
    there is flagged as truncated (`output_truncated`)."""
    batch_tokens: Tokens = 4_096
    """Source tokens translated at once, padding and beams included; with the compiled core by each thread."""
    precision: DecodePrecision = "fp32"
    """Of the matrix products: `fp32`; `bf16x3`, for CPUs with AMX, where every number is the sum of two in bfloat16:
    nothing changes but near ties; `bf16`, for GPUs and CPUs with AMX or AVX-512 BF16; `int8`, for CPUs with AMX or
    VNNI. The last two round: a few translations differ. Scores are the model's own in every precision: what it finds
    is scored in float32."""
    shortlist: bool = False
    """Write a sentence only in tokens that the model's shortlist, made by `clearhead optimize`, allows its source:
    faster, and a few translations differ. Their scores are the model's own, over the whole vocabulary."""
    max_input_tokens: Annotated[PositiveInt, Field(le=100_000)] = 1_024
    """Longer source lines are cut here and flagged as truncated (`source_truncated`)."""
    target_lang: str | None = None
    """Language tag put before every source line that brings none of its own; none if not set."""

    def with_changes(self, changes: Mapping[str, Any]) -> Self:
        """Return a copy with some settings changed.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        checked = Config.from_dict({"decode": {**self.model_dump(), **changes}}, origin="decoding").decode
        return self.model_copy(update=checked.model_dump())


class Sampling(Settings):
    """How tokens are drawn at random; the defaults draw from the model's own distribution."""

    temperature: PositiveFloat = 1.0
    """Divides the log-probabilities: below 1 sharpens, above 1 flattens."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Draw among this many most probable tokens only; 0 is all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw among the fewest most probable tokens that hold this much probability (Holtzman et al. 2020)."""
    seed: Seed = 1
    """Equal seed and source give equal samples, whatever else is in the batch."""


class Config(Settings):
    """All sections of one run."""

    preset: str | None = None
    """Named starting point for the other sections, such as `paper-base`; chosen from the corpus size if not set."""
    out: str | None = None
    """Run directory; running again with the same one resumes."""
    device: str = "auto"
    """`auto` (the first GPU, else the CPU), `cpu`, `cuda` or `cuda:1`."""
    data: DataConfig = DataConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    model: ModelConfig = ModelConfig()
    train: TrainConfig = TrainConfig()
    decode: DecodeConfig = DecodeConfig()

    @model_validator(mode="after")
    def _text_fits_the_positions(self) -> Self:
        longest = self.model.max_length
        if longest is not None and self.data.max_length > longest:
            raise ValueError(
                f"data.max_length ({self.data.max_length}) must be at most model.max_positions ({longest}): every "
                f"token needs a position"
            )
        return self

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, origin: str = "configuration") -> Self:
        """Check nested plain values against every rule at once.

        Args:
            values: Section name to key to value, as TOML gives them.
            origin: Where the values came from, for the error message.

        Raises:
            ConfigError: Naming every unknown key (with the nearest known one) and every impossible value.
        """
        tables = [values, *(values.values() if isinstance(values, Mapping) else ())]
        names = [name for table in tables if isinstance(table, Mapping) for name in table]
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in names):
            raise ConfigError(f"{origin}: settings must be a table from section to key to value, not {_shown(values)}")
        try:
            return cls(**values)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from None

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file, or the text of a pipe.

        Raises:
            ConfigError: If the file is missing, is not TOML, or breaks a rule.
        """
        return cls.from_dict(read_toml(path), origin=str(path))

    def to_toml(self) -> str:
        """Return every setting as TOML; unset ones are left out, for TOML has no null."""
        return tomli_w.dumps(_without_none(self.model_dump(mode="json")))


def read_toml(path: str | Path) -> dict[str, Any]:
    """Read a TOML file into plain nested values.

    Raises:
        ConfigError: If the file cannot be read or is not TOML.
    """
    if not isinstance(path, str | Path):
        raise ConfigError(f"the path of a configuration must be text, not {type(path).__name__}")
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(MOST_TOML_CHARACTERS + 1)
        if len(text) > MOST_TOML_CHARACTERS:
            raise ValueError(f"it is longer than {MOST_TOML_CHARACTERS:,} characters")
        return parse_toml(text)
    except OSError as error:
        raise ConfigError(f"cannot read the configuration {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from None


def parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML.

    Raises:
        ValueError: If it is not TOML, is nested too deep, or holds a number of thousands of digits.
    """
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, dict) else value
        for key, value in values.items()
        if value is not None
    }


def _explain(section: type[BaseModel], problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]]
    where = ".".join(path)
    match problem["type"]:
        case "extra_forbidden":
            for name in path[:-1]:
                annotation = section.model_fields[name].annotation
                assert isinstance(annotation, type)
                section = annotation
            return f"unknown setting '{where}'{nearest_name(path[-1], section.model_fields)}"
        case "value_error":
            return problem["msg"].removeprefix("Value error, ")
        case "tuple_type":
            return f"{where} = {_shown(problem['input'])}: must be a list, such as [{_shown(problem['input'])}]"
        case _:
            return f"{where} = {_shown(problem['input'])}: {problem['msg']}"


def _shown(value: object) -> str:
    """Return a value as a message shows it: on one line, and not longer than that."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep, or a number of thousands of digits
        return f"a value of type {type(value).__name__}"
    return text if len(text) <= 200 else f"{text[:200]}..."
