from __future__ import annotations

import random
import signal
import threading
import time
from itertools import product

import pytest
import torch
from searches import SLOTS, WIDTHS, assert_same, find, find_plainly, tokens
from torch.nn import functional

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import SearchOptions
from clearhead.decoding import beam_state as search_module
from clearhead.decoding.helper_threads import HELPER_NAME, helpers
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.native.search import NativeSearch
from clearhead.decoding.native.slots import NativeSlots
from clearhead.decoding.pytorch.candidates import best_tokens
from clearhead.decoding.pytorch.engine import PyTorchSlots
from clearhead.decoding.pytorch.weights import BLOCK
from clearhead.decoding.scheduler import SentenceQueue, search, search_queue
from clearhead.decoding.sentence import Sentence, sentences_of
from clearhead.errors import ConfigError, ModelError
from every_run import slow

LENGTHS = (7, 1, 13, 3, 5, 1, 29, 2, 11)
LIMITS = [17, 11, 1, 13, 7, 3, 23, 2, 19]


pytestmark = pytest.mark.usefixtures("inference")


for_the_core = pytest.mark.parametrize("form", [NativeEngine], indirect=True)


def test_a_slot_that_becomes_free_is_taken_by_the_last_sentence(form, make_ending_model, make_sources):
    slots = form(make_ending_model()).slots(2, 3)
    slots.enter(slots.encode(list(sentences_of(make_sources((7, 3, 5)), [9] * 3))))
    slots.leave(0)
    assert slots.source_lengths == [5, 3]
    slots.leave(1)
    assert slots.source_lengths == [5]


def test_most_beams_have_room_for_the_widest_of_all_numbers_of_required_tokens():
    # Beams for 1 to 5 missing tokens: 4, 4, 4, 3 and 2, so 4, 8, 12, 12 and 10 in all; 4 more lack none.
    assert SearchOptions(DecodeConfig(beam_size=4), most_required=5).most_beams == 12 + 4
    assert SearchOptions(DecodeConfig(beam_size=4), most_required=1).most_beams == 4 + 4
    assert SearchOptions(DecodeConfig(beam_size=4)).most_beams == 4


@pytest.mark.parametrize(
    ("norm", "penalty", "alpha"),
    [
        each if each in {("pre", "gnmt", 0.6), ("post", "power", 2.5)} else slow(*each)
        for each in product(("pre", "post"), ("gnmt", "power"), (0.0, 0.6, 1.0, 2.5))
    ],
)
def test_search_equals_plain_search_as_sentences_enter_and_leave_the_batch(
    make_ending_model, make_sources, form, norm, penalty, alpha
):
    model, sources = make_ending_model(norm), make_sources(LENGTHS)
    packed = form(model)
    for beam_size, num_best in ((4, 1), (5, 3)):
        config = DecodeConfig(beam_size=beam_size, length_penalty=alpha, length_penalty_form=penalty)
        expected = find_plainly(model, sources, LIMITS, config, num_best)
        for batch_tokens in (29 * beam_size * 2, 1_000_000):
            config = config.model_copy(update={"batch_tokens": batch_tokens})
            assert_same(find(packed, sources, LIMITS, config, num_best), expected)


@pytest.mark.parametrize("norm", ["pre", slow("post")])
@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), slow(2, 1), (3, 3)])
@pytest.mark.parametrize("batch_tokens", [1, 60, slow(1_000_000)])
def test_search_equals_plain_search_for_any_beam_size_and_batch_tokens(
    make_ending_model, make_sources, form, norm, beam_size, num_best, batch_tokens
):
    model, sources = make_ending_model(norm), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=batch_tokens)
    expected = find_plainly(model, sources, LIMITS, config, num_best)
    assert_same(find(form(model), sources, LIMITS, config, num_best), expected)


@pytest.mark.parametrize(
    ("norm", "alpha", "num_best"), [slow("pre", 0.0, 1), ("post", 0.6, 1), ("pre", 1.0, 4), slow("post", 2.5, 2)]
)
def test_search_equals_a_search_without_cache_batch_and_early_end(
    make_ending_model, make_sources, form, plain_beam_search, norm, alpha, num_best
):
    model, sources = make_ending_model(norm), make_sources((7, 1, 5, 3, 11, 2))
    limits = [7, 11, 1, 9, 5, 3]
    config = DecodeConfig(beam_size=4, length_penalty=alpha, batch_tokens=60)
    found = find(form(model), sources, limits, config, num_best)
    for source, limit, hypotheses in zip(sources, limits, found, strict=True):
        plain = plain_beam_search(model, source, max_length=limit, beam_size=4, alpha=alpha, num_best=num_best)
        assert [h.tokens for h in hypotheses] == [tokens for tokens, _ in plain]
        assert [h.rank_score for h in hypotheses] == pytest.approx([score for _, score in plain], abs=1e-4)


def test_sentences_enter_while_others_are_in_flight_and_all_lengths_occur(
    make_ending_model, make_sources, form, monkeypatch
):
    in_flight, moved = [], []
    slots = SLOTS[form]
    enter, leave = slots.enter, slots.leave

    def spy_on_enter(self, sources):
        in_flight.append(len(self.source_lengths))
        enter(self, sources)

    def spy_on_leave(self, slot):
        moved.append(slot < len(self.source_lengths) - 1)
        leave(self, slot)

    monkeypatch.setattr(slots, "enter", spy_on_enter)
    monkeypatch.setattr(slots, "leave", spy_on_leave)
    model, sources = make_ending_model(), make_sources(LENGTHS)
    found = find(form(model), sources, LIMITS, DecodeConfig(beam_size=5, batch_tokens=29 * 5 * 2))
    assert len([number for number in in_flight if number > 0]) > 1
    assert any(moved)
    lengths = [len(hypotheses[0].tokens) for hypotheses in found]
    assert any(length < limit for length, limit in zip(lengths, LIMITS, strict=True))
    assert any(length == limit > 2 for length, limit in zip(lengths, LIMITS, strict=True))
    assert len(set(lengths)) >= 5


@pytest.mark.parametrize(("beam_size", "num_best"), [slow(1, 1), (4, 2)])
def test_neither_order_nor_neighbours_change_a_translation(make_ending_model, make_sources, form, beam_size, num_best):
    packed, sources = form(make_ending_model()), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=150)
    together = find(packed, sources, LIMITS, config, num_best)
    alone = [
        find(packed, [source], [limit], config, num_best)[0] for source, limit in zip(sources, LIMITS, strict=True)
    ]
    assert_same(alone, together)
    order = list(range(len(sources))) * 2  # and everybody twice
    random.Random(3).shuffle(order)
    shuffled = find(packed, [sources[at] for at in order], [LIMITS[at] for at in order], config, num_best)
    assert_same(shuffled, [together[at] for at in order])


def test_search_yields_a_sentence_as_soon_as_it_is_finished(make_ending_model, make_sources, form):
    sources = make_sources((5, 5, 5))
    found = search(form(make_ending_model()), sources, [37, 1, 37], SearchOptions(DecodeConfig(beam_size=3)))
    assert next(found)[0] == 1


def test_search_of_no_sentences_yields_nothing(make_model, form):
    assert list(search(form(make_model(**WIDTHS[form])), [], [], SearchOptions(DecodeConfig()))) == []


@pytest.fixture
def with_penalty_of_the_longest(monkeypatch):
    """Return a function that makes sentences believe in another penalty of their longest output."""
    begin = NativeSearch.begin

    def use(change):
        def begin_with_another(search, sentence, bos_id):
            searched = begin(search, sentence, bos_id)
            searched.struct.longest_penalty = change(searched.struct.longest_penalty)
            return searched

        def hold(sentence, penalty):
            sentence.__dict__["longest_penalty"] = change(penalty)

        held = property(lambda sentence: sentence.__dict__["longest_penalty"], hold)
        monkeypatch.setattr(search_module.SearchedSentence, "longest_penalty", held, raising=False)
        monkeypatch.setattr(NativeSearch, "begin", begin_with_another)

    return use


@pytest.fixture
def rows_computed(monkeypatch):
    """Return a list that gets the number of hypotheses of every step."""
    counts = []
    step, advance = PyTorchSlots.step, NativeSearch.advance

    def spy_on_pytorch(self, active):
        counts.append(sum(len(beams.scores) for beams in active))
        return step(self, active)

    def spy_on_the_core(self, active, seen):
        counts.append(sum(searched.struct.num_open for searched in active))
        return advance(self, active, seen)

    monkeypatch.setattr(PyTorchSlots, "step", spy_on_pytorch)
    monkeypatch.setattr(NativeSearch, "advance", spy_on_the_core)
    monkeypatch.setattr("clearhead.decoding.native.search.SECONDS", 0.0)  # one step a call
    return counts


@pytest.mark.parametrize(("alpha", "num_best"), [(0.0, 1), slow(0.6, 1), (0.6, 3), slow(1.0, 1)])
def test_dropping_hopeless_hypotheses_changes_nothing(
    make_ending_model, make_sources, form, with_penalty_of_the_longest, rows_computed, alpha, num_best
):
    packed, sources = form(make_ending_model()), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=5, length_penalty=alpha)
    found = find(packed, sources, LIMITS, config, num_best)
    with_dropping = sum(rows_computed)
    rows_computed.clear()
    with_penalty_of_the_longest(lambda _: float("inf"))  # so none is hopeless
    assert_same(find(packed, sources, LIMITS, config, num_best), found)
    assert with_dropping < sum(rows_computed)


def test_too_small_penalty_bounds_change_the_search(make_ending_model, make_sources, form, with_penalty_of_the_longest):
    packed, sources = form(make_ending_model()), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=5, length_penalty=1.0)
    found = find(packed, sources, LIMITS, config, 3)
    with_penalty_of_the_longest(lambda longest: longest / 2)
    assert tokens(find(packed, sources, LIMITS, config, 3)) != tokens(found)


@pytest.mark.parametrize("beam_size", [31, 33, 257])
def test_a_beam_may_be_wider_than_the_vocabulary(make_sharp_model, make_sources, form, beam_size):
    widths = {"d_model": 6, "num_heads": 3, **WIDTHS[form]}
    model, sources = make_sharp_model(vocab_size=6, **widths), make_sources((5, 2), 6)
    config = DecodeConfig(beam_size=beam_size)
    found = find(form(model), sources, [6, 5], config, beam_size)
    assert_same(found, find_plainly(model, sources, [6, 5], config, beam_size))


@pytest.mark.parametrize(
    "special", [{"pad_id": 5}, slow({"bos_id": 0}), {"bos_id": 2}, {"pad_id": 4, "bos_id": 36, "eos_id": 7}]
)
@pytest.mark.parametrize("beam_size", [slow(1), 4])
def test_special_tokens_may_have_any_id(make_ending_model, form, special, beam_size):
    model = make_ending_model(**special)
    words = [
        token for token in range(37) if token not in (model.config.pad_id, model.config.bos_id, model.config.eos_id)
    ]
    draw = random.Random(5)
    sources = [[*draw.choices(words, k=length - 1), model.config.eos_id] for length in LENGTHS]
    config = DecodeConfig(beam_size=beam_size, batch_tokens=200)
    found = find(form(model), sources, LIMITS, config)
    assert_same(found, find_plainly(model, sources, LIMITS, config))
    for hypotheses in found:
        *body, end = hypotheses[0].tokens
        assert end == model.config.eos_id
        assert not {model.config.pad_id, model.config.bos_id, model.config.eos_id} & set(body)


@pytest.mark.parametrize("vocab_size", [1, 31, 32, 37, 64, 307, 1_001])
def test_best_tokens_are_those_of_topk(vocab_size):
    scattered = torch.randn(7, vocab_size)
    together = torch.arange(vocab_size, dtype=torch.float32).expand(3, -1)  # the best all in one block
    reversed_ = together.flip(1)
    log_probs = torch.cat([scattered, together, reversed_])
    padded = functional.pad(log_probs, (0, -vocab_size % BLOCK), value=float("-inf"))
    for count in (1, 2, 5, 33, 67):
        values, ids = best_tokens(padded, count)
        expected_values, expected_ids = padded.topk(min(count, padded.size(1)), dim=1)
        assert values.equal(expected_values), count
        # Beyond there is nothing but minus infinity.
        assert ids[:, :vocab_size].equal(expected_ids[:, :vocab_size]), count


def test_best_tokens_find_the_one_that_is_possible():
    log_probs = torch.full((3, 5 * BLOCK), float("-inf"))
    for row, token in enumerate((2, BLOCK, 5 * BLOCK - 1)):
        log_probs[row, token] = -3.0
    values, ids = best_tokens(log_probs, 4)
    assert values.tolist() == [[-3.0, *[float("-inf")] * 3]] * 3
    assert ids[:, 0].tolist() == [2, BLOCK, 5 * BLOCK - 1]


@pytest.mark.parametrize(
    ("beam_size", "settings"),
    [(1, {}), (3, {}), (3, {"num_best": 2, "sampling": Sampling()}), (3, {"num_best": 2, "diversity": 0.5})],
)
def test_nan_weights_are_an_error_of_every_search(make_model, make_sources, form, beam_size, settings):
    model = make_model(**WIDTHS[form])
    model.decoder.layers[0].feed_forward.up_proj.weight[0, 0] = float("nan")
    options = SearchOptions(DecodeConfig(beam_size=beam_size), **settings)
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        list(search(form(model), make_sources((5, 3)), [7, 7], options))


# Workers: with the compiled core, one in every thread


@pytest.fixture
def use_threads(monkeypatch):
    """Return a function that sets the number of threads until the test ends, and let there be a CPU for each."""
    monkeypatch.setattr("clearhead.runtime.threads.usable_cpus", lambda: 16)
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def no_worker_left():
    """Fail if threads of the test are still running at its end, and wait for them, so that no other test suffers."""
    before = set(threading.enumerate())
    yield
    left = {thread for thread in set(threading.enumerate()) - before if thread.name != HELPER_NAME}
    for thread in left:
        thread.join(60.0)
    assert not left


@pytest.fixture
def workers(monkeypatch):
    """Return a list that gets the thread and the number of sentences whenever some enter."""
    entered = []
    enter = NativeSlots.enter

    def spy(self, sources):
        entered.append((threading.current_thread(), len(sources)))
        enter(self, sources)

    monkeypatch.setattr(NativeSlots, "enter", spy)
    return entered


@for_the_core
@pytest.mark.parametrize(("beam_size", "num_best"), [(1, 1), (4, 2)])
@pytest.mark.parametrize("batch_tokens", [1, 150, 1_000_000])
def test_any_number_of_workers_finds_the_same_to_the_last_bit(
    make_ending_model, make_sources, form, use_threads, no_worker_left, beam_size, num_best, batch_tokens
):
    packed, sources = form(make_ending_model()), make_sources(LENGTHS)
    config = DecodeConfig(beam_size=beam_size, batch_tokens=batch_tokens)
    expected = find(packed, sources, LIMITS, config, num_best)
    for num_threads in (2, 3, 11):
        use_threads(num_threads)
        assert find(packed, sources, LIMITS, config, num_best) == expected


@for_the_core
@pytest.mark.parametrize(("num_threads", "num_sentences"), [(1, 5), (2, 5), (3, 5), (3, 2)])
def test_every_thread_gets_its_share_of_the_sentences(
    make_ending_model, make_sources, form, use_threads, workers, num_threads, num_sentences
):
    packed, sources = form(make_ending_model()), make_sources((7,) * num_sentences)
    use_threads(num_threads)
    find(packed, sources, [9] * num_sentences, DecodeConfig(beam_size=2))
    num_workers = min(num_threads, num_sentences)
    assert max(number for _, number in workers) <= -(-num_sentences // num_workers)
    assert sum(number for _, number in workers) == num_sentences
    assert (threading.main_thread() in [thread for thread, _ in workers]) == (num_workers == 1)


@pytest.fixture
def most_at_once(monkeypatch, form):
    """Return a list of the source lengths of the sentences in flight, after each time some entered."""
    entered = []
    enter = SLOTS[form].enter

    def spy(self, encoded):
        enter(self, encoded)
        entered.append(list(self.source_lengths))

    monkeypatch.setattr(SLOTS[form], "enter", spy)
    return entered


@pytest.mark.parametrize(("num_workers", "max_slots"), [(1, 2), slow(1, 100), slow(3, 2), (3, 100)])
def test_sentences_added_later_keep_within_batch_tokens(
    make_ending_model, make_sources, form, most_at_once, num_workers, max_slots
):
    num_workers = num_workers if form is NativeEngine else 1
    engine, config = form(make_ending_model()), DecodeConfig(beam_size=2, batch_tokens=29 * 2 * 3)
    sources = [*make_sources((1,)) * 17, *make_sources(LENGTHS), *make_sources((29,)) * 7]
    expected = find(engine, sources, [9] * len(sources), config)
    most_at_once.clear()
    waiting = SentenceQueue()

    def come():
        for place in range(0, len(sources), 11):
            waiting.add(Sentence(number, sources[number], 9) for number in range(len(sources))[place : place + 11])
            time.sleep(0.02)  # all that came is done, and the workers wait
        waiting.close()

    thread = threading.Thread(target=come)
    thread.start()
    found = dict(search_queue(engine, waiting, SearchOptions(config), num_workers, max_slots))
    thread.join()
    assert_same([found[number] for number in range(len(sources))], expected)
    for lengths in most_at_once:
        assert len(lengths) <= max_slots
        assert len(lengths) * max(lengths) <= 29 * 3


@for_the_core
@pytest.mark.parametrize("num_workers", [1, 3])
def test_workers_that_wait_for_sentences_can_be_stopped(make_ending_model, form, no_worker_left, num_workers):
    waiting = SentenceQueue()
    timer = threading.Timer(0.1, waiting.stop)
    timer.start()
    assert list(search_queue(form(make_ending_model()), waiting, SearchOptions(DecodeConfig()), num_workers, 5)) == []
    timer.join()


@for_the_core
def test_a_sentence_that_is_withdrawn_leaves_the_batch_and_the_others_stay(make_ending_model, make_sources, form):
    engine, sources, config = form(make_ending_model()), make_sources(LENGTHS), DecodeConfig(beam_size=2)
    expected = find(engine, sources, LIMITS, config)
    waiting = SentenceQueue()
    waiting.add(sentences_of(sources, LIMITS))
    assert waiting.withdraw([1]) == [1]  # it has not been taken
    waiting.close()
    finding = search_queue(engine, waiting, SearchOptions(config), 1, len(sources))
    found = dict([next(finding)])
    unwanted = next(number for number in range(len(sources)) if number not in {1, *found})
    assert waiting.withdraw([unwanted]) == []  # it is in flight
    found |= dict(finding)
    assert found.pop(unwanted) == []
    assert found.keys() == set(range(len(sources))) - {1, unwanted}
    assert waiting.num_open == 0
    assert not waiting.is_withdrawn(unwanted)
    assert_same([found[number] for number in sorted(found)], [expected[number] for number in sorted(found)])


MANY = 50_000
"""Sentences that no machine, however busy, lets the workers end before the caller has a turn."""


@for_the_core
@pytest.mark.parametrize("taken", [0, 1])
def test_workers_start_lazily_and_stop_when_the_search_is_closed(
    make_ending_model, make_sources, form, use_threads, no_worker_left, rows_computed, taken
):
    use_threads(3)
    before = threading.active_count()
    sources = make_sources((5,)) * MANY
    found = search(
        form(make_ending_model()), sources, [37] * MANY, SearchOptions(DecodeConfig(beam_size=5, batch_tokens=100))
    )
    for _ in range(taken):
        next(found)
    assert threading.active_count() == before + 3 * taken  # none begins before it is wanted
    found.close()
    assert threading.active_count() == before
    assert len(rows_computed) < MANY


@for_the_core
@pytest.mark.parametrize("num_threads", [1, slow(2), 3])
def test_an_error_of_a_worker_reaches_the_caller_and_ends_the_others(
    make_ending_model, make_sources, form, use_threads, no_worker_left, rows_computed, num_threads
):
    use_threads(num_threads)
    model = make_ending_model(positions="learned", max_positions=9)
    config = DecodeConfig(beam_size=2, batch_tokens=1)
    limits = [8] * MANY
    limits[-1] = 11  # the last of the sentences of one length is the first to enter
    with pytest.raises(ConfigError, match="a sequence of 10 tokens does not fit this model"):
        list(search(form(model), [[*[5] * 6, 2]] * MANY, limits, SearchOptions(config)))
    assert len(rows_computed) < MANY
    model.decoder.layers[0].feed_forward.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match="probabilities are not numbers"):
        list(search(form(model), make_sources((5, 3, 4)), [7, 7, 7], SearchOptions(config)))


@pytest.fixture
def ctrl_c():
    """Let SIGINT raise KeyboardInterrupt, also where a shell started the tests in the background, which ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@for_the_core
def test_ctrl_c_ends_the_search_and_its_workers(
    make_ending_model, make_sources, form, use_threads, no_worker_left, monkeypatch, ctrl_c
):
    use_threads(2)
    steps, is_awaited, may_go_on = [], threading.Event(), threading.Event()
    advance = NativeSearch.advance

    def interrupt(self, active, seen):
        steps.append(active)
        if len(steps) > 2 * 37:  # by then a first sentence is done
            may_go_on.wait(60.0)
        if is_awaited.is_set():
            is_awaited.clear()
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        return advance(self, active, seen)

    monkeypatch.setattr(NativeSearch, "advance", interrupt)
    monkeypatch.setattr("clearhead.decoding.native.search.SECONDS", 0.0)  # one step a call
    sources, config = make_sources((5,)) * MANY, DecodeConfig(batch_tokens=100)
    found = search(form(make_ending_model()), sources, [37] * MANY, SearchOptions(config))
    next(found)
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012 (it may come at once)
        is_awaited.set()
        may_go_on.set()
        list(found)
    found.close()
    assert len(steps) < MANY


@for_the_core
@pytest.mark.parametrize("error", [RuntimeError("can't start new thread"), KeyboardInterrupt()])
def test_started_workers_end_when_another_cannot_start(
    make_ending_model, make_sources, form, use_threads, no_worker_left, refuse_second_thread, error
):
    use_threads(2)
    packed, sources = form(make_ending_model()), make_sources((5,) * 400)
    before = threading.active_count()
    refuse_second_thread(error)
    with pytest.raises(type(error)):
        next(search(packed, sources, [37] * 400, SearchOptions(DecodeConfig(batch_tokens=100))))
    assert threading.active_count() == before


@for_the_core
@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
@pytest.mark.parametrize("num_sentences", [1, 2])
def test_threads_that_have_no_sentence_help_with_products_and_change_no_bit(
    make_ending_model, make_sources, form, use_threads, no_worker_left, precision, num_sentences
):
    # Wide enough for help to be worth it.
    model = make_ending_model(d_model=256, d_ff=512, num_heads=8, d_k=32, vocab_size=1_100)
    if not form.supports(model, precision):
        pytest.skip(form.obstacle(model, precision))
    packed, sources, config = form(model, precision), make_sources((7, 5)[:num_sentences]), DecodeConfig(beam_size=4)
    expected = find(packed, sources, [9, 11][:num_sentences], config, 3)
    for num_threads in (2, 3, 4):
        use_threads(num_threads)
        assert find(packed, sources, [9, 11][:num_sentences], config, 3) == expected


@for_the_core
def test_one_sentence_is_found_also_where_no_thread_may_help(
    make_ending_model, make_sources, form, use_threads, no_worker_left, monkeypatch
):
    packed, sources, config = form(make_ending_model()), make_sources((7,)), DecodeConfig(beam_size=4)
    expected = find(packed, sources, [9], config)

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    use_threads(3)
    helpers.begin()
    monkeypatch.setattr(threading.Thread, "start", refuse)
    assert find(packed, sources, [9], config) == expected


@for_the_core
@pytest.mark.parametrize(("usable", "num_workers"), [(1, 1), (3, 3)])
def test_there_are_no_more_workers_than_usable_cpus(
    make_ending_model, make_sources, form, use_threads, workers, monkeypatch, usable, num_workers
):
    use_threads(11)
    monkeypatch.setattr("clearhead.runtime.threads.usable_cpus", lambda: usable)
    find(form(make_ending_model()), make_sources((7,) * 9), [9] * 9, DecodeConfig(beam_size=2))
    assert max(number for _, number in workers) <= 9 // num_workers
    assert (threading.main_thread() in [thread for thread, _ in workers]) == (num_workers == 1)


# What comes in


@pytest.mark.parametrize("token", [-1, 37, slow(-2_000_000_000), slow(2**31 + 5), slow(2**63), 2**64 + 5])
def test_a_source_id_outside_the_vocabulary_is_refused_in_every_form(make_ending_model, form, token):
    with pytest.raises(IndexError, match="sentence 1 has a source id that is not in the vocabulary of 37"):
        list(search(form(make_ending_model()), [[5, 2], [5, token, 2]], [7, 7], SearchOptions(DecodeConfig())))


def test_padding_inside_a_source_is_refused_in_every_form(make_ending_model, form):
    with pytest.raises(ValueError, match=r"sentence 1 has source ids that are padding \(0\); leave them out"):
        list(search(form(make_ending_model()), [[5, 2], [5, 0, 6, 2]], [7, 7], SearchOptions(DecodeConfig())))


def test_a_sentence_without_ids_is_refused_in_every_form(make_ending_model, form):
    with pytest.raises(ValueError, match="sentence 1 has no source ids"):
        list(search(form(make_ending_model()), [[5, 2], []], [7, 7], SearchOptions(DecodeConfig())))


@pytest.mark.parametrize("damage", [float("nan"), float("inf"), slow(float("-inf"))])
@pytest.mark.parametrize("name", ["source_embedding.weight", "output_proj.bias", "encoder.final_norm.weight"])
def test_weights_that_are_no_numbers_give_a_translation_or_an_error(make_ending_model, form, name, damage):
    model = make_ending_model(tying="none")
    with torch.no_grad():
        model.get_parameter(name)[:] = damage
    for beam_size in (1, 3):
        try:
            found = find(form(model), [[5, 7, 2]] * 3, [7] * 3, DecodeConfig(beam_size=beam_size))
        except ModelError:
            continue
        assert all(0 <= token < 37 for hypotheses in found for h in hypotheses for token in h.tokens)
