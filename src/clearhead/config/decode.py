"""`[decode]`: settings of search (paper section 6.1), precision, input text and word alignment; and `Sampling`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from pydantic import ConfigDict, Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, field_validator

from clearhead.config.choices import AlignBy, DecodePrecision, PenaltyForm, Split
from clearhead.config.settings import Seed, Settings, Tokens

MOST_SAMPLES = 10_000
"""Maximum number of translations of one line."""
MOST_MBR_SAMPLES = 1_000
"""Maximum number of samples of one line for minimum Bayes risk decoding, which compares each with all others."""

Length = Annotated[NonNegativeInt, Field(le=10_000)]
_LANGUAGE = r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*"


def is_language(name: str) -> bool:
    """Return whether a name has the form of a language code.

    >>> is_language("pt-BR"), is_language("deu_Latn"), is_language("German")
    (True, True, False)
    """
    return re.fullmatch(_LANGUAGE, name) is not None


def require_language(setting: str, name: str) -> None:
    """Require the form of a language code.

    Raises:
        ValueError: If the name has another form.
    """
    if not is_language(name):
        raise ValueError(f"{setting} = {name!r:.40} must be the code of a language, such as de, yue or pt-BR")


class DecodeConfig(Settings):
    """`[decode]`: how translations are decoded."""

    model_config = ConfigDict(strict=True)  # in Python these are arguments as well, where "4" is no number

    beam_size: Annotated[PositiveInt, Field(le=1_000)] = 4
    """Hypotheses kept at every step; 1 is greedy search (paper section 6.1: 4)."""
    length_penalty: Annotated[NonNegativeFloat, Field(le=10.0)] = 0.6
    """Exponent alpha of the length penalty; a hypothesis' log-probability is divided by the penalty (paper section 6.1:
    0.6).

    `clearhead train` sets 1 unless the preset is one of the paper's."""
    length_penalty_form: PenaltyForm = "gnmt"
    """Formula of the length penalty. `gnmt`: ((5 + length) / 6) ** alpha, as in the paper; `power`: length ** alpha, as
    in Hugging Face and fairseq."""
    extra_length: Annotated[PositiveInt, Field(le=10_000)] = 50
    """Maximum number of target tokens beyond the number of source tokens (paper section 6.1: 50). A translation that
    reaches this limit is flagged as truncated (`output_truncated`)."""
    end_loops: bool = True
    """End a translation that is caught in a repetition loop: it ends in the same tokens repeated, over more than 20
    tokens, and more than three times as often as any tokens are repeated in the source (so at least four times). Such a
    translation is flagged as truncated (`output_truncated`)."""
    min_length: Length = 0
    """Minimum number of target tokens of a sentence, the end token included, as in Hugging Face. The length limit and
    the end of a repetition loop come first."""
    no_repeat_ngram_size: Length = 0
    """Never write a sequence of this many tokens a second time in a sentence (Paulus et al. 2018), unless nothing else
    is allowed; 0 allows it. Placeholders may be repeated, as often as in the source. This also changes good text:
    `end_loops` is meant for repetition loops."""
    batch_tokens: Tokens = 4_096
    """Source tokens processed at once, padding and beams included. With the compiled core the limit applies to each
    thread; on a GPU 16 times as many are processed at once."""
    precision: DecodePrecision = "fp32"
    """Precision of the matrix products. `fp32`: the model's own. `bf16x3`: for CPUs with AMX; every number is the sum
    of two bfloat16 numbers, and only near ties can be decided differently. `bf16`: for GPUs and for CPUs with AMX or
    AVX-512 BF16. `fp16`: for GPUs; it rounds less than `bf16`, but has no numbers above 65,504, which some models (T5)
    need. `int8`: for CPUs, with the compiled core. `bf16`, `fp16` and `int8` round, on a GPU also between the products,
    so a few translations differ. In every precision the score of a finished translation is computed in float32."""
    shortlist: bool = False
    """Restrict the output tokens of a sentence to those that the model's shortlist allows for its source; `clearhead
    optimize` creates the shortlist. Decoding is faster, and a few translations differ. Scores are still computed over
    the whole vocabulary."""
    max_input_tokens: Annotated[PositiveInt, Field(le=100_000)] = 1_024
    """Maximum source tokens of a line, or of each sentence if the line is split. Longer input is cut here and flagged
    as truncated (`source_truncated`)."""
    split: Split = "auto"
    """Whether a line of several sentences is translated sentence by sentence: `always`, `never`, or `auto`. With `auto`
    a line is split if it has more sentences or more tokens than the lines that the model was trained on
    (docs/translation.md)."""
    familiar: bool = True
    """Normalize a line to the form of the training text before translation: the case of lines in all capitals or all
    small letters, and superfluous white space (docs/translation.md).

    Such a line gets the case that its words have in the vocabulary, if such lines are rare in the training text. The
    translation of a line in all capitals is written in capitals."""
    place_markup: bool = True
    """For models without placeholder tokens: if a translation lacks some of the line's placeholders, translate the line
    without them and insert them by word alignment (docs/placeholders.md)."""
    protect_numbers: bool = False
    """Copy the numbers of a line exactly, in the same way as placeholders; the model needs placeholder tokens
    (docs/placeholders.md).

    Set it for training as well: the model then learns the copying from pairs in which both sides write a number
    alike."""
    align_by: AlignBy = "attention"
    """Method of word alignment. `attention`: cross-attention of the heads selected by training or by `clearhead
    optimize`. `occlusion`: the log-probability that each target word loses when a source word is hidden; more accurate,
    but needs as many passes as the source has tokens (docs/alignment.md)."""
    memory_weight: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Share of the probability of each next token that comes from similar pairs of the translation memory, which the
    model consults (docs/terms.md); 0 consults none.

    If not set, it grows with the similarity of the most similar pair. A number is used wherever there is a similar
    pair."""
    source_lang: str | None = None
    """Language of the source text, such as `de`. Its rules and abbreviations, such as `z. B.`, are used to split text
    into sentences; models with source-language tokens are told it.

    If not set, training takes the language from the names of the source files (`train.de.gz`); if those name none, it
    is guessed from the script."""
    target_lang: str | None = None
    """Target language, for models with language tags: its tag is put before every source line that has no tag of its
    own.

    If not set, lines without a tag are rejected."""

    @field_validator("source_lang")
    @classmethod
    def _is_language(cls, language: str | None) -> str | None:
        if language is not None:
            require_language("decode.source_lang", language)
        return language

    def with_changes(self, changes: Mapping[str, Any]) -> DecodeConfig:
        """Return a copy with some settings changed.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        return _Alone.from_dict({"decode": {**self.model_dump(), **changes}}, origin="decoding").decode


class DecodeChanges(TypedDict, total=False):
    """Overrides of the model's `DecodeConfig` as keyword arguments; None keeps the model's value."""

    beam_size: int | None
    length_penalty: float | None
    length_penalty_form: PenaltyForm | None
    extra_length: int | None
    end_loops: bool | None
    min_length: int | None
    no_repeat_ngram_size: int | None
    batch_tokens: int | None
    precision: DecodePrecision | None
    shortlist: bool | None
    max_input_tokens: int | None
    split: Split | None
    familiar: bool | None
    place_markup: bool | None
    protect_numbers: bool | None
    align_by: AlignBy | None
    memory_weight: float | None
    source_lang: str | None
    target_lang: str | None


class _Alone(Settings):
    decode: DecodeConfig


class Sampling(Settings):
    """How tokens are drawn at random."""

    model_config = ConfigDict(strict=True)  # as in `DecodeConfig`

    epsilon: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.02
    """Never draw a token to which the model gives less probability than this, except for the most probable token
    (Hewitt et al. 2022). 0 draws from the model's whole distribution."""

    temperature: PositiveFloat = 1.0
    """Sampling temperature: log-probabilities are divided by it, so below 1 sharpens the distribution, above 1 flattens
    it."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Draw only from this many most probable tokens; 0 draws from all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw only from the smallest set of most probable tokens that together have this probability (Holtzman et al.
    2020)."""
    seed: Seed = 1
    """Random seed. The same seed and source give the same samples, whatever else is in the batch."""
