"""Greedy and beam search find, token for token, what `generate` of Hugging Face transformers finds.

Their search ranks by log-probability / length ** alpha, where the length counts the end token and not the start token:
our `power` form. It stops exactly when no open hypothesis can win only with `early_stopping="never"`; the other two
settings are heuristics. Both sides forbid the padding and the start token (unless it is also the end) and leave the
rest its own probability. One difference remains, at the length limit: theirs returns hypotheses without an end there
(or, with `forced_eos_token_id`, with one that costs nothing), ours end and pay for it.

The models are made so that their outputs end by themselves and differ from source to source: see `chain`.
"""

from __future__ import annotations

import pytest
import torch
import transformers
from huggingface_models import (
    SHARED,
    SINUSOIDS,
    SPECIAL,
    STARTS_WITH_END,
    STARTS_WITH_PADDING,
    as_ours,
    marian,
    random_state,
)
from torch.nn import functional

from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.step import pad_batch
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.files.tensors import model_tensors
from clearhead.interop.huggingface.state import export_state
from every_run import slow
from plain_search import plain_search

LIMIT = 40


def draw_sources(config, number, generator):
    """Draw sources of one to eight tokens."""
    special = {config.pad_id, config.bos_id, config.eos_id}
    tokens = torch.tensor([token for token in range(config.vocab_size) if token not in special])

    def uniform(high, size):
        return torch.randint(high, (size,), generator=generator)

    lengths = (1 + uniform(8, number)).tolist()
    return [[*tokens[uniform(len(tokens), length)].tolist(), config.eos_id] for length in lengths]


def chain(ours, generator, *, tokens_of_text=None, num_tokens=None):
    """Set weights such that tokens of text follow each other in a row, behind the last of which outputs end.

    Their embeddings are orthonormal. The last layer is a linear map, f(x) - f(-x) = x of each activation, from every
    token to the next, and from every third nearly as much to the end. The source, as cross-attention stays strong,
    decides between the two. So outputs end, and differ, however a processor rounds.

    Args:
        ours: A model whose `d_ff` is twice its `d_model`.
        generator: Draws the order of the tokens, and their embeddings.
        tokens_of_text: Those that may be in the row; None is all.
        num_tokens: How many are in the row, fewer than the limit of the search; None is all.
    """
    config = ours.config
    special = {config.pad_id, config.bos_id, config.eos_id}
    text = torch.tensor([token for token in tokens_of_text or range(config.vocab_size) if token not in special])
    order = text[torch.randperm(len(text), generator=generator)][:num_tokens].tolist()
    tokens = functional.normalize(torch.randn(config.vocab_size, config.d_model, generator=generator))
    used = [*sorted(special), *order]
    tokens[used] = torch.linalg.qr(tokens[used].T)[0].T
    row = [config.bos_id, *order, config.eos_id]
    following = tokens[row[1:]].T @ tokens[row[:-1]]
    following += 0.9 * torch.outer(tokens[config.eos_id], tokens[order[2:-1:3]].sum(dim=0))
    with torch.no_grad():
        for name, weight in ours.decoder.named_parameters():
            if weight.dim() == 1:
                weight.fill_(float("norm.weight" in name))
            elif "layers" in name:
                weight.mul_(0.6 if "cross_attn" in name else 0.2)
        ours.target_embedding.weight.copy_(tokens)
        unit = torch.eye(config.d_model)
        last = ours.decoder.layers[-1].feed_forward
        last.up_proj.weight.copy_(torch.cat([unit, -unit]))
        last.down_proj.weight.copy_(3.0 * torch.cat([following, -following], dim=1))
        if ours.output_proj.bias is not None:
            ours.output_proj.bias.zero_()
    return ours


# A search sees nothing of a model but its logits, which test_huggingface_logits compares for every kind.
STARTS = {"a token of its own": SPECIAL, "padding": STARTS_WITH_PADDING, "the end": STARTS_WITH_END}


@pytest.fixture(scope="module", params=["a token of its own", slow("padding"), "the end"])
def models(request):
    """Return their model, ours with the same weights, and sources of different lengths."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    theirs = random_state(marian(d_model=52, encoder_ffn_dim=104, decoder_ffn_dim=104, **STARTS[request.param]))
    ours = chain(as_ours("marian", theirs), generator)
    _, state = export_state("marian", ours.config, model_tensors(ours))
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert (set(missing), unexpected) == ({*SHARED, *SINUSOIDS}, [])
    # Their own default for some kinds, which `generate` would take over: a free end at the length limit.
    theirs.generation_config.forced_eos_token_id = None
    return theirs, ours, draw_sources(ours.config, 23, generator)


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
    settings = {"length_penalty_form": "power", "end_loops": False, **settings}  # theirs continues in a loop
    with torch.inference_mode():
        return plain_search(ours, sources, max_lengths=[limit] * len(sources), **settings)


def assert_equal_where_ended(actual, expected):
    """Compare the outputs that end before the limit, where the two differ by design."""
    ended = [row for row, tokens in enumerate(expected) if len(tokens) < LIMIT]
    assert [actual[row] for row in ended] == [expected[row] for row in ended]
    assert ended
    return ended


def assert_equal_before_limit(actual, expected):
    """Compare what greedy search chooses before the last token, which the limit makes an end of ours."""
    assert [tokens[: LIMIT - 1] for tokens in actual] == [tokens[: LIMIT - 1] for tokens in expected]


def test_greedy_search_equals_theirs(models):
    _, ours, sources = models
    expected, _ = their_search(models, num_beams=1)
    with torch.inference_mode():
        allowed = AllowedTokens(ours.config, end_loops=False)
        greedy = greedy_search(ours, sources, max_lengths=[LIMIT] * len(sources), allowed=allowed)
    assert_equal_before_limit([hypothesis.tokens for hypothesis in greedy], expected)
    one_beam = our_search(models, beam_size=1, alpha=0.6)
    assert_equal_before_limit([best.tokens for (best,) in one_beam], expected)


@pytest.mark.parametrize("beam_size", [4, slow(5)])
@pytest.mark.parametrize("alpha", [slow(0.0), slow(0.6), 1.0])
def test_beam_search_equals_theirs(models, beam_size, alpha):
    expected, scores = their_search(models, num_beams=beam_size, length_penalty=alpha, early_stopping="never")
    found = [best for (best,) in our_search(models, beam_size=beam_size, alpha=alpha)]
    ended = assert_equal_where_ended([hypothesis.tokens for hypothesis in found], expected)
    assert [found[row].rank_score for row in ended] == pytest.approx([scores[row] for row in ended], abs=1e-4)


@pytest.mark.parametrize("min_length", [27, 35])
def test_a_minimum_length_equals_theirs(models, min_length):
    how = {"length_penalty": 1.0, "early_stopping": "never", "min_length": min_length}
    theirs, scores = their_search(models, num_beams=4, **how)
    found, free = (
        [best for (best,) in our_search(models, beam_size=4, alpha=1.0, **rules)]
        for rules in ({"min_length": min_length}, {})
    )
    ended = assert_equal_where_ended([hypothesis.tokens for hypothesis in found], theirs)
    assert [found[row].rank_score for row in ended] == pytest.approx([scores[row] for row in ended], abs=1e-4)
    assert [hypothesis.tokens for hypothesis in free] != [hypothesis.tokens for hypothesis in found]


@pytest.mark.parametrize("size", [2, 3])
def test_no_repeated_ngrams_equal_theirs(size):
    theirs = random_state(marian(**SPECIAL))
    ours = as_ours("marian", theirs)
    models = theirs, ours, draw_sources(ours.config, 11, torch.Generator().manual_seed(1))
    expected, _ = their_search(models, num_beams=1, no_repeat_ngram_size=size)
    with torch.inference_mode():
        found, free = (
            greedy_search(ours, models[2], max_lengths=[LIMIT] * 11, allowed=AllowedTokens(ours.config, **rules))
            for rules in ({"end_loops": False, "no_repeat_ngram_size": size}, {"end_loops": False})
        )
    assert_equal_before_limit([hypothesis.tokens for hypothesis in found], expected)
    assert [hypothesis.tokens for hypothesis in free] != [hypothesis.tokens for hypothesis in found]


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


@pytest.mark.parametrize("heuristic", [True, slow(False)])
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
    # The row is longer than that.
    assert any(len(tokens) == 3 and tokens[-1] != ours.config.eos_id for tokens in expected)
    assert all(hypothesis.tokens[-1] == ours.config.eos_id for hypothesis in found)
