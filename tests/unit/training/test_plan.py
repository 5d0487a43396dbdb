"""What is chosen before the first step, and that nothing a user set is overruled."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from clearhead.config import Config
from clearhead.config.nested import flat, merge, nested
from clearhead.data.prepare import Prepared
from clearhead.errors import ConfigError
from clearhead.training import plan as plan_module
from clearhead.training.checkpoints import TrainingState
from clearhead.training.layers import PLANNED, Layers, changed, completed
from clearhead.training.plan import make_plan
from clearhead.training.resume import planned_before, with_intervals
from clearhead.training.run import train_from_values
from small_runs import assert_same_weights

CPU = torch.device("cpu")


@pytest.fixture
def planned(monkeypatch):
    """Return a function that plans for a corpus of pairs of ten tokens, on a machine of a given speed."""

    def plan(values, *, pairs=29_000, kept=None, seconds_per_token=1e-4, spent=0.0, device=CPU, compiling=0.0):
        def seconds_per_step(config, *_):
            plan.timed.append(config.preset)
            per_step = seconds_per_token * config.train.batch_tokens * (config.model.d_model / 128) ** 2
            return per_step, compiling

        monkeypatch.setattr(plan_module, "seconds_per_step", seconds_per_step)
        data = corpus(pairs, kept)
        return make_plan(Layers().with_("file", {"out": "run", **values}), data, device, spent=spent)

    plan.timed = []
    return plan


def corpus(pairs, kept=None):
    """Return prepared data of pairs of ten tokens."""
    lengths = np.full(pairs, 10, dtype=np.int32)
    store = SizedStore(SimpleNamespace(source_lengths=lengths, target_lengths=lengths))
    tokenizer = SimpleNamespace(model_settings={"vocab_size": 1_000})
    return Prepared(store, store, tokenizer, report={"train": {"kept": kept or pairs}})


class SizedStore(SimpleNamespace):
    def __init__(self, store):
        super().__init__(**vars(store))

    def __len__(self):
        return len(self.target_lengths)


# 50 steps a pass over 2,000, 20,000 and 290,000 pairs of 10 tokens hold 400, 4,000 and 58,000 tokens.
@pytest.mark.parametrize(("pairs", "tokens"), [(2_000, 1_024), (20_000, 4_000), (290_000, 25_000)])
def test_a_step_on_a_gpu_is_as_large_as_the_corpus_allows(planned, pairs, tokens):
    values = {"preset": "tiny"}
    plan = planned(values, pairs=pairs, device=torch.device("cuda"))
    assert plan.config.train.batch_tokens == tokens
    assert plan.order.batches_per_epoch >= min(50, pairs * 10 // 1_024)
    assert "train.batch_tokens" in plan.config.train.planned
    assert planned(values, pairs=pairs).config.train.batch_tokens == 1_024
    of_user = planned({**values, "train": {"batch_tokens": 512}}, pairs=pairs, device=torch.device("cuda"))
    assert of_user.config.train.batch_tokens == 512
    of_the_paper = planned({"preset": "paper-base"}, pairs=pairs, device=torch.device("cuda"))
    assert of_the_paper.config.train.batch_tokens == 25_000


@pytest.mark.parametrize(
    ("train", "tokens", "steps"),
    [
        ({"max_minutes": 90}, 25_000, 0.95 * 5_400 / 2.5),
        ({"max_minutes": 60}, 22_800, 1_500),  # of 25,000, 1,368 would fit
        ({"max_minutes": 20}, 7_600, 1_500),
        ({"max_minutes": 1}, 1_024, 0.95 * 60 / 0.1024),
        ({"max_minutes": 20, "max_steps": 300}, 25_000, 300),
        ({"max_minutes": 20, "batch_tokens": 25_000}, 25_000, 456),
    ],
)
def test_enough_steps_on_a_gpu_fit_into_the_time_limit(planned, train, tokens, steps):
    """A token takes 0.1 ms, so a step of 25,000 takes 2.5 s."""
    plan = planned({"preset": "tiny", "train": train}, pairs=290_000, device=torch.device("cuda"))
    assert plan.config.train.batch_tokens == tokens
    assert plan.steps == pytest.approx(steps, abs=2)
    assert plan.epochs == pytest.approx(plan.steps / plan.order.batches_per_epoch)


def test_compiling_is_taken_from_the_time_limit_and_said(planned):
    values, gpu = {"preset": "tiny", "train": {"max_minutes": 2}}, torch.device("cuda")
    plan = planned(values, device=gpu, compiling=40.0)
    assert plan.steps == planned(values, device=gpu, spent=40.0).steps < planned(values, device=gpu).steps
    assert "compiled the training step in 40 s" in plan.lines()[1]


@pytest.mark.parametrize("values", [{"train": {"max_steps": 700}}, {}, {"train": {"max_steps": 50_000}}])
@pytest.mark.parametrize("pairs", [2_000, 29_000, 300_000])
def test_without_minutes_the_plan_does_not_depend_on_the_clock(planned, values, pairs):
    slow, fast = (planned(values, pairs=pairs, seconds_per_token=seconds, spent=seconds) for seconds in (1.0, 1e-9))
    assert slow.config == fast.config
    assert slow.steps == fast.steps
    assert slow.seconds > fast.seconds


@pytest.mark.parametrize(
    ("train", "presets"),
    [({"max_steps": 100}, ["tiny"]), ({"max_minutes": 1}, ["small", "tiny"]), ({"max_minutes": 900}, ["small"])],
)
def test_only_what_the_choice_needs_is_timed(planned, train, presets):
    planned({"train": train}, pairs=150_000)
    assert planned.timed == presets


def test_minutes_are_steps_by_the_speed_of_the_machine(planned):
    values = {"train": {"max_minutes": 5}}
    slow, fast = planned(values, seconds_per_token=4e-4), planned(values, seconds_per_token=1e-4)
    assert fast.steps == pytest.approx(0.95 * 300 / (1_024 * 1e-4), abs=1)
    assert fast.steps == pytest.approx(4 * slow.steps, abs=4)
    assert planned(values, spent=150.0).steps == pytest.approx(fast.steps / 2, abs=1)
    assert planned(values, spent=301.0).steps == 1
    assert planned({"train": {"max_minutes": 5, "max_steps": 77}}).steps == 77


@pytest.mark.parametrize("minutes", [0.1, 1, 5, 20, 300])
def test_warm_up_is_short_and_validations_are_several(planned, minutes):
    plan = planned({"train": {"max_minutes": minutes}})
    train = plan.config.train
    assert 1 <= train.warmup_steps <= max(1, plan.steps / 10)
    assert train.validate_every == train.checkpoint_every <= 500
    assert plan.steps / train.validate_every >= 8 or train.validate_every == 50


def test_dropout_grows_with_the_passes_over_the_corpus(planned):
    rates = [planned({"train": {"max_minutes": minutes}}) for minutes in (2, 8, 20, 60, 600)]
    dropout = [plan.config.model.dropout for plan in rates]
    assert dropout == sorted(dropout)
    assert dropout[0] == 0.0
    assert dropout[-1] == 0.3
    assert len(set(dropout)) >= 4


@pytest.mark.parametrize(
    ("values", "penalty"),
    [
        ({}, 1.0),
        ({"preset": "paper-base"}, 0.6),
        ({"decode": {"length_penalty": 0.6}}, 0.6),
        ({"decode": {"length_penalty_form": "power"}}, 0.6),  # where 1 is another thing
    ],
)
def test_translations_are_chosen_longer_than_the_paper_has_them(planned, values, penalty):
    config = planned({"train": {"max_steps": 700}, **values}).config
    assert config.decode.length_penalty == penalty


@pytest.mark.parametrize(
    ("values", "pairs", "preset"),
    [
        ({"train": {"max_minutes": 8}}, 238_000, "tiny"),
        ({"train": {"max_minutes": 600}}, 238_000, "small"),
        ({"train": {"max_minutes": 600}}, 29_000, "tiny"),
        ({"train": {"max_minutes": 8}}, 2_000_000, "tiny"),
        ({"train": {"max_minutes": 600}}, 2_000_000, "small"),
        ({"train": {"max_minutes": 60_000}}, 2_000_000, "paper-base"),
        ({"train": {"max_steps": 1_000}}, 238_000, "tiny"),
        ({"train": {"max_steps": 20_000}}, 238_000, "small"),
        ({}, 238_000, "small"),
        ({"train": {"max_minutes": 8}, "preset": "small"}, 238_000, "small"),
    ],
)
def test_a_model_is_as_large_as_corpus_and_time_allow(planned, values, pairs, preset):
    assert planned(values, pairs=pairs).config.preset == preset


def test_altered_copies_do_not_count_as_pairs(planned):
    assert planned({"train": {"max_steps": 50_000}}, pairs=110_000, kept=95_000).config.preset == "tiny"


def test_hundreds_of_thousands_of_steps_can_be_expected(planned):
    assert planned({"train": {"max_minutes": 100_000}}).steps > 1_000_000


def test_settings_that_fit_one_preset_alone_choose_it(planned):
    values = {"model": {"num_heads": 256}, "train": {"max_steps": 10}}  # tiny is 128 wide
    assert planned(values, pairs=150_000).config.preset == "small"
    with pytest.raises(ConfigError, match="num_heads"):
        planned(values, pairs=1_000)


def test_the_peak_rate_suits_optimiser_and_width(planned):
    def rate(**values):
        return planned({"train": {"max_steps": 700}, **values}).config.train.learning_rate

    assert rate() == 0.012
    assert rate(model={"d_model": 512}) == 0.006
    assert rate(train={"max_steps": 700, "optimizer": "adam"}) == 0.003


@pytest.mark.parametrize("optimizer", ["muon", "adam"])
def test_a_run_from_a_model_has_a_lower_rate_and_a_short_warm_up(planned, optimizer):
    train = {"max_steps": 5_000, "optimizer": optimizer}
    fresh, later = (planned({"train": train, "preset": "tiny", **values}) for values in ({}, {"from_model": "runs/x"}))
    assert later.config.train.learning_rate < fresh.config.train.learning_rate / 2
    assert (fresh.config.train.warmup_steps, later.config.train.warmup_steps) == (400, 100)
    general = {"from_model": "runs/x", "data": {"general_pairs": ["general.tsv"]}}
    careful = planned({"train": train, "preset": "tiny", **general})
    assert careful.config.train.learning_rate < later.config.train.learning_rate / 2
    corrections = {"from_model": "runs/x", "data": {"corrections": ["new.tsv"], "pairs": ["old.tsv"]}}
    assert planned({"train": train, "preset": "tiny", **corrections}).config.train == careful.config.train
    train = {**train, "learning_rate": 0.5, "warmup_steps": 300}
    given = planned({"train": train, "preset": "tiny", "from_model": "runs/x"}).config.train
    assert (given.learning_rate, given.warmup_steps) == (0.5, 300)


def test_adapters_are_moved_by_adam_at_its_full_rate(planned):
    values = {"from_model": "runs/x", "preset": "tiny", "train": {"max_steps": 5_000, "lora_rank": 4}}
    train = planned(values).config.train
    assert (train.optimizer, train.learning_rate, train.warmup_steps) == ("adam", 0.003, 100)


@pytest.mark.parametrize(
    ("optimizer", "steps", "decay"),
    [("muon", 100, 0.3), ("muon", 2_500, 0.2), ("muon", 10_000, 0.1), ("adamw", 100, 0.0), ("adam", 100, 0.0)],
)
def test_muon_alone_gets_weight_decay_and_less_in_a_longer_run(planned, optimizer, steps, decay):
    train = {"optimizer": optimizer, "max_steps": steps}
    assert planned({"preset": "tiny", "train": train}).config.train.weight_decay == decay


def test_the_plan_chooses_all_settings_of_its_list_and_no_others(planned):
    config = planned({"train": {"max_steps": 700}}).config
    assert config.train.planned == PLANNED
    values = flat(config.model_dump())
    given = planned(nested({name: values[name] for name in ("train.max_steps", *PLANNED)})).config
    assert changed(given, {"train.planned": PLANNED}) == config
    assert given.train.planned == ()


def test_a_memory_budget_lowers_what_is_computed_at_once_and_then_the_preset(planned, monkeypatch):
    monkeypatch.setattr("clearhead.training.memory.process_memory", lambda: 500_000_000)

    def within(budget, **values):
        return planned({**values, "train": {"max_steps": 9_000, "max_memory": budget}}, pairs=290_000)

    least = {}
    for preset in ("tiny", "small"):
        with pytest.raises(ConfigError, match=r"^train\.max_memory \(10 MB\) is too little") as told:
            within("10MB", preset=preset)
        least[preset] = re.search(r"train\.max_memory = '(\d+MB)' would do", str(told.value))[1]
    free, low, lower = (within(budget) for budget in ("1TB", least["small"], least["tiny"]))
    assert [plan.config.preset for plan in (free, low, lower)] == ["small", "small", "tiny"]
    assert free.config.train.micro_batch_tokens == 8_192
    cut = low.config.train.micro_batch_tokens
    assert cut < 1_024
    assert f"at most {cut:,} target tokens are computed at once" in low.lines()[1]
    assert "computed at once" not in free.lines()[1]


@pytest.mark.parametrize(
    "given",
    [
        {"model": {"dropout": 0.37}},
        {"train": {"optimizer": "adamw"}},
        {"train": {"learning_rate": 0.123}},
        {"train": {"warmup_steps": 613}},
        {"train": {"weight_decay": 0.017}},
        {"train": {"validate_every": 17}},
        {"train": {"checkpoint_every": 19}},
        {"train": {"batch_tokens": 333}},
        {"train": {"schedule": "cosine"}},
    ],
)
def test_plan_keeps_the_users_settings(planned, given):
    config = planned(merge({"train": {"max_minutes": 3}}, given)).config.model_dump()
    for section, values in given.items():
        for name, value in values.items():
            assert config[section][name] == value
    if "validate_every" in given.get("train", {}):
        assert config["train"]["checkpoint_every"] > 17  # one of the two says nothing of the other


@pytest.mark.parametrize("preset", ["paper-base", "table3-b-dk-16", "paper-big"])
def test_presets_of_the_paper_are_left_as_they_are(planned, preset):
    values = {"preset": preset, "train": {"max_minutes": 3}}
    layers = Layers().with_("file", {"out": "run", **values}).with_preset(preset)
    expected = layers.with_("fixed", {"model": {"vocab_size": 1_000}}).config
    assert planned(values).config == completed(expected, batches_per_epoch=1)


def test_plan_is_printed_in_two_lines(planned):
    first, second = planned({"train": {"max_minutes": 5}}).lines()
    assert re.fullmatch(
        r"plan: tiny, 4\+4 layers of width 128, dropout 0\.1; muon, 1,024 target tokens a step, warm-up of \d+ steps",
        first,
    )
    assert re.fullmatch(
        r"plan: about 2,783 steps, 9\.8 passes over the corpus, validated every 347; done by about \d\d:\d\d", second
    )


def test_the_plan_says_that_adapters_learn(planned):
    values = {"from_model": "runs/x", "preset": "tiny", "train": {"max_steps": 500, "lora_rank": 8}}
    assert "; adapters of rank 8 with adam, 1,024 target tokens a step" in planned(values).lines()[0]


def test_too_little_memory_to_time_a_step_stops_nothing(settings, monkeypatch, capsys):
    def step(*_, **__):
        raise torch.OutOfMemoryError

    monkeypatch.setattr(plan_module, "Steps", step)
    assert train_from_values(settings(train={"max_steps": 1})).step == 1
    assert re.search(r"plan: about 1 steps, .*validated every 14\n", capsys.readouterr().err)


def test_resumed_run_keeps_its_plan(settings, settle, monkeypatch):
    values = settings(train={"max_steps": 12, "validate_every": 4})
    for name in ("learning_rate", "warmup_steps", "checkpoint_every"):
        values["train"].pop(name, None)
    run = settle(values)
    before = Config.load(run / "config.toml")
    assert planned_before(before)["train.optimizer"] == "muon"
    monkeypatch.setattr("clearhead.training.run.make_plan", lambda *_, **__: pytest.fail("planned again"))
    longer = merge(values, {"train": {"max_steps": 900}})
    settle(longer)
    after = Config.load(run / "config.toml")
    assert (after.train.max_steps, after.train.validate_every, after.train.checkpoint_every) == (900, 4, 112)
    # and nothing else
    assert planned_before(after) == planned_before(before) | {"train.checkpoint_every": 112}


@pytest.mark.parametrize(
    ("now", "made", "intervals"),
    [
        ({"max_steps": 100}, (100, 60.0), (50, 50)),  # as it was
        ({"max_steps": 1_600}, (100, 60.0), (200, 200)),
        ({"max_steps": 100_000}, (100, 60.0), (500, 500)),
        ({"max_minutes": 16.0}, (100, 60.0), (200, 200)),
        ({"max_minutes": 16.0, "max_steps": 800}, (100, 60.0), (100, 100)),
        ({"max_minutes": 16.0}, (0, 0.0), (50, 50)),  # the speed is unknown
        ({"max_steps": 1_600, "validate_every": 30}, (100, 60.0), (30, 200)),
        ({"max_steps": 1_600, "validate_every": 50}, (100, 60.0), (50, 200)),  # by the user, though as it was
    ],
)
def test_a_longer_limit_has_longer_intervals(planned, now, made, intervals):
    saved = planned({"train": {"max_steps": 100}}).config
    limits = {"max_steps": None, "max_minutes": None}
    asked = saved.model_copy(update={"train": saved.train.model_copy(update={**limits, **now})})
    step, elapsed = made
    made, given = TrainingState(step=step, elapsed=elapsed), {f"train.{name}" for name in now}
    train = with_intervals(saved, asked, made, given, corpus(1_000), CPU).train
    assert (train.validate_every, train.checkpoint_every) == intervals
    assert ("train.validate_every" in train.planned) == ("validate_every" not in now)
    assert "train.checkpoint_every" in train.planned


def test_intervals_that_a_user_set_stay_with_a_longer_limit(planned):
    saved = planned({"train": {"max_steps": 100, "validate_every": 30, "checkpoint_every": 20}}).config
    longer = saved.model_copy(update={"train": saved.train.model_copy(update={"max_steps": 9_000})})
    made = TrainingState(step=100, elapsed=60.0)
    assert with_intervals(saved, longer, made, {"train.max_steps"}, corpus(1_000), CPU) == longer


@pytest.mark.parametrize(
    ("device", "values", "steps", "every", "checkpoints"),
    [
        # 1,000 sentences are translated and scored: 13,333 tokens, and 30 times as many on a GPU.
        ("cpu", {}, 400, 50, 50),
        ("cpu", {"from_model": "m"}, 100, 50, 50),
        ("cpu", {"from_model": "m"}, 400, 134, 50),  # 5.4 fit, two of them before the first step and of the average
        ("cpu", {"from_model": "m"}, 3_000, 375, 375),
        ("cuda", {}, 2_000, 1_000, 250),  # 0.7 fit
        ("cuda", {}, 20_000, 3_334, 500),  # 7.5 fit, one of them of the average
        ("cuda", {"from_model": "m"}, 20_000, 4_000, 500),
    ],
)
def test_validations_are_a_bounded_share_of_the_work(planned, device, values, steps, every, checkpoints):
    train = {"max_steps": steps, "batch_tokens": 1_024}
    plan = planned({"preset": "tiny", "train": train, **values}, pairs=1_000, device=torch.device(device))
    train = plan.config.train
    assert (train.validate_every, train.checkpoint_every) == (every, checkpoints)
    said = re.search(
        r"validated every [\d,]+ \((\d+)% of the work(: more than 1[05]%, because so short .*)?\)", plan.lines()[1]
    )
    assert (said is not None) == (device == "cuda" or "from_model" in values)
    if said:
        assert (said[2] is None) == (int(said[1]) <= (15 if device == "cpu" else 10))
    longer = plan.config.model_copy(update={"train": train.model_copy(update={"max_steps": 10 * steps})})
    resumed = with_intervals(
        plan.config, longer, TrainingState(step=steps), {"train.max_steps"}, corpus(1_000), torch.device(device)
    )
    fresh = planned(
        {"preset": "tiny", "train": {"max_steps": 10 * steps, "batch_tokens": 1_024}, **values},
        pairs=1_000,
        device=torch.device(device),
    ).config
    assert resumed.train.validate_every == fresh.train.validate_every


def test_fresh_run_is_planned_again_except_for_set_values(settings, settle):
    values = settings(train={"max_steps": 12, "validate_every": 20}, model={"dropout": 0.25})
    for name in ("learning_rate", "warmup_steps"):
        values["train"].pop(name, None)
    run = settle(values)
    before = Config.load(run / "config.toml")
    assert {"train.warmup_steps", "train.learning_rate"} <= set(before.train.planned)
    assert not {"model.dropout", "train.validate_every"} & set(before.train.planned)
    settle({"out": str(run), "train": {"max_steps": 40}}, fresh=True)
    after = Config.load(run / "config.toml")
    assert (before.train.warmup_steps, after.train.warmup_steps) == (1, 4)
    assert (after.model.dropout, after.train.validate_every) == (0.25, 20)
    assert after.train.planned == before.train.planned


def test_settings_of_a_copied_configuration_are_not_planned(settings, settle, tmp_path):
    values = settings(out=str(tmp_path / "first"), train={"max_steps": 4})
    first = Config.load(settle(values) / "config.toml")
    copied = merge(
        first.model_dump(exclude={"model": {"vocab_size"}}),
        {"out": str(tmp_path / "second"), "train": {"weight_decay": 0.07}},
    )
    assert "train.weight_decay" in copied["train"]["planned"]
    second = settle(copied)
    assert Config.load(second / "config.toml").train.planned == ()
    settle({"out": str(second)}, fresh=True)
    assert Config.load(second / "config.toml").train.weight_decay == 0.07


def test_timing_leaves_no_trace_in_the_weights(settings, tmp_path, monkeypatch):
    timed = train_from_values(settings(out=str(tmp_path / "timed"), train={"max_steps": 3})).run
    monkeypatch.setattr(plan_module, "seconds_per_step", lambda *_: (1e-3, 0.0))
    untimed = train_from_values(settings(out=str(tmp_path / "untimed"), train={"max_steps": 3})).run
    assert_same_weights(timed / "model", untimed / "model")
    assert (timed / "config.toml").read_text().replace("untimed", "timed") == (
        untimed / "config.toml"
    ).read_text().replace("untimed", "timed")
