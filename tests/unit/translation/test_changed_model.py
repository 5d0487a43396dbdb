"""What is computed is the module in memory: a weight, a part, a hook or a method that is changed has its effect."""

from __future__ import annotations

import json
import pickle
import warnings
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from clearhead.bundle import Bundle, load_bundle, save_bundle
from clearhead.decoding import NativeEngine
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.decoding.pytorch.module_engine import ModuleEngine
from clearhead.errors import ChangedModelWarning, ConfigError, ModelError
from clearhead.files import file_sha256, json_sha256
from clearhead.files.arrays import read_arrays, write_arrays
from clearhead.inspection.explain import explain
from clearhead.kernels.library import library
from clearhead.model.feed_forward import FeedForward
from clearhead.translation.small_model import export_small
from clearhead.translation.translator import Translator
from clearhead.translation.worker_pool import TranslatorTeam

SHAPES = {"core": {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 16, "d_ff": 96}, "pytorch": {}}
TEXTS = ["Ein Hund."], ["A dog."]
GREEDY = {"beam_size": 1, "familiar": False, "split": "never", "raw": True, "end_loops": False}


def up(model):
    return model.decoder.layers[0].feed_forward.up_proj


class Half(nn.Module):
    def forward(self, x):
        return x / 2


def write_to_data(model):
    up(model).weight.data.mul_(3.0)


def write_to_one_row(model):
    model.target_embedding.weight.data[2] *= 0.5  # the end token


def exchange_two_rows(model):
    weight = model.target_embedding.weight.data
    weight[[2, 9]] = weight[[9, 2]]


def write_by_numpy(model):
    up(model).weight.detach().numpy()[:] *= 3.0


def write_in_place(model):
    with torch.no_grad():
        up(model).weight.mul_(3.0)


def replace_the_data(model):
    up(model).weight.data = up(model).weight.data * 3.0


def replace_a_weight(model):
    up(model).weight = nn.Parameter(up(model).weight * 3.0)


def share_a_matrix(model):
    model.encoder.layers[0].feed_forward.down_proj.weight = model.decoder.layers[0].feed_forward.down_proj.weight


def normalize_otherwise(model):
    model.decoder.final_norm = Half()


def leave_a_norm_out(model):
    model.decoder.final_norm = nn.Identity()


def hook_a_layer(model):
    model.encoder.layers[1].register_forward_hook(lambda module, inputs, output: output.roll(1, dims=-1))


def hook_before_a_layer(model):
    model.decoder.layers[0].feed_forward.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 3,))


def hook_the_model(model):
    model.register_forward_hook(lambda module, inputs, output: output * 0.5)


def patch_a_forward(model):
    model.decoder.layers[0].feed_forward.forward = lambda x: x * 0.1


def patch_the_sum(model):
    model.decoder.layers[0].feed_forward_residual.add_and_norm = lambda x, sublayer: x


def patch_encode(model):
    encode = model.encode

    def halved(*args, **named):
        memory, mask = encode(*args, **named)
        return memory / 2, mask

    model.encode = halved


def change_the_class(model):
    class Doubled(FeedForward):
        def forward(self, x):
            return 2 * super().forward(x)

    model.decoder.layers[0].feed_forward.__class__ = Doubled


def change_an_attribute(model):
    model.decoder.layers[0].feed_forward.activation = torch.tanh


def change_the_scale(model):
    model.target_embedding.scale = 1.0


def change_the_positions(model):
    model.source_embedding.positions.table.zero_()


def leave_positions_out(model):
    model.source_embedding.positions = None


def leave_a_layer_out(model):
    model.encoder.layers = model.encoder.layers[:1]


def repeat_a_layer(model):
    model.encoder.layers.append(model.encoder.layers[0])


def parametrize(model):
    nn.utils.parametrizations.weight_norm(up(model))
    up(model).parametrizations.weight.original0.data.mul_(3.0)


WEIGHTS = [
    *(write_to_data, write_to_one_row, exchange_two_rows, write_by_numpy, write_in_place),
    *(replace_the_data, replace_a_weight, share_a_matrix),
]
PARTS = [
    *(normalize_otherwise, leave_a_norm_out, hook_a_layer, hook_before_a_layer, hook_the_model, patch_a_forward),
    *(patch_the_sum, patch_encode, change_the_class, change_an_attribute, change_the_scale, change_the_positions),
    *(leave_positions_out, leave_a_layer_out, repeat_a_layer, parametrize),
]


def by_hand(translator):
    """Return the score of the given translation and a greedy translation, both by calls of the module alone."""
    model, config = translator.model, translator.config
    [source], [target] = translator.pair_encoder.encode(
        translator.pair_encoder.split_sources(TEXTS[0], None), TEXTS[1], translator.bundle.decode
    )
    with torch.inference_mode():
        logits = model(torch.tensor([source]), torch.tensor([[config.bos_id, *target[:-1]]]))
        score = logits.double().log_softmax(dim=-1)[0, range(len(target)), target].sum().item()
        written = [config.bos_id]
        for _ in range(len(source) + 4):  # then the limit ends it
            logits = model(torch.tensor([source]), torch.tensor([written]))[0, -1]
            logits[[config.pad_id, config.bos_id]] = float("-inf")
            written.append(int(logits.argmax()))
            if written[-1] == config.eos_id:
                break
    return score, translator.bundle.tokenizer.decode(written[1:])


def texts(translations):
    return [one.text for one in translations]


@pytest.fixture
def loaded(make_model_dir):
    """Return a function that loads a model directory, or makes a translator of a module."""

    def load(shape: str, *, is_stored: bool = True) -> Translator:
        if shape == "core" and library() is None:
            pytest.skip("needs the compiled core")
        translator = Translator.load(make_model_dir(f"model-{shape}", **SHAPES[shape]), device="cpu")
        if not is_stored:
            bundle = translator.bundle
            translator = Translator(Bundle(translator.model, bundle.tokenizer, bundle.decode))
        translator.engines.parts = None  # parts of characters may stand alone, as in `by_hand`
        return translator

    return load


@pytest.mark.parametrize(("shape", "is_stored"), [("core", True), ("core", False), ("pytorch", True)])
@pytest.mark.parametrize("change", [*WEIGHTS, *PARTS], ids=lambda change: change.__name__)
def test_translations_and_scores_are_computed_by_a_changed_module(loaded, shape, change, is_stored):
    translator = loaded(shape, is_stored=is_stored)
    before = translator.score(*TEXTS), texts(translator.translate(TEXTS[0], **GREEDY))
    assert before[0] == pytest.approx([by_hand(translator)[0]], abs=1e-3)
    change(translator.model)
    expected = (
        pytest.warns(ChangedModelWarning, match="the model computes itself") if change in PARTS else nullcontext()
    )
    with expected:
        now = translator.score(*TEXTS)
    score, text = by_hand(translator)
    assert now == pytest.approx([score], abs=1e-3)
    assert now != pytest.approx(before[0], abs=1e-3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # said once
        assert texts(translator.translate(TEXTS[0], **GREEDY)) == [text]
        assert translator.translate(TEXTS[0], beam_size=3, raw=True)[0].score is not None
    kind = ModuleEngine if change in PARTS else NativeEngine if shape == "core" else PyTorchEngine
    assert type(translator.engines.of("fp32")) is kind


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_module_of_another_precision_computes_itself_and_is_not_stored(loaded, tmp_path, shape, dtype):
    translator = loaded(shape)
    translator.score(*TEXTS)
    translator.model.to(dtype)
    with pytest.warns(ChangedModelWarning, match=f"weights in {str(dtype)[6:]}: the model computes itself"):
        found = translator.translate(TEXTS[0], **GREEDY)
    score, text = by_hand(translator)
    assert texts(found) == [text]
    assert translator.score(*TEXTS) == pytest.approx([score], abs=1e-3)
    with pytest.raises(ModelError, match=r"is in (float64|bfloat16), and models are stored in float32; .*\.float\(\)"):
        save_bundle(tmp_path / "model", translator.bundle)


def test_restored_weights_are_noticed(loaded):
    translator = loaded("core")
    before, weight = translator.score(*TEXTS), up(translator.model).weight
    weight.data.mul_(2.0)
    assert translator.score(*TEXTS) != before
    weight.data.mul_(0.5)
    assert translator.score(*TEXTS) == before
    handle = translator.model.decoder.register_forward_hook(lambda module, inputs, output: output * 0)
    with pytest.warns(ChangedModelWarning, match="decoder has hooks"):
        assert translator.score(*TEXTS) != before
    handle.remove()
    assert translator.score(*TEXTS) == before
    assert isinstance(translator.engines.of("fp32"), NativeEngine)


def test_a_method_replaced_in_a_class_is_noticed(loaded, monkeypatch):
    translator = loaded("core")
    translator.score(*TEXTS)
    translator.model  # noqa: B018 - handed out
    monkeypatch.setattr(FeedForward, "forward", lambda self, x: x * 0.1)
    with pytest.warns(ChangedModelWarning, match="FeedForward.forward has been replaced"):
        assert translator.score(*TEXTS) == pytest.approx([by_hand(translator)[0]], abs=1e-3)


def test_a_hook_of_all_modules_is_noticed(loaded):
    translator = loaded("core")
    translator.model  # noqa: B018 - handed out

    def halve(module, inputs, output):
        return output / 2 if isinstance(module, FeedForward) else None

    handle = nn.modules.module.register_module_forward_hook(halve)
    try:
        with pytest.warns(ChangedModelWarning, match="a forward hook of all modules is registered"):
            assert translator.score(*TEXTS) == pytest.approx([by_hand(translator)[0]], abs=1e-3)
    finally:
        handle.remove()


def test_a_changed_member_of_an_ensemble_computes_itself(loaded):
    one, other = loaded("core"), loaded("pytorch")
    both = Translator(one.bundle, ensemble=(other.bundle,))
    both.score(*TEXTS)
    patch_a_forward(one.model)
    with pytest.warns(ChangedModelWarning):
        [score] = both.score(*TEXTS)
    engine = both.engines.of("fp32")
    pairs = one.pair_encoder.encode(one.pair_encoder.split_sources(TEXTS[0], None), TEXTS[1], one.bundle.decode)
    with engine.computing():
        first, second = (torch.tensor(one.token_log_probs(*pairs)[0]).double() for one in engine.members)
    assert score == pytest.approx(((first.exp() + second.exp()) / 2).log().sum().item(), abs=1e-3)


@pytest.mark.filterwarnings("ignore::clearhead.errors.ChangedModelWarning")
def test_a_changed_module_takes_every_setting(loaded):
    translator = loaded("core")
    patch_a_forward(translator.model)
    plain = translator.translate(TEXTS[0], **GREEDY)
    several = {"beam_size": 4, "num_best": 2}
    for settings in ({"precision": "int8"}, several, {**several, "diversity": 0.5}, {"mbr": 3}, {"prefix": "A"}):
        [found] = translator.translate(TEXTS[0], **{**GREEDY, **settings})
        assert found.score == pytest.approx(translator.score(TEXTS[0], [found.text])[0], abs=1e-3) or found.truncated
    assert texts(translator.translate(TEXTS[0], **GREEDY)) == texts(plain)
    assert translator.align(*TEXTS)
    translator.model.train()
    assert texts(translator.translate(TEXTS[0], **GREEDY)) == texts(plain)  # without dropout
    assert translator.model.training
    assert translator.model.decoder.layers[0].training


@pytest.mark.filterwarnings("ignore::clearhead.errors.ChangedModelWarning")
def test_an_explanation_is_of_the_changed_module_or_refused(loaded):
    translator = loaded("core")
    before = explain(translator, *(side[0] for side in TEXTS), search=False)
    patch_a_forward(translator.model)
    now = explain(translator, *(side[0] for side in TEXTS), search=False)
    assert now.score == pytest.approx(by_hand(translator)[0], abs=1e-3)
    assert sum(torch.tensor(step.probability).log().item() for step in now.steps) == pytest.approx(now.score, abs=1e-2)
    assert now.score != pytest.approx(before.score, abs=1e-3)
    hook_the_model(translator.model)
    with pytest.raises(ConfigError, match="`forward` was replaced, or has hooks"):
        explain(translator, *(side[0] for side in TEXTS))


def test_a_changed_module_is_not_stored_as_another_model(loaded, tmp_path):
    translator = loaded("core")
    up(translator.model).weight.data.mul_(3.0)
    read = pickle.loads(pickle.dumps(translator.bundle.weights))
    assert torch.equal(
        torch.from_numpy(read["decoder.layers.0.feed_forward.up_proj.weight"]), up(translator.model).weight
    )
    patch_the_sum(translator.model)
    with pytest.raises(ModelError, match="feed_forward_residual has its own add_and_norm; it cannot be saved"):
        save_bundle(tmp_path / "other", translator.bundle, golden=[], card="")
    with pytest.raises(ModelError, match="cannot be saved"):
        pickle.dumps(translator.bundle.weights)
    assert not (tmp_path / "other").exists()
    with pytest.raises(ModelError, match="packed weights would compute another model"):
        PyTorchEngine(translator.model).slots(1, 1)
    assert "has its own add_and_norm" in NativeEngine.obstacle(translator.model, "fp32")


def test_processes_that_have_the_model_as_it_was_are_not_asked(loaded):
    translator = loaded("core")
    team = TranslatorTeam(translator.bundle, translator.path, None, ())
    up(team.model).weight.data.mul_(3.0)
    with pytest.raises(ModelError, match="the others have it as it was"):
        team.translate(TEXTS[0])


def test_methods_that_other_libraries_add_are_no_change(loaded, monkeypatch):
    translator = loaded("core")
    translator.model  # noqa: B018 - handed out
    monkeypatch.setattr(nn.Module, "smart_apply", lambda self: None, raising=False)  # as transformers does
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        translator.score(*TEXTS)
    monkeypatch.setattr(FeedForward, "__call__", lambda self, x: x * 0.1, raising=False)
    with pytest.warns(ChangedModelWarning, match="FeedForward.__call__ has been replaced"):
        assert translator.score(*TEXTS) == pytest.approx([by_hand(translator)[0]], abs=1e-3)


@pytest.mark.parametrize("damage", [float("nan"), float("inf")])
@pytest.mark.parametrize("precision", [None, "int8", "bf16"])
def test_weights_that_are_no_numbers_are_refused_where_they_are_loaded(make_model_dir, tmp_path, damage, precision):
    directory = make_model_dir(**SHAPES["core"])
    if precision is not None:
        export_small(load_bundle(directory), tmp_path / precision, precision)
        directory = tmp_path / precision
    path, config = directory / "model.safetensors", directory / "config.json"
    arrays, metadata = read_arrays(path)
    name = "encoder.layers.0.self_attn_residual.norm.weight"
    if precision == "bf16":
        name = "decoder.layers.0.feed_forward.up_proj.weight"
        arrays[name][3, 5] = 0x7FC0 if damage != damage else 0x7F80
    else:
        arrays[name][3] = damage
    write_arrays(path, arrays, metadata)
    values = json.loads(config.read_text(encoding="utf-8"))
    del values["checksums"]["config.json"]
    values["checksums"]["model.safetensors"] = file_sha256(path)
    said = {key: value for key, value in values.items() if key != "checksums"}
    values["checksums"]["config.json"] = json_sha256(said)
    config.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match=f"model.safetensors: {name} holds NaN or infinity: the model is damaged, or"):
        Translator.load(directory)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_that_computes_no_numbers_is_refused_in_the_same_words(loaded, shape):
    translator = loaded(shape)
    up(translator.model).weight.data[0, 0] = float("nan")
    source, target = (side[0] for side in TEXTS)
    for ask in (
        lambda: translator.translate([source]),
        lambda: translator.score([source], [target]),
        lambda: explain(translator, source),
        lambda: explain(translator, source, target),
    ):
        with pytest.raises(ModelError, match=r"the model's probabilities are not numbers, .* the model is damaged, or"):
            ask()
