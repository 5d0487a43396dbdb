"""Every setting of a model is known to each engine and writer, or refused by it, with each of its values.

Who adds a setting or a value writes here what cannot compute it, and in the lists what can: see CONTRIBUTING.md.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from types import NoneType, UnionType
from typing import Annotated, Literal, Union, get_args, get_origin

import pytest
import torch
from torch import nn

from clearhead.browser.engine import PAGE
from clearhead.bundle import save_bundle
from clearhead.config import ModelConfig
from clearhead.config.known import SIZES, unknown_settings
from clearhead.decoding import NativeEngine, make_engine
from clearhead.decoding.native.engine import CORE
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.decoding.pytorch.module_engine import ModuleEngine
from clearhead.decoding.pytorch.weights import PACKED
from clearhead.errors import ChangedModelWarning, ConfigError, ModelError
from clearhead.interop.ctranslate2.table import EXPRESSIBLE
from clearhead.interop.huggingface.state import exportable_as
from clearhead.interop.onnx.model import ONNX
from clearhead.kernels.library import library
from clearhead.model import Transformer
from clearhead.model.weight_shapes import weight_shapes
from clearhead.paper.counts import parameter_count
from clearhead.translation.golden import require_computed_alike

LISTS = {"core": CORE, "packed": PACKED, "page": PAGE, "ctranslate2": EXPRESSIBLE, "onnx": ONNX}
REFUSED = {
    "core": {("output_transform", True)},
    "packed": set(),
    "page": {("output_transform", True), ("positions", "relative")},
    "ctranslate2": {("output_transform", True), ("positions", "none")},
    "onnx": set(),
}
CHOICES = ["norm", "norm_kind", "activation", "positions", "tying"]


def choices(annotation) -> set[object]:
    """Return the values of a setting, if it is a choice; numbers have none."""
    if annotation is bool:
        return {False, True}
    if annotation is NoneType:
        return {None}
    match get_origin(annotation):
        case origin if origin is Literal:
            return set(get_args(annotation))
        case origin if origin in (Union, UnionType):
            return set().union(*map(choices, get_args(annotation)))
        case origin if origin is Annotated:
            return choices(get_args(annotation)[0])
    return set()


@pytest.mark.parametrize("name", ModelConfig.model_fields)
@pytest.mark.parametrize("reader", LISTS)
def test_every_value_of_a_setting_is_known_or_refused(reader, name):
    known = LISTS[reader]
    assert name in known, f"say in the list of {reader} which values of model.{name} it computes"
    values = choices(ModelConfig.model_fields[name].annotation)
    assert (name in SIZES) or values or name == "num_target_segments", f"model.{name} is new: classify it"
    for value in values:
        is_refused = (name, value) in REFUSED[reader]
        assert (value in known[name]) != is_refused, f"{reader}: is model.{name} = {value!r} computed, or refused?"


def with_value(**values) -> ModelConfig:
    """Return settings with a value that no `Literal` has yet."""
    sizes = {"vocab_size": 37, "d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 16, "d_ff": 96}
    return ModelConfig(**sizes, num_encoder_layers=1, num_decoder_layers=1).model_copy(update=values)


@pytest.mark.parametrize("name", CHOICES)
def test_a_new_choice_is_refused_by_all(name):
    config = with_value(**{name: "tanh"})
    for reader, known in LISTS.items():
        expected = reader == "packed" and name in ("norm_kind", "activation", "tying")  # it calls the module's parts
        assert unknown_settings(config, known) == ([] if expected else [f"model.{name} = 'tanh'"])
    with suppress(ConfigError):  # a family may refuse it at once
        assert exportable_as(config) == []


def test_a_new_setting_is_known_at_its_default_alone():
    class Windowed(ModelConfig):
        window: int = 0

    for known in LISTS.values():
        assert unknown_settings(Windowed(), known) == []
        assert unknown_settings(Windowed(window=3), known) == ["model.window = 3"]


@pytest.mark.parametrize("count", [weight_shapes, parameter_count])
def test_weights_of_an_unknown_norm_are_not_counted_as_those_of_another(count):
    with pytest.raises(AssertionError, match="'tanh'"):
        count(with_value(norm_kind="tanh"))


class TanhNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return self.weight * torch.tanh(x) + self.bias


@pytest.fixture
def tanh_norms(monkeypatch):
    """Add a norm as one would in model/sublayers.py."""
    for module in ("sublayers", "transformer"):
        monkeypatch.setattr(f"clearhead.model.{module}.make_norm", lambda config: TanhNorm(config.d_model))


def own_score(model, source, target):
    with torch.inference_mode():
        logits = model(torch.tensor([source]), torch.tensor([[model.config.bos_id, *target[:-1]]]))
    return logits.double().log_softmax(dim=-1)[0, range(len(target)), target].sum().item()


def test_a_norm_that_is_replaced_in_the_code_is_not_computed_as_the_one_before(tanh_norms, tmp_path):
    model = Transformer(with_value()).eval()
    if library() is not None:
        obstacle = NativeEngine.obstacle(model, "fp32")
        assert obstacle == "the compiled core does not know the class of encoder.layers.0.self_attn_residual.norm"
    engine = make_engine(model)
    assert type(engine) is PyTorchEngine
    with engine.computing():
        assert engine.score([[5, 9, 2]], [[7, 2]]) == pytest.approx([own_score(model, [5, 9, 2], [7, 2])], abs=1e-4)


@pytest.mark.skipif(library() is None, reason="needs the compiled core")
def test_a_model_that_the_core_computes_otherwise_is_not_published(make_bundle, monkeypatch, tmp_path):
    golden = [{"source": "Ein kleiner Hund.", "text": "", "score": 0.0}]
    sizes = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 16, "d_ff": 96}
    check = partial(require_computed_alike, golden=golden)
    save_bundle(tmp_path / "model", make_bundle(**sizes), golden=golden, check=check)
    before = (tmp_path / "model" / "config.json").read_bytes()
    for module in ("sublayers", "transformer"):
        monkeypatch.setattr(f"clearhead.model.{module}.make_norm", lambda config: TanhNorm(config.d_model))
    with pytest.raises(ModelError, match="NativeEngine computes another model than the module: it finds a translation"):
        save_bundle(tmp_path / "model", make_bundle(**{**sizes, "d_ff": 128}), golden=golden, check=check)
    assert (tmp_path / "model" / "config.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.parametrize("values", [{"norm_kind": "tanh"}, {"norm_kind": "tanh", "norm": "sandwich"}])
def test_a_model_with_a_new_choice_is_computed_by_its_own_code(tanh_norms, values):
    model = Transformer(with_value(**values)).eval()
    source, target = [5, 9, 11, 2], [7, 6, 8, 2]
    assert "model.norm_kind = 'tanh'" in NativeEngine.obstacle(model, "fp32")
    if "norm" in values:
        with pytest.warns(ChangedModelWarning, match="no engine knows model.norm = 'sandwich'"):
            engine = make_engine(model)
    else:
        engine = make_engine(model)
    assert type(engine) is (ModuleEngine if "norm" in values else PyTorchEngine)
    with engine.computing():
        assert engine.score([source], [target]) == pytest.approx([own_score(model, source, target)], abs=1e-4)
