"""Runs with a model or a loss of a program's own, and runs of the readable code alone."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import clearhead as ch
from clearhead.bundle import load_bundle
from clearhead.config import Config
from clearhead.errors import ConfigError, ModelError
from clearhead.model import weight_shapes
from clearhead.training import step as training_step
from clearhead.training.loss import label_smoothed_cross_entropy
from small_runs import QUICK, assert_same_weights, tiny_settings, weights, write_numbers

# Own models compute themselves, and say so.
pytestmark = pytest.mark.filterwarnings("ignore::clearhead.errors.ChangedModelWarning")


class Gated(ch.Transformer):
    """A Transformer with one more weight for each logit, which only its own code knows."""

    def __init__(self, config):
        super().__init__(config)
        self.gate = nn.Parameter(torch.full((config.vocab_size,), 1.5))

    def forward(self, source, target):
        return super().forward(source, target) * self.gate

    def decode(self, *args, **kwargs):
        logits, cache = super().decode(*args, **kwargs)
        return logits * self.gate, cache


@pytest.fixture
def config(tmp_path):
    write_numbers(tmp_path / "numbers.tsv")

    def make(**train):
        return Config.from_dict(
            tiny_settings(tmp_path, {"train": {**QUICK, "average_last": 1, **train}}), origin="a test"
        )

    return make


def test_own_model_trains_and_is_published_with_its_weights(config):
    result = ch.train(config(), model=Gated)
    gate = weights(result.run / "model")["gate"]
    assert not torch.equal(gate, torch.full_like(gate, 1.5))
    with pytest.raises(ModelError, match=r"was trained with a model of a program's own.*load\(.*model=\.\.\.\)"):
        load_bundle(result.run)
    translator = ch.Translator.load(result.run, model=Gated)
    assert type(translator.model) is Gated
    assert torch.equal(translator.model.gate, gate)
    assert "| own parts | model, whose code is not in this directory; " in (result.run / "model/README.md").read_text()


def test_own_model_resumes_only_with_its_code(config):
    class Stopped(Exception):
        pass

    def stop(progress):
        if progress.step == 2:
            raise Stopped

    once = ch.train(config(), model=Gated)
    with pytest.raises(Stopped):
        ch.train(config(), model=Gated, fresh=True, on_progress=stop)
    with pytest.raises(ConfigError, match=r"own model, whose code is not in it.*train\(config, model=\.\.\.\)"):
        ch.train(once.run / "config.toml")
    again = ch.train(config(), model=Gated)
    assert_same_weights(again.run / "model", again.run.with_name("run.old-1") / "model")


def test_a_run_without_own_parts_takes_none_later(config):
    ch.train(config())
    with pytest.raises(ch.ClearheadError, match="own_parts"):
        ch.train(config(), model=Gated)


def test_an_own_loss_is_minimized(config, monkeypatch):
    calls = []

    def loss(logits, target, smoothing):
        calls.append((logits.shape, target.shape, smoothing))
        return label_smoothed_cross_entropy(logits, target, smoothing)

    monkeypatch.setattr(training_step, "chunked_cross_entropy", None)
    result = ch.train(config(), loss=loss)
    assert all(logits == (*target, result.model.config.vocab_size) for logits, target, _ in calls)
    assert {smoothing for *_, smoothing in calls} == {0.1}
    assert load_bundle(result.run).info["settings"]["train"]["own_parts"] == ["loss"]


@pytest.mark.parametrize(
    "wrong", [lambda *_: None, lambda logits, *_: logits.sum(), lambda logits, *_: (logits, logits)]
)
def test_a_loss_that_returns_something_else_is_refused(config, wrong):
    with pytest.raises(ConfigError, match="loss must return two scalar tensors"):
        ch.train(config(), loss=wrong)


def test_a_model_of_other_settings_is_refused(config):
    model = ch.Transformer(ch.presets.tiny(vocab_size=97))
    with pytest.raises(ConfigError, match=r"model has other settings: .*vocab_size = 97, not "):
        ch.train(config(), model=model)
    with pytest.raises(ConfigError, match=r"model must be a clearhead.Transformer.*makes Linear"):
        ch.train(config(), model=lambda config: nn.Linear(3, 5), fresh=True)


def test_plain_training_of_a_model_that_plain_code_searches_otherwise_is_refused_before_it(config):
    class Halved(ch.Transformer):
        def forward(self, source, target):
            return super().forward(source, target) / 2

    earlier = ch.train(config())
    with pytest.raises(ConfigError, match=r"`forward` was replaced.*leave out plain"):
        ch.train(config(), model=Halved, plain=True, fresh=True)
    assert (earlier.run / "model").exists()
    assert not list(earlier.run.parent.glob("*.old-*"))
    assert ch.train(config(), model=Gated, plain=True, fresh=True).step == 4  # it has a `decode` to its `forward`


def test_a_model_that_could_not_be_read_again_leaves_the_earlier_run_in_its_place(config, monkeypatch):
    earlier = ch.train(config())
    monkeypatch.setattr(weight_shapes, "weight_shapes", lambda _: {})
    with pytest.raises(ConfigError, match=r"model/weight_shapes\.py lists"):
        ch.train(config(), fresh=True)
    assert not list(earlier.run.parent.glob("*.old-*"))


def test_plain_training_runs_the_readable_loss(config, monkeypatch):
    def fail(*_):
        raise RuntimeError("the readable loss ran")

    monkeypatch.setattr(training_step, "label_smoothed_cross_entropy", fail)
    ch.train(config())
    with pytest.raises(RuntimeError, match="the readable loss ran"):
        ch.train(config(), plain=True, fresh=True)


def test_plain_training_learns_like_the_fast_code(config):
    fast = ch.train(config())
    plain = ch.train(config(), plain=True, fresh=True)
    losses = [[one["loss"] for one in run.metrics if one["split"] == "train"] for run in (fast, plain)]
    assert losses[0] == pytest.approx(losses[1], rel=0.02)
