"""`[decode]`: how the model writes (paper section 6.1), and how tokens are drawn where none is searched for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, TypedDict

from pydantic import ConfigDict, Field, NonNegativeFloat, PositiveFloat, PositiveInt, field_validator

from clearhead.config.choices import AlignBy, DecodePrecision, PenaltyForm, Split
from clearhead.config.settings import Seed, Settings, Tokens

MOST_SAMPLES = 10_000
"""Most translations of one line that can be asked for."""
MOST_MBR_SAMPLES = 1_000
"""Most samples of one line that are compared with each other."""

_LANGUAGE = r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*"


def is_language(name: str) -> bool:
    """Tell whether a name can be the code of a language.

    >>> is_language("pt-BR"), is_language("deu_Latn"), is_language("German")
    (True, True, False)
    """
    return re.fullmatch(_LANGUAGE, name) is not None


class DecodeConfig(Settings):
    """`[decode]`: how the model writes its translations."""

    model_config = ConfigDict(strict=True)  # in Python these are arguments as well, where "4" is no number

    beam_size: Annotated[PositiveInt, Field(le=1_000)] = 4
    """Hypotheses kept at every step; 1 is greedy search (paper section 6.1: 4)."""
    length_penalty: Annotated[NonNegativeFloat, Field(le=10.0)] = 0.6
    """Exponent alpha of the length penalty, which divides a hypothesis' log-probability (paper section 6.1: 0.6).
    `clearhead train` gives models of other presets than the paper's 1."""
    length_penalty_form: PenaltyForm = "gnmt"
    """`gnmt`: ((5 + length) / 6) ** alpha, the paper's; `power`: length ** alpha, as in Hugging Face and fairseq."""
    extra_length: Annotated[PositiveInt, Field(le=10_000)] = 50
    """Target tokens allowed beyond the number of source tokens (paper section 6.1: 50); a translation that is ended
    there is flagged as truncated (`output_truncated`)."""
    end_loops: bool = True
    """End a translation that says the same again and again, in more than 20 tokens and more than three times as often
    as anything stands in a row in the source, so four times at least; it is flagged as truncated
    (`output_truncated`)."""
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
    """Longer source lines, or sentences of a line that is split, are cut here and flagged as truncated
    (`source_truncated`)."""
    split: Split = "auto"
    """Whether a line of several sentences is translated sentence by sentence: `always`, `never`, or `auto`, if it has
    more sentences or tokens than the lines that the model was trained on (docs/translation.md)."""
    familiar: bool = True
    """Bring a line to the form of the training text before it is translated: one in capitals or in small letters, where
    such lines are rare there, gets the case that its words have in the vocabulary, and stray white space goes. The
    translation of a line in capitals is put in capitals (docs/translation.md)."""
    place_markup: bool = True
    """Where a model has no tokens for placeholders, and its translation lacks some of a line's, translate the line
    without them, and put them where the words they stood at went (docs/placeholders.md)."""
    protect_numbers: bool = False
    """Copy the numbers of a line to the letter, as placeholders are, where the model has tokens for these. In the
    settings of a training it is learned so from pairs whose sides write a number alike (docs/placeholders.md)."""
    align_by: AlignBy = "attention"
    """What links the words of a line with those of its translation, where that is asked for: `attention`, of the heads
    that `clearhead optimize` or the training has chosen; `occlusion`, what each word of the translation loses when a
    word of the source is hidden: better links, in as many passes as the source has tokens (docs/alignment.md)."""
    source_lang: str | None = None
    """Language of the source text, such as `de`: its rules, and abbreviations such as `z. B.`, say where sentences end.
    If not set, training takes it from the names of the source files (`train.de.gz`); without it the script decides."""
    target_lang: str | None = None
    """Language tag put before every source line that brings none of its own; if not set, such lines are refused."""

    @field_validator("source_lang")
    @classmethod
    def _is_language(cls, language: str | None) -> str | None:
        if language is not None and not is_language(language):
            raise ValueError(
                f"decode.source_lang = {language!r:.40} must be the code of a language, such as de, yue or pt-BR"
            )
        return language

    def with_changes(self, changes: Mapping[str, Any]) -> DecodeConfig:
        """Return a copy with some settings changed.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        return _Alone.from_dict({"decode": {**self.model_dump(), **changes}}, origin="decoding").decode


class DecodeChanges(TypedDict, total=False):
    """Fields of `DecodeConfig` other than the model's own, as keyword arguments; one that is None stays the model's."""

    beam_size: int | None
    length_penalty: float | None
    length_penalty_form: PenaltyForm | None
    extra_length: int | None
    end_loops: bool | None
    batch_tokens: int | None
    precision: DecodePrecision | None
    shortlist: bool | None
    max_input_tokens: int | None
    split: Split | None
    familiar: bool | None
    place_markup: bool | None
    protect_numbers: bool | None
    align_by: AlignBy | None
    source_lang: str | None
    target_lang: str | None


class _Alone(Settings):
    decode: DecodeConfig


class Sampling(Settings):
    """How tokens are drawn at random."""

    model_config = ConfigDict(strict=True)  # as there

    epsilon: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.02
    """Never draw a token that the model itself finds less probable than this, but for the most probable one (Hewitt et
    al. 2022); 0 draws from all of the model's own distribution."""

    temperature: PositiveFloat = 1.0
    """Divides the log-probabilities: below 1 sharpens, above 1 flattens."""
    top_k: Annotated[int, Field(ge=0, le=10_000_000)] = 0
    """Draw among this many most probable tokens only; 0 is all."""
    top_p: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """Draw among the fewest most probable tokens that hold this much probability (Holtzman et al. 2020)."""
    seed: Seed = 1
    """Equal seed and source give equal samples, whatever else is in the batch."""
