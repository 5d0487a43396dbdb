"""A page translates lines as `clearhead serve` answers them: the same texts, tokens, scores, links and flags."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Error

from browsers import page_with_modules
from clearhead.browser.engine import engine_settings
from clearhead.browser.text import text_settings
from clearhead.bundle import Bundle
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import ConfigError, DataError
from clearhead.files.arrays import write_arrays
from clearhead.model.stored import StoredModel
from clearhead.serving.event_stream import text_events
from clearhead.serving.text_translation import translate_texts
from clearhead.tokenizers import Tokenizer
from clearhead.translation.result import translation_object
from clearhead.translation.translator import Translator

COMPILED = {"d_model": 64, "num_heads": 2, "d_ff": 64}
"""A shape that the compiled core supports, in int8 too."""
PAGE = """<script type="module">
import { Core, bestForm } from "./web/core.js";
import { Translator } from "./web/translator.js";
import { Vocabulary } from "./web/vocabulary.js";
import { StoredArrays, Weights } from "./web/weights.js";
const read = async (name, as) => (await fetch(name, { cache: "no-store" }))[as]();
window.load = async (form, precision) => {
  const module = await WebAssembly.compile(await read(`core-${form ?? bestForm()}.wasm`, "arrayBuffer"));
  const settings = await read("settings.json", "json");
  const core = await Core.load(module, settings.layout);
  const arrays = new StoredArrays(await read("model.safetensors", "arrayBuffer"), settings.aliases, core);
  const made = (precision) => new Weights(settings.config, arrays, precision);
  const [weights, scorer] = precision === "fp32" ? [made("fp32")] : [made(precision), made("fp32")];
  const vocabulary = new Vocabulary(await read("tokenizer.json", "json"));
  window.translator = new Translator(weights, vocabulary, settings, () => scorer ?? weights);
};
window.translated = async (texts, how) => {
  const taken = [];
  const answers = await translator.translate(texts, how, { take: (answer) => taken.push(answer.index) });
  return { answers, taken };
};
window.ended = async (texts, times) => {
  const [before, asked] = [translator.weights.core.end, { times: 0, taken: 0 }];
  const goesOn = async () => ++asked.times < times;
  const answers = await translator.translate(texts, {}, { goesOn, take: () => asked.taken++ });
  return { answers, ...asked, isFreed: translator.weights.core.end - before < 1e6 };
};
</script>"""
LINES = [
    "Ein kleiner Hund rennt über die Wiese.",
    "",
    "Zwei Männer sitzen auf einer Bank. Ein kleiner Hund rennt.",
    "  \t ",
    "... 12345",
    "  Ein kleiner\u00a0Hund \r\n",
    "ein kleiner hund rennt",
    "ZWEI MÄNNER SITZEN AUF EINER BANK",
    "Am 3. Mai 2018 kostete es 12,50 €. Zwei Männer!\tJa? Nein.",
    "犬が走る。犬が走る。",
    "Delete <b>%s</b>? 😆 {count} of %s",
    "Żółta łódź płynie po rzece. " * 8,
    "Ein Hund.\n\n  Zwei Männer.\nEnde",
    "ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha ha",
    "</s><pad> \U000f0000 literal",
]


@pytest.fixture(scope="module")
def page(browser, site) -> Iterator[Any]:
    with page_with_modules(browser, site, PAGE, "window.load") as page:
        yield page


@pytest.fixture
def opened(page, site):
    """Return a function that opens a model in the page."""

    def make(
        bundle: Bundle, precision: str = "fp32", form: str | None = None, head: AlignmentHead | None = None
    ) -> Translator:
        stored = StoredModel.of(bundle.model)
        write_arrays(site / "model.safetensors", stored.arrays, {})
        bundle.tokenizer.save(site / "tokenizer.json")
        settings = {
            **engine_settings(bundle.config),
            "decode": bundle.decode.model_dump(mode="json"),
            "text": text_settings(bundle, head),
        }
        (site / "settings.json").write_text(json.dumps(settings))
        page.evaluate("(given) => load(...given)", [form, precision])
        return Translator(bundle)

    return make


def both(page, translator, texts, *, precision="fp32", nbest=1, beam=None, target=None, scores=True):
    """Return the answers of the page and those of Python; tokens as readable text, which ends each sentence."""
    how = {"nbest": nbest, "beam": beam, "target": target, "alignments": True, "scores": scores}
    found = page.evaluate("(given) => translated(...given)", [texts, how])
    assert found["taken"] == list(range(len(texts)))
    tokenizer = translator.bundle.tokenizer
    beam = max(beam or translator.bundle.decode.beam_size, nbest)
    settings = {"precision": precision, "beam_size": beam, "target_lang": target, "place_markup": False}
    made = translate_texts(translator, texts, num_best=nbest, alignments=True, **settings)
    wanted = [json.loads(json.dumps({"index": index, **translation_object(one)})) for index, one in enumerate(made)]
    for answer in found["answers"]:
        ids = [token for token in answer["tokens"] if token != tokenizer.eos_id]
        answer["tokens"] = tokenizer.pieces(ids)
    return found["answers"], wanted


@pytest.mark.parametrize("precision", ["fp32", "int8"])
@pytest.mark.parametrize("beam", [1, 4])
def test_lines_are_answered_as_by_the_server(page, opened, make_bundle, trained_info, beam, precision):
    translator = opened(make_bundle(info=trained_info, decode={"source_lang": "de"}, **COMPILED), precision)
    found, wanted = both(page, translator, LINES, precision=precision, beam=beam)
    for one, other in zip(found, wanted, strict=True):
        assert one == other


def test_links_are_the_same_without_scores(page, opened, make_bundle):
    """So the page asks while a text is typed: its weights in fp32 compute nothing but links."""
    translator = opened(make_bundle(**COMPILED), "int8")
    found, wanted = both(page, translator, LINES, precision="int8", scores=False)
    assert [answer["alignment"] for answer in found] == [answer["alignment"] for answer in wanted]


@pytest.mark.parametrize("split", ["always", "never"])
def test_lines_of_several_sentences(page, opened, make_bundle, split):
    translator = opened(make_bundle(decode={"split": split, "source_lang": "de", "max_input_tokens": 24}, **COMPILED))
    found, wanted = both(page, translator, LINES)
    assert found == wanted
    assert any(answer["source_truncated"] for answer in found)


def test_parts_of_lines_are_answered_as_in_a_stream_of_the_server(page, opened, make_bundle):
    translator = opened(make_bundle(decode={"split": "always", "source_lang": "de"}, **COMPILED))
    found = page.evaluate("(given) => translated(...given)", [LINES, {"inParts": True}])["answers"]
    made = [part for group in text_events(translator, dict(enumerate(LINES)), place_markup=False) for part in group]
    wanted = json.loads(json.dumps(made))
    for answer in [*found, *wanted]:
        for name in ("tokens", "start", "end"):  # here ids, there texts; of streams of the server alone
            answer.pop(name, None)
    assert found == wanted
    assert len(found) > len(LINES)
    texts = ["".join(one["source"] for one in found if one["index"] == index) for index in range(len(LINES))]
    assert texts == LINES


def test_a_unigram_vocabulary(page, opened, make_bundle):
    translator = opened(make_bundle(kind="unigram", **COMPILED))
    found, wanted = both(page, translator, LINES)
    assert found == wanted


def test_alternatives(page, opened, make_bundle):
    translator = opened(make_bundle(decode={"split": "always", "source_lang": "de"}, **COMPILED))
    found, wanted = both(page, translator, LINES, nbest=5)
    assert found == wanted
    assert max(len(answer["alternatives"]) for answer in found) == 5


@pytest.mark.slow
def test_every_form_of_the_core(page, opened, make_bundle):
    for form in ("simd", "plain"):
        translator = opened(make_bundle(**COMPILED), form=form)
        found, wanted = both(page, translator, LINES)
        assert [answer["text"] for answer in found] == [answer["text"] for answer in wanted]
        scores = [[answer["score"] or 0 for answer in answers] for answers in (found, wanted)]
        assert scores[0] == pytest.approx(scores[1], rel=1e-5, abs=1e-3)


@pytest.mark.parametrize("protect_numbers", [False, True])
def test_placeholders_are_kept(page, opened, make_bundle, protect_numbers):
    decode = {"protect_numbers": protect_numbers, "extra_length": 3}
    translator = opened(make_bundle(placeholders=True, decode=decode, **COMPILED))
    lines = [*LINES, "<b>a</b> <i>b</i> %s %s {x} {y}", "</b> a <b>", "%1$s " * 20, "{% if x %}a{% else %}b{% endif %}"]
    found, wanted = both(page, translator, lines, nbest=2)
    for answer in [*found, *wanted]:
        del answer["tokens"]  # Python's have the placeholders again
    assert found == wanted
    assert not any("placeholders" in answer["warnings"] for answer in found[: len(LINES)])


@pytest.mark.slow
def test_heads_that_align(page, opened, make_bundle, tmp_path):
    for head in (AlignmentHead(0, 1), AlignmentHead(1, None, True), AlignmentHead(0, 0, True)):
        bundle = make_bundle(num_decoder_layers=2, **COMPILED)
        bundle.info = {"guided_alignment": head._asdict()}
        found, wanted = both(page, opened(bundle, head=head), LINES)
        assert [answer["alignment"] for answer in found] == [answer["alignment"] for answer in wanted]


def test_the_target_language_is_a_tag_of_the_source(page, opened, make_bundle):
    translator = opened(make_bundle(language_tags=("de", "fr"), **COMPILED))
    lines = ["A small dog", "<2fr> A small dog", ">>de<< A dog.", "<2de> ", "<3x> is text"]
    found, wanted = both(page, translator, lines, target="de")
    assert found == wanted
    assert found[0]["text"] != found[1]["text"]
    for line, target, error in (("Ja.\n", None, ConfigError), ("<2xx> a", "de", DataError), ("a", "x?!", ConfigError)):
        with pytest.raises(error) as wanted_error:
            translator.translate([line.strip()], target_lang=target)
        with pytest.raises(Error) as found_error:
            page.evaluate("(given) => translated(...given)", [[line], {"target": target}])
        message = str(wanted_error.value).partition(", or say")[0]
        assert message in str(found_error.value)


def test_half_a_character_is_refused(page, opened, make_bundle):
    opened(make_bundle(**COMPILED))
    with pytest.raises(Error, match=r"text 2 holds an unpaired surrogate \(U\+D83D\) at character 3"):
        page.evaluate("() => translated(['a', 'bc\\ud83d'], {})")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([["a"], {"beam": 2.5}], "beam must be a whole number from 1 to 1000, not 2.5"),
        ([["a"], {"nbest": 0}], "nbest must be a whole number from 1 to 1000, not 0"),
        (["a", {}], "texts must be a list of texts"),
        ([[None], {}], "texts must be a list of texts"),
    ],
)
def test_wrong_arguments_are_refused(page, opened, make_bundle, given, message):
    opened(make_bundle(**COMPILED))
    with pytest.raises(Error, match=message):
        page.evaluate("(given) => translated(...given)", given)


def test_blank_translations_are_replaced(page, opened, make_bundle):
    """By the next best one, or by the source; a bundle whose bytes of white space are likely writes many."""
    import torch

    bundle = make_bundle(output_bias=True, **COMPILED)
    ids = [bundle.tokenizer.encode(text)[0] for text in (" ", "\t")]
    with torch.no_grad():
        bundle.model.output_proj.bias[bundle.tokenizer.eos_id] += 18
        bundle.model.output_proj.bias[ids] += 16
    translator = opened(bundle)
    for nbest in (1, 3):
        found, wanted = both(page, translator, LINES, nbest=nbest)
        assert found == wanted
        assert any("empty" in answer["warnings"] for answer in found)


def test_a_search_can_be_ended_at_any_time(page, opened, make_bundle):
    opened(make_bundle(**COMPILED))
    (whole,) = [page.evaluate("(given) => ended(...given)", [LINES, 1e9])]
    assert len(whole["answers"]) == whole["taken"] == len(LINES)
    for times in (1, 2, 5, 9):
        found = page.evaluate("(given) => ended(...given)", [LINES, times])
        assert (found["answers"], found["times"], found["isFreed"]) == (None, times, True)
        assert found["taken"] < len(LINES)


@pytest.mark.slow  # a busy machine could disturb it
@pytest.mark.parametrize("part", ["a ", "<b ", "a.b@", "{ %", "ha", "1.", "*a", "((", "   ", "A-B’", "犬"])
def test_a_long_line_takes_time_in_proportion(page, opened, make_bundle, part):
    opened(make_bundle(decode={"max_input_tokens": 64, "split": "never"}, **COMPILED))
    seconds = page.evaluate(
        """async (part) => {
          const times = [];
          for (const length of [20_000, 20_000, 200_000]) {
            const before = performance.now();
            await translated([`Ein ${part.repeat(length / part.length)} Hund`], { alignments: true });
            times.push((performance.now() - before) / 1000);
          }
          return times;
        }""",
        part,
    )
    assert seconds[2] < 30 * seconds[1] + 1


@pytest.mark.slow
def test_a_thousand_sentences_of_multi30k(page, opened, make_bundle, data_dir):
    directory = data_dir("multi30k")
    with gzip.open(directory / "test2016.de.gz", "rt", encoding="utf-8") as lines:
        texts = [line.rstrip("\n") for line in lines][:1_000]
    tokenizer = Tokenizer.train(texts, vocab_size=1_000)
    bundle = make_bundle(**COMPILED, vocab_size=tokenizer.vocab_size)
    translator = opened(Bundle(bundle.model, tokenizer, bundle.decode), "int8")
    found, wanted = both(page, translator, texts, precision="int8")
    differing = [(one, other) for one, other in zip(found, wanted, strict=True) if one != other]
    assert differing == []
