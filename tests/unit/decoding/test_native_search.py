"""The search in the compiled core decides as the one in Python does, bit for bit."""

from __future__ import annotations

import ctypes
import gc
import math
import random
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from searches import find

from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding import NO_PREFIX, Prefix, SearchOptions, Shortlist
from clearhead.decoding.constraints import Required, WordEdges
from clearhead.decoding.engine import SearchingSlots
from clearhead.decoding.native import search as search_module
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.native.search import NativeSearch
from clearhead.decoding.native.slots import NativeSlots
from clearhead.decoding.rules import rank_penalty
from clearhead.decoding.scheduler import SentenceQueue, search, search_queue
from clearhead.decoding.sentence import Sentence, given_prefix
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ModelError
from clearhead.kernels.library import library
from clearhead.model import Transformer
from every_run import one_in

pytestmark = [
    pytest.mark.skipif(library() is None, reason="needs the compiled core"),
    pytest.mark.usefixtures("inference"),
]

END = 2
WIDTHS = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 32, "d_ff": 64, "dropout": 0.0}


@pytest.fixture
def calls(monkeypatch):
    """Return a list that gets the tokens that each sentence in flight had and has, at every call of the core."""
    taken = []
    advance = NativeSearch.advance

    def spy(self, active, seen):
        before = [searched.struct.length for searched in active]
        advance(self, active, seen)
        taken.append(list(zip(before, (searched.struct.length for searched in active), strict=True)))

    monkeypatch.setattr(NativeSearch, "advance", spy)
    return taken


def outcome(*arguments):
    """Return what a search finds, in the order in which it comes, up to an error, if there is one."""
    found = []
    try:
        found.extend(search(*arguments))
    except ModelError as error:
        return found, str(error)
    return found, ""


@pytest.fixture
def in_python(monkeypatch):
    """Return a function like `outcome`, of searches whose decisions between two steps are Python's."""

    def search_in_python(*arguments):
        with monkeypatch.context() as patch:
            patch.delattr(NativeSlots, "search")
            return outcome(*arguments)

    return search_in_python


# Any search


def drawn_model(draw, *, vocab_size, num_placeholders):
    """Return a model of random weights: some are all zero, so that every token is equally likely."""
    norm, scale = draw.choice(["pre", "post"]), draw.choice([0.0, 0.5, 2.0, 4.0])
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": vocab_size, "norm": norm}
    model = Transformer(ModelConfig(**WIDTHS, **sizes, output_bias=True, num_placeholders=num_placeholders)).eval()
    for weight in model.parameters():
        weight.mul_(scale)
    model.output_proj.bias[END] = draw.choice([-9.0, 0.0, 1.0, 3.0])
    if draw.random() < 0.1:
        model.target_embedding.weight[draw.randrange(vocab_size)] = float("nan")
    return model


def drawn_prefix(draw, words):
    text = tuple(draw.choices(words, k=draw.randint(0, 5)))
    completions = tuple((token, *draw.sample(words, k=draw.randint(0, min(3, len(words))))) for token in text)
    return given_prefix(tuple(draw.choices(words, k=draw.randint(0, 2))), Prefix(text, completions))


def drawn_source(draw, words, signs):
    """Return source ids, some of which repeat themselves or have placeholders."""
    ids = draw.choices(words, k=draw.randint(0, 12))
    if draw.random() < 0.3:
        ids = ids[:3] * draw.randint(1, 9)
    if signs and draw.random() < 0.3:
        ids += draw.choices(signs, k=draw.randint(1, 4))
    return [*ids, END]


def drawn_shortlist(draw, vocab_size):
    common = sorted({END, *draw.sample(range(3, vocab_size), k=2)})
    rows = [[draw.randrange(3, vocab_size), -1] for _ in range(vocab_size)]
    rows = [[-1 if token in common else token for token in row] for row in rows]
    return Shortlist(np.array(common, dtype=np.int32), np.array(rows, dtype=np.int32))


@pytest.mark.parametrize("seed", one_in(2, range(8)))
def test_native_search_equals_python_search(in_python, calls, seed):
    draw, seen = random.Random(seed), Counter()
    torch.manual_seed(seed)
    for number in range(30):
        num_placeholders = draw.choice([0, 0, 32])
        vocab_size = draw.choice([5, 6, 9, 33]) + num_placeholders
        model = drawn_model(draw, vocab_size=vocab_size, num_placeholders=num_placeholders)
        words = range(3, vocab_size - num_placeholders)
        beam_size = draw.randint(1, 12)
        config = DecodeConfig(
            beam_size=beam_size,
            length_penalty=draw.choice([0.0, 0.6, 1.0, 2.5]),
            length_penalty_form=draw.choice(["gnmt", "power"]),
            end_loops=draw.random() < 0.8,
            batch_tokens=draw.choice([1, 40 * beam_size, 100_000]),
        )
        shortlist = drawn_shortlist(draw, vocab_size) if not num_placeholders and number % 5 == 0 else None
        num_sentences = draw.randint(1, 9)
        signs = range(vocab_size - num_placeholders, vocab_size)
        sources = [drawn_source(draw, words, signs) for _ in range(num_sentences)]
        has_prefixes = draw.random() < 0.3
        prefixes = [drawn_prefix(draw, words) if has_prefixes else NO_PREFIX for _ in sources]
        limits = [len(prefix.tokens) + draw.choice([1, 2, 7, 30, 70]) for prefix in prefixes]
        precision = draw.choice(["fp32", "int8"])  # drawn everywhere, so that the models are the same everywhere
        options = SearchOptions(config, num_best=draw.randint(1, beam_size), shortlist=shortlist)
        given = (
            NativeEngine(model, precision),
            sources,
            limits,
            options,
            prefixes if has_prefixes else (),
        )
        found, error = outcome(*given)
        assert (found, error) == in_python(*given), (seed, number)
        seen["error"] += bool(error)
        for sentence, hypotheses in found:
            for hypothesis in hypotheses:
                length, limit = len(hypothesis.tokens), limits[sentence]
                seen["limit" if length == limit else "loop" if hypothesis.was_ended else "early"] += 1
            ranks = [hypothesis.rank_score for hypothesis in hypotheses]
            seen["tie"] += len(set(ranks)) < len(ranks)
            seen["prefix"] += bool(prefixes[sentence].tokens)
            seen["placeholder"] += max(sources[sentence]) >= vocab_size - num_placeholders
    most = max(after - before for call in calls for before, after in call)
    assert min(seen[kind] for kind in ("limit", "loop", "early", "tie", "prefix", "placeholder", "error")) > 0, seen
    assert any(len(call) > 1 for call in calls)
    assert most > 20


# Models whose next token is known


def chained_model(follower, vocab_size=37):
    """Return a model that writes after each token its follower, almost certainly."""
    sizes = {"num_encoder_layers": 1, "num_decoder_layers": 1, "vocab_size": vocab_size}
    model = Transformer(ModelConfig(**WIDTHS, **sizes, norm="pre", positions="none", tying="none")).eval()
    for weight in model.decoder.layers.parameters():
        weight.zero_()  # so only the residual connection is left
    model.target_embedding.weight.copy_(torch.eye(vocab_size, WIDTHS["d_model"]))
    model.output_proj.weight.zero_()
    for token in range(vocab_size):
        model.output_proj.weight[follower.get(token, END), token] = 9.0
    return model


CYCLE = {1: 5, 5: 7, 7: 9, 9: 5}
"""After the start token 5, 7, 9, 5, 7, 9 and so on."""


def written(source, limit=99, prefix=NO_PREFIX, *, end_loops=True, follower=CYCLE):
    config = DecodeConfig(beam_size=1, end_loops=end_loops)
    prefixes = [prefix] if prefix.tokens else ()
    [[found]] = find(NativeEngine(chained_model(follower)), [source], [limit], config, prefixes=prefixes)
    return found


@pytest.mark.parametrize(
    ("source", "num_tokens"),
    [
        ([3, 4, END], 21),  # more than 20 tokens
        ([3, 3, END], 21),  # seven times, which is more than three times two
        ([3, 3, 3, END], 30),  # more than nine times
        ([3, 4, 3, 4, 3, 4, 3, 4, END], 39),  # more than twelve times
    ],
)
def test_search_ends_at_the_token_that_makes_a_loop(source, num_tokens):
    found = written(source)
    assert found.tokens == (*([5, 7, 9] * 13)[:num_tokens], END)
    assert found.was_ended


def test_loop_of_one_token_ends_after_21_unless_end_loops_is_off():
    assert written([3, END], follower={1: 5, 5: 5}).tokens == (*[5] * 21, END)
    free = written([3, END], follower={1: 5, 5: 5}, limit=77, end_loops=False)
    assert free.tokens == (*[5] * 76, END)
    assert free.was_ended  # by the limit


def test_different_tokens_in_sequence_are_not_ended_as_a_loop():
    follower = {1: 5, 5: 6, **{token: token + 1 for token in range(6, 30)}}
    found = written([3, END], follower=follower)
    assert found.tokens == (*range(5, 31), END)
    assert not found.was_ended


def test_a_prefix_may_repeat_itself_and_counts_for_no_loop():
    tokens = (5, 7, 9) * 10
    found = written([3, END], prefix=Prefix(tokens, tuple((token,) for token in tokens)))
    assert found.tokens == (*[5, 7, 9] * 17, END)  # 30 tokens, and 21 more
    assert found.was_ended


def test_control_tokens_cost_nothing_and_the_text_of_a_prefix_does():
    follower = {1: 5, 5: 7, 7: 9, 9: 11}
    found = written([3, END], prefix=given_prefix((20, 21), Prefix((5,), ((5,),))), follower=follower)
    assert found.tokens == (20, 21, 5, 7, 9, 11, END)
    # What follows surely costs nothing. But 5 comes after 21, whose follower would be the end token, as that of 32
    # others. A normalized embedding is sqrt(63) at its own place and -1 / sqrt(63) at the others, and an output is 9
    # times the sum of the places of the tokens that it follows.
    own, other = 9 * 63**0.5, -9 * 63**-0.5
    assert found.log_prob == pytest.approx(other - (own + 32 * other), abs=1e-3)


# Searches without scores


def found_without_scores(model, sources, limits, **settings):
    """Return the tokens that a greedy search writes; what it writes without scores must be the same."""
    config = DecodeConfig(beam_size=1, end_loops=False, **settings)
    with_scores, without = (
        dict(search(NativeEngine(model), sources, limits, SearchOptions(config, scores=scores)))
        for scores in (True, False)
    )
    for number, [one] in without.items():
        assert one.tokens == with_scores[number][0].tokens
        assert math.isnan(one.log_prob)
        assert math.isnan(one.rank_score)
    return [without[number][0].tokens for number in range(len(sources))]


@pytest.mark.parametrize("seed", range(6))
def test_without_scores_the_best_of_nearly_equal_tokens_are_the_same(seed):
    rng = torch.Generator().manual_seed(seed)
    model = Transformer(ModelConfig(**WIDTHS, vocab_size=3_000, tying="none", output_bias=seed % 2 == 1)).eval()
    for name, weight in model.named_parameters():
        if name.startswith("output_proj"):
            # Four tokens over and over, the numbers of each a few roundings apart.
            copies = weight[torch.arange(len(weight)) % 4] * 10.0 ** (seed - 3)
            weight.copy_(copies * (1 + 2**-23 * torch.randint(-2, 3, copies.shape, generator=rng)))
    sources = [[*range(3, 3 + length), END] for length in (1, 4, 9, 30)]
    found = found_without_scores(model, sources, [25] * len(sources))
    assert len({token for tokens in found for token in tokens}) > 4


def test_greedy_without_scores_takes_the_lowest_of_equal_tokens():
    model = Transformer(ModelConfig(**WIDTHS, vocab_size=700, output_bias=True)).eval()
    for weight in model.parameters():
        weight.zero_()
    model.output_proj.bias[:100] = -1.0
    assert found_without_scores(model, [[3, END]], [4]) == [(100, 100, 100, END)]


@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
@pytest.mark.parametrize("part", ["output_proj", "decoder.layers.0.feed_forward.down_proj"])
def test_without_scores_weights_that_are_no_numbers_are_reported(part, precision):
    model = Transformer(ModelConfig(**WIDTHS, vocab_size=700, tying="none")).eval()
    model.get_parameter(f"{part}.weight")[9, 5] = math.nan
    config = DecodeConfig(beam_size=1)
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        list(search(NativeEngine(model, precision), [[3, END]], [9], SearchOptions(config, scores=False)))


def model_of_state(state, weights):
    """Return a model whose decoder ends in the same state everywhere, whatever it reads.

    Args:
        state: The numbers that are not zero, by their places.
        weights: The output weights that are not zero, by token and place.
    """
    model = Transformer(ModelConfig(**WIDTHS, vocab_size=700, tying="none")).eval()
    norm = model.decoder.layers[-1].feed_forward_residual.norm
    for weight in (norm.weight, norm.bias, model.output_proj.weight):
        weight.zero_()
    for place, number in state.items():
        norm.bias[place] = number
    for place, number in weights.items():
        model.output_proj.weight[place] = number
    return model


def test_without_scores_numbers_too_large_for_8_bits_are_compared_in_float32():
    # The step of the state times that of token 9's or 600's weights is infinite; their logits are not.
    model = model_of_state({0: 1e32, 1: 1.0}, {(9, 1): 1e12, (600, 1): 2e12})
    assert found_without_scores(model, [[3, END]], [3]) == [(600, 600, END)]


def test_without_scores_a_token_that_is_never_written_does_not_win_against_impossible_ones():
    impossible = {(token, 0): -1e10 for token in range(3, 100)}  # their logits are minus infinity
    model = model_of_state({0: 1e30}, {(0, 0): 5e-30, (100, 0): 1e-30, **impossible})
    assert found_without_scores(model, [[3, END]], [3]) == [(100, 100, END)]


@pytest.mark.parametrize("precision", ["fp32", "int8", "bf16"])
@pytest.mark.parametrize("weight", [1e20, 3e38])  # 64 of the latter have no finite sum either
def test_without_scores_infinite_logits_are_reported(precision, weight):
    model = model_of_state({0: 1e20}, {(9, 0): weight, **{(7, place): weight for place in range(64)}})
    options = SearchOptions(DecodeConfig(beam_size=1), scores=False)
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        list(search(NativeEngine(model, precision), [[3, END]], [9], options))


def test_the_sizes_of_weights_below_the_smallest_step_are_bounds_too():
    tiny = float(np.finfo(np.float32).tiny)
    model = model_of_state({}, {(9, place): 0.6 * tiny for place in range(64)})  # one step each in 8 bits
    sizes = NativeEngine(model).weights.greedy_decoder.rough.sizes
    assert ctypes.c_float.from_address(sizes.value + 9 * 4).value >= 64 * tiny


def test_without_scores_a_model_in_float32_needs_no_tiles_where_there_is_amx(monkeypatch):
    monkeypatch.setattr("clearhead.kernels.panels.has_amx", lambda: True)
    decoder = NativeEngine(model_of_state({}, {})).weights.greedy_decoder
    assert not decoder.rough.product.is_on_amx
    assert not decoder.output.is_on_amx


def test_after_a_search_without_scores_a_model_is_freed_at_once():
    engine = NativeEngine(model_of_state({0: 1.0}, {(9, 0): 1.0}))
    list(search(engine, [[3, END]], [3], SearchOptions(DecodeConfig(beam_size=1), scores=False)))
    weights = weakref.ref(engine.weights)
    gc.disable()
    try:
        del engine
        assert weights() is None
    finally:
        gc.enable()


# Finished hypotheses


def test_equally_likely_tokens_are_ordered_by_id():
    model = Transformer(ModelConfig(**WIDTHS, vocab_size=5, num_encoder_layers=1, num_decoder_layers=1)).eval()
    for weight in model.parameters():
        weight.zero_()
    [found] = find(NativeEngine(model), [[3, END]], [9], DecodeConfig(beam_size=3, length_penalty=0.0), 3)
    # At the second step the candidates are 3 2, 3 3, 3 4, 4 2, 4 3 and 4 4. The end of 4 2 comes too late, in the
    # fourth place. At the third step those of 3 3 come first.
    assert [hypothesis.tokens for hypothesis in found] == [(2,), (3, 2), (3, 3, 2)]
    assert [hypothesis.log_prob for hypothesis in found] == pytest.approx([-n * math.log(5) for n in (1, 2, 3)])


def test_the_rank_score_is_the_quotient_that_python_computes(make_sharp_model):
    model = make_sharp_model(**WIDTHS, output_bias=True)
    for form in ("gnmt", "power"):
        config = DecodeConfig(beam_size=5, length_penalty=1.3, length_penalty_form=form)
        for hypotheses in find(NativeEngine(model), [[5, 9, END], [7, END]], [23, 31], config, 5):
            for hypothesis in hypotheses:
                penalty = rank_penalty(len(hypothesis.tokens), config)
                assert hypothesis.rank_score == hypothesis.log_prob / penalty


# Calls of the core


def begun(model, sources, limits, changes, num_best=1, **settings):
    """Return a search and its sentences in flight."""
    config, allowed = DecodeConfig(**settings), AllowedTokens(model.config)
    slots = NativeEngine(model).slots(config.beam_size, len(sources))
    assert isinstance(slots, SearchingSlots)
    sentences = [Sentence(*one) for one in zip(range(len(sources)), sources, limits, strict=True)]
    slots.enter(slots.encode(sentences))
    searching = slots.search(config, num_best, allowed, changes, scores=True)
    return searching, [searching.begin(sentence, 1) for sentence in sentences]


@pytest.fixture
def without_clock(monkeypatch):
    """Let no call of the core end because of the time."""
    monkeypatch.setattr(search_module, "SECONDS", 1e9)


def test_a_call_takes_steps_until_a_sentence_is_done(without_clock):
    changes = np.zeros(1, dtype=np.int64)
    searching, active = begun(chained_model(CYCLE), [[3, END], [3, 4, END]], [8, 12], changes, beam_size=1)
    searching.advance(active, 0)
    assert [searched.struct.length for searched in active] == [8, 8]
    assert [searched.is_open for searched in active] == [False, True]
    assert active[0].best(1)[0].tokens == (5, 7, 9, 5, 7, 9, 5, END)
    assert active[1].written == [[5, 7, 9, 5, 7, 9, 5, 7]]


def test_a_call_ends_after_the_step_in_which_the_caller_gets_something_to_look_at(without_clock):
    changes = np.array([4], dtype=np.int64)
    searching, active = begun(chained_model(CYCLE), [[3, END]], [15], changes, beam_size=1)
    searching.advance(active, 3)
    assert active[0].struct.length == 1
    searching.advance(active, 3)
    assert active[0].struct.length == 2
    searching.advance(active, 4)
    assert active[0].struct.length == 15


def test_a_call_begins_no_step_after_its_time(monkeypatch):
    monkeypatch.setattr(search_module, "SECONDS", 0.0)
    changes = np.zeros(1, dtype=np.int64)
    searching, active = begun(chained_model(CYCLE), [[3, END]], [99], changes, beam_size=1)
    for length in range(1, 6):
        searching.advance(active, 0)
        assert active[0].struct.length == length


def test_add_withdraw_and_stop_count_as_changes_of_the_queue():
    waiting = SentenceQueue()
    counts = [int(waiting.changes[0])]
    waiting.add([Sentence(0, [3, END], 9), Sentence(1, [3, END], 9)])
    counts.append(int(waiting.changes[0]))
    waiting.withdraw([0])
    counts.append(int(waiting.changes[0]))
    waiting.stop()
    counts.append(int(waiting.changes[0]))
    assert len(set(counts)) == 4


def test_text_prefix_is_decoded_step_by_step_and_the_rest_in_one_call(without_clock, calls):
    written([3, END], prefix=Prefix((5, 7, 9), ((5,), (7,), (9,))), limit=18)
    assert calls == [[(0, 1)], [(1, 2)], [(2, 18)]]


def test_a_prefix_guides_to_its_end_and_placeholders_and_terms_guide_all_of_a_translation():
    plain, edges = AllowedTokens(ModelConfig(vocab_size=37)), WordEdges(np.zeros(37, bool), np.zeros(37, bool))
    assert plain.guided_until(Sentence(0, [3, END], 9)) == 0
    assert plain.guided_until(Sentence(0, [3, END], 9, given_prefix((20, 21), Prefix((5,), ((5,),))))) == 3
    assert plain.guided_until(Sentence(0, [3, END], 9, required=Required([], edges))) == 9
    with_placeholders = AllowedTokens(ModelConfig(vocab_size=37 + 32, num_placeholders=32))
    assert with_placeholders.guided_until(Sentence(0, [36, END], 9)) == 0
    assert with_placeholders.guided_until(Sentence(0, [37, END], 9)) == 9


def test_a_sentence_needs_few_calls_however_long_it_gets(without_clock, calls):
    # Room is doubled whenever it is used up.
    counts = []
    for limit in (250, 500, 1_000):
        calls.clear()
        written([3, END], limit=limit, end_loops=False)
        counts.append(len(calls))
    assert counts[2] - counts[1] == counts[1] - counts[0] <= 2


def test_repetitions_in_a_source_are_counted_once_and_only_if_a_translation_repeats_itself(monkeypatch):
    counted = []
    monkeypatch.setattr("clearhead.decoding.sentence.most_times", lambda ids: counted.append(ids) or 1)
    written([3, END], follower={1: 5, 5: 6, 6: 7, 7: 8})
    assert counted == []
    written([3, END])
    assert counted == [[3, END]]


@pytest.mark.parametrize("token", [5, 9])
def test_nan_probabilities_at_any_step_are_an_error(token):
    model = chained_model(CYCLE)
    model.target_embedding.weight[token] = float("nan")  # read at the second or fourth step
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        list(search(NativeEngine(model), [[3, END]], [9], SearchOptions(DecodeConfig(beam_size=1))))


def test_a_withdrawn_sentence_leaves_with_no_result_and_the_others_stay(without_clock, monkeypatch):
    engine, waiting = NativeEngine(chained_model(CYCLE)), SentenceQueue()
    waiting.add([Sentence(0, [3, END], 30), Sentence(1, [3, 4, END], 9), Sentence(2, [4, END], 12)])
    waiting.close()
    finding = search_queue(engine, waiting, SearchOptions(DecodeConfig(beam_size=1)), 1, 3)
    assert next(finding)[0] == 1
    waiting.withdraw([0])
    rest = dict(finding)
    assert rest[0] == []
    assert rest[2][0].tokens == (5, 7, 9, 5, 7, 9, 5, 7, 9, 5, 7, END)
