"""Roles of attention heads, in words: the pattern that receives most of a head's weight.

Shapes: L layers, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from clearhead.inspection.tokens import visible

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int

_LEAST_SHARE = 0.3
"""Least share of a head's weight for a pattern of one key per row."""
_LEAST_WIDE = 0.5
"""Least share of a head's weight for a pattern of several keys per row."""
_LEAST_PEAK = 0.4
"""Least mean of the rows' largest weights for a head that picks out single tokens."""
_LEAST_RATIO = 1.4
"""Each of these must also be this many times the value of a head with even attention."""
_EVEN = 0.9
"""Least ratio of the entropy to its maximum for a head that spreads evenly."""


class _Words(NamedTuple):
    does: str
    do: str
    label: str
    sentence: str = "{does}, with {percent} % of its weight."


_WORDS = {
    "previous": _Words("looks at the previous token", "look at the previous token", "previous token"),
    "same": _Words("looks at the token itself", "look at the token itself", "itself"),
    "next": _Words("looks at the next token", "look at the next token", "next token"),
    "near": _Words("looks at the token and its neighbours", "look at the token and its neighbours", "neighbours"),
    "local": _Words("stays within three tokens", "stay within three tokens", "within 3 tokens"),
    "aligned": _Words("follows the alignment", "follow the alignment", "alignment"),
    "ahead": _Words("looks one token beyond the aligned one", "look one token beyond the aligned one", "aligned + 1"),
    "behind": _Words("looks one token before the aligned one", "look one token before the aligned one", "aligned − 1"),
    "around": _Words("looks around the aligned token", "look around the aligned token", "around aligned"),
    "gathers": _Words(
        "gathers on one token",
        "gather on one token",
        "gathers on {token}",
        "gathers on {token}, with {percent} % of its weight.",
    ),
    "spread": _Words(
        "spreads over all tokens",
        "spread over all tokens",
        "spread",
        "spreads its weight over all tokens that it may see.",
    ),
    "picks": _Words(
        "picks out single tokens here and there",
        "pick out single tokens here and there",
        "single tokens",
        "{does}: the largest weight of a row is {share} on average.",
    ),
    "mixed": _Words(
        "has no single habit",
        "have no single habit",
        "mixed",
        "{does}; what stands out most is {query} to {key} ({share}).",
    ),
}
_IN_SELF_ATTENTION = {"at": {"previous": -1, "same": 0, "next": 1}, "within": {"near": 1, "local": 3}}
"""Patterns of one key per row, with its distance from the query, and of several, with the largest distance."""
_IN_CROSS_ATTENTION = {"at": {"aligned": 0, "ahead": 1, "behind": -1}, "within": {"around": 1}}
"""Likewise, with distances from the aligned key."""


@dataclass(frozen=True, slots=True)
class HeadRole:
    """The role of a head on this sentence."""

    kind: str
    """Kind of pattern.

    `previous`, `same`, `next`, `near` or `local` in self-attention; `aligned`, `ahead`, `behind` or `around` in
    cross-attention; `gathers`, `spread`, `picks` or `mixed` in either.
    """
    share: float
    """Share of the head's weight in the pattern.

    For `spread`, the entropy over its maximum; for `picks`, the mean largest weight of a row; for `mixed`, the weight
    that stands out most.
    """
    label: str
    """A label of one or two words."""
    does: str
    """The predicate for one head, as in "this head looks at the previous token"."""
    do: str
    """The predicate for several heads, as in "these heads look at the previous token"."""
    sentence: str


def clearest_head(roles: Sequence[Sequence[HeadRole]]) -> tuple[int, int]:
    """Return layer and head with the largest share, preferably of a pattern; the page opens with it (`openingHead`)."""
    places = [(layer, head) for layer, of_layer in enumerate(roles) for head in range(len(of_layer))]
    vague = ("mixed", "picks", "spread")
    return max(places, key=lambda at: (roles[at[0]][at[1]].kind not in vague, roles[at[0]][at[1]].share))


def role_rules() -> dict[str, Any]:
    """Return words, bounds and distances of the roles as plain values for JSON, for a page that finds roles itself."""
    bounds = {
        "least_share": _LEAST_SHARE,
        "least_wide": _LEAST_WIDE,
        "least_peak": _LEAST_PEAK,
        "least_ratio": _LEAST_RATIO,
        "even": _EVEN,
    }
    return {
        "words": {kind: words._asdict() for kind, words in _WORDS.items()},
        "bounds": bounds,
        "in_self_attention": _IN_SELF_ATTENTION,
        "in_cross_attention": _IN_CROSS_ATTENTION,
    }


def self_roles(
    weights: Float[np.ndarray, "L H T T"], tokens: Sequence[str], *, is_causal: bool
) -> list[list[HeadRole]]:
    """Return the role of each self-attention head.

    Args:
        weights: Attention weights; rows sum to 1.
        tokens: Texts of the tokens.
        is_causal: Whether queries attend only to keys up to their own position.
    """
    size = weights.shape[-1]
    places: Int[np.ndarray, " T"] = np.arange(size)
    distance = places[None, :] - places[:, None]
    sees = distance <= 0 if is_causal else np.ones((size, size), dtype=bool)
    return _roles(weights, sees, distance, _IN_SELF_ATTENTION, (tokens, tokens))


def cross_roles(
    weights: Float[np.ndarray, "L H T S"],
    alignment: Float[np.ndarray, "T S"],
    tokens: tuple[Sequence[str], Sequence[str]],
    has_text: Bool[np.ndarray, " S"],
) -> list[list[HeadRole]]:
    """Return the role of each cross-attention head.

    The source token aligned with a query is the one with the most alignment weight among those that have text.

    Args:
        weights: Attention weights; rows sum to 1.
        alignment: The token alignment, as in `Explanation.alignment`.
        tokens: Texts of the queries and of the keys.
        has_text: Whether a source token has text; the end token has none.
    """
    text = has_text if has_text.any() else np.ones_like(has_text)
    aligned = np.where(text, alignment, -1.0).argmax(axis=-1)
    distance = np.arange(weights.shape[-1])[None, :] - aligned[:, None]
    return _roles(weights, np.ones_like(distance, dtype=bool), distance, _IN_CROSS_ATTENTION, tokens)


def _roles(
    weights: Float[np.ndarray, "L H T S"],
    sees: Bool[np.ndarray, "T S"],
    distance: Int[np.ndarray, "T S"],
    patterns: Mapping[str, Mapping[str, int]],
    tokens: tuple[Sequence[str], Sequence[str]],
) -> list[list[HeadRole]]:
    """Return the most specific pattern of each head that receives enough of its weight.

    Args:
        weights: Attention weights; rows sum to 1.
        sees: Mask, True where a query may attend.
        distance: How far each key is from the query, or from the key aligned with it.
        patterns: The distances of each pattern; those of several keys are for heads that match none of one key.
        tokens: Texts of the queries and of the keys.
    """
    narrow = {kind: distance == steps for kind, steps in patterns["at"].items()}
    wide = {kind: np.abs(distance) <= steps for kind, steps in patterns["within"].items()}
    even = sees / sees.sum(axis=-1, keepdims=True)  # (T, S): even attention, without any pattern
    most_entropy = np.log(sees.sum(axis=-1)).sum()

    def share(head: Float[np.ndarray, "T S"], cells: Bool[np.ndarray, "T S"]) -> float:
        # Leave out rows without such a cell, such as the first token's for the pattern `previous`.
        rows = (cells & sees).any(axis=-1)
        return float((head * cells).sum(axis=-1)[rows].mean()) if rows.any() else 0.0

    def habits(head: np.ndarray, cells_of: Mapping[str, np.ndarray], least: float) -> dict[str, float]:
        shares = {name: (share(head, cells), share(even, cells)) for name, cells in cells_of.items()}
        return {name: value for name, (value, usual) in shares.items() if value >= max(least, _LEAST_RATIO * usual)}

    def role(head: Float[np.ndarray, "T S"]) -> HeadRole:
        single = habits(head, narrow, _LEAST_SHARE)
        key = int(head.mean(axis=0).argmax())
        gathered, usual = float(head[:, key].mean()), float(even[:, key].mean())
        if gathered >= max(_LEAST_SHARE, _LEAST_RATIO * usual, *single.values()):
            return _role("gathers", gathered, token=_quoted(tokens[1][key]))
        for kinds in (single, habits(head, wide, _LEAST_WIDE)):
            if kinds:
                kind = max(kinds, key=lambda name: kinds[name]) if kinds is single else next(iter(kinds))
                return _role(kind, kinds[kind])
        entropy = -(head * np.log(np.where(head > 0, head, 1.0))).sum()
        evenness = float(entropy / most_entropy) if most_entropy > 0 else 0.0
        if evenness >= _EVEN:
            return _role("spread", evenness)
        peak, usual_peak = float(head.max(axis=-1).mean()), float(even.max(axis=-1).mean())
        if peak >= max(_LEAST_PEAK, _LEAST_RATIO * usual_peak):
            return _role("picks", peak)
        row, column = divmod(int((head - even).argmax()), head.shape[1])
        return _role("mixed", float(head[row, column]), query=_quoted(tokens[0][row]), key=_quoted(tokens[1][column]))

    return [[role(head) for head in layer.astype(np.float64)] for layer in weights]


def _role(kind: str, share: float, **tokens: str) -> HeadRole:
    does, do, label, sentence = _WORDS[kind]
    said = sentence.format(does=does, percent=f"{100 * share:.0f}", share=f"{share:.2f}", **tokens)
    return HeadRole(kind, share, label.format(**tokens), does, do, said[0].upper() + said[1:])


def _quoted(token: str) -> str:
    return f"“{visible(token)}”"
