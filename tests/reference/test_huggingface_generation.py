"""Greedy and beam search find, token for token, what `generate` of Hugging Face transformers finds.

Their search ranks by log-probability / length ** alpha, where the length counts the end token and not the start token:
our `power` form. It stops exactly when no open hypothesis can win only with `early_stopping="never"`; the other two
settings are heuristics. Both sides forbid the padding and the start token (unless it is also the end) and leave the
rest its own probability. One difference remains, at the length limit: theirs returns hypotheses without an end there
(or, with `forced_eos_token_id`, with one that costs nothing), ours end and pay for it.

The models have learned a little, so that their outputs end by themselves: each source token stands in the target once
or twice, and short and long hypotheses compete.
"""

from __future__ import annotations

import pytest
import torch
import transformers
from huggingface_models import KINDS, as_ours, random_state
from torch.nn import functional

from clearhead.decoding.beam_search import beam_search
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.step import pad_batch
from clearhead.files.tensors import model_tensors
from clearhead.interop.huggingface.state import export_state

LIMIT = 31


def draw_pairs(config, number, generator):
    """Draw sources of one to eight tokens, and targets that repeat some of them."""
    special = {config.pad_id, config.bos_id, config.eos_id}
    tokens = [token for token in range(config.vocab_size) if token not in special]

    def uniform(number):
        return torch.rand(number, generator=generator).tolist()

    sources, targets = [], []
    for _ in range(number):
        source = [tokens[int(u * len(tokens))] for u in uniform(1 + int(uniform(1)[0] * 8))]
        target = [token for token in source for _ in range(1 + (uniform(1)[0] < 0.4))]
        sources.append([*source, config.eos_id])
        targets.append([*target, config.eos_id])
    return sources, targets


def learn(ours, generator, *, num_steps=60, rate=1e-2):
    """Train for a second or two; what comes out is hardly a copy, but it ends, and differs from source to source."""
    config = ours.config
    optimizer = torch.optim.Adam(ours.parameters(), betas=(0.9, 0.98))
    ours.train()
    for step in range(num_steps):
        optimizer.param_groups[0]["lr"] = rate * min(1, (step + 1) / 20) * (1 - step / num_steps)
        sources, targets = draw_pairs(config, 47, generator)
        source, labels = pad_batch(sources, config.pad_id), pad_batch(targets, config.pad_id)
        shifted = torch.cat([torch.full((47, 1), config.bos_id), labels[:, :-1]], dim=1)
        logits = ours(source, shifted).flatten(0, 1)
        functional.cross_entropy(logits, labels.flatten(), ignore_index=config.pad_id).backward()
        optimizer.step()
        optimizer.zero_grad()
    return ours.eval()


KINDS_SEARCHED = [
    "marian",
    "marian that starts with padding",
    "bart that starts with its end",
    # A search sees nothing of a model but its logits, which test_huggingface_logits compares for every kind.
    pytest.param("bart", marks=pytest.mark.slow),
    pytest.param("m2m100", marks=pytest.mark.slow),
    pytest.param("m2m100 that starts with its end", marks=pytest.mark.slow),
    pytest.param("bert-generation", marks=pytest.mark.slow),
]


@pytest.fixture(scope="module", params=KINDS_SEARCHED)
def models(request):
    """Return their model, ours with the same weights, and sources of different lengths."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    kind = KINDS[request.param]
    theirs = random_state(kind.make())
    ours = learn(as_ours(kind.model_type, theirs), generator)
    _, state = export_state(kind.model_type, ours.config, model_tensors(ours))
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert (set(missing), unexpected) == (set(kind.not_written), [])
    # Their own default for some kinds, which `generate` would take over: a free end at the length limit.
    theirs.generation_config.forced_eos_token_id = None
    return theirs, ours, draw_pairs(ours.config, 23, generator)[0]


def their_search(models, *, limit=LIMIT, num_best=1, **settings):
    theirs, ours, sources = models
    config = ours.config
    source = pad_batch(sources, config.pad_id)
    options = transformers.GenerationConfig(
        max_new_tokens=limit,
        num_return_sequences=num_best,
        do_sample=False,
        suppress_tokens=sorted({config.pad_id, config.bos_id} - {config.eos_id}),
        pad_token_id=config.pad_id,
        bos_token_id=config.bos_id,
        eos_token_id=config.eos_id,
        decoder_start_token_id=config.bos_id,
        return_dict_in_generate=True,
        output_scores=True,
        **settings,
    )
    found = theirs.generate(source, attention_mask=(source != config.pad_id).long(), generation_config=options)
    return [until_end(row, config) for row in found.sequences.tolist()], found[
        "sequences_scores"
    ].tolist() if "sequences_scores" in found else []


def until_end(row, config):
    assert row[0] == config.bos_id
    tokens = row[1:]
    return tuple(tokens[: tokens.index(config.eos_id) + 1] if config.eos_id in tokens else tokens)


def our_search(models, *, limit=LIMIT, **settings):
    _, ours, sources = models
    settings = {"form": "power", "end_loops": False, **settings}  # theirs goes on in a loop
    with torch.inference_mode():
        return beam_search(ours, sources, max_lengths=[limit] * len(sources), **settings)


def assert_equal_where_ended(actual, expected):
    """Compare the outputs that end before the limit, where the two differ by design."""
    ended = [row for row, tokens in enumerate(expected) if len(tokens) < LIMIT]
    assert [actual[row] for row in ended] == [expected[row] for row in ended]
    assert ended  # how many depends a little on how the processor rounds while the model learns
    return ended


def assert_equal_before_limit(actual, expected):
    """Compare what greedy search chooses before the last token, which the limit makes an end of ours."""
    assert [tokens[: LIMIT - 1] for tokens in actual] == [tokens[: LIMIT - 1] for tokens in expected]


def test_greedy_search_equals_theirs(models):
    _, ours, sources = models
    expected, _ = their_search(models, num_beams=1)
    with torch.inference_mode():
        greedy = greedy_search(ours, sources, max_lengths=[LIMIT] * len(sources), end_loops=False)
    assert_equal_before_limit([hypothesis.tokens for hypothesis in greedy], expected)
    one_beam = our_search(models, beam_size=1, alpha=0.6)
    assert_equal_before_limit([best.tokens for (best,) in one_beam], expected)


@pytest.mark.parametrize("beam_size", [4, 5])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_beam_search_equals_theirs(models, beam_size, alpha):
    expected, scores = their_search(models, num_beams=beam_size, length_penalty=alpha, early_stopping="never")
    found = [best for (best,) in our_search(models, beam_size=beam_size, alpha=alpha)]
    ended = assert_equal_where_ended([hypothesis.tokens for hypothesis in found], expected)
    assert [found[row].rank_score for row in ended] == pytest.approx([scores[row] for row in ended], abs=1e-4)


def test_the_best_four_equal_theirs_in_order_and_score(models):
    expected, scores = their_search(models, num_beams=4, num_best=4, length_penalty=0.6, early_stopping="never")
    found = [hypothesis for best in our_search(models, beam_size=4, alpha=0.6, num_best=4) for hypothesis in best]
    is_compared = False
    for first in range(0, len(expected), 4):
        theirs, ours = expected[first : first + 4], found[first : first + 4]
        if max(map(len, theirs)) < LIMIT:
            is_compared = True
            assert [hypothesis.tokens for hypothesis in ours] == theirs
            assert [hypothesis.rank_score for hypothesis in ours] == pytest.approx(scores[first : first + 4], abs=1e-4)
    assert is_compared


@pytest.mark.parametrize("heuristic", [True, False])
def test_their_heuristic_ends_find_nothing_better(models, heuristic):
    outputs, scores = their_search(models, num_beams=4, length_penalty=1.0, early_stopping=heuristic)
    found = [best for (best,) in our_search(models, beam_size=4, alpha=1.0)]
    ended = [row for row, tokens in enumerate(outputs) if len(tokens) < LIMIT]
    assert ended
    assert all(found[row].rank_score >= scores[row] - 1e-4 for row in ended)


def test_at_the_length_limit_ours_end_and_theirs_do_not(models):
    _, ours, _ = models
    expected, _ = their_search(models, limit=3, num_beams=4, length_penalty=1.0, early_stopping="never")
    found = [best for (best,) in our_search(models, limit=3, beam_size=4, alpha=1.0)]
    # However short the sources are that end within three tokens, one of up to eight does not.
    assert any(len(tokens) == 3 and tokens[-1] != ours.config.eos_id for tokens in expected)
    assert all(hypothesis.tokens[-1] == ours.config.eos_id for hypothesis in found)
