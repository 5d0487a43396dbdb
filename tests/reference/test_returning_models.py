"""A model that was exported comes back: the same bits of weights, the same settings, vocabulary and translations.

What another program has changed meanwhile (weights, biases, the search, the vocabulary) comes back changed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import transformers
from safetensors.torch import load_file

from clearhead import presets
from clearhead.bundle import Bundle, load_bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.data.demo_corpus import generate
from clearhead.errors import ConfigError, ModelError
from clearhead.files.tensors import model_tensors
from clearhead.interop import import_state, imported
from clearhead.interop.huggingface.state import restored_state
from clearhead.interop.import_model import import_path
from clearhead.interop.rewrites import resolved, undone
from clearhead.model import Transformer
from clearhead.text.line_statistics import LineCounter
from clearhead.tokenizers import Tokenizer
from clearhead.translation.translator import Translator
from commands import run
from every_run import slow

LOCALES = ("de", "en", "fr")
PAIRS = generate(600, seed=4, num_test=4, locales=LOCALES)
SOURCES = [pair.source for pair in PAIRS.test]
SMALLER = {
    "d_model": 48,
    "d_ff": 80,
    "num_heads": 4,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "max_positions": 128,  # transformers computes sinusoids in loops
}
MODELS = {
    "post, as the paper's": {**presets.paper_base().model_dump(), **SMALLER, "dropout": 0.25},
    "pre, as the preset tiny": {**presets.tiny().model_dump(), "num_encoder_layers": 1, "max_positions": 91},
    "pre, with biases": {
        **SMALLER,
        "norm": "pre",
        "attention_bias": True,
        "output_bias": True,
        "attention_dropout": 0.2,
    },
    "sines before cosines": {**SMALLER, "positions": "sinusoidal_halves"},
}
NOT_IN_TRANSFORMERS = {
    "rotary": {**SMALLER, "positions": "rotary", "norm_kind": "rms", "gated": True, "activation": "silu"},
    "learned, nothing shared": {**SMALLER, "positions": "learned", "max_positions": 300, "tying": "none"},
    "as T5": {**SMALLER, "positions": "relative", "norm": "pre", "attention_scale": 1.0, "output_scale": True},
}
"""What no kind of model there can hold."""
LIBRARIES = {"hf": "Hugging Face transformers", "ctranslate2": "CTranslate2", "onnx": "ONNX"}


def train_tokenizer(kind: str) -> Tokenizer:
    texts = [text for pair in PAIRS.train for text in (pair.text, pair.target)]
    return Tokenizer.train(texts, kind=kind, vocab_size=432, language_tags=LOCALES, placeholders=kind == "wordpiece")


TOKENIZERS = {kind: train_tokenizer(kind) for kind in ("bpe", "unigram", "wordpiece")}


def make(settings: dict[str, object], kind: str = "bpe") -> Bundle:
    """Return a model with random weights, biases and norms among them, that knows its training lines."""
    tokenizer = TOKENIZERS[kind]
    torch.manual_seed(2)
    model = Transformer(ModelConfig(**{**settings, **tokenizer.model_settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight) * 0.1)
    lines = LineCounter()
    for pair in PAIRS.train[:50]:
        lines.add(pair.text, pair.target, 9, 9)
        lines.add_characters(pair.text, pair.target)
    info = {"data": {"line_statistics": lines.statistics().model_dump(mode="json")}, "metrics": {"valid_bleu": 1.0}}
    decode = DecodeConfig(beam_size=3, length_penalty=0.7, extra_length=7, max_input_tokens=60, source_lang="de")
    return Bundle(model, tokenizer, decode, info)


def there_and_back(bundle: Bundle, directory: Path, *export: str) -> tuple[Bundle, str]:
    """Export by the command and import by the command; return what came back and what was said."""
    save_bundle(directory / "ours", bundle)
    run("export", directory / "ours", "-o", directory / "theirs", *export)
    said = run("import", directory / "theirs", "-o", directory / "back")
    return load_bundle(directory / "back"), said


def require_same(found: Bundle, expected: Bundle) -> None:
    assert found.model.config == expected.model.config
    assert found.tokenizer.sha256 == expected.tokenizer.sha256
    assert found.tokenizer.is_lossless
    assert found.decode == expected.decode
    assert found.line_statistics == expected.line_statistics
    ours, back = model_tensors(expected.model), model_tensors(found.model)
    assert ours.keys() == back.keys()
    for name, tensor in ours.items():
        assert torch.equal(back[name], tensor), name
    sources = [*SOURCES, "<2fr> Ein sehr langer Satz. " * 12, "<2de> ALLES GROSS GESCHRIEBEN"]
    assert Translator(found).translate(sources) == Translator(expected).translate(sources)


def there() -> list[Any]:
    """Return every library with every model that it can hold; in every run each library with another model."""
    first = [*zip(LIBRARIES, MODELS, strict=False), ("ctranslate2", "rotary")]
    every = [*product(LIBRARIES, MODELS), *product(("ctranslate2", "onnx"), NOT_IN_TRANSFORMERS)]
    return [one if one in first else slow(*one) for one in every]


@pytest.mark.parametrize(("to", "name"), there())
def test_exported_model_is_imported_bit_for_bit(tmp_path, name, to):
    expected = make({**MODELS, **NOT_IN_TRANSFORMERS}[name])
    found, said = there_and_back(expected, tmp_path, "--to", to)
    require_same(found, expected)
    assert "8 sentences" in said
    assert found.info["imported_from"]["library"] == LIBRARIES[to]
    assert "metrics" not in found.info  # they belong to the unchanged model
    assert "as it was learned here" in (tmp_path / "back" / "README.md").read_text()


@pytest.mark.parametrize("to", ["hf", slow("ctranslate2"), slow("onnx")])
@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_exported_vocabulary_of_every_kind_is_imported(tmp_path, kind, to):
    expected = make(MODELS["post, as the paper's"], kind)
    found, _ = there_and_back(expected, tmp_path, "--to", to)
    require_same(found, expected)


@pytest.mark.parametrize("name", ["pre, with biases", slow("as T5")])
@pytest.mark.parametrize("precision", ["float16", slow("bfloat16"), slow("int16"), "int8"])
def test_rounded_ctranslate2_weights_are_imported_as_ctranslate2_reads_them(tmp_path, name, precision):
    expected = make({**MODELS, **NOT_IN_TRANSFORMERS}[name])
    found, said = there_and_back(expected, tmp_path, "--to", "ctranslate2", "--precision", precision)
    assert f"the weights were stored in {precision}; here they are in float32" in said
    assert found.model.config == expected.model.config
    assert found.tokenizer.sha256 == expected.tokenizer.sha256
    # The formulas of `ctranslate2.specs.model_spec`: a scale for each row, or one for all.
    for name, tensor in model_tensors(found.model).items():
        was = model_tensors(expected.model)[name]
        match precision:
            case "float16" | "bfloat16":
                rounded = was.to(getattr(torch, precision)).float()
            case _ if was.dim() == 1 or "relative_positions" in name:
                rounded = was
            case "int8":
                scale = 127 / was.abs().amax(dim=1, keepdim=True)
                rounded = (was * scale).round() / scale
            case _:
                continue  # the scale is that of the fused matrix
        torch.testing.assert_close(tensor, rounded, rtol=1e-6, atol=1e-7)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Bundle, Path]:
    """Return a model and its directory for transformers."""
    return export_to(tmp_path_factory.mktemp("exported"), "post, as the paper's", "hf")


def export_to(directory: Path, name: str, to: str) -> tuple[Bundle, Path]:
    bundle = make(MODELS[name])
    save_bundle(directory / "ours", bundle)
    run("export", directory / "ours", "-o", directory / "theirs", "--to", to)
    return bundle, directory / "theirs"


def test_model_saved_again_by_transformers_is_the_same(exported, tmp_path):
    bundle, directory = exported
    transformers.AutoModelForSeq2SeqLM.from_pretrained(directory).save_pretrained(tmp_path / "again")
    transformers.AutoTokenizer.from_pretrained(directory).save_pretrained(tmp_path / "again")
    require_same(import_path(tmp_path / "again").bundle, bundle)


def test_export_fine_tuned_by_transformers_is_imported_with_biases(exported, tmp_path):
    bundle, directory = exported
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    batch = tokenizer(SOURCES, return_tensors="pt", padding=True)
    theirs.eval()
    optimizer = torch.optim.SGD(theirs.parameters(), lr=0.1)
    theirs(**batch, labels=batch["input_ids"]).loss.backward()
    optimizer.step()
    theirs.save_pretrained(tmp_path / "learned")
    tokenizer.save_pretrained(tmp_path / "learned")
    found = import_path(tmp_path / "learned")
    config = found.bundle.model.config
    assert config == bundle.model.config.model_copy(update={"attention_bias": True})
    assert found.bundle.tokenizer.sha256 == bundle.tokenizer.sha256
    assert found.notes == ()
    found.prove(SOURCES)
    ids = tokenizer(SOURCES[0], return_tensors="pt")["input_ids"]
    with torch.inference_mode():
        expected = theirs(input_ids=ids, decoder_input_ids=ids).logits
        torch.testing.assert_close(found.bundle.model(ids, ids), expected, rtol=0.0, atol=1e-4)
        assert (bundle.model(ids, ids) - expected).abs().max() > 0.01


def change_config(directory: Path, change) -> None:
    path = directory / "config.json"
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def break_version(values):
    values["clearhead"]["format_version"] = 99


def break_setting(values):
    values["clearhead"]["model"]["d_modle"] = 3


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (break_version, "'clearhead' cannot be read .*its format is 99"),
        (break_setting, "'clearhead' cannot be read .*unknown setting 'd_modle'"),
        (lambda values: values.update(clearhead=[1]), "'clearhead' cannot be read"),
    ],
)
def test_unreadable_clearhead_record_is_reported_and_the_model_still_imported(exported, tmp_path, change, note):
    bundle, directory = exported
    other = Path(shutil.copytree(directory, tmp_path / "there"))
    change_config(other, change)
    found = import_path(other)
    [first, limit] = found.notes  # the record alone says which limit the exported max_length stands for
    assert re.search(note, first)
    assert "max_length = 67 is not taken over" in limit
    config = found.bundle.model.config
    assert (config.positions, config.attention_bias, config.norm_eps) == ("sinusoidal_halves", True, 1e-5)
    assert found.bundle.tokenizer.sha256 == bundle.tokenizer.sha256
    found.prove(SOURCES)


def test_settings_that_contradict_the_file_give_way_to_it(exported):
    bundle, directory = exported
    values = json.loads((directory / "config.json").read_text())
    said = ModelConfig(
        **{**values["clearhead"]["model"], "norm_eps": 1e-3, "d_ff": 7, "activation": "silu", "norm": "pre"}
    )
    config, tensors = import_state("marian", values, load_file(directory / "model.safetensors"))
    restored = restored_state("marian", said, config, tensors)
    assert restored is not None
    assert resolved(restored[0]) == resolved(bundle.model.config)


def test_clearhead_settings_that_do_not_fit_the_weights_are_not_used(exported, monkeypatch):
    def wrong(original, rewrites, config, tensors):
        return original, {name: tensor + 1 for name, tensor in undone(original, rewrites, config, tensors)[1].items()}

    monkeypatch.setattr("clearhead.interop.huggingface.state.undone", wrong)
    found = import_path(exported[1])
    assert found.notes == ("the settings under 'clearhead' in config.json do not fit the weights, and are not used",)
    assert found.bundle.model.config.positions == "sinusoidal_halves"
    found.prove(SOURCES)


def test_export_with_embeddings_resized_by_transformers_is_imported_as_a_foreign_model(exported, tmp_path):
    _, directory = exported
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(directory)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    theirs.resize_token_embeddings(len(tokenizer) + 13)
    theirs.save_pretrained(tmp_path / "grown")
    tokenizer.save_pretrained(tmp_path / "grown")
    found = import_path(tmp_path / "grown", target_lang="fr")
    assert "taken as another library's" in found.notes[0]
    assert found.bundle.model.config.vocab_size == len(tokenizer) + 13
    assert found.bundle.model.config.positions == "sinusoidal"
    assert found.bundle.decode.target_lang == "fr"
    found.prove([*SOURCES, "Ein Hund rennt."])


def test_changes_of_generation_config_json_after_export_are_imported(exported, tmp_path):
    bundle, directory = exported
    other = Path(shutil.copytree(directory, tmp_path / "there"))
    path = other / "generation_config.json"
    values = json.loads(path.read_text())
    path.write_text(json.dumps({**values, "num_beams": 5, "no_repeat_ngram_size": 3, "early_stopping": True}))
    found = import_path(other)
    assert found.bundle.decode == bundle.decode.with_changes({"beam_size": 5, "no_repeat_ngram_size": 3})
    assert [note.split(" ")[0] for note in found.notes] == ["early_stopping"]
    path.write_text(json.dumps({**values, "length_penalty": 1.5}))
    changed = {"length_penalty": 1.5, "length_penalty_form": "power"}
    assert import_path(other).bundle.decode == bundle.decode.with_changes(changed)


def test_import_names_a_damaged_or_missing_tokenizer_json(exported, tmp_path):
    other = Path(shutil.copytree(exported[1], tmp_path / "there"))
    (other / "tokenizer.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer\.json is damaged"):
        import_path(other)
    (other / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"cannot read the tokenizer .*tokenizer\.json"):
        import_path(other)


def test_languages_that_are_asked_for_must_be_known(exported):
    _, directory = exported
    assert import_path(directory, source_lang="nl", target_lang="fr").bundle.decode.source_lang == "nl"
    with pytest.raises(ConfigError, match="unknown target language 'xx'"):
        import_path(directory, target_lang="xx")


def test_ctranslate2_export_without_the_clearhead_key_imports_the_same_model(tmp_path, monkeypatch):
    monkeypatch.setattr(imported, "can_prove", lambda library="": False)
    expected = make(MODELS["post, as the paper's"])
    save_bundle(tmp_path / "ours", expected)
    run("export", tmp_path / "ours", "-o", tmp_path / "theirs", "--to", "ctranslate2")
    tokens = tmp_path / "theirs" / "shared_vocabulary.json"
    names = json.loads(tokens.read_text(encoding="utf-8"))
    tokens.write_text(json.dumps([*names[:40], names[41], names[40], *names[42:]]))
    with pytest.raises(ModelError, match=r"tokenizer\.json is not the model's: .* is token 40 there"):
        import_path(tmp_path / "theirs")
    tokens.write_text(json.dumps(names))
    change_config(tmp_path / "theirs", lambda values: values.pop("clearhead"))
    found = import_path(tmp_path / "theirs").bundle
    assert found.model.config == expected.model.config.model_copy(update={"dropout": 0.1})
    back = model_tensors(found.model)
    assert all(torch.equal(back[name], tensor) for name, tensor in model_tensors(expected.model).items())
    assert found.tokenizer.encode_sources(SOURCES) == expected.tokenizer.encode_sources(SOURCES)
    assert found.tokenizer.language_tags == expected.tokenizer.language_tags


# ONNX


@pytest.fixture(scope="module")
def in_onnx(tmp_path_factory) -> tuple[Bundle, Path]:
    """Return a model and its directory of ONNX files."""
    return export_to(tmp_path_factory.mktemp("in-onnx"), "pre, with biases", "onnx")


def change_weights(path: Path, change) -> None:
    file = onnx.load(path)
    for weight in file.graph.initializer:
        change(weight)
    path.write_bytes(file.SerializeToString())


def add_one(weight: onnx.TensorProto) -> None:
    if weight.name == "decoder.layers.0.feed_forward.up_proj.weight":
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) + 1, weight.name))


def lose(weight: onnx.TensorProto) -> None:
    if weight.name == "encoder.layers.0.feed_forward.up_proj.weight":
        weight.name = "lost"


def make_nan(weight: onnx.TensorProto) -> None:
    if weight.name == "encoder.layers.0.feed_forward.up_proj.weight":
        weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.nan, weight.name))


def shorten(weight: onnx.TensorProto) -> None:
    weight.raw_data = weight.raw_data[:-4]


def point_outside(weight: onnx.TensorProto) -> None:
    weight.ClearField("raw_data")
    weight.data_location = onnx.TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="/etc/passwd")


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        (
            "decoder_model.onnx",
            add_one,
            r"decoder_with_past_model\.onnx has another decoder\.layers\.0\.feed_forward\.",
        ),
        ("encoder_model.onnx", lose, r"missing   encoder\.layers\.0\.feed_forward\.up_proj\.weight"),
        ("encoder_model.onnx", make_nan, r"encoder\.layers\.0\.feed_forward\.up_proj\.weight"),
        ("encoder_model.onnx", shorten, r"encoder_model\.onnx: .* is damaged"),
        ("encoder_model.onnx", point_outside, r"encoder_model\.onnx: .* is not in float32 inside the file"),
    ],
)
def test_onnx_files_that_are_no_longer_the_model_are_refused(in_onnx, tmp_path, name, change, message):
    other = Path(shutil.copytree(in_onnx[1], tmp_path / "there"))
    change_weights(other / name, change)
    with pytest.raises(ModelError, match=message):
        import_path(other)


def test_onnx_weights_changed_in_both_files_are_imported_as_changed(in_onnx, tmp_path):
    bundle, directory = in_onnx
    other = Path(shutil.copytree(directory, tmp_path / "there"))
    for name in ("decoder_model.onnx", "decoder_with_past_model.onnx"):
        change_weights(other / name, add_one)
    found = import_path(other)
    changed = found.bundle.model.decoder.layers[0].feed_forward.up_proj.weight
    assert torch.equal(changed, bundle.model.decoder.layers[0].feed_forward.up_proj.weight + 1)
    assert "scores differ by" in found.prove(SOURCES)


def test_import_names_damaged_and_missing_onnx_files(in_onnx, tmp_path):
    bundle, directory = in_onnx
    other = Path(shutil.copytree(directory, tmp_path / "there"))
    (other / "decoder_model.onnx").write_bytes(b"\xff" * 100)
    with pytest.raises(ModelError, match=r"decoder_model\.onnx is no ONNX file, or is cut off"):
        import_path(other)
    (other / "decoder_model.onnx").unlink()
    with pytest.raises(ModelError, match=r"cannot read .*decoder_model\.onnx: No such file"):
        import_path(other)
    os.mkfifo(other / "decoder_model.onnx")
    with pytest.raises(ModelError, match=r"cannot read .*decoder_model\.onnx: it is a pipe"):
        import_path(other)
    (other / "model.safetensors.index.json").write_text("{}")  # a sharded model, with ONNX files beside it
    with pytest.raises((ConfigError, ModelError), match=r"model\.safetensors\.index\.json"):
        import_path(other)
    (other / "model.safetensors.index.json").unlink()
    change_config(other, lambda values: values.pop("clearhead"))
    with pytest.raises(ConfigError, match=r"was not exported by clearhead .*import the model that they were made of"):
        import_path(other)
    save_bundle(tmp_path / "ours", bundle)
    run("export", tmp_path / "ours", "-o", tmp_path / "rounded", "--to", "onnx", "--precision", "int8")
    with pytest.raises(ConfigError, match="rounded to 8-bit integers, and what they were before is lost"):
        import_path(tmp_path / "rounded")
