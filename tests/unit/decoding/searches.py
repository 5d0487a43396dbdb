"""A search by an engine, and the same one by the readable form, for comparison."""

from __future__ import annotations

import pytest
import torch

from clearhead.decoding import NativeEngine, PyTorchEngine, SearchOptions
from clearhead.decoding.batched_sampling import seed_of
from clearhead.decoding.beam_search import beam_search
from clearhead.decoding.native.slots import NativeSlots
from clearhead.decoding.pytorch.engine import PyTorchSlots
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sampling import draw_tokens, greedy_search, token_by_token
from clearhead.decoding.scheduler import search
from clearhead.decoding.sentence import sentences_of
from clearhead.decoding.step import DecodingBatch
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.model import Transformer

SLOTS = {PyTorchEngine: PyTorchSlots, NativeEngine: NativeSlots}
WIDTHS = {PyTorchEngine: {}, NativeEngine: {"d_model": 64, "num_heads": 2, "d_k": 16, "d_ff": 96}}
"""Values that the compiled core supports; PyTorch supports any."""
PARENTS = (
    *(([0], [0]), ([0, 0, 0], [0, 0]), ([2, 0, 2], [1, 0])),
    *(([1], [1, 1, 0]), ([0, 0], [2, 2, 1]), ([1, 0, 1], [0])),
)
"""At each step, the beams of two sentences that the next ones go on from: they branch, end and change places."""


def find(engine, sources, limits, config, num_best=1, shortlist=None, prefixes=()):
    """Return the hypotheses of each sentence, in the order asked; for a model, the ones that PyTorch's engine finds."""
    engine = PyTorchEngine(engine) if isinstance(engine, Transformer) else engine
    options = SearchOptions(config, num_best=num_best, shortlist=shortlist)
    found = sorted(search(engine, sources, limits, options, prefixes))
    assert [number for number, _ in found] == list(range(len(sources)))
    return [hypotheses for _, hypotheses in found]


def find_plainly(model, sources, limits, config, num_best=1, prefixes=()):
    """Return what the readable searches find."""
    if config.beam_size == 1:
        allowed = AllowedTokens.of(model.config, config)
        found = greedy_search(model, sources, max_lengths=limits, prefixes=prefixes, allowed=allowed)
        return [[hypothesis] for hypothesis in found]
    engine = PlainEngine(model)
    with engine.computing():
        return beam_search(engine, sentences_of(sources, limits, prefixes), config, num_best=num_best)


def sample(model, sources, *, max_lengths, sampling, count=1, prefixes=(), end_loops=True):
    """Return `count` samples of each source, drawn one after the other."""
    allowed = AllowedTokens(model.config, end_loops=end_loops)
    sentences = sentences_of(sources, max_lengths, prefixes)

    def draw(number):
        generators = [torch.Generator().manual_seed(seed_of(sampling.seed, number, ids)) for ids in sources]

        def pick(log_probs, rows):
            return draw_tokens(log_probs, [generators[row] for row in rows], sampling)

        return token_by_token(model, DecodingBatch.encode(model, sources), sentences, allowed, pick)

    return list(map(list, zip(*map(draw, range(count)), strict=True)))


def tokens(found):
    """Return the tokens of every hypothesis."""
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


def near(expected):
    """Of float32's 24 bits a long sum keeps fewer; against float64 every form is off by no more than this."""
    return pytest.approx(expected, abs=5e-4, rel=1e-5)


def assert_same(found, expected):
    """See that searches found the same texts, with nearly the same scores."""
    assert tokens(found) == tokens(expected)
    for name in ("log_prob", "rank_score"):
        scores = [[getattr(hypothesis, name) for row in rows for hypothesis in row] for rows in (found, expected)]
        assert scores[0] == near(scores[1])


def one_by_one(model, source, target):
    """Return the log-probability of each target token from a separate pass over the tokens before it."""
    values = []
    for position, token in enumerate(target):
        logits = model(torch.tensor([source]), torch.tensor([[1, *target[:position]]]))[0, -1]
        values.append((logits[token] - logits.logsumexp(dim=-1)).item())
    return values
