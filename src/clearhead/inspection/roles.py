"""What each head does, in words: the habit that most of its weight goes to.

Shapes: L layers, H heads, T queries, S keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

__all__ = ["HeadRole", "cross_roles", "self_roles"]

_LEAST_SHARE = 0.3
"""A habit takes at least this share of a head's weight"""
_LEAST_RATIO = 1.4
"""and so many times what a head without any habit would give it."""
_LEAST_WIDE = 0.5
"""Likewise of a habit that has several keys a row."""
_EVEN = 0.9
"""Entropy over the largest possible, from which on a head spreads evenly."""

_SELF = {
    "previous": ("looks at the previous token", "look at the previous token", "previous token"),
    "same": ("looks at the token itself", "look at the token itself", "itself"),
    "next": ("looks at the next token", "look at the next token", "next token"),
    "near": ("looks at the token and its neighbours", "look at the token and its neighbours", "neighbours"),
    "local": ("stays within three tokens", "stay within three tokens", "within 3 tokens"),
}
_CROSS = {
    "aligned": ("follows the alignment", "follow the alignment", "alignment"),
    "ahead": ("looks one token beyond the aligned one", "look one token beyond the aligned one", "aligned + 1"),
    "behind": ("looks one token before the aligned one", "look one token before the aligned one", "aligned − 1"),
    "around": ("looks around the aligned token", "look around the aligned token", "around aligned"),
}
_GATHERS = ("gathers on one token", "gather on one token", "gathers on {token}")
_SPREAD = ("spreads over all tokens", "spread over all tokens", "spread")
_PICKS = ("picks out single tokens, now here, now there", "pick out single tokens, now here, now there", "single tokens")
_MIXED = ("has no single habit", "have no single habit", "mixed")


@dataclass(frozen=True, slots=True)
class HeadRole:
    """What a head does on this sentence."""

    kind: str
    """`previous`, `same`, `next`, `near`, `local` of self-attention; `aligned`, `ahead`, `behind`, `around` of
    cross-attention; `gathers`, `picks`, `spread` or `mixed` of either."""
    share: float
    """Of its weight that goes there; the mean largest weight of one that picks, the largest of one that is mixed; of
    one that spreads, its entropy over the largest possible."""
    label: str
    """In a word or two."""
    does: str
    """As of "this head looks at the previous token"."""
    do: str
    """As of "these heads look at the previous token"."""
    sentence: str


def self_roles(
    weights: Float[np.ndarray, "L H T T"], tokens: Sequence[str], *, is_causal: bool
) -> list[list[HeadRole]]:
    """Return what each head of a self-attention does.

    Args:
        weights: Rows sum to 1.
        tokens: Queries and keys as they read.
        is_causal: Whether a query sees no key behind it.
    """
    size = weights.shape[-1]
    sees = np.tril(np.ones((size, size), dtype=bool)) if is_causal else np.ones((size, size), dtype=bool)
    places: Int[np.ndarray, " T"] = np.arange(size)
    habits = {"previous": _near(places, size, -1), "same": _near(places, size, 0)}
    if not is_causal:
        habits["next"] = _near(places, size, 1)
    wide = {
        "near": np.any(list(habits.values()), axis=0),
        "local": np.abs(places[:, None] - places[None, :]) <= 3,
    }
    return _roles(weights, sees, habits, wide, (tokens, tokens), _SELF)


def cross_roles(
    weights: Float[np.ndarray, "L H T S"],
    alignment: Float[np.ndarray, "T S"],
    tokens: tuple[Sequence[str], Sequence[str]],
    has_text: Bool[np.ndarray, " S"],
) -> list[list[HeadRole]]:
    """Return what each head of a cross-attention does.

    The token aligned with a query is the one of the source's text that all heads together look at most.

    Args:
        weights: Rows sum to 1.
        alignment: The mean of all heads.
        tokens: Queries and keys as they read.
        has_text: Whether a source token stands for text, which the end token does not.
    """
    num_keys = weights.shape[-1]
    text = has_text if has_text.any() else np.ones_like(has_text)
    aligned = np.where(text, alignment, -1.0).argmax(axis=-1)
    habits = {name: _near(aligned, num_keys, step) for name, step in {"aligned": 0, "ahead": 1, "behind": -1}.items()}
    around = np.any(list(habits.values()), axis=0)
    sees = np.ones(weights.shape[2:], dtype=bool)
    return _roles(weights, sees, habits, {"around": around}, tokens, _CROSS)


def _near(places: Int[np.ndarray, " T"], num_keys: int, step: int) -> Bool[np.ndarray, "T S"]:
    """Return where the key is so many behind a place of each query."""
    return places[:, None] + step == np.arange(num_keys)[None, :]


def _roles(
    weights: Float[np.ndarray, "L H T S"],
    sees: Bool[np.ndarray, "T S"],
    habits: dict[str, Bool[np.ndarray, "T S"]],
    wide: dict[str, Bool[np.ndarray, "T S"]],
    tokens: tuple[Sequence[str], Sequence[str]],
    words: dict[str, tuple[str, str, str]],
) -> list[list[HeadRole]]:
    """Return the habit of each head, the most specific that takes enough of its weight.

    Args:
        weights: Rows sum to 1.
        sees: Where a query may look.
        habits: Cells of each.
        wide: Likewise, for heads that have none of those.
        tokens: Queries and keys.
        words: How each habit reads.
    """
    even = sees / sees.sum(axis=-1, keepdims=True)  # (T, S): a head without any habit

    def role(head: Float[np.ndarray, "T S"]) -> HeadRole:
        # A habit that has no cell in a row, such as the token before the first, is asked of the other rows.
        def shares(of: Float[np.ndarray, "T S"], cells: Bool[np.ndarray, "T S"]) -> float:
            rows = (cells & sees).any(axis=-1)
            return float((of * cells).sum(axis=-1)[rows].mean()) if rows.any() else 0.0

        def takes(share: float, usual: float, least: float = _LEAST_SHARE) -> bool:
            return share >= least and share >= _LEAST_RATIO * usual

        key = int(head.mean(axis=0).argmax())
        gathered, usual = float(head[:, key].mean()), float(even[:, key].mean())
        found = {name: share for name, cells in habits.items() if takes(share := shares(head, cells), shares(even, cells))}
        best = max(found, key=lambda name: found[name], default=None)
        if takes(gathered, usual) and gathered > found.get(best or "", 0.0):
            does, do, label = _GATHERS
            token = _quoted(tokens[1][key])
            return HeadRole(
                "gathers", gathered, label.format(token=token), does, do, f"Gathers on {token}, with {_of(gathered)}."
            )
        if best is not None:
            return _habit(best, found[best], words)
        for name, cells in wide.items():
            if takes(share := shares(head, cells), shares(even, cells), _LEAST_WIDE):
                return _habit(name, share, words)
        logs = np.log(np.where(head > 0, head, 1.0))
        most = np.log(sees.sum(axis=-1)).sum()
        evenness = float(-(head * logs).sum() / most) if most > 0 else 0.0
        if evenness >= _EVEN:
            return HeadRole("spread", evenness, _SPREAD[2], *_SPREAD[:2], "Spreads its weight over all tokens it may see.")
        peak = float(head.max(axis=-1).mean())
        if takes(peak, 1.5 * float(even.max(axis=-1).mean()), 0.4):
            text = f"Picks out single tokens, now here, now there: the largest weight of a row is {peak:.2f} on average."
            return HeadRole("picks", peak, _PICKS[2], *_PICKS[:2], text)
        # The one cell that stands out most.
        row, column = np.unravel_index(int((head - even).argmax()), head.shape)
        strongest = float(head[row, column])
        does, do, label = _MIXED
        where = f"{_quoted(tokens[0][row])} to {_quoted(tokens[1][column])} ({strongest:.2f})"
        return HeadRole("mixed", strongest, label, does, do, f"Has no single habit; what stands out most is {where}.")

    return [[role(head) for head in layer.astype(np.float64)] for layer in weights]


def _habit(name: str, share: float, words: dict[str, tuple[str, str, str]]) -> HeadRole:
    does, do, label = words[name]
    return HeadRole(name, share, label, does, do, f"{does[0].upper()}{does[1:]}, with {_of(share)}.")


def _of(share: float) -> str:
    return f"{share:.0%} of its weight".replace("%", " %")


def _quoted(token: str) -> str:
    return f"“{token.strip() or '␣'}”"
