"""What a run costs: settings that a run would have, many devices, and machines from a file."""

from __future__ import annotations

import pytest
import torch

from clearhead.config import Config
from clearhead.errors import ConfigError
from clearhead.model.transformer import Transformer
from clearhead.training import costs as module
from clearhead.training import memory
from clearhead.training.costs import Costs, costs_of, expected_config
from clearhead.training.layers import Layers
from clearhead.training.machine import Machine
from clearhead.training.memory import PARTS, StepMemory

CPU, CUDA = "cpu", "cuda"
MACHINE = {"flops": 1e6, "memory": 5e6, "bandwidth": 2e5, "interconnect": 100.0, "utilisation": 0.4, "price": 3.0}


def expected(values, device=CPU, pairs=None):
    config, steps = expected_config(Layers().with_("file", values), device, length=20, num_pairs=pairs)
    train = config.train
    return train.optimizer, train.batch_tokens, config.model.dropout, config.model.vocab_size, steps


def test_the_settings_are_those_that_a_run_would_choose():
    assert expected({"preset": "tiny"}) == ("muon", 1_024, 0.2, 8_000, 100_000)
    assert expected({"preset": "tiny"}, CUDA) == ("muon", 25_000, 0.2, 8_000, 100_000)
    assert expected({"preset": "paper-base"}) == ("adam", 25_000, 0.1, 37_000, 100_000)
    # 10,240 target tokens have 10 steps a pass.
    assert expected({"preset": "tiny"}, pairs=512) == ("muon", 1_024, 0.2, 8_000, 300)
    assert expected({"preset": "tiny", "train": {"max_steps": 900}}, pairs=512) == ("muon", 1_024, 0.3, 8_000, 900)
    of_user = {"model": {"dropout": 0.05}, "tokenizer": {"vocab_size": 900}, "train": {"max_steps": 7}}
    assert expected(of_user, pairs=512) == ("muon", 1_024, 0.05, 900, 7)
    assert expected({}, pairs=200_000)[1] == 4_096  # of the preset `small`


def costs(**changes) -> Costs:
    most = dict(zip(PARTS, (70, 60, 130, 500, 40), strict=True))
    at_peak = dict(zip(PARTS, (70, 50, 130, 450, 20), strict=True))
    values = {
        "config": Config(train={"batch_tokens": 600}),
        "parameters": 15,
        "flops": {"forward": 2.0, "backward": 4.0},
        "length": 30,
        "precision": "fp32",
        "memory": StepMemory(at_peak, most),
        "gathered": 25,
        "parts": 4.0,
        "fitting_tokens": 5,
        "compute_seconds": 40.0,
        "update_seconds": 6.0,
        "steps": 950,
        "machine": Machine(**MACHINE),
    }
    return Costs(**{**values, **changes})


def test_devices_share_whole_sentences_and_send_what_ddp_and_fsdp_send():
    one, ddp, fsdp = costs().on(1, "DDP"), costs().on(8, "DDP"), costs().on(8, "FSDP")
    assert (one.seconds_per_step, one.speedup, one.bytes_sent, one.memory) == (46.0, 1.0, 0.0, 720.0)
    assert one.hours == pytest.approx(46 * 950 / 0.95 / 3_600)
    assert one.price == pytest.approx(3 * one.hours)
    # 20 sentences: 3 for the busiest of 8 devices, 0.6 of a part; 7 of 8 shares come from others.
    assert ddp.bytes_sent == pytest.approx(7 / 8 * 2 * 60)
    assert fsdp.bytes_sent == pytest.approx(7 / 8 * (2 * 70 + 60))
    assert ddp.seconds_per_step == pytest.approx(40 * 3 / 20 + 6 + 1.05)
    assert fsdp.seconds_per_step == pytest.approx(40 * 3 / 20 + 6 / 8 + 1.75)
    assert ddp.memory == pytest.approx(260 + 460 * 0.6)
    assert fsdp.memory == pytest.approx(260 / 8 + 460 * 0.6 + 7 / 8 * (25 + 25))  # weights and gradients of a layer
    assert ddp.speedup == pytest.approx(46 / ddp.seconds_per_step)
    assert ddp.price == pytest.approx(8 * 3 * ddp.hours)
    # With two devices the weights are gathered for each of two parts.
    assert costs().on(2, "FSDP").bytes_sent == pytest.approx(1 / 2 * (2 * 2 * 70 + 60))
    # Between its two parts, gradients are whole.
    assert costs().on(2, "FSDP").memory == pytest.approx(260 / 2 + 460 + 1 / 2 * (25 + 60))


def test_no_device_has_less_than_a_sentence_and_fsdp_gathers_a_layer_and_what_is_in_none():
    assert costs().on(1_024, "DDP").memory == pytest.approx(260 + 460 * 4 / 20)
    model = {"vocab_size": 37, "d_model": 12, "d_ff": 29, "num_heads": 3, "num_encoder_layers": 2}
    config = Config(model={**model, "num_decoder_layers": 1}, train={"batch_tokens": 90})
    found = costs_of(config, 3, parameters=1, flops={"all": 6.0}, length=9, machine=Machine(**MACHINE))
    transformer = Transformer(config.model)
    layers = [*transformer.encoder.layers, *transformer.decoder.layers]
    whole, *sizes = (sum(weight.numel() for weight in part.parameters()) for part in (transformer, *layers))
    assert len({*sizes}) == 2
    assert found.gathered == 4 * (whole - sum(sizes) + max(sizes))


def test_the_curve_ends_at_1024_devices_and_has_the_number_that_was_asked_for():
    curve = costs(machine=None).curve(6)
    assert list(curve) == ["DDP", "FSDP"]
    assert [scale.gpus for scale in curve["FSDP"]] == [1, 2, 4, 6, 8, 16, 32, 64, 128, 256, 512, 1_024]
    assert {scale.price for scale in curve["DDP"]} == {None}
    assert all("{" not in text for text in costs().assumptions + costs(machine=None).assumptions)
    assert "40%" in " ".join(costs().assumptions)


def test_the_time_follows_from_the_peaks_of_a_machine():
    config = Config(
        model={"vocab_size": 37, "d_model": 12, "d_ff": 29, "num_heads": 3, "num_encoder_layers": 1},
        train={"batch_tokens": 90, "max_minutes": 5.0},
    )
    flops = {"forward": 200.0, "backward": 400.0}
    found = costs_of(config, 3, parameters=1, flops=flops, length=9, machine=Machine(**MACHINE))
    assert found.compute_seconds == pytest.approx(600 * 90 / (1e6 * 0.4))
    most = found.memory.most
    assert found.update_seconds == pytest.approx((2 * (most["weights"] + most["optimizer"]) + most["gradients"]) / 2e5)
    assert found.steps == int(300 * 0.95 / (found.compute_seconds + found.update_seconds))
    assert found.fitting_tokens % 9 == 0
    assert found.fitting_tokens > 90


def test_a_memory_budget_cuts_steps_into_parts_that_fit(monkeypatch):
    monkeypatch.setattr(module, "seconds_per_step", lambda *_, **__: (0.25, 0.0))
    machine = Machine(**{**MACHINE, "memory": 1e9})

    def planned(budget, machine, batch_tokens=45_000):
        config = Config(
            model={"vocab_size": 370, "d_model": 12, "d_ff": 29, "num_heads": 3, "num_encoder_layers": 1},
            train={"batch_tokens": batch_tokens, "micro_batch_tokens": 18_000, "max_memory": budget},
            device="cpu",
        )
        return costs_of(config, 3, parameters=1, flops={"all": 6.0}, length=9, machine=machine)

    whole, within = planned(None, machine), planned("20MB", machine)
    assert whole.parts == 2.5
    assert 9 < within.fitting_tokens == 45_000 / within.parts < 18_000
    assert within.memory.peak <= 20e6 < whole.memory.peak
    # On this CPU the budget is that of the whole process.
    monkeypatch.setattr(memory, "process_memory", lambda: 0)
    of_process = planned("290MB", None)
    assert of_process.parts in (5, 10, 20, 40, 80)
    assert of_process.fitting_tokens > 18_000
    with pytest.raises(ConfigError, match=r"train\.max_memory \(10 MB\) is too little"):
        planned("10MB", None)


def test_without_a_machine_a_part_of_a_step_is_timed_here(monkeypatch):
    timed = []

    def seconds_per_step(config, order, pairs, device, num_workers, own, *, timed_tokens):
        timed.append((pairs.target_lengths[order.rows(0)].tolist(), config.train.compile, device, timed_tokens))
        return 0.25, 0.0

    monkeypatch.setattr(module, "seconds_per_step", seconds_per_step)
    config = Config(
        model={"vocab_size": 37, "d_model": 12, "d_ff": 29, "num_heads": 3, "num_encoder_layers": 1},
        train={"batch_tokens": 90},
        device="cpu",
    )
    found = costs_of(config, 3, parameters=1, flops={"all": 6e8}, length=9, machine=None)
    assert timed == [([9] * 10, False, torch.device(CPU), 500)]
    assert (found.compute_seconds, found.update_seconds, found.steps) == (0.25, 0.0, 3)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("flops = 1e12\nmemory = = 1\n", r"m\.toml is not valid TOML: .*line 2"),
        ("flops = -1\nmemory = 1e9\nbandwidth = 1e9", r"m\.toml: flops = -1: Input should be greater than 0"),
        ("flops = 1e12\nmemory = 0\nbandwidth = 1e9", r"m\.toml: memory = 0: Input should be greater than 0"),
        ("flops = nan\nmemory = 1e9\nbandwidth = 1e9", r"m\.toml: flops = nan: "),
        ("flops = 1e12\nbandwidth = 1e9", r"m\.toml: memory is missing"),
        ("flops = 1e12\nmemory = '80 GB'\nbandwidth = 1e9", r"m\.toml: memory = '80 GB': "),
        ("flops = 1e12\nmemory = 1\nbandwidth = 1\nutilization = 0.3", r"'utilization'.*did you mean 'utilisation'"),
        (
            "flops = 1e12\nmemory = 1\nbandwidth = 1\nutilisation = 1.5",
            r"utilisation = 1\.5: .* less than or equal to 1",
        ),
    ],
)
def test_a_wrong_machine_is_refused_with_its_line_or_field(tmp_path, text, problem):
    path = tmp_path / "m.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=problem):
        Machine.load(path)
