from __future__ import annotations

import random

import pytest
import torch

from clearhead.decoding.lanes import STEP, Lanes

NUM_LAYERS, WIDTH = 2, 3
HIDDEN = float("-inf")


def make_lanes(beam_size, max_lanes):
    return Lanes(
        num_layers=NUM_LAYERS,
        kv_width=WIDTH,
        beam_size=beam_size,
        max_lanes=max_lanes,
        device=torch.device("cpu"),
    )


class Sentence:
    """What a sentence's lane has to hold: what each live beam has written, oldest first, and its memory."""

    def __init__(self, source_length, most_steps):
        self.memory = torch.randn(NUM_LAYERS, source_length, WIDTH)
        self.pasts = [[]]
        self.steps_left = most_steps


def keys_of(number):
    """Return what layer after layer is written for the key of that number: nothing else has the same."""
    return torch.tensor([[number + layer / 4, -number, number + 0.125] for layer in range(NUM_LAYERS)])


def enter(lanes, flying, sentences):
    longest = max(sentence.memory.size(1) for sentence in sentences)
    batch = torch.full((NUM_LAYERS, len(sentences), longest, WIDTH), 77.0)  # of padding, to be hidden
    for row, sentence in enumerate(sentences):
        batch[:, row, : sentence.memory.size(1)] = sentence.memory
    lanes.enter(batch, [sentence.memory.size(1) for sentence in sentences])
    flying += sentences


def leave(lanes, flying, lane):
    flying[lane] = flying[-1]
    flying.pop()
    lanes.leave(lane)


def advance(lanes, flying, parents):
    """Let every lane go on, `parents[lane]` being the beams whose pasts its new beams continue; write unique keys."""
    beam_size = lanes.beam_size
    index = [lane * beam_size + beam for lane, chosen in enumerate(parents) for beam in range(len(chosen))]
    rows = lanes.advance(index, [lane * beam_size + parent for lane, chosen in enumerate(parents) for parent in chosen])
    for sentence, chosen in zip(flying, parents, strict=True):
        sentence.pasts = [list(sentence.pasts[parent]) for parent in chosen]
    for row, place in zip(index, rows.places.tolist(), strict=True):
        number = next(numbers)
        flying[row // beam_size].pasts[row % beam_size].append(number)
        for layer, keys in enumerate(keys_of(number)):
            lanes.past[layer].flatten(0, 1)[place] = keys
    return rows


numbers = iter(range(1, 1_000_000))


def assert_each_sees_its_own(lanes, flying, rows):
    assert set(rows.past_mask.unique().tolist()) <= {0.0, HIDDEN}
    assert set(rows.memory_mask.unique().tolist()) <= {0.0, HIDDEN}
    assert rows.longest == max(len(sentence.pasts[0]) for sentence in flying)
    at = 0
    for lane, sentence in enumerate(flying):
        for layer in range(NUM_LAYERS):
            memory = rows.memory(lanes.memory[layer])
            seen = memory[lane][rows.memory_mask[lane, 0, 0] == 0.0]
            assert seen.equal(sentence.memory[layer])
        for beam, past in enumerate(sentence.pasts):
            assert rows.index[at] == lane * lanes.beam_size + beam
            assert rows.positions[at] == len(past) - 1
            at += 1
            is_seen = rows.past_mask[lane, 0, beam] == 0.0
            for layer in range(NUM_LAYERS):
                seen = rows.past(lanes.past[layer])[lane][is_seen]
                expected = torch.stack([keys_of(number)[layer] for number in past])
                assert seen[seen[:, 0].argsort()].equal(expected)  # numbers ascend
        for beam in range(len(sentence.pasts), lanes.beam_size):
            assert (rows.past_mask[lane, 0, beam] == HIDDEN).all()
    assert at == len(rows.index)
    # A hidden value still meets a weight of zero, and zero times no number is no number.
    for layer in range(NUM_LAYERS):
        assert rows.past(lanes.past[layer]).isfinite().all()
        assert rows.memory(lanes.memory[layer]).isfinite().all()


@pytest.mark.parametrize("beam_size", [1, 2, 5])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_beam_sees_its_own_past_and_memory_and_nothing_else_whoever_comes_goes_and_was_there(beam_size, seed):
    draw = random.Random(seed)
    max_lanes = 5
    lanes, flying = make_lanes(beam_size, max_lanes), []
    moved = reused = False
    for _ in range(110):
        room = max_lanes - len(flying)
        if not flying or (room and draw.random() < 0.3):
            reused |= lanes.past.size(2) > 0
            lengths = [draw.choice([1, 2, 7, 13, 29, 61]) for _ in range(draw.randint(1, room))]
            enter(lanes, flying, [Sentence(length, draw.choice([1, 3, 17, 50])) for length in lengths])
        parents = []
        for sentence in flying:
            live = 1 if beam_size == 1 else draw.randint(1, beam_size)
            parents.append([draw.randrange(len(sentence.pasts)) for _ in range(live)])
        rows = advance(lanes, flying, parents)
        assert_each_sees_its_own(lanes, flying, rows)
        for sentence in flying:
            sentence.steps_left -= 1
        for lane in reversed(range(len(flying))):
            if not flying[lane].steps_left:
                moved |= lane < len(flying) - 1
                leave(lanes, flying, lane)
        assert len(lanes) == len(flying)
        assert lanes.source_lengths == [sentence.memory.size(1) for sentence in flying]
    assert moved
    assert reused
    assert lanes.past.size(2) >= 50
    assert lanes.memory.size(2) >= 61


def test_a_place_no_beam_refers_to_is_taken_by_the_next_key():
    beam_size, steps = 7, 53
    lanes, flying = make_lanes(beam_size, 1), []
    enter(lanes, flying, [Sentence(5, steps)])
    for step in range(steps):
        # All go on from the best of before, as those of a real search soon do.
        rows = advance(lanes, flying, [[0] * (1 if step == 0 else beam_size)])
    assert_each_sees_its_own(lanes, flying, rows)
    # One key for each step before, and one for each beam now.
    assert rows.past_mask.size(-1) == steps - 1 + beam_size
    assert len(rows.places.unique()) == beam_size


def test_beams_with_nothing_in_common_keep_a_place_for_each_of_their_keys():
    lanes, flying = make_lanes(3, 1), []
    enter(lanes, flying, [Sentence(5, 19)])
    advance(lanes, flying, [[0, 0, 0]])
    for _ in range(18):
        rows = advance(lanes, flying, [[2, 0, 1]])  # and their order changes all the time
    assert_each_sees_its_own(lanes, flying, rows)
    assert rows.past_mask.size(-1) == 3 * 19


def test_an_old_occupant_with_more_keys_is_not_seen():
    lanes, flying = make_lanes(2, 2), []
    enter(lanes, flying, [Sentence(23, 99), Sentence(29, 99)])
    for step in range(31):
        advance(lanes, flying, [[0, 0] if step == 0 else [0, 1]] * 2)
    leave(lanes, flying, 1)
    leave(lanes, flying, 0)
    assert len(lanes) == 0
    enter(lanes, flying, [Sentence(2, 99), Sentence(3, 99)])
    rows = advance(lanes, flying, [[0], [0]])
    assert_each_sees_its_own(lanes, flying, rows)
    assert rows.past_mask.size(-1) == 1  # the new ones begin at the front
    assert rows.memory_mask.size(-1) == STEP


def test_the_last_lane_moves_with_its_past_to_one_that_becomes_free():
    lanes, flying = make_lanes(2, 3), []
    enter(lanes, flying, [Sentence(2, 99), Sentence(3, 99)])
    advance(lanes, flying, [[0, 0], [0]])
    enter(lanes, flying, [Sentence(19, 99)])  # at another position than those before
    advance(lanes, flying, [[1, 0], [0, 0], [0]])
    leave(lanes, flying, 0)
    rows = advance(lanes, flying, [[0, 0], [1]])
    assert_each_sees_its_own(lanes, flying, rows)
    assert lanes.source_lengths == [19, 3]
    assert rows.positions.tolist() == [1, 1, 2]


def test_room_grows_for_long_targets_and_sources_and_no_more_than_doubles():
    lanes, flying = make_lanes(3, 2), []
    enter(lanes, flying, [Sentence(1, 999)])
    sizes = {lanes.past.size(2)}
    for _ in range(5 * STEP + 1):
        rows = advance(lanes, flying, [[0]])
        sizes.add(lanes.past.size(2))
    assert_each_sees_its_own(lanes, flying, rows)
    assert sizes == {0, STEP, 2 * STEP, 4 * STEP, 8 * STEP}

    assert lanes.memory.size(2) == STEP
    enter(lanes, flying, [Sentence(7 * STEP + 1, 999)])
    rows = advance(lanes, flying, [[0], [0]])
    assert_each_sees_its_own(lanes, flying, rows)
    assert lanes.memory.size(2) == 8 * STEP


def test_rows_are_spread_to_where_their_beams_stand_and_gathered_again():
    lanes, flying = make_lanes(3, 2), []
    enter(lanes, flying, [Sentence(2, 99), Sentence(3, 99)])
    rows = advance(lanes, flying, [[0, 0], [0]])
    x = torch.randn(3, 5)
    spread = rows.spread(x, 7.0)
    assert spread.shape == (2, 3, 5)
    assert spread[0, :2].equal(x[:2])
    assert spread[1, 0].equal(x[2])
    assert (spread[0, 2:] == 7.0).all()
    assert (spread[1, 1:] == 7.0).all()
    assert rows.gather(spread).equal(x)

    rows = advance(lanes, flying, [[0, 1, 0], [0, 0, 0]])
    x = torch.randn(6, 5)
    assert rows.spread(x).equal(x.view(2, 3, 5))
    assert rows.gather(rows.spread(x)).equal(x)
