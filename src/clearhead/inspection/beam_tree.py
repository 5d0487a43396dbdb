"""Run one beam search and record it as a tree: every hypothesis considered, and its fate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from clearhead.config import DecodeConfig
from clearhead.decoding.beam_search import BeamStep, beam_search
from clearhead.decoding.engine import Engine
from clearhead.decoding.neighbours import Neighbours
from clearhead.decoding.rules import Hypothesis, length_limits, rank_penalty
from clearhead.decoding.sentence import Prefix, Sentence

FATES = {
    "kept": "extended: its continuations are in the next step",
    "finished": "ended, and is one of the finished hypotheses",
    "beam": "pruned: as many hypotheses as the beam size were better",
    "late end": "pruned: ended, but was not among the best of its step",
    "hopeless": "dropped at the end: no continuation could beat the finished hypotheses",
}
"""The possible fates of a node."""


@dataclass(frozen=True, slots=True)
class BeamNode:
    """A hypothesis, represented by its last token."""

    number: int
    """Node number, counted from 0, step by step and best first."""
    parent: int | None
    """Number of the hypothesis it extends; None for the first tokens."""
    step: int
    """Number of its tokens."""
    token: int
    log_prob: float
    """Log-probability of the token, in nats."""
    score: float
    """Log-probability of all its tokens, in nats."""
    rank_score: float
    """Score divided by the length penalty."""
    fate: Literal["kept", "finished", "beam", "late end", "hopeless"]
    """Its fate; see `FATES`."""


@dataclass(frozen=True)
class BeamTree:
    """Record of one beam search."""

    beam_size: int
    length_penalty: float
    max_length: int
    """Most tokens that a hypothesis may have."""
    nodes: tuple[BeamNode, ...]
    finished: tuple[int, ...]
    """Numbers of the finished hypotheses, best first."""
    hypothesis: Hypothesis
    """The best hypothesis, which the search returned."""

    def path(self, number: int) -> tuple[int, ...]:
        """Return the numbers of the nodes on the path to a node, itself last."""
        numbers: list[int] = []
        at: int | None = number
        while at is not None:
            numbers.append(at)
            at = self.nodes[at].parent
        return tuple(reversed(numbers))


def record_search(
    engine: Engine,
    source: Sequence[int],
    config: DecodeConfig,
    prefix: Prefix,
    neighbours: Neighbours | None = None,
) -> BeamTree:
    """Run the plain beam search and return all hypotheses that it considered.

    With a beam of 1 (greedy search) scores are not length-normalized; otherwise hypotheses are ranked with the length
    penalty.

    Args:
        engine: An engine in fp32.
        source: Source ids, ended by `eos_id`; for a decoder alone, the ids of the text to continue.
        config: The decode settings.
        prefix: Prefix of the translation.
        neighbours: Pairs that it consults, with keys.
    """
    steps: list[BeamStep] = []
    [max_length] = length_limits(engine.model.config, config, [source], [prefix])
    with engine.computing():
        sentence = Sentence(0, list(source), max_length, prefix, neighbours=neighbours)
        [[best]] = beam_search(engine, [sentence], config, observer=steps.append)
    nodes: list[BeamNode] = []
    before: dict[int, int] = {}  # node number of each hypothesis of the previous step
    for step in steps:
        after: dict[int, int] = {}
        for candidate in step.candidates:
            if candidate.becomes is not None:
                after[candidate.becomes] = len(nodes)
            score = candidate.score if step.length > prefix.given else 0.0
            nodes.append(
                BeamNode(
                    number=len(nodes),
                    parent=before.get(candidate.beam),
                    step=step.length,
                    token=candidate.token,
                    log_prob=candidate.log_prob,
                    score=score,
                    rank_score=score / rank_penalty(step.length, config),
                    fate="hopeless" if candidate.fate == "kept" and step.ending else candidate.fate,
                )
            )
        before = after
    ended = [node for node in nodes if node.fate == "finished"]
    finished = tuple(node.number for node in sorted(ended, key=lambda node: -node.rank_score))
    alpha = config.length_penalty if config.beam_size > 1 else 0.0
    return BeamTree(config.beam_size, alpha, max_length, tuple(nodes), finished, best)
