"""Tensors of the search on the device: the state of the sentences in flight, and the sizes that a step uses.

Shapes: N rows (sentences), K beams, P target positions, S source positions, B finished hypotheses kept, V vocabulary,
L decoder layers, W width of keys and values together, G guided hypotheses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from jaxtyping import Bool, Float, Int
from torch import Tensor

NONE = -1
"""No token."""


class Sizes(NamedTuple):
    """How much of the tensors a step uses."""

    rows: int
    """N."""
    positions: int
    """P."""
    sources: int
    """S."""


class Guide(NamedTuple):
    """The allowed next tokens of hypotheses whose rules only `AllowedTokens.after` knows."""

    beams: Int[Tensor, " G"]
    """Row times K plus beam of each."""
    masks: Bool[Tensor, "G V"]
    are_guided: Bool[Tensor, "N 1"]
    ends: Bool[Tensor, "N K"]
    """Whether a rule allows only the end token."""


_UNIT, _MANY_ROWS = 32, 256
"""Positions, and many rows, are used in multiples of these, so that few graphs serve all steps."""


def rounded(rows: int, positions: int, sources: int) -> Sizes:
    """Return sizes to use for at least so many rows and positions."""
    rows = 1 << (rows - 1).bit_length() if rows < _MANY_ROWS else -(-rows // _MANY_ROWS) * _MANY_ROWS
    return Sizes(rows, *(-(-length // _UNIT) * _UNIT for length in (positions, sources)))


@dataclass
class State:
    """The state of all rows, in fields of which each is a tensor."""

    past: Float[Tensor, "L N PK W"]
    memory: Float[Tensor, "L N S W"]
    memory_mask: Float[Tensor, "N S"]
    scores: Float[Tensor, "N K"]
    """Log-probability of each open hypothesis, best first; minus infinity where there is none, NaN in a row whose
    probabilities were not numbers."""
    newest: Int[Tensor, "N K"]
    """The last token of each."""
    utf8: Int[Tensor, "N K"]
    """Its state of UTF-8; see `CharacterParts`."""
    lengths: Int[Tensor, " N"]
    """Position of the next token."""
    history: Int[Tensor, "N 3 K P"]
    """By position: the token, `NONE` where none is written; the beam that holds its key and value, counted from 1; and
    the length of the longest common suffix of the tokens before this position and of the whole hypothesis."""
    finished: Float[Tensor, "N B 3"]
    """The best finished hypotheses, best first: rank score, log-probability, twice the end plus whether a rule ended
    it."""
    finished_tokens: Int[Tensor, "N B P"]
    forced: Int[Tensor, "N P"]
    """The only token allowed at each position of a prefix; `NONE` after it."""
    limits: Int[Tensor, "N 5"]
    """First position, end, end of the tokens without cost, end of the prefix, repetitions of a loop."""
    longest_penalties: Float[Tensor, " N"]
    chances: Float[Tensor, "N K _"]
    """Of samples, the uniform random number for each position; otherwise without positions."""
    unlisted: Bool[Tensor, "N V"]
    """True for tokens that a sentence's shortlist lacks; without a shortlist it has no columns."""
