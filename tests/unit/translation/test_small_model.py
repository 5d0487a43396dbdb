"""Small models: written, read and used as any other; equal to the original in the precision that both compute in."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from clearhead.bundle import load_bundle, read_card, save_bundle
from clearhead.bundle.side_files import add_side_files
from clearhead.decoding import Shortlist
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.files import file_sha256, json_sha256
from clearhead.kernels.library import library
from clearhead.model.rounded_weights import RoundedWeights
from clearhead.model.stored import StoredModel
from clearhead.translation.alignment import alignment_head, save_head
from clearhead.translation.golden import check_golden, make_golden
from clearhead.translation.quality import Calibration, calibration_of, save_calibration
from clearhead.translation.small_model import export_small
from clearhead.translation.translator import Translator

SHAPE = {"d_model": 64, "num_heads": 2, "d_ff": 64}
needs_core = pytest.mark.skipif(library() is None, reason="without the compiled core the precision is fp32")


@pytest.fixture
def original(make_model_dir, make_bundle, sentences):
    golden = make_golden(Translator(make_bundle(**SHAPE)), sentences[:3])
    return load_bundle(make_model_dir(golden=golden, **SHAPE))


def texts(bundle, lines, **settings):
    return [(one.text, one.tokens, one.score) for one in Translator(bundle).translate(lines, **settings)]


def with_rounded_embedding(bundle):
    """Return a model in float32 whose embedding has the numbers that int8 keeps of it."""
    arrays = dict(StoredModel.of(bundle.weights).arrays)
    name = "source_embedding.weight"
    arrays[name] = RoundedWeights.of({name: arrays[name]}, "int8", origin="")[name]
    return replace(bundle, weights=StoredModel(bundle.config, arrays))


@needs_core
def test_int8_translation_is_bit_for_bit_that_of_the_original_with_its_embedding_rounded(original, tmp_path, sentences):
    export_small(original, tmp_path / "small", "int8")
    small = load_bundle(tmp_path / "small")
    assert small.decode.precision == "int8"
    whole = with_rounded_embedding(original)
    found = [[one[:2] for one in texts(bundle, sentences, precision="int8")] for bundle in (small, whole)]
    assert found[0] == found[1]


@needs_core
@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_a_small_model_is_used_like_any_other(original, tmp_path, sentences, precision):
    comparison, notes = export_small(original, tmp_path / "small", precision)
    small = load_bundle(tmp_path / "small")
    config = json.loads((tmp_path / "small" / "config.json").read_text())
    assert (config["precision"], config["format_version"], small.precision) == (precision, 3, precision)
    assert (notes, comparison.num_lines, small.decode.precision) == ([], 3, precision)
    translator = Translator(small)
    assert [line["source"] for line in small.golden] == list(sentences[:3])
    assert check_golden(translator, small.golden) == []
    # In fp32 it computes with the numbers that the file stands for, in the core and in the module.
    dequantized = StoredModel(small.config, dict(small.weights.arrays))
    assert texts(small, sentences, precision="fp32") == texts(
        replace(small, weights=dequantized), sentences, precision="fp32"
    )
    for name, weight in small.model.named_parameters():
        np.testing.assert_array_equal(weight.detach().numpy(), dequantized[name])
    assert f"{comparison.num_equal} of 3 lines are translated alike" in read_card(tmp_path / "small")
    assert "# A small model" in read_card(tmp_path / "small")  # the original's card


@pytest.mark.parametrize("precision", ["int8", "bf16"])
def test_save_bundle_of_a_loaded_small_model_writes_the_same_bytes(original, tmp_path, precision):
    export_small(original, tmp_path / "small", precision)
    small = load_bundle(tmp_path / "small")
    small.model  # noqa: B018 - made when first asked for
    save_bundle(tmp_path / "again", small, golden=small.golden)
    for name in ("model.safetensors", "config.json", "golden.jsonl"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "small" / name).read_bytes()


def test_changed_weights_are_written_in_float32(original, tmp_path):
    export_small(original, tmp_path / "small", "int8")
    small = load_bundle(tmp_path / "small")
    small.model.decoder.layers[0].feed_forward.up_proj.weight.data = (
        small.model.decoder.layers[0].feed_forward.up_proj.weight.data + 1
    )
    save_bundle(tmp_path / "changed", small)
    assert load_bundle(tmp_path / "changed").precision is None
    assert "precision" not in json.loads((tmp_path / "changed" / "config.json").read_text())


def test_an_int8_file_is_about_a_quarter_of_the_size(make_bundle, tmp_path):
    bundle = make_bundle(d_model=128, num_heads=2, d_ff=512)
    save_bundle(tmp_path / "whole", bundle)
    export_small(bundle, tmp_path / "small", "int8")
    whole, small = ((tmp_path / name / "model.safetensors").stat().st_size for name in ("whole", "small"))
    assert small < 0.28 * whole


def test_a_model_that_the_core_does_not_compute_in_int8_translates_in_its_own_precision(make_bundle, tmp_path):
    _, notes = export_small(make_bundle(d_model=22), tmp_path / "small", "int8")
    assert load_bundle(tmp_path / "small").decode.precision == "fp32"
    assert len(notes) == 1
    assert notes[0].startswith("it translates in fp32 unless --precision says otherwise: ")


def test_int8_model_loaded_on_another_device_has_precision_fp32(original, tmp_path):
    export_small(original, tmp_path / "small", "int8")
    assert load_bundle(tmp_path / "small", device="meta").decode.precision == "fp32"


def test_the_quality_of_both_is_compared_on_given_lines(original, tmp_path, sentences):
    comparison, _ = export_small(original, tmp_path / "small", "bf16", sources=sentences, references=sentences)
    assert comparison.num_lines == len(sentences)
    card = read_card(tmp_path / "small")
    assert "Compared on the given lines" in card
    assert f"BLEU {comparison.before.bleu:.2f} before, {comparison.after.bleu:.2f} after (nrefs:1|" in card


def test_an_encoder_alone_and_a_model_without_golden_sentences_are_written(make_bundle, tmp_path):
    bundle = make_bundle(num_decoder_layers=0)
    comparison, _ = export_small(bundle, tmp_path / "small", "int8")
    assert comparison.lines() == ["on no lines: the model has no golden sentences, and none were given"]
    assert load_bundle(tmp_path / "small").golden == []


def test_export_small_copies_shortlist_alignment_and_quality_files(original, tmp_path, sentences):
    size = original.tokenizer.vocab_size
    shortlist = Shortlist(np.arange(3, 40, dtype=np.int32), np.full((size, 2), -1, dtype=np.int32))
    beside = {
        "shortlist.safetensors": shortlist.save,
        "alignment.json": partial(save_head, head=AlignmentHead(0, 1, False), agreement=0.5),
        "quality.json": partial(save_calibration, calibration=Calibration(3.5, -2.0)),
    }
    add_side_files(original.directory, beside, original.identity())
    export_small(load_bundle(original.directory), tmp_path / "small", "int8")
    small = load_bundle(tmp_path / "small")
    assert alignment_head(small) == AlignmentHead(0, 1, False)
    assert calibration_of(small) == Calibration(3.5, -2.0)
    read = Shortlist.load(tmp_path / "small" / "shortlist.safetensors", small.identity())
    np.testing.assert_array_equal(read.common, shortlist.common)
    found = Translator.load(tmp_path / "small").translate(sentences[:2], shortlist=True)
    assert all(one.tokens for one in found)


@pytest.mark.parametrize("name", ["shortlist.safetensors", "alignment.json", "quality.json"])
def test_a_damaged_file_beside_the_model_is_refused_before_anything_is_written(original, tmp_path, name):
    add_side_files(original.directory, {name: lambda path, _: path.write_text("{}")}, original.identity())
    with pytest.raises(ModelError, match=rf"{name} is damaged"):
        export_small(load_bundle(original.directory), tmp_path / "small", "int8")
    assert not (tmp_path / "small").exists()


def test_a_small_model_is_not_rounded_again(original, tmp_path):
    export_small(original, tmp_path / "small", "int8")
    with pytest.raises(ConfigError, match="in int8 already"):
        export_small(load_bundle(tmp_path / "small"), tmp_path / "smaller", "bf16")
    with pytest.raises(ModelError, match="is there already"):
        export_small(original, tmp_path / "small", "int8")
    with pytest.raises(DataError, match="1 sources and 2 references are no pairs"):
        export_small(original, tmp_path / "other", "int8", sources=["a"], references=["a", "b"])


def damage(directory, changes=lambda arrays: None, **config_changes):
    """Change the weights and config.json of a model, with checksums that fit."""
    weights, path = directory / "model.safetensors", directory / "config.json"
    config = json.loads(path.read_text())
    checksums = config.pop("checksums")
    with safe_open(weights, framework="numpy") as file:
        metadata = file.metadata()
    arrays = load_file(weights)
    changes(arrays)
    save_file(arrays, weights, metadata)
    config = {name: value for name, value in {**config, **config_changes}.items() if value is not ...}
    checksums |= {"model.safetensors": file_sha256(weights), "config.json": json_sha256(config)}
    path.write_text(json.dumps({**config, "checksums": checksums}))


NAME = "decoder.layers.0.self_attn.q_proj.weight"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            lambda arrays: arrays.update({NAME: arrays[NAME].astype(np.float32)}),
            f"type      {NAME}  file F32, model I8",
        ),
        (lambda arrays: arrays.pop(NAME + "_scale"), f"missing   {NAME}_scale  (64,)"),
        (lambda arrays: arrays[NAME + "_scale"].fill(np.nan), f"{NAME}_scale: the scale of row 0 is nan"),
        (lambda arrays: arrays[NAME].fill(100), "its levels must be between -63 and 63"),
    ],
)
def test_damaged_weights_are_named(original, tmp_path, changes, said):
    export_small(original, tmp_path / "small", "int8")
    damage(tmp_path / "small", changes)
    with pytest.raises(ModelError) as caught:
        load_bundle(tmp_path / "small")
    assert said in str(caught.value)
    assert str(tmp_path / "small") in str(caught.value)


@pytest.mark.parametrize(
    "changes", [{"precision": "int4"}, {"precision": ...}, {"precision": 8}, {"format_version": 2}]
)
def test_a_precision_that_does_not_fit_the_format_is_named(original, tmp_path, changes):
    export_small(original, tmp_path / "small", "int8")
    damage(tmp_path / "small", **changes)
    with pytest.raises(
        ModelError, match="its 'precision' must be one of int8, bf16 in format 3, and missing in format 2"
    ):
        load_bundle(tmp_path / "small")
