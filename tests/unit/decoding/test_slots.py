from __future__ import annotations

import random

import pytest
import torch

from clearhead.decoding.pytorch.slots import STEP, SlotCache
from every_run import slow

NUM_LAYERS, WIDTH = 2, 3
HIDDEN = float("-inf")


def make_cache(beam_size, max_slots):
    return SlotCache(
        num_layers=NUM_LAYERS,
        kv_width=WIDTH,
        beam_size=beam_size,
        max_slots=max_slots,
        device=torch.device("cpu"),
        knows_distances=True,
    )


class Sentence:
    """What a sentence's slot has to hold: what each live beam has written, oldest first, and its memory."""

    def __init__(self, source_length, most_steps):
        self.memory = torch.randn(NUM_LAYERS, source_length, WIDTH)
        self.pasts = [[]]
        self.steps_left = most_steps


def keys_of(number):
    """Return what layer after layer is written for the key of that number: nothing else has the same."""
    return torch.tensor([[number + layer / 4, -number, number + 0.125] for layer in range(NUM_LAYERS)])


def enter(cache, active, sentences):
    longest = max(sentence.memory.size(1) for sentence in sentences)
    batch = torch.full((NUM_LAYERS, len(sentences), longest, WIDTH), 77.0)  # of padding, to be hidden
    for row, sentence in enumerate(sentences):
        batch[:, row, : sentence.memory.size(1)] = sentence.memory
    cache.enter(batch, [sentence.memory.size(1) for sentence in sentences])
    active += sentences


def leave(cache, active, slot):
    active[slot] = active[-1]
    active.pop()
    cache.leave(slot)


def advance(cache, active, parents):
    """Let every slot go on, `parents[slot]` being the beams whose pasts its new beams continue; write unique keys."""
    beam_size = cache.beam_size
    index = [slot * beam_size + beam for slot, chosen in enumerate(parents) for beam in range(len(chosen))]
    rows = cache.advance(index, [slot * beam_size + parent for slot, chosen in enumerate(parents) for parent in chosen])
    for sentence, chosen in zip(active, parents, strict=True):
        sentence.pasts = [list(sentence.pasts[parent]) for parent in chosen]
    for row, place in zip(index, rows.places.tolist(), strict=True):
        number = next(numbers)
        active[row // beam_size].pasts[row % beam_size].append(number)
        for layer, keys in enumerate(keys_of(number)):
            cache.past[layer].flatten(0, 1)[place] = keys
    return rows


numbers = iter(range(1, 1_000_000))


def assert_each_sees_its_own(cache, active, rows):
    assert set(rows.past_mask.unique().tolist()) <= {0.0, HIDDEN}
    assert set(rows.memory_mask.unique().tolist()) <= {0.0, HIDDEN}
    assert rows.longest == max(len(sentence.pasts[0]) for sentence in active)
    at = 0
    for slot, sentence in enumerate(active):
        for layer in range(NUM_LAYERS):
            memory = rows.memory(cache.memory[layer])
            seen = memory[slot][rows.memory_mask[slot, 0, 0] == 0.0]
            assert seen.equal(sentence.memory[layer])
        for beam, past in enumerate(sentence.pasts):
            assert rows.index[at] == slot * cache.beam_size + beam
            assert rows.positions[at] == len(past) - 1
            at += 1
            is_seen = rows.past_mask[slot, 0, beam] == 0.0
            for layer in range(NUM_LAYERS):
                seen = rows.past(cache.past[layer])[slot][is_seen]
                expected = torch.stack([keys_of(number)[layer] for number in past])
                order = seen[:, 0].argsort()
                assert seen[order].equal(expected)  # numbers ascend
                assert rows.distances[slot][is_seen][order].tolist() == list(range(1 - len(past), 1))
        for beam in range(len(sentence.pasts), cache.beam_size):
            assert (rows.past_mask[slot, 0, beam] == HIDDEN).all()
    assert at == len(rows.index)
    # A hidden value still meets a weight of zero, and zero times no number is no number.
    for layer in range(NUM_LAYERS):
        assert rows.past(cache.past[layer]).isfinite().all()
        assert rows.memory(cache.memory[layer]).isfinite().all()


@pytest.mark.parametrize(("beam_size", "seed"), [slow(1, 1), (2, 2), slow(5, 1), slow(5, 3)])
def test_each_beam_sees_only_its_own_past_and_memory_as_slots_are_reused(beam_size, seed):
    draw = random.Random(seed)
    max_slots = 5
    cache, active = make_cache(beam_size, max_slots), []
    moved = reused = False
    for _ in range(110):
        room = max_slots - len(active)
        if not active or (room and draw.random() < 0.3):
            reused |= cache.past.size(2) > 0
            lengths = [draw.choice([1, 2, 7, 13, 29, 61]) for _ in range(draw.randint(1, room))]
            enter(cache, active, [Sentence(length, draw.choice([1, 3, 17, 50])) for length in lengths])
        parents = []
        for sentence in active:
            live = 1 if beam_size == 1 else draw.randint(1, beam_size)
            parents.append([draw.randrange(len(sentence.pasts)) for _ in range(live)])
        rows = advance(cache, active, parents)
        assert_each_sees_its_own(cache, active, rows)
        for sentence in active:
            sentence.steps_left -= 1
        for slot in reversed(range(len(active))):
            if not active[slot].steps_left:
                moved |= slot < len(active) - 1
                leave(cache, active, slot)
        assert len(cache) == len(active)
        assert cache.source_lengths == [sentence.memory.size(1) for sentence in active]
    assert moved
    assert reused
    assert cache.past.size(2) >= 50
    assert cache.memory.size(2) >= 61


def test_a_place_no_beam_refers_to_is_taken_by_the_next_key():
    beam_size, steps = 7, 53
    cache, active = make_cache(beam_size, 1), []
    enter(cache, active, [Sentence(5, steps)])
    for step in range(steps):
        # All go on from the best of before, as those of a real search soon do.
        rows = advance(cache, active, [[0] * (1 if step == 0 else beam_size)])
    assert_each_sees_its_own(cache, active, rows)
    # One key for each step before, and one for each beam now.
    assert rows.past_mask.size(-1) == steps - 1 + beam_size
    assert len(rows.places.unique()) == beam_size


def test_beams_with_nothing_in_common_keep_a_place_for_each_of_their_keys():
    cache, active = make_cache(3, 1), []
    enter(cache, active, [Sentence(5, 19)])
    advance(cache, active, [[0, 0, 0]])
    for _ in range(18):
        rows = advance(cache, active, [[2, 0, 1]])  # and their order changes all the time
    assert_each_sees_its_own(cache, active, rows)
    assert rows.past_mask.size(-1) == 3 * 19


def test_an_old_occupant_with_more_keys_is_not_seen():
    cache, active = make_cache(2, 2), []
    enter(cache, active, [Sentence(23, 99), Sentence(29, 99)])
    for step in range(31):
        advance(cache, active, [[0, 0] if step == 0 else [0, 1]] * 2)
    leave(cache, active, 1)
    leave(cache, active, 0)
    assert len(cache) == 0
    enter(cache, active, [Sentence(2, 99), Sentence(3, 99)])
    rows = advance(cache, active, [[0], [0]])
    assert_each_sees_its_own(cache, active, rows)
    assert rows.past_mask.size(-1) == 1  # the new ones begin at the front
    assert rows.memory_mask.size(-1) == STEP


def test_the_last_lane_moves_with_its_past_to_one_that_becomes_free():
    cache, active = make_cache(2, 3), []
    enter(cache, active, [Sentence(2, 99), Sentence(3, 99)])
    advance(cache, active, [[0, 0], [0]])
    enter(cache, active, [Sentence(19, 99)])  # at another position than those before
    advance(cache, active, [[1, 0], [0, 0], [0]])
    leave(cache, active, 0)
    rows = advance(cache, active, [[0, 0], [1]])
    assert_each_sees_its_own(cache, active, rows)
    assert cache.source_lengths == [19, 3]
    assert rows.positions.tolist() == [1, 1, 2]


def test_room_grows_for_long_targets_and_sources_and_no_more_than_doubles():
    cache, active = make_cache(3, 2), []
    enter(cache, active, [Sentence(1, 999)])
    sizes = {cache.past.size(2)}
    for _ in range(5 * STEP + 1):
        rows = advance(cache, active, [[0]])
        sizes.add(cache.past.size(2))
    assert_each_sees_its_own(cache, active, rows)
    assert sizes == {0, STEP, 2 * STEP, 4 * STEP, 8 * STEP}

    assert cache.memory.size(2) == STEP
    enter(cache, active, [Sentence(7 * STEP + 1, 999)])
    rows = advance(cache, active, [[0], [0]])
    assert_each_sees_its_own(cache, active, rows)
    assert cache.memory.size(2) == 8 * STEP


def test_spread_places_rows_at_their_beams_and_gather_inverts_it():
    cache, active = make_cache(3, 2), []
    enter(cache, active, [Sentence(2, 99), Sentence(3, 99)])
    rows = advance(cache, active, [[0, 0], [0]])
    x = torch.randn(3, 5)
    spread = rows.spread(x, 7.0)
    assert spread.shape == (2, 3, 5)
    assert spread[0, :2].equal(x[:2])
    assert spread[1, 0].equal(x[2])
    assert (spread[0, 2:] == 7.0).all()
    assert (spread[1, 1:] == 7.0).all()
    assert rows.gather(spread).equal(x)

    rows = advance(cache, active, [[0, 1, 0], [0, 0, 0]])
    x = torch.randn(6, 5)
    assert rows.spread(x).equal(x.view(2, 3, 5))
    assert rows.gather(rows.spread(x)).equal(x)
