"""Comparison of two explanations: differences in text, probabilities and heads.

Shapes: L layers, H heads, T and S rows and columns that both have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import TYPE_CHECKING, Any

import numpy as np

from clearhead.errors import ConfigError
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.heads import AttentionName
from clearhead.inspection.page import framed, plain, plain_values, render_comparison
from clearhead.inspection.tokens import Span, printable, visible
from clearhead.tokenizers.spans import UNREADABLE

if TYPE_CHECKING:
    from jaxtyping import Float

_LEAST_DISTANCE = 0.005
"""Least distance at which two heads are reported as different."""
_LEAST_DIFFERENCE = 0.0005
"""Least difference at which two probabilities are reported as different."""


@dataclass(frozen=True, slots=True)
class Change:
    """A run of tokens that are equal in both sequences, or that replace each other (diff opcode)."""

    is_same: bool
    first: tuple[int, int]
    """Range in the first sequence: the first token, and the one after the last."""
    second: tuple[int, int]


@dataclass(frozen=True, slots=True)
class StepPair:
    """A target token that both translations have."""

    first: int
    """Its index in the first translation."""
    second: int
    token: str
    probabilities: tuple[float, float]
    """Its probability in each."""

    def difference(self) -> float:
        """Return the absolute difference of the two probabilities."""
        return abs(self.probabilities[0] - self.probabilities[1])


@dataclass(frozen=True, eq=False)
class ExplanationComparison:
    """Two explanations and their differences."""

    first: Explanation
    second: Explanation
    source_changes: tuple[Change, ...]
    target_changes: tuple[Change, ...]
    read_changes: tuple[Change, ...]
    """Changes in the tokens that the decoders read."""
    steps: tuple[StepPair, ...]
    """The target tokens that both translations have."""
    heads: dict[AttentionName, Float[np.ndarray, "L H"] | None]
    """Distance of each head's rows in the two explanations, for each attention that both have.

    The distance of two rows is their total variation: half the sum of the absolute differences of weights, from 0
    (equal) to 1. The value is the mean over the rows of tokens that both read. Weight on tokens that only one has
    counts fully. None if the shapes differ, or they share no token.
    """

    def to_dict(self, *, packed: bool = False) -> dict[str, Any]:
        """Return everything as plain JSON values; see docs/explanation-json.md."""
        return {
            "clearhead_comparison": 1,
            "first": self.first.to_dict(packed=packed, with_vectors=False),
            "second": self.second.to_dict(packed=packed, with_vectors=False),
            "score_change": self.second.score - self.first.score,
            "is_same_source": self.first.source == self.second.source,
            "is_same_translation": self.first.translation == self.second.translation,
            "source_changes": plain_values(self.source_changes),
            "target_changes": plain_values(self.target_changes),
            "read_changes": plain_values(self.read_changes),
            "steps": plain_values(self.steps),
            "heads": {name: None if values is None else plain(values) for name, values in self.heads.items()},
        }

    def to_html(self) -> str:
        """Return one self-contained HTML page that needs no other file and no network.

        Raises:
            DataError: If a sentence is too long for a page.
        """
        for explanation in (self.first, self.second):
            explanation.require_room()
        return render_comparison(self.to_dict(packed=True))

    def _repr_html_(self) -> str:
        """Return the page for display in a notebook."""
        return framed(self.to_html)

    def lines(self) -> list[str]:
        """Return the differences as text lines."""
        lines = []
        for title, explanation in (("first", self.first), ("second", self.second)):
            name = f" ({explanation.model['name']})" if explanation.model.get("name") else ""
            lines += [f"{title}{name}", f"  source       {printable(explanation.source)}"]
            if explanation.kind != "encoder":
                lines.append(f"  translation  {printable(explanation.translation)}")
                lines.append(f"  score        {explanation.score:.4f} over {len(explanation.target_tokens)} tokens")
        return lines + (self._step_lines() if self.first.kind != "encoder" else []) + self._head_lines()

    def _step_lines(self) -> list[str]:
        if not self.steps:
            return ["no token that both write"]
        apart = sorted(
            (pair for pair in self.steps if pair.difference() >= _LEAST_DIFFERENCE),
            key=StepPair.difference,
            reverse=True,
        )
        if not apart:
            return ["every token that both write is as probable"]
        return ["tokens that both write, the most different probabilities first"] + [
            f"  {visible(pair.token)}: {pair.probabilities[0]:.1%}, then {pair.probabilities[1]:.1%}"
            for pair in apart[:5]
        ]

    def _head_lines(self) -> list[str]:
        ranked = [
            (float(values[layer, head]), name, layer, head)
            for name, values in self.heads.items()
            if values is not None
            for layer, head in np.ndindex(*values.shape)
        ]
        if not ranked:
            return ["no head to compare: the models differ in shape, or their texts share no token"]
        if max(ranked)[0] < _LEAST_DISTANCE:
            return ["every head looks at the same"]
        return ["heads that look elsewhere most (0 the same, 1 nothing in common)"] + [
            f"  {name} {layer + 1}.{head + 1}: {value:.2f}"
            for value, name, layer, head in sorted(ranked, reverse=True)[:5]
            if value >= _LEAST_DISTANCE
        ]


def compare(first: Explanation, second: Explanation) -> ExplanationComparison:
    """Compare explanations of two sentences, or of one sentence by two models or checkpoints.

    Tokens are matched by their text (longest common runs first), so vocabularies may differ. A token that is part of a
    character is matched by the whole character.

    Args:
        first: An explanation from `explain`.
        second: An explanation from `explain`.

    Raises:
        ConfigError: If the models are of different kinds.
    """
    if first.kind != second.kind:
        raise ConfigError(f"models of different kinds have nothing to compare: {first.kind} and {second.kind}")
    named = _named(first), _named(second)
    sources = tuple(_changes(*(explanation.source_tokens for explanation in named)))
    targets = tuple(_changes(*(explanation.target_tokens for explanation in named)))
    read = tuple(_changes(*(explanation.decoder_tokens for explanation in named)))
    steps = tuple(
        StepPair(i, j, first.target_tokens[i], (first.steps[i].probability, second.steps[j].probability))
        for i, j in _shared(targets)
    )
    axes: dict[AttentionName, tuple[tuple[Change, ...], tuple[Change, ...]]] = {
        "encoder": (sources, sources),
        "decoder": (read, read),
        "cross": (read, sources),
    }
    heads = {
        name: _head_distances(first.attentions[name], second.attentions[name], *map(list, map(_shared, axes[name])))
        for name in first.attentions
    }
    return ExplanationComparison(first, second, sources, targets, read, steps, heads)


def _named(explanation: Explanation) -> Explanation:
    """Return an explanation whose unreadable tokens (parts of a character) are named after the whole character."""
    return replace(
        explanation,
        source_tokens=_names(explanation.source_tokens, explanation.source_spans, explanation.source),
        target_tokens=_names(explanation.target_tokens, explanation.target_spans, explanation.translation),
    )


def _names(tokens: Sequence[str], spans: Sequence[Span | None], text: str) -> list[str]:
    names = list(tokens)
    counts: Counter[Span] = Counter()
    for place, (token, span) in enumerate(zip(tokens, spans, strict=False)):  # no spans if `explain` did not create it
        if UNREADABLE in token and span is not None:
            names[place] = f"{text[slice(*span)]}{token}{counts[span]}"
            counts[span] += 1
    return names


def _changes(first: Sequence[str], second: Sequence[str]) -> Iterator[Change]:
    for kind, *ends in SequenceMatcher(a=first, b=second, autojunk=False).get_opcodes():
        yield Change(kind == "equal", (ends[0], ends[1]), (ends[2], ends[3]))


def _shared(changes: Sequence[Change]) -> Iterator[tuple[int, int]]:
    """Yield the index pairs of equal tokens."""
    for change in changes:
        if change.is_same:
            yield from zip(range(*change.first), range(*change.second), strict=True)


def _head_distances(
    first: Float[np.ndarray, "L H rows columns"],
    second: Float[np.ndarray, "L H rows2 columns2"],
    rows: Sequence[tuple[int, int]],
    columns: Sequence[tuple[int, int]],
) -> Float[np.ndarray, "L H"] | None:
    if first.shape[:2] != second.shape[:2] or not rows or not columns:
        return None
    shared = [
        weights[:, :, [pair[side] for pair in rows]][..., [pair[side] for pair in columns]].astype(np.float64)
        for side, weights in enumerate((first, second))
    ]
    apart = np.abs(shared[0] - shared[1]).sum(axis=-1)
    alone = sum((1.0 - weights.sum(axis=-1)).clip(min=0.0) for weights in shared)
    return ((apart + alone) / 2).mean(axis=-1)
