"""Hypotheses of a sentence that do not compete: samples, and those of diverse search.

They share the sentence's slot, and so its encoder output; each has its own beam.

Shapes: T maximum target tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from clearhead.decoding.search_state import SearchState

if TYPE_CHECKING:
    from jaxtyping import Float


@dataclass
class SeparateHypotheses(SearchState):
    """A sentence in flight whose hypotheses do not compete."""

    chances: list[Float[np.ndarray, " T"] | None]
    """The uniform random numbers of each open hypothesis, one for every token, if it is a sample."""

    def advance(self, scores: Sequence[float], tokens: Sequence[int], eos_id: int, penalty: float = 1.0) -> None:
        """Add a token to each hypothesis, and finish the ended ones.

        Args:
            scores: Log-probability of each hypothesis, its new token included.
            tokens: The new token of each.
            eos_id: The end token.
            penalty: Divisor of the log-probability of ended hypotheses, for ranking.
        """
        self.length += 1
        stay = []
        for place, (score, token) in enumerate(zip(scores, tokens, strict=True)):
            if token == eos_id:
                self.finish(place, eos_id, score, penalty)
            else:
                stay.append(place)
        self.chances = [self.chances[place] for place in stay]
        self.extend([scores[place] for place in stay], stay, [tokens[place] for place in stay])
