"""The memory of a step, counted on tensors without values, against that of real steps; what does not fit is refused."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch.autograd.graph import saved_tensors_hooks

from clearhead.config import Config
from clearhead.data.batches import Batch, BatchOrder
from clearhead.errors import ConfigError
from clearhead.model.transformer import Transformer
from clearhead.paper.counts import parameter_count
from clearhead.training import memory as module
from clearhead.training.costs import random_pairs
from clearhead.training.memory import StepSimulation, enough_memory, require_memory, within_budget, worst_part
from clearhead.training.optimizer import build_optimizer
from clearhead.training.step import Stepper

SIZES = {"vocab_size": 37, "d_model": 12, "d_ff": 29, "num_heads": 3, "num_encoder_layers": 2, "num_decoder_layers": 1}
PAIRS, SOURCE, TARGET = 5, 11, 7
CPU = torch.device("cpu")


def config(model=None, **train) -> Config:
    return Config(model={**SIZES, **(model or {})}, train={"precision": "fp32", **train})


def saved_bytes(settings: Config) -> int:
    """Return the bytes of all tensors but weights that autograd saves in a real step."""
    torch.manual_seed(3)
    model = Transformer(settings.model)
    stepper = Stepper(model, build_optimizer(model, settings.train), settings.train)
    weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
    kept, sizes = [], {}

    def save(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept.append(storage)  # so that no other gets its address
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    source, target = torch.randint(4, 37, (PAIRS, SOURCE)), torch.randint(4, 37, (PAIRS, TARGET))
    with saved_tensors_hooks(save, lambda tensor: tensor):
        stepper.step(
            [Batch(source, target, target, target.numel(), tuple(range(PAIRS)), (0,) * PAIRS)], number=1, rate=0
        )
    return sum(sizes.values())


VARIANTS = {
    "paper": {},
    "without dropout": {"model": {"dropout": 0.0, "norm": "pre"}},
    "weights of attention": {"model": {"attention_dropout": 0.1, "attention_bias": True}},
    "gated": {"model": {"gated": True, "norm_kind": "rms", "positions": "rotary", "activation": "silu"}},
    "relative": {"model": {"positions": "relative", "output_bias": True, "tying": "none"}},
    "plain": {"plain": True},
}


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_activations_are_what_autograd_saves_in_a_real_step(options):
    settings = config(**options)
    counted = StepSimulation(settings).memory(PAIRS, SOURCE, TARGET)
    assert counted.most["activations"] == saved_bytes(settings)


@pytest.mark.parametrize(("optimizer", "moments"), [("adam", 2), ("muon", None)])
def test_weights_gradients_and_moments_have_their_sizes(optimizer, moments):
    settings = config(optimizer=optimizer)
    counted = StepSimulation(settings).memory(PAIRS, SOURCE, TARGET)
    weights = 4 * parameter_count(settings.model)
    assert (counted.most["weights"], counted.most["gradients"]) == (weights, weights)
    named = dict(Transformer(settings.model).named_parameters())
    of_adam = [w for name, w in named.items() if moments or w.dim() < 2 or "layers" not in name]
    steps = 4 * len(of_adam)  # of each a counter
    assert counted.most["optimizer"] == weights + 4 * sum(w.numel() for w in of_adam) + steps
    assert counted.lasting == 2 * weights + counted.most["optimizer"]
    assert max(counted.most.values()) < counted.peak < sum(counted.most.values())


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_from_the_second_part_on_gradients_are_there_too(options, monkeypatch):
    simulation = StepSimulation(config(**options))
    one, two, three = (simulation.memory(PAIRS, SOURCE, TARGET, parts=parts) for parts in (1, 2, 3))
    assert two.peak > one.peak
    assert two.at_peak["gradients"] > one.at_peak["gradients"]
    assert three == two
    step = simulation._stepper.step
    monkeypatch.setattr(simulation._stepper, "step", lambda parts, **values: step([*parts, *parts], **values))
    assert simulation.memory(PAIRS, SOURCE, TARGET).peak == two.peak


@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_enough_memory_is_more_than_a_step_takes(options):
    settings = config(**options)
    simulation = StepSimulation(settings)
    for pairs, length in ((2, 3), (3, 211), (97, 13)):
        assert simulation.memory(pairs, length, length, parts=2).peak < enough_memory(settings, pairs * length, length)


def test_most_pairs_fit_and_more_do_not():
    simulation = StepSimulation(config())
    limit = simulation.memory(900, 5, 7, parts=2).peak
    fitting = simulation.most_pairs(limit, 5, 7)
    assert 0.97 * 900 <= fitting <= 1.03 * 900
    assert simulation.most_pairs(simulation.memory(1, 5, 7, parts=2).peak - 1, 5, 7) == 0


@pytest.fixture
def refused(monkeypatch):
    """Return a function that requires the memory of a run, of a machine that has so many bytes."""
    monkeypatch.setattr(module, "enough_memory", lambda *_: 10**15)

    def require(settings, limit, device=CPU, workers=1):
        monkeypatch.setattr(module, "device_memory", lambda _: limit)
        pairs = random_pairs(settings, 9)
        order = BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=900, seed=1)
        assert worst_part(order, settings.train.micro_batch_tokens) == (50, 9, 9)
        require_memory(settings, order, device, workers)

    return require


def test_a_run_that_does_not_fit_is_refused_with_parts_that_do(refused):
    settings = config(batch_tokens=900, micro_batch_tokens=450)
    peak = StepSimulation(settings).memory(50, 9, 9, parts=2).peak
    refused(settings, peak)
    with pytest.raises(ConfigError, match=r"needs about .* MB of memory \(.* of it for .* adam\), and cpu has") as told:
        refused(settings, 0.7 * peak)
    tokens = int(re.search(r"train\.micro_batch_tokens = (\d+)$", str(told.value))[1])
    assert 0 < tokens < 450
    assert StepSimulation(settings).memory(tokens // 9, 9, 9, parts=2).peak <= 0.7 * peak


def test_weights_that_do_not_fit_are_refused_unless_workers_share_them(refused):
    settings = config(batch_tokens=900, micro_batch_tokens=450)
    lasting = StepSimulation(settings).memory(1, 9, 9).lasting
    for device in (CPU, torch.device("cuda")):
        with pytest.raises(ConfigError, match=r"take a smaller preset or model, or .* train\.shard = true$"):
            refused(settings, 0.8 * lasting, device)
    refused(settings, lasting, torch.device("cuda"))  # parts are cut there
    shared = config(batch_tokens=900, micro_batch_tokens=450, shard=True)
    refused(shared, 0.8 * lasting, torch.device("cuda"), workers=2)


BEFORE = 321_000_000
"""Bytes of the process before its first step."""


@pytest.fixture
def budgeted(monkeypatch):
    """Return a function that returns the target tokens computed at once by a run of steps of 100 pairs of 9 tokens."""
    monkeypatch.setattr(module, "process_memory", lambda: BEFORE)

    def tokens_within(budget, device=CPU, workers=1, **train):
        settings = config(batch_tokens=900, max_memory=budget, **train)
        pairs = random_pairs(settings, 9)
        order = BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=900, seed=1)
        found = within_budget(settings, order, device, workers)
        return found.train.micro_batch_tokens

    return tokens_within


def taken(pairs: int, *, parts: int = 2, workers: int = 1) -> int:
    """Return the bytes that a process takes at most, if it computes so many pairs of 9 tokens at once."""
    counted = StepSimulation(config()).memory(pairs, 9, 9, parts=parts)
    tensors = counted.peak - counted.lasting * (workers - 1) // workers
    return math.ceil(BEFORE + 260_000_000 + 1.35 * tensors + 7 * 4 * parameter_count(config().model))


def test_steps_are_cut_by_half_until_the_largest_part_keeps_within_the_budget(budgeted):
    assert budgeted(taken(100, parts=1)) == 8_192  # a step is one part
    assert budgeted(taken(100, parts=1) - 1) == budgeted(taken(50)) == 450
    assert budgeted(taken(50) - 1) == budgeted(taken(25)) == 225
    assert budgeted(taken(25) - 1) == 112  # 12 pairs
    assert budgeted(taken(1)) == 14  # one pair, which no smaller number cuts
    assert budgeted(taken(25, workers=3), shard=True, workers=3) == 225
    assert budgeted(None) == 8_192
    assert budgeted(10**7, device=torch.device("cuda")) == 8_192  # where the allocator keeps to it


def test_a_budget_that_one_pair_exceeds_is_refused_with_the_least_one_that_does(budgeted):
    with pytest.raises(ConfigError, match=r"is too little: even with one pair at a time, of 9 and 9 tokens") as told:
        budgeted(taken(1) - 1)
    enough = Config(train={"max_memory": re.search(r"train\.max_memory = '(\d+MB)'", str(told.value))[1]})
    assert taken(1) < enough.train.max_memory < 1.1 * taken(1)


def test_a_budget_lowers_a_chosen_size_of_parts_and_never_raises_it(budgeted):
    assert budgeted(taken(25), micro_batch_tokens=225) == 225
    assert budgeted(taken(25), micro_batch_tokens=250) == 125
    assert budgeted(10**12, micro_batch_tokens=27) == 27
