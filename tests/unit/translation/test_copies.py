"""Copies of a translator, by `copy.deepcopy` and by `pickle`, translate alike, whatever was done with it before."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
import sys

import pytest

from clearhead.errors import ModelError
from clearhead.kernels.library import library
from clearhead.model import module_state
from clearhead.tokenizers.word_encoder import Codes
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator

SHAPES = {"core": {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 16, "d_ff": 96}, "pytorch": {}}
TEXTS = ["Ein kleiner Hund rennt.", "ZWEI HUNDE"]


def pickled(translator):
    return pickle.loads(pickle.dumps(translator))


def found(translator, **how):
    terms = Terms([Term("Hund", ("dog",))])
    return [
        translator.translate(TEXTS, quality=True, alignments=True, beam_size=2, **how),
        translator.translate(TEXTS, terms=terms, beam_size=2, **how),
        translator.score(TEXTS, TEXTS[::-1]),
    ]


def halve(module, given, output):
    return output / 2


@pytest.fixture(params=SHAPES)
def loaded(request, make_model_dir):
    if request.param == "core" and library() is None:
        pytest.skip("needs the compiled core")
    return lambda: Translator.load(make_model_dir(**SHAPES[request.param]), device="cpu")


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_copies_made_before_and_after_use_translate_alike(loaded, copied):
    translator = loaded()
    before = copied(translator)
    expected = found(translator)
    after = copied(translator)
    assert translator.model is not None  # its module
    for other in (before, after, copied(translator), copied(after)):
        assert found(other) == expected
        assert other.bundle is not translator.bundle
    assert pickle.dumps(after)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_has_the_weights_of_the_module_and_changes_it_no_more(loaded, copied):
    translator = loaded()
    as_read = found(translator)
    up = translator.model.decoder.layers[0].feed_forward.up_proj
    up.weight.data.mul_(3.0)
    expected = found(translator)
    assert expected != as_read
    other = copied(translator)
    up.weight.data.mul_(3.0)
    assert found(other) == expected
    other.model.decoder.layers[0].feed_forward.up_proj.weight.data.div_(3.0)
    assert found(other)[2] == pytest.approx(as_read[2], abs=1e-4)


@pytest.mark.filterwarnings("ignore::clearhead.errors.ChangedModelWarning")
@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_hooks_are_copied_with_the_module(loaded, copied):
    translator = loaded()
    as_read = translator.score(TEXTS, TEXTS[::-1])
    translator.model.encoder.register_forward_hook(halve)
    expected = translator.score(TEXTS, TEXTS[::-1])
    assert expected != as_read
    assert copied(translator).score(TEXTS, TEXTS[::-1]) == expected


@pytest.mark.filterwarnings("ignore::clearhead.errors.ChangedModelWarning")
@pytest.mark.parametrize("changed", ["hook", "forward"])
def test_a_lambda_in_the_module_is_copied_and_named_when_it_is_pickled(loaded, changed, monkeypatch):
    translator = loaded()
    if changed == "hook":
        translator.model.encoder.register_forward_hook(lambda module, given, output: output / 2)
    else:
        norm = translator.model.decoder.layers[0].self_attn_residual.norm
        monkeypatch.setattr(norm, "forward", lambda x: x / 2)
    expected = translator.score(TEXTS, TEXTS[::-1])
    assert copy.deepcopy(translator).score(TEXTS, TEXTS[::-1]) == expected
    for other in module_state._OTHER_PICKLERS:  # a test of Ray may have imported its own
        monkeypatch.delitem(sys.modules, other, raising=False)
    with pytest.raises(ModelError, match=r"changed in memory by something that cannot be pickled.*lambda.*at the top"):
        pickle.dumps(translator)
    monkeypatch.setitem(sys.modules, "cloudpickle", pickle)  # which can
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(translator)


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_a_copy_of_a_plain_translator_is_plain(loaded, copied, monkeypatch):
    translator = loaded().plain
    expected = translator.score(TEXTS, TEXTS[::-1])
    other = copied(translator)
    monkeypatch.setattr("clearhead.translation.search.make_engine", lambda *_: pytest.fail("not plain"))
    assert other.score(TEXTS, TEXTS[::-1]) == expected


@pytest.mark.parametrize("copied", [copy.deepcopy, pickled])
def test_an_ensemble_is_copied(make_model_dir, copied):
    directory = make_model_dir()
    translator = Translator.load(directory, device="cpu", ensemble=[directory])
    expected = found(translator)
    assert found(copied(translator)) == expected


def test_a_process_that_is_spawned_gets_a_translator(loaded):
    translator = loaded()
    expected = translator.score(TEXTS, TEXTS[::-1])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(translator.score, (TEXTS, TEXTS[::-1])) == expected


def test_copy_of_codes_has_a_cache_of_its_own(loaded):
    codes = Codes("#version: 0.2\nl o\nlo w</w>\n")
    assert codes.marked("low lo") == ["low", "l@@", "o"]
    other = copy.deepcopy(codes)
    codes._ranks.clear()
    assert other.marked("low lot") == ["low", "lo@@", "t"]
    assert pickled(other).marked("low") == ["low"]
