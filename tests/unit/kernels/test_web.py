"""The core as WebAssembly in a browser finds what the native one does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from playwright.sync_api import Error

from browsers import page_with_modules
from clearhead.browser.engine import engine_settings
from clearhead.config import DecodeConfig
from clearhead.decoding.decode import decode
from clearhead.decoding.native.engine import NativeEngine
from clearhead.decoding.rules import SearchOptions
from clearhead.files.arrays import write_arrays
from clearhead.model.stored import StoredModel
from every_run import one_in, slow

ROOT = Path(__file__).parents[3]
WIDTHS = {"vocab_size": 61, "d_model": 64, "d_ff": 128, "num_heads": 2}
MODELS = {
    "pre": {},
    "post": {"norm": "post", "attention_bias": True, "output_bias": True},
    "gated": {"gated": True, "activation": "silu", "norm_kind": "rms", "feed_forward_bias": False},
    "learned": {"positions": "learned", "max_positions": 80, "tying": "none", "embedding_norm": True},
    "rotary": {"positions": "rotary", "activation": "gelu", "embedding_scale": False},
    "halves": {"positions": "sinusoidal_halves", "first_position": 1, "activation": "gelu_tanh"},
}
PAGE = """<script type="module">
import { Core, bestForm } from "./web/core.js";
import { StoredArrays, Weights } from "./web/weights.js";
import { search } from "./web/search.js";
const read = async (name, as) => (await fetch(name, { cache: "no-store" }))[as]();
window.found = async (form, model, precision, sources, options) => {
  const module = await WebAssembly.compile(await read(`core-${form ?? bestForm()}.wasm`, "arrayBuffer"));
  const { config, aliases, layout } = await read(`${model}.json`, "json");
  const core = await Core.load(module, layout);
  const arrays = new StoredArrays(await read(`${model}.safetensors`, "arrayBuffer"), aliases, core);
  return search(new Weights(config, arrays, precision), sources, options);
};
</script>"""


@pytest.fixture(scope="module")
def page(browser, site) -> Iterator[Any]:
    with page_with_modules(browser, site, PAGE, "window.found") as page:
        yield page


def both(page, site, model, beam, precision, form, settings=None, **options):
    """Return what the browser and what the native core find: tokens and score of each hypothesis of each sentence."""
    stored = StoredModel.of(model)
    write_arrays(site / "model.safetensors", stored.arrays, {})
    (site / "model.json").write_text(json.dumps(engine_settings(model.config)))
    sources = [[*torch.randint(3, 61, (length - 1,)).tolist(), 2] for length in (1, 9, 2, 17, 40, 5, 33)]
    config = DecodeConfig(beam_size=beam, precision=precision, extra_length=20, **(settings or {}))
    native = decode(NativeEngine(stored, precision), sources, SearchOptions(config, num_best=min(beam, 2)))
    options = {
        "beam": beam,
        "nbest": min(beam, 2),
        "lengthPenalty": config.length_penalty,
        "lengthPenaltyForm": config.length_penalty_form,
        "extraLength": config.extra_length,
        "endLoops": config.end_loops,
        "minLength": config.min_length,
        "noRepeatNgramSize": config.no_repeat_ngram_size,
        **options,
    }
    found = page.evaluate(
        "([form, precision, sources, options]) => found(form, 'model', precision, sources, options)",
        [form, precision, sources, options],
    )
    return (
        [[(tuple(one["tokens"]), one["score"], one["wasEnded"]) for one in best] for best in found],
        [[(one.tokens, one.log_prob, one.was_ended) for one in best] for best in native],
    )


@pytest.mark.parametrize("precision", [slow("fp32"), "int8"])
@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("settings", one_in(3, MODELS.values()), ids=MODELS)
def test_a_browser_finds_the_same_to_the_last_bit(page, site, make_model, settings, beam, precision):
    model = make_model(**{**WIDTHS, "norm": "pre", "num_encoder_layers": 1, "num_decoder_layers": 2, **settings})
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2.0)
    found, native = both(page, site, model, beam, precision, None)
    assert found == native


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("settings", [{"min_length": 12}, {"no_repeat_ngram_size": 2}])
def test_minimum_length_and_no_repeated_ngrams_are_as_in_python(page, site, make_model, settings, beam):
    model = make_model(**WIDTHS, norm="pre")
    found, native = both(page, site, model, beam, "fp32", None, settings)
    assert found == native
    assert found != both(page, site, model, beam, "fp32", None)[0]


@pytest.mark.parametrize("precision", ["fp32", "int8"])
def test_a_greedy_search_without_scores_finds_the_same_tokens(page, site, make_model, precision):
    model = make_model(**WIDTHS, norm="pre")
    found, native = both(page, site, model, 1, precision, None, scores=False)
    assert [[one[0] for one in best] for best in found] == [[one[0] for one in best] for best in native]
    assert {score for best in found for _, score, _ in best} == {0.0}


@pytest.mark.parametrize(
    ("source", "message"),
    [([61, 2], "id 61 is not in the vocabulary of 61"), ([5] * 80 + [2], "81 tokens, but the model has 80 positions")],
)
def test_web_core_rejects_unknown_ids_and_too_many_tokens(page, site, make_model, source, message):
    both(page, site, make_model(**WIDTHS, **MODELS["learned"]), 1, "fp32", None)  # writes the model
    options = {
        "beam": 1,
        "nbest": 1,
        "lengthPenalty": 1,
        "lengthPenaltyForm": "gnmt",
        "extraLength": 5,
        "endLoops": True,
    }
    with pytest.raises(Error, match=message):
        page.evaluate(
            "([sources, options]) => found(null, 'model', 'fp32', sources, options)",
            [[source], options],
        )


@pytest.mark.parametrize("form", ["simd", "plain"])
def test_the_other_forms_find_nearly_the_same(page, site, make_model, form):
    model = make_model(**WIDTHS, norm="pre")
    found, native = both(page, site, model, 4, "fp32", form)
    for one, other in zip(found, native, strict=True):
        assert [tokens for tokens, *_ in one] == [tokens for tokens, *_ in other]
        assert [score for _, score, _ in one] == pytest.approx([score for _, score, _ in other], abs=1e-4)
