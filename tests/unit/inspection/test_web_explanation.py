"""Explanations that a page makes by itself are those of Python: pages/web, in a browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Error, expect
from unpacking import unpacked

from browsers import page_with_modules, serious
from clearhead.browser.engine import engine_settings
from clearhead.browser.text import text_settings
from clearhead.browser.writer import explanation_settings
from clearhead.files.arrays import write_arrays
from clearhead.inspection.explain import explain
from clearhead.inspection.head_roles import cross_roles, role_rules, self_roles
from clearhead.inspection.head_statistics import head_statistics
from clearhead.inspection.page import packed, packed_rows, packed_weights, plain_values, render_page
from clearhead.inspection.tokens import token_words
from clearhead.model.stored import StoredModel
from clearhead.tokenizers import Tokenizer
from clearhead.translation.translator import Translator
from every_run import one_in, slow

WIDTHS = {"d_model": 64, "num_heads": 2, "d_ff": 128, "num_decoder_layers": 3}
MODELS: dict[str, dict[str, Any]] = {
    "pre-norm": {},
    "post-norm": {"norm": "post", "attention_bias": True, "output_bias": True},
    "rotary": {"positions": "rotary", "output_scale": True, "num_heads": 4, "d_k": 32, "d_v": 16},
    "gated": {"gated": True, "activation": "silu", "norm_kind": "rms", "num_encoder_layers": 1},
    "untied": {"tying": "none", "embedding_norm": True, "norm": "post", "final_norm": True},
}
TEXT, TRANSLATION = "Ein Hund <b>rennt</b> 犬 über %s 3,5 Wiesen.", "A <b>dog</b>\u00a0runs %s.\u2009犬 走る"
MODULES = {
    "core": "bestForm, Core",
    "explaining": "explain",
    "head_roles": "selfRoles, crossRoles",
    "head_statistics": "headStatistics",
    "packing": "packed, packedRows, packedWeights",
    "token_words": "tokenWords",
    "translator": "Translator",
    "vocabulary": "Vocabulary",
    "weights": "StoredArrays, Weights",
}
PAGE = """<!doctype html><script type="module">
{imports}
const read = async (name, as) => (await fetch(name, {{ cache: "no-store" }}))[as]();
window.js = {{ {names} }};
window.array = ({{ values, shape }}) => ({{ values: Float32Array.from(values), shape }});
window.load = async () => {{
  const settings = await read("settings.json", "json");
  const module = await WebAssembly.compile(await read(`core-${{bestForm()}}.wasm`, "arrayBuffer"));
  const core = await Core.load(module, settings.layout);
  const arrays = new StoredArrays(await read("model.safetensors", "arrayBuffer"), settings.aliases, core);
  const weights = new Weights(settings.config, arrays, "fp32");
  window.translator = new Translator(weights, new Vocabulary(await read("tokenizer.json", "json")), settings);
}};
</script>"""


@pytest.fixture(scope="module")
def page(browser, site) -> Iterator[Any]:
    imports = "\n".join(f'import {{ {names} }} from "./web/{module}.js";' for module, names in MODULES.items())
    html = PAGE.format(imports=imports, names=", ".join(MODULES.values()))
    with page_with_modules(browser, site, html, "window.js") as page:
        yield page


def sent(array: np.ndarray) -> dict[str, Any]:
    return {"values": array.ravel().tolist(), "shape": list(array.shape)}


def attention(rows: int, columns: int, *, is_causal: bool = False) -> np.ndarray:
    """Return weights of ten heads, of every role: even and sharp ones, diagonals, and some with one key or few."""
    rng = np.random.default_rng(7)
    scores = rng.normal(size=(2, 5, rows, columns)) * np.array([0.01, 1.0, 2.5, 6.0, 1.0])[:, None, None]
    away = np.arange(columns)[None] - np.arange(rows)[:, None]
    scores[0, 4] += 8.0 * (away == -1)
    scores[1, 0] += 6.0 * (away == 1) + 9.0 * (away == 0)
    scores[1, 1, :, 2] += 7.0
    scores[1, 2] += 2.5 * (np.abs(away) <= 1)
    scores[1, 3] -= 0.7 * np.abs(away) - 5.0
    if is_causal:
        scores = np.where(away <= 0, scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (weights / weights.sum(axis=-1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize(
    ("encode", "name"), [(packed, "packed"), (packed_rows, "packedRows"), (packed_weights, "packedWeights")]
)
def test_arrays_are_packed_as_in_python(page, encode, name):
    rng = np.random.default_rng(3)
    array = rng.uniform(size=(3, 5, 7)).astype(np.float32)
    if encode is not packed_weights:
        array = (array - 0.5) * np.float32(10.0) ** rng.integers(-6, 6, size=(3, 5, 1))
        array[1, 2] = 0.0
    found = page.evaluate(f"(sent) => js.{name}(array(sent))", sent(array.astype(np.float32)))
    expected = encode(array.astype(np.float32))
    assert found["data"] == expected["data"]
    assert found == expected


@pytest.mark.parametrize(
    ("is_self", "is_causal", "shape"),
    [(True, False, (9, 9)), (True, True, (9, 9)), (False, False, (7, 11)), (True, False, (1, 1))],
)
def test_head_statistics_in_javascript_equal_python(page, is_self, is_causal, shape):
    weights = attention(9, 9, is_causal=is_causal) if shape == (9, 9) else attention(7, 11)[..., : shape[0], : shape[1]]
    weights /= weights.sum(axis=-1, keepdims=True)
    kind = {"isSelf": is_self, "isCausal": is_causal}
    found = page.evaluate("([sent, kind]) => js.headStatistics(array(sent), kind)", [sent(weights), kind])
    expected = head_statistics(weights, is_self=is_self, is_causal=is_causal)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(found[name], values, rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("is_causal", [False, True])
def test_self_roles_in_javascript_equal_python(page, is_causal):
    weights = attention(9, 9, is_causal=is_causal)
    tokens = [" Ein", "\u00a0", "a\tb", "x" * 30, "\u200b", "犬", " ", ".", "</s>"]
    expected = plain_values(self_roles(weights, tokens, is_causal=is_causal), digits=6)
    found = page.evaluate(
        "([rules, sent, tokens, isCausal]) => js.selfRoles(rules, array(sent), tokens, isCausal)",
        [role_rules(), sent(weights), tokens, is_causal],
    )
    kinds = {role["kind"] for layer in expected for role in layer}
    assert len(kinds) > 4, kinds
    assert_near(found, expected)


def test_cross_roles_in_javascript_equal_python(page):
    weights = attention(7, 11)
    alignment = weights.mean(axis=(0, 1))
    tokens = [f"t{number}" for number in range(7)], [f"s{number}" for number in range(11)]
    has_text = np.arange(11) % 4 != 0
    for seen in (has_text, np.zeros(11, dtype=bool)):
        expected = plain_values(cross_roles(weights, alignment, tokens, seen), digits=6)
        found = page.evaluate(
            "([rules, sent, alignment, tokens, seen]) => "
            "js.crossRoles(rules, array(sent), array(alignment), tokens, seen)",
            [role_rules(), sent(weights), sent(alignment), tokens, seen.tolist()],
        )
        assert_near(found, expected)


def test_token_words_in_javascript_equal_python(page, sentences):
    tokenizer = Tokenizer.train(sentences, vocab_size=339)
    texts = [*sentences, "l'été e\u0301te\u0301 👩\u200d👩\u200d👧 क्षत्रिय", "  犬が 3.5 走る ไทย  ", "a-b_c 𐐷𝒳", ""]
    for text in texts:
        ids = tokenizer.encode(text)
        spans = [None if start == end else (start, end) for start, end in tokenizer.source_spans(ids, text)]
        found = page.evaluate("([text, spans]) => js.tokenWords(text, spans)", [text, spans])
        assert found == plain_values(token_words(text, spans)), text


def assert_near(found: Any, expected: Any, path: str = "", *, tolerance: float = 1e-4) -> None:
    """Require equal keys, texts and whole numbers, and other numbers within the tolerance; arrays may be packed."""
    if isinstance(expected, dict) and "data" in expected:
        assert (found["type"], found["shape"]) == (expected["type"], expected["shape"]), path
        # Rounding to 8 bits may go to the next of 254 steps.
        step = unpacked(expected["scales"]).max() if expected["type"] == "int8" else 0.0
        values = unpacked(expected)
        least = max(tolerance, 1e-5 * np.abs(values).max(initial=0.0))  # small numbers are sums of large ones
        np.testing.assert_allclose(unpacked(found), values, rtol=4e-5, atol=least + step, err_msg=path)
    elif isinstance(expected, dict):
        assert found.keys() == expected.keys(), path
        for key, value in expected.items():
            assert_near(found[key], value, f"{path}.{key}", tolerance=tolerance)
    elif isinstance(expected, list | tuple):
        assert len(found) == len(expected), path
        for place, (one, other) in enumerate(zip(found, expected, strict=True)):
            assert_near(one, other, f"{path}[{place}]", tolerance=tolerance)
    elif isinstance(expected, float) and not isinstance(found, bool):
        assert found == pytest.approx(expected, abs=tolerance, rel=1e-5), path
    else:
        assert found == expected, path


@pytest.fixture
def load(page, site, make_translator):
    """Return a function that loads a model, or one of these settings, into the page; it returns its translator."""

    def load(translator: Translator | None = None, **settings: Any) -> Translator:
        info = {"settings": {"train": {"label_smoothing": 0.1}}}
        translator = translator or make_translator(**{**WIDTHS, "info": info, **settings})
        bundle = translator.bundle
        write_arrays(site / "model.safetensors", StoredModel.of(bundle.model).arrays, {})
        (site / "tokenizer.json").write_text(bundle.tokenizer.text)
        known = engine_settings(bundle.config) | {
            "decode": bundle.decode.model_dump(mode="json"),
            "text": text_settings(bundle),
            "explanation": explanation_settings(bundle),
        }
        (site / "settings.json").write_text(json.dumps(known))
        page.evaluate("() => load()")
        return translator

    return load


@pytest.mark.parametrize("target", [slow(None), TRANSLATION], ids=["found", "given"])
@pytest.mark.parametrize("settings", one_in(5, MODELS.values()), ids=MODELS)
def test_explain_in_javascript_equals_python(page, load, settings, target):
    translator = load(**settings)
    expected = explain(translator, TEXT, target, beam_size=3).to_dict(packed=True)
    request = {"text": TEXT, "translation": target, "beam": 3}
    found = page.evaluate("(request) => js.explain(translator, request)", request)
    assert found.pop("computation") is not None
    assert_near(found, json.loads(json.dumps(expected)))


@pytest.mark.slow
def test_a_language_tag_and_the_head_that_aligns_words_count_as_in_python(page, load, make_bundle):
    info = {"guided_alignment": {"layer": 1, "head": 0, "is_reading": True}}
    bundle = make_bundle(**WIDTHS, kind="unigram", language_tags=("de", "fr"), info=info)
    translator = load(Translator(bundle))
    for text, language in (("A small dog", "fr"), ("<2de> A small dog", None)):
        expected = explain(translator, text, target_lang=language, beam_size=2).to_dict(packed=True)
        assert expected["source_tokens"][0] == f"<2{language or 'de'}>"
        request = {"text": text, "target": language, "beam": 2}
        found = page.evaluate("(request) => js.explain(translator, request)", request)
        del found["computation"]
        assert_near(found, json.loads(json.dumps(expected)))
    with pytest.raises(Error, match="line 1: into which language"):
        page.evaluate("() => js.explain(translator, { text: 'A small dog' })")


@pytest.mark.slow
@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
def test_the_computation_ends_in_the_states_and_probabilities_of_the_model(page, load, settings):
    translator = load(**settings)
    explanation = explain(translator, TEXT, TRANSLATION, search=False)
    request = {"text": TEXT, "translation": TRANSLATION}
    found = page.evaluate("(request) => js.explain(translator, request)", request)["computation"]
    states, config, first = explanation.residual("decoder"), translator.bundle.config, slice(found["components"])
    assert len(found["steps"]) == len(explanation.steps)
    for number, step in enumerate(found["steps"]):
        if not step["embedding"]["hasNorm"]:
            np.testing.assert_allclose(step["embedding"]["sum"], states[0, number, first], atol=1e-4)
        for layer, sublayers in enumerate(step["layers"]):
            np.testing.assert_allclose(sublayers[0]["input"], states[layer, number, first], atol=1e-4)
            for name, sublayer in zip(("decoder", "cross"), sublayers, strict=False):
                heads = [explanation.head(name, layer, head).outputs[number, first] for head in range(config.num_heads)]
                np.testing.assert_allclose(sublayer["heads"], heads, atol=1e-4)
            if layer + 1 < config.num_decoder_layers:
                last = sublayers[-1]["after"]
                output = sublayers[-1]["sum"] if last is None else last["output"]
                np.testing.assert_allclose(output, states[layer + 1, number, first], atol=2e-3)
        norm = step["output"]["norm"]
        output = step["output"]["input"] if norm is None else norm["output"]
        np.testing.assert_allclose(output, states[-1, number, first], atol=2e-3)
        for logit, candidate in zip(step["output"]["logits"], explanation.steps[number].candidates, strict=True):
            assert logit["token"] == candidate.token
            assert logit["probability"] == pytest.approx(candidate.probability, abs=1e-4)
            log_sums = [one["log_sum"] for one in step["output"]["logits"]]
            assert log_sums == pytest.approx([log_sums[0]] * len(log_sums), abs=1e-3)


@pytest.mark.slow
def test_explain_in_javascript_equals_python_with_beam_1_and_long_sentences(page, load):
    translator = load(decode={"beam_size": 1})
    text = "Zwei Männer sitzen auf einer Bank. " * 12  # the vectors of so many tokens are rounded, or left out
    for some in (text[: len(text) // 3], text):
        expected = explain(translator, some).to_dict(packed=True)
        found = page.evaluate("(text) => js.explain(translator, { text })", some)
        del found["computation"]
        assert_near(found, json.loads(json.dumps(expected)))


@pytest.mark.parametrize(
    ("text", "limits", "message"),
    [
        ("  \u3000", {}, "there is nothing to explain: the text is empty; give a sentence to translate"),
        ("Hund " * 9, {"max_input_tokens": 5}, r"the text has \d+ tokens; at most 5 can be explained"),
        ("Hund " * 9, {"max_page_weights": 1_000}, r"a page holds at most 1,000 attention weights, and this sentence"),
        ("a\ud800", {}, "unpaired surrogate"),
    ],
)
def test_web_explain_rejects_empty_and_overlong_text_and_surrogates(page, load, text, limits, message):
    load()
    for name, limit in limits.items():
        page.evaluate(
            "([name, limit]) => { for (const part of ['decode', 'explanation'])"
            " if (name in translator.settings[part]) translator.settings[part][name] = limit; }",
            [name, limit],
        )
    with pytest.raises(Error, match=message):
        page.evaluate("(units) => js.explain(translator, { text: String.fromCharCode(...units) })", units(text))


def units(text: str) -> list[int]:
    """Return the UTF-16 code units of a text, which may have half a character."""
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[at : at + 2], "little") for at in range(0, len(data), 2)]


@pytest.mark.slow
def test_cancelled_web_explain_frees_its_memory(page, load):
    load()
    ends = page.evaluate(
        """async (text) => {
          const { core } = translator.weights;
          await js.explain(translator, { text });
          const ends = [core.end];
          let asked = 0;
          await js.explain(translator, { text }, { goesOn: async () => (asked += 1) > 0 });
          for (let most = 0; most < asked; most++) {
            let left = most;
            const found = await js.explain(translator, { text }, { goesOn: async () => left-- > 0 });
            if (found !== null) throw new Error(`asked ${asked} times, it went on after ${most}`);
            ends.push(core.end);
          }
          return ends;
        }""",
        TEXT,
    )
    assert len(ends) > 10
    assert len(set(ends)) == 1


@pytest.mark.slow
def test_the_page_of_an_explanation_draws_it(browser, page, load, tmp_path):
    load()
    found = page.evaluate("(text) => js.explain(translator, { text })", TEXT)
    (tmp_path / "page.html").write_text(render_page(found), encoding="utf-8")
    drawn, complaints = browser.new_page(), []
    drawn.on("console", lambda message: complaints.append(message.text))
    drawn.on("pageerror", lambda error: complaints.append(str(error)))
    drawn.goto((tmp_path / "page.html").as_uri())
    for section in ("heads", "row", "computation", "steps", "search", "lens", "statistics"):
        drawn.locator(f"#{section}").scroll_into_view_if_needed()
        expect(drawn.locator(f"#{section}")).to_be_visible()
    # Each number of the computation, as the chosen step and layer have it.
    drawn.locator("#steps-table tbody tr").nth(2).click()
    drawn.locator("#computation-layer").select_option("1")
    lines = drawn.locator("#computation-lines > li")
    expect(lines).to_have_count(5)  # embedding, two attentions, feed-forward network, output
    shown = lines.nth(3).locator("table tr").first.locator("td.number").all_inner_texts()
    own = found["computation"]["steps"][2]["layers"][1][2]["input"]
    assert [float(text.replace("−", "-")) for text in shown] == pytest.approx(own, abs=6e-5)
    assert found["target_tokens"][2].strip() in drawn.locator("#computation-title").inner_text()
    expect(drawn.locator("#steps-table tbody tr")).to_have_count(len(found["steps"]))
    expect(drawn.locator("#attribution")).to_be_hidden()
    drawn.set_viewport_size({"width": 390, "height": 844})
    drawn.emulate_media(color_scheme="dark")
    assert drawn.evaluate("document.documentElement.scrollWidth") == 390
    found_by_axe = serious(Axe().run(drawn))
    drawn.close()
    assert complaints == []
    assert found_by_axe == []
