"""`[model]`: sizes and variants of the Transformer (paper section 3), dropout and special tokens, with checks."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from clearhead.config.choices import Activation, NormKind, NormOrder, PositionKind, Tying
from clearhead.config.settings import Pieces, Probability, Settings, SmallNumber

Width = Annotated[PositiveInt, Field(le=1_000_000)]
Layers = Annotated[NonNegativeInt, Field(le=1_000)]
Segments = Annotated[NonNegativeInt, Field(le=10_000)]
Placeholders = Literal[0, 32]
TokenId = Annotated[NonNegativeInt, Field(lt=10_000_000)]
Position = Annotated[NonNegativeInt, Field(le=10_000_000)]
Buckets = Annotated[PositiveInt, Field(le=1_000_000)]
Distance = Annotated[PositiveInt, Field(le=10_000_000)]

OF_THE_TOKENIZER = {"vocab_size", "num_placeholders", "pad_id", "bos_id", "eos_id"}
"""Settings of `[model]` that the tokenizer of a run determines."""


class ModelConfig(Settings):
    """`[model]`: the shape of the Transformer; the defaults are the paper's base model (Table 3)."""

    vocab_size: Pieces = 37_000
    """Rows of the shared embedding; training sets it from the tokenizer (paper section 5.1: about 37,000 for
    EN-DE, 32,000 for EN-FR)."""
    source_vocab_size: Pieces | None = None
    """Rows of the source embedding if source and target have separate vocabularies. Only for models built in Python:
    `clearhead train` learns one joint vocabulary."""
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
    """Encoder layers, N in the paper (section 3.1); 0 makes a decoder-only model, such as GPT."""
    num_decoder_layers: Layers = 6
    """Decoder layers, N in the paper (section 3.1); 0 makes an encoder-only model, such as BERT."""
    dropout: Probability = 0.1
    """Dropout on the output of every sub-layer and on the sum of embedding and position (paper section 5.4)."""
    attention_dropout: Probability = 0.0
    """Dropout on attention weights. Section 5.4 of the paper mentions none; section 6.3 (parsing) mentions "attention
    and residual" dropout without a rate; later versions of the reference implementation use 0.1."""
    feed_forward_dropout: Probability = 0.0
    """Dropout inside the feed-forward network, which section 5.4 does not mention either; later versions of the
    reference implementation use 0.1."""
    norm: NormOrder = "post"
    """Position of the norms. `post`: LayerNorm(x + Sublayer(x)), as in the paper. `pre`: x + Sublayer(LayerNorm(x)),
    with one more norm after the last layer; trains stably at higher learning rates (tensor2tensor's later default)."""
    norm_kind: NormKind = "layer"
    """`layer`: LayerNorm (paper section 3.1). `rms`: RMSNorm, which has no mean and no bias (Zhang and Sennrich
    2019)."""
    norm_eps: SmallNumber = 1e-5
    """Constant added to the variance inside a norm."""
    final_norm: bool | None = None
    """Whether encoder and decoder end with one more norm; if not set, only with `norm = "pre"`. `torch.nn.Transformer`
    always has it, the paper never."""
    activation: Activation = "relu"
    """Activation function of the feed-forward network: ReLU (paper equation 2), GELU (BERT), the tanh form of GELU
    (GPT-2), or SiLU."""
    gated: bool = False
    """Gate the feed-forward network with a third projection (Shazeer 2020); with the `silu` activation this is
    SwiGLU."""
    attention_scale: bool = True
    """Divide attention scores by sqrt(d_k) (paper equation 1). T5 does not; it initialises its queries smaller
    instead."""
    attention_bias: bool = False
    """Biases in the attention projections. The paper's equation and its parameter counts have none."""
    feed_forward_bias: bool = True
    """Biases in the feed-forward network (paper equation 2)."""
    output_bias: bool = False
    """Bias in the linear layer before the softmax."""
    output_transform: bool = False
    """Add a layer of projection, activation and norm between the last hidden states and the linear layer before the
    softmax (BERT)."""
    output_scale: bool = False
    """Divide the decoder's states by sqrt(d_model) before the linear layer before the softmax. T5 does this if that
    layer is tied to embeddings that are not scaled themselves."""
    positions: PositionKind = "sinusoidal"
    """Kind of position encoding. `sinusoidal`: sines and cosines interleaved (paper section 3.5). `sinusoidal_halves`:
    all sines, then all cosines (Marian). `sinusoidal_t2t`: all sines, then all cosines, with the wavelengths of
    tensor2tensor and fairseq. `learned`: Table 3, row E. `rotary`: inside self-attention (Su et al. 2021). `relative`:
    a learned number for each distance and head is added to the scores of self-attention; all layers of a stack share
    one table (T5, Raffel et al. 2020). `none`: no positions."""
    max_positions: Pieces = 1_024
    """Rows of the table of learned positions; no sequence may be longer."""
    relative_attention_num_buckets: Buckets = 32
    """Rows of the tables of relative positions. Half of the rows hold one distance each; the other half hold ranges
    that grow with the distance. In an encoder one half of all rows is for keys before the query, the other for keys
    after it."""
    relative_attention_max_distance: Distance = 128
    """Distance from which on all keys share one row of those tables."""
    first_position: Position = 0
    """Position number of the first token for sinusoids; models made with fairseq count from 2."""
    num_segments: Segments = 0
    """Number of source segment types, each with its own embedding (BERT: 2)."""
    num_target_segments: Segments = 0
    """Number of target segment types; every target token has the first type (a decoder initialised from BERT: 2)."""
    tying: Tying = "three-way"
    """Which weight matrices are shared. `three-way`: source embedding, target embedding and output (paper section 3.4).
    `decoder`: target embedding and output. `embeddings`: source and target embedding. `none`: no sharing."""
    embedding_scale: bool = True
    """Multiply embeddings by sqrt(d_model) (paper section 3.4)."""
    embedding_norm: bool = False
    """Apply a norm to the sum of embedding and position (BERT, BART)."""
    num_placeholders: Placeholders = 0
    """Number of placeholder tokens, 0 or 32; they are the last tokens of the vocabulary. Sixteen are for single
    placeholders, eight for opening and eight for closing ones. A translation contains each of them as often as its
    source. Training sets it from the tokenizer."""
    pad_id: TokenId = 0
    """Id of the padding token. Training sets `pad_id`, `bos_id` and `eos_id` from the tokenizer; models built in Python
    may use any ids."""
    bos_id: TokenId = 1
    """Id of the token that starts every target (the "shifted right" outputs of figure 1). Published models start with
    their padding token (Marian) or their end token (BART, NLLB, GPT-2)."""
    eos_id: TokenId = 2
    """Id of the token that ends every source and every target."""

    @property
    def first_placeholder(self) -> int:
        """Id of the first placeholder token; the size of the vocabulary if there are none."""
        return self.vocab_size - self.num_placeholders

    @property
    def key_dim(self) -> int:
        """Width of a query and a key in one head, d_k in the paper."""
        return self.d_k or self.d_model // self.num_heads

    @property
    def value_dim(self) -> int:
        """Width of a value in one head, d_v in the paper."""
        return self.d_v or self.d_model // self.num_heads

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether the model has both an encoder and a decoder, as translation requires."""
        return self.num_encoder_layers > 0 and self.num_decoder_layers > 0

    @property
    def is_decoder_alone(self) -> bool:
        """Whether the model is decoder-only and continues a text, like GPT."""
        return self.num_encoder_layers == 0

    @property
    def source_vocabulary(self) -> int:
        """Rows of the source embedding."""
        return self.source_vocab_size or self.vocab_size

    @property
    def max_length(self) -> int | None:
        """Maximum number of tokens of a sequence; None if positions are unlimited."""
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
        if self.num_decoder_layers == 0 and (self.num_target_segments or self.output_transform):
            raise ValueError(
                "an encoder alone (model.num_decoder_layers = 0) has no target, so there can be no "
                "model.num_target_segments and no model.output_transform"
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
    def _relative_positions_fit(self) -> Self:
        buckets, distance = self.relative_attention_num_buckets, self.relative_attention_max_distance
        if self.positions != "relative":
            for name in ("relative_attention_num_buckets", "relative_attention_max_distance"):
                if getattr(self, name) != (default := ModelConfig.model_fields[name].default):
                    raise ValueError(
                        f"model.{name} ({getattr(self, name)}) is for relative positions; with model.positions = "
                        f"{self.positions!r} it must be {default}"
                    )
        elif buckets < 4 or buckets % 2:
            raise ValueError(
                f"model.relative_attention_num_buckets ({buckets}) must be even and at least 4: near and far keys, "
                f"before the query and behind it; nearest that fits: {max(4, buckets - buckets % 2)}"
            )
        elif distance <= buckets // 2:
            raise ValueError(
                f"model.relative_attention_max_distance ({distance}) must be more than {buckets // 2}: so many "
                f"distances have one of model.relative_attention_num_buckets ({buckets}) each; nearest that fits: "
                f"{buckets // 2 + 1}"
            )
        return self

    @model_validator(mode="after")
    def _special_tokens_fit(self) -> Self:
        special = (self.pad_id, self.bos_id, self.eos_id)
        smallest = min(self.vocab_size, self.source_vocabulary)
        if max(special) >= smallest:
            raise ValueError(f"model.pad_id, bos_id, eos_id {special} must lie below model.vocab_size ({smallest})")
        # The start token may also be the padding or the end token: the decoder masks a target by position, not by
        # token, and the loss skips padding in what is predicted, not in what is read. But an end token that is also
        # the padding would be left out of the loss.
        if self.pad_id == self.eos_id:
            raise ValueError(f"model.pad_id and model.eos_id must differ, both are {self.pad_id}")
        return self
