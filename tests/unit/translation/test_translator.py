from __future__ import annotations

import math
import random
from collections import Counter
from itertools import product
from pathlib import Path

import pytest
import torch
from sacrebleu.metrics.chrf import CHRF

from clearhead.bundle import Bundle, save_bundle
from clearhead.config import ModelConfig
from clearhead.decoding import NativeEngine, Sampling, SearchOptions, learn_shortlist, make_engine
from clearhead.errors import ClearheadError, ConfigError, DataError, DeviceError, ModelError
from clearhead.inspection.explain import explain
from clearhead.model import Transformer
from clearhead.text.placeholders import SIGNS, placeholder
from clearhead.translation.translator import Translator
from every_run import slow

STORED_MODEL = Path(__file__).parents[2] / "compat" / "0.1.0" / "run"

ODD_LINES = [
    "",
    "   ",
    "\t",
    "\u3000",
    "Ein Hund.",
    "x",
    "👩‍👩‍👧 ﷽ 犬\u2028.",
    "  two  spaces  ",
    "</s> <pad> <2de>",
    "a\rb",
    "Ein Hund.",
]


@pytest.fixture(scope="module")
def translator(make_bundle) -> Translator:
    return Translator(make_bundle(**SHAPES["compiled"]))


@pytest.fixture(scope="module")
def tagged(make_bundle) -> Translator:
    return Translator(make_bundle(language_tags=("de", "fr"), **SHAPES["compiled"]))


@pytest.fixture(scope="module")
def with_placeholders(make_bundle) -> Translator:
    return Translator(make_bundle(placeholders=True, **SHAPES["compiled"]))


def test_an_ensemble_is_a_list(make_model_dir):
    with pytest.raises(ConfigError, match="ensemble must be a list of models; for one write"):
        Translator.load(make_model_dir(), ensemble="runs/other")


def test_one_line_in_is_one_translation_out_in_order(translator, sentences):
    lines = [*sentences, *ODD_LINES]
    found = translator.translate(lines)
    assert [translation.source for translation in found] == lines
    for line, translation in zip(lines, found, strict=True):
        alone = translator.translate([line])[0]
        assert (alone.text, alone.tokens) == (translation.text, translation.tokens)
        assert alone.score == pytest.approx(translation.score, rel=1e-6, abs=1e-4)


def test_translations_do_not_depend_on_batch_tokens(translator, sentences):
    lines = [*sentences, *ODD_LINES]
    texts = [[t.text for t in translator.translate(lines, batch_tokens=tokens)] for tokens in (1, 97, 9_999)]
    assert texts[0] == texts[1] == texts[2]


def test_blank_lines_give_empty_translations(translator):
    for translation in translator.translate(["", " ", "\t \t", "\u3000\u00a0"], num_best=2):
        assert (translation.text, translation.score, translation.tokens) == ("", 0.0, ())
        assert not translation.truncated
        assert translation.alternatives == ()
    assert translator.score([" ", "", "\t"], [""] * 3) == [0.0] * 3


def test_a_line_with_nothing_but_a_tag_is_blank(tagged):
    assert [translation.text for translation in tagged.translate(["<2de>", "<2fr>   "])] == ["", ""]


def test_translate_and_score_of_an_empty_list_are_empty(translator):
    assert translator.translate([]) == []
    assert translator.score([], []) == []


def test_the_tokens_spell_the_text(translator, sentences):
    for translation in translator.translate(sentences):
        assert len(translation.tokens) > 0
        assert "</s>" not in translation.tokens
        if "\ufffd" not in "".join(translation.tokens):
            assert "".join(translation.tokens).removeprefix(" ") == translation.text


def test_first_alternative_is_the_translation(translator, sentences):
    for translation in translator.translate(sentences, num_best=3):
        assert (translation.alternatives[0].text, translation.alternatives[0].score) == (
            translation.text,
            translation.score,
        )
    assert all(translation.alternatives == () for translation in translator.translate(sentences))


def test_settings_are_the_models_own_unless_given(make_bundle, sentences):
    greedy = Translator(make_bundle(decode={"beam_size": 1}, **SHAPES["compiled"]))
    wide = Translator(make_bundle(decode={"beam_size": 5, "length_penalty": 2.0}, **SHAPES["compiled"]))
    texts = [translation.text for translation in greedy.translate(sentences)]
    assert [translation.text for translation in wide.translate(sentences)] != texts
    assert [t.text for t in wide.translate(sentences, beam_size=1)] == texts
    assert [t.text for t in greedy.translate(sentences, beam_size=None)] == texts


def test_a_long_line_is_cut_and_flagged_and_its_neighbours_are_not(translator):
    limit = 13
    short, long = "Ein Hund.", "Zwei Männer sitzen auf einer Bank. " * 2
    assert len(translator.bundle.tokenizer.encode(short)) < limit < len(translator.bundle.tokenizer.encode(long))
    found = translator.translate([short, long, short], max_input_tokens=limit)
    assert [translation.source_truncated for translation in found] == [False, True, False]
    assert found[1].truncated
    assert found[1].text
    assert found[0].text == found[2].text == translator.translate([short])[0].text
    assert not translator.translate([long])[0].source_truncated


def test_a_line_of_just_the_limit_is_not_cut(translator):
    line = "Zwei Männer sitzen auf einer Bank."
    length = len(translator.bundle.tokenizer.encode(line)) + 1  # the end token counts
    assert not translator.translate([line], max_input_tokens=length)[0].source_truncated
    assert translator.translate([line], max_input_tokens=length - 1)[0].source_truncated


@pytest.mark.parametrize("settings", [{}, {"beam_size": 1}, {"sampling": Sampling()}])
def test_a_translation_that_the_length_limit_ended_is_flagged(make_bundle, sentences, settings):
    bundle = make_bundle(output_bias=True)
    translator = Translator(bundle)
    with torch.no_grad():
        bundle.model.output_proj.bias[bundle.tokenizer.eos_id] = -1e4
    found = translator.translate(["", *sentences], **settings)
    assert [translation.output_truncated for translation in found] == [False] + [True] * len(sentences)
    assert [translation.truncated for translation in found] == [False] + [True] * len(sentences)
    assert not any(translation.source_truncated for translation in found)
    with torch.no_grad():
        bundle.model.output_proj.bias[bundle.tokenizer.eos_id] = 1e4
    assert not any(translation.truncated for translation in translator.translate(sentences, **settings))


def test_a_translation_that_the_last_position_ended_is_flagged(make_bundle):
    bundle = make_bundle(output_bias=True, positions="learned", max_positions=9, decode={"extra_length": 50})
    with torch.no_grad():
        bundle.model.output_proj.bias[bundle.tokenizer.eos_id] = -1e4
    found = Translator(bundle).translate(["犬", "Zwei Männer sitzen auf einer Bank."])
    assert [translation.output_truncated for translation in found] == [True, True]
    assert [translation.source_truncated for translation in found] == [False, True]


def test_progress_counts_the_lines_that_are_translated(translator):
    done: list[int] = []
    translator.translate(ODD_LINES, on_progress=done.append, batch_tokens=1)
    assert sum(done) == sum(bool(line.strip()) for line in ODD_LINES)
    done.clear()
    translator.score(["x", "", "y"], ["a", "b", ""], on_progress=done.append)
    assert sum(done) == 3


def test_samples_are_repeatable_and_differ_by_seed(translator, sentences):
    def draw(seed):
        return [t.text for t in translator.translate(sentences, sampling=Sampling(seed=seed, temperature=3.0))]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_the_target_language_is_that_of_the_line_then_of_the_call_then_of_the_model(make_bundle, tagged):
    lines = ["Ein Hund.", "Zwei Männer sitzen auf einer Bank."]
    german, french = (
        [t.text for t in tagged.translate([f"<2{tag}> {line}" for line in lines])] for tag in ("de", "fr")
    )
    assert german != french
    assert [t.text for t in tagged.translate(lines, target_lang="fr")] == french
    mixed = [f"<2de> {lines[0]}", lines[1]]
    assert [t.text for t in tagged.translate(mixed, target_lang="fr")] == [german[0], french[1]]
    bundle = make_bundle(language_tags=("de", "fr"), decode={"target_lang": "de"}, **SHAPES["compiled"])
    assert [t.text for t in Translator(bundle).translate(lines)] == german


@pytest.mark.parametrize("line", ["<2xx> Ein Hund.", "<2DE> Ein Hund.", "<2xx>"])
def test_a_line_with_an_unknown_tag_is_named_with_the_tags_there_are(tagged, line):
    message = r"line 2: unknown language tag <2..>; the model's tags are <2de>, <2fr>"
    with pytest.raises(DataError, match=message):
        tagged.translate(["Ein Hund.", line], target_lang="de")
    with pytest.raises(DataError, match=message):
        tagged.score(["Ein Hund.", line], ["A dog.", "A dog."])


def test_a_line_without_a_language_is_named_with_the_languages_there_are(tagged):
    message = r"^in.txt, line 13: into which language\? This model translates into de, fr; start the line with .*<2de>"
    with pytest.raises(ConfigError, match=message):
        tagged.translate(["", "<2fr> Ein Hund.", "Ein Hund."], name="in.txt", first=11)
    with pytest.raises(ConfigError, match=r"^line 1: into which language\?"):
        tagged.score(["Ein Hund."], ["A dog."])


def test_language_tags_within_a_line_or_unknown_to_the_model_are_text(tagged, translator):
    assert tagged.translate(["<2de> Ein <2xx> Hund."])[0].text
    assert translator.translate(["<2xx> Ein Hund."])[0].text != translator.translate(["Ein Hund."])[0].text


# Prefixes


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("bpe", {}),
        ("bpe", {"beam_size": 1}),
        ("bpe", {"sampling": Sampling(temperature=2.0)}),
        ("unigram", {"num_best": 3}),
        ("wordpiece", {"num_best": 3}),
    ],
)
def test_a_prefix_is_kept_to_the_letter_and_the_score_is_the_models_own(make_bundle, sentences, kind, settings):
    translator = Translator(make_bundle(kind=kind, **SHAPES["compiled"]))
    prefixes = ["A small d", "", " ", "Żół", "12,5", "犬 ", "x  y\t", "</s> sits"]
    for prefix, begins in ((prefixes[0], prefixes[:1] * 8), (prefixes, prefixes)):  # of all lines, and of each
        found = translator.translate([*sentences], prefix=prefix, **settings)
        for begin, translation in zip(begins, found, strict=True):
            assert all(one.text.startswith(begin) for one in (translation, *translation.alternatives))
        written = [(one.source, each) for one in found for each in (one.alternatives or (one,))]
        own = translator.score([source for source, _ in written], [each.text for _, each in written])
        assert [each.score for _, each in written] == pytest.approx(own, abs=1e-4)


def test_no_prefix_changes_no_bit(translator, sentences):
    free = translator.translate(sentences, num_best=3)
    assert translator.translate(sentences, num_best=3, prefix="") == free
    assert translator.translate(sentences, num_best=3, prefix=[""] * len(sentences)) == free


def test_greedy_search_with_a_prefix_of_its_output_finds_the_same_tokens():
    translator = Translator.load(STORED_MODEL)  # a trained one: it writes words as its tokenizer encodes them
    tokenizer = translator.bundle.tokenizer
    lines = ["sechs sieben acht", "drei Hunde", "vier zehn"]
    within_pieces = 0
    for found in translator.translate(lines, beam_size=1):
        for cut in range(1, len(found.text)):
            *whole, last = tokenizer.pieces(tokenizer.encode(found.text[:cut]))
            same, following = found.tokens[: len(whole)], found.tokens[len(whole) :]
            # Where the end of the beginning is encoded in other pieces, the model may go on otherwise.
            if same == tuple(whole) and following and following[0].startswith(last):
                (again,) = translator.translate([found.source], beam_size=1, prefix=found.text[:cut])
                assert again.tokens == found.tokens
                within_pieces += following[0] != last
    assert within_pieces >= 5


def test_a_first_word_that_the_model_would_not_write_is_kept(translator, sentences):
    for found in translator.translate(sentences, prefix="犬 meadow "):
        assert found.text.startswith("犬 meadow ")


def test_a_blank_line_stays_blank(translator):
    assert translator.translate(["", " "], prefix="A dog") == translator.translate(["", " "])


def test_prefixes_that_cannot_be_are_refused(translator, make_bundle):
    with pytest.raises(DataError, match="2 prefixes but 1 lines; give one text, or one for each line"):
        translator.translate(["Ein Hund."], prefix=["A", "B"])
    with pytest.raises(DataError, match="0 prefixes but 1 lines"):
        translator.translate(["Ein Hund."], prefix=[])
    with pytest.raises(DataError, match="prefix must be a list of texts, not int"):
        translator.translate(["Ein Hund."], prefix=3)
    with pytest.raises(ConfigError, match="a prefix has a line end"):
        translator.translate(["Ein Hund."], prefix="A\ndog", one_line=True)
    few = Translator(make_bundle(positions="learned", max_positions=9))
    with pytest.raises(DataError, match=r"a prefix has \d+ tokens; this model writes at most 9, the end included"):
        few.translate(["Ein Hund."], prefix="A small dog runs across the meadow on May 3, 2018.")


# Scoring


def test_scores_are_in_input_order_and_independent_of_other_lines(translator, sentences):
    sources, targets = list(sentences), list(reversed(sentences))
    together = translator.score(sources, targets)
    alone = [translator.score([source], [target])[0] for source, target in zip(sources, targets, strict=True)]
    assert [f"{score:.6f}" for score in together] == [f"{score:.6f}" for score in alone]
    assert all(score < 0 for score in together)
    assert len(set(together)) == len(together)


def test_an_empty_target_scores_its_end_and_an_empty_source_is_allowed(translator):
    scores = translator.score(["Ein Hund.", ""], ["", "A dog."])
    assert all(-1e3 < score < 0 for score in scores)


def test_score_rejects_unequal_numbers_of_lines(translator):
    with pytest.raises(DataError, match="2 source lines but 1 target lines"):
        translator.score(["a", "b"], ["c"])


@pytest.mark.parametrize("side", [0, 1])
def test_a_pair_too_long_to_score_is_named(translator, side):
    pairs = [["a", "b"], ["c", "d"]]
    pairs[1][side] = "Zwei Männer " * 20
    with pytest.raises(DataError, match=r"pair 2 has \d+ tokens on one side; at most 17 are scored or aligned"):
        translator.score([pair[0] for pair in pairs], [pair[1] for pair in pairs], max_input_tokens=17)


FORMS = {
    "fp32": {},
    "greedy": {"beam_size": 1},
    "bf16": {"precision": "bf16"},
    "int8": {"precision": "int8"},
    "shortlist": {"shortlist": True},
    "samples": {"sampling": Sampling(temperature=2.0)},
}
SHAPES = {"compiled": {"d_model": 64, "num_heads": 2, "d_ff": 64}, "in PyTorch": {}}


OF_EITHER_FORM = pytest.mark.parametrize(
    ("of_either_form", "form"),
    [
        slow(shape, form) if shape == "in PyTorch" and form not in {"int8", "shortlist"} else (shape, form)
        for shape, form in product(SHAPES, FORMS)
    ],
    indirect=["of_either_form"],
)


@pytest.fixture(scope="module", params=SHAPES)
def of_either_form(request, make_bundle, sentences):
    """Return a translator that the compiled core runs, where there is one, and one that it does not."""
    bundle = make_bundle(**SHAPES[request.param])
    tokenizer = bundle.tokenizer
    ids = tokenizer.encode_sources(sentences), tokenizer.encode_targets(sentences[::-1])
    shortlist = learn_shortlist(bundle.model, *ids, per_token=5, common=20, batch_tokens=1_000)
    return Translator(bundle, shortlist=shortlist)


def needs_vnni(settings):
    if settings.get("precision") == "int8" and not torch.cpu._is_vnni_supported():
        pytest.skip("needs a processor with VNNI")


@OF_EITHER_FORM
def test_every_form_reports_the_models_own_score_of_every_text(of_either_form, sentences, form):
    translator, settings, num_best = of_either_form, FORMS[form], 1 if form == "greedy" else 3
    needs_vnni(settings)
    for translation in translator.translate([*sentences, ""], num_best=num_best, **settings):
        best = [(translation.text, translation.score)]
        best += [(alternative.text, alternative.score) for alternative in translation.alternatives]
        own = translator.score([translation.source] * len(best), [text for text, _ in best])
        assert [f"{score:.6f}" for _, score in best] == [f"{score:.6f}" for score in own]
        if isinstance(translator.engines.of("fp32"), NativeEngine):
            assert [score for _, score in best] == own


@OF_EITHER_FORM
def test_no_regrouping_changes_a_printed_digit(of_either_form, sentences, form):
    needs_vnni(FORMS[form])
    printed = set()
    for seed, batch_tokens in ((1, 4_096), (2, 97)):
        order = random.Random(seed).sample(sentences, len(sentences))
        found = of_either_form.translate(order, batch_tokens=batch_tokens, **FORMS[form])
        printed.add(tuple(sorted((t.source, t.text, f"{t.score:.6f}") for t in found)))
    assert len(printed) == 1


@OF_EITHER_FORM
def test_translate_with_scores_false_does_not_call_score(of_either_form, sentences, form, monkeypatch):
    needs_vnni(FORMS[form])
    lines, settings = [*sentences, ""], FORMS[form]
    expected = of_either_form.translate(lines, **settings)
    monkeypatch.setattr("clearhead.translation.search.score", lambda *_, **__: pytest.fail("scored for nothing"))
    found = of_either_form.translate(lines, scores=False, **settings)
    assert [(t.text, t.tokens, t.score) for t in found] == [(t.text, t.tokens, None) for t in expected]


@pytest.mark.parametrize("shape", SHAPES)
def test_scores_are_those_of_the_weights_there_are_now(make_bundle, sentences, shape):
    translator = Translator(make_bundle(**SHAPES[shape]))
    scores = [t.score for t in translator.translate(sentences, precision="bf16")]
    with torch.no_grad():
        translator.bundle.model.output_proj.weight.mul_(0.5)
    found = translator.translate(sentences, precision="bf16")
    assert [t.score for t in found] == translator.score(sentences, [t.text for t in found])
    assert [t.score for t in found] != scores


@pytest.mark.parametrize("shape", SHAPES)
def test_a_model_that_was_read_is_translated_by_its_module_once_that_has_changed(make_model_dir, sentences, shape):
    translator = Translator.load(make_model_dir(**SHAPES[shape]), device="cpu")
    before = translator.translate(sentences)
    engine = translator.engines.of("fp32")
    assert translator.model is translator.bundle.model
    assert translator.translate(sentences) == before
    assert translator.engines.of("fp32") is engine  # the module has the same weights
    with torch.no_grad():
        translator.model.output_proj.weight.mul_(0.5)
    found = translator.translate(sentences)
    assert [t.score for t in found] == translator.score(sentences, [t.text for t in found])
    assert [t.score for t in found] != [t.score for t in before]
    assert translator.engines.of("fp32") is translator.engines.of("fp32")


@pytest.mark.parametrize("num_best", [2, 5])
def test_no_two_alternatives_have_the_same_text(make_bundle, sentences, num_best, monkeypatch):
    translator = Translator(make_bundle(**SHAPES["compiled"]))
    # Of nine hypotheses several read the same.
    monkeypatch.setattr(
        type(translator.bundle.tokenizer), "decode_batch", lambda _, batch: [str(sum(ids) % 6) for ids in batch]
    )
    everything = translator.translate(sentences, num_best=9, beam_size=9)
    found = translator.translate(sentences, num_best=num_best, beam_size=9)
    for translation, whole in zip(found, everything, strict=True):
        texts = [alternative.text for alternative in translation.alternatives]
        assert len(set(texts)) == len(texts)
        # What the beam holds fills the places, in the order of the search.
        assert texts == [alternative.text for alternative in whole.alternatives[:num_best]]
    assert any(len(translation.alternatives) == num_best for translation in found)
    assert all(len(translation.alternatives) < 9 for translation in everything)


def test_samples_that_are_equal_are_each_reported(translator):
    found = translator.translate(["Ein Hund."], num_best=3, sampling=Sampling(top_k=1))
    assert [alternative.text for alternative in found[0].alternatives] == [found[0].text] * 3


def test_a_line_end_in_a_translation_can_be_made_a_space_and_is_scored_so(translator, monkeypatch):
    texts = iter(["a\nb", "a\rb"])
    monkeypatch.setattr(
        type(translator.bundle.tokenizer), "decode_batch", lambda _, batch: [next(texts) for _ in batch]
    )
    found = translator.translate(["x", "y"], one_line=True)
    assert [translation.text for translation in found] == ["a b", "a b"]
    assert [translation.score for translation in found] == translator.score(["x", "y"], ["a b", "a b"])


# Mistakes


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 4}, "no argument 'beam'; did you mean 'beam_size'"),
        ({"nbest": 4}, "no argument 'nbest'; did you mean 'num_best'"),
        ({"num_beams": 4}, "no argument 'num_beams'; did you mean 'beam_size'"),
        ({"num_return_sequences": 4}, "no argument 'num_return_sequences'; did you mean 'num_best'"),
        ({"beam_size": 0}, "decode.beam_size = 0"),
        ({"length_penalty": -1.0}, "decode.length_penalty = -1.0"),
        ({"length_penalty": float("nan")}, "decode.length_penalty = nan"),
        ({"num_best": 9}, r"nbest \(9\) must not be more than the beam size \(4\)"),
        ({"num_best": 0}, r"nbest \(0\)"),
        ({"target_lang": "de"}, "unknown target language 'de'; the model has no tags"),
    ],
)
def test_impossible_settings_are_refused_before_anything_is_translated(translator, settings, message):
    for lines in ([], ["Ein Hund."]):
        with pytest.raises(ConfigError, match=message):
            translator.translate(lines, **settings)


def test_an_unknown_language_lists_the_known_ones(tagged):
    with pytest.raises(ConfigError, match="unknown target language 'xx'; known names: de, fr"):
        tagged.translate(["Ein Hund."], target_lang="xx")


def test_translate_rejects_a_string_in_place_of_a_list(translator):
    with pytest.raises(DataError, match=r"for one text write \[text\]"):
        translator.translate("Ein Hund.")


def test_half_a_character_is_refused(translator):
    with pytest.raises(DataError, match=r"unpaired surrogate \(U\+D83D\)"):
        translator.translate(["Ein \ud83d Hund."])


def test_a_device_that_is_not_there_is_refused(make_model_dir):
    directory = make_model_dir()
    with pytest.raises(DeviceError, match="unknown device 'gpu'; use auto, cpu, cuda"):
        Translator.load(directory, device="gpu")
    with pytest.raises(DeviceError, match="'cuda:97' is not available"):
        Translator.load(directory, device="cuda:97")


def test_loaded_translator_translates_as_the_saved_bundle(make_model_dir, make_bundle, sentences):
    directory = make_model_dir()
    loaded = Translator.load(directory, device="cpu")
    assert loaded.path == directory
    assert loaded.translate(sentences) == Translator(make_bundle()).translate(sentences)


def test_every_mistake_is_a_clearhead_error(tmp_path):
    with pytest.raises(ModelError) as caught:
        Translator.load(tmp_path / "nothing")
    assert isinstance(caught.value, ClearheadError)


# Wrong use


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t: t.translate("text"), "lines must be a list of texts, not str; for one text write [text]"),
        (lambda t: t.translate([None]), "lines must be a list of texts; number 1 is NoneType, not str"),
        (lambda t: t.translate(["a", b"b"]), "lines must be a list of texts; number 2 is bytes, not str"),
        (lambda t: t.translate(3), "lines must be a list of texts, not int"),
        (lambda t: t.score([1], [2]), "sources must be a list of texts; number 1 is int, not str"),
        (lambda t: t.score(["a"], [2]), "targets must be a list of texts; number 1 is int, not str"),
        (lambda t: t.score("a", "b"), "sources must be a list of texts, not str"),
        (lambda t: explain(t, None), "text and target must be a list of texts; number 1 is NoneType"),
        (lambda t: explain(t, "a", 3), "text and target must be a list of texts; number 2 is int"),
    ],
)
def test_translate_score_and_explain_reject_arguments_that_are_not_texts(translator, call, message):
    with pytest.raises(DataError) as caught:
        call(translator)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "settings",
    [
        *({"beam_size": value} for value in ([], {}, b"x", 10**6, object())),
        *({"target_lang": value} for value in ([], {}, 3)),
        *({"precision": value} for value in ([], b"fp16", {})),
        *({"num_best": value} for value in ("2", [], 2.5, 10**6)),
        *({"sampling": value} for value in (3, {}, "x")),
    ],
    ids=lambda settings: f"{next(iter(settings))}-{type(next(iter(settings.values()))).__name__}",
)
def test_settings_of_other_types_are_refused(translator, settings):
    with pytest.raises(ConfigError):
        translator.translate(["x"], **settings)


def test_a_model_and_a_device_are_named_by_text(make_model_dir):
    with pytest.raises(ModelError, match="a model is named by the path of its directory, not by int"):
        Translator.load(3)
    with pytest.raises(DeviceError, match="unknown device None"):
        Translator.load(make_model_dir(), device=None)


# Special ids


MOVED = {"<pad>": 211, "<s>": 0, "</s>": 5, "<unk>": 250, "<2de>": 3, "<2fr>": 199}


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
def test_a_model_whose_special_tokens_have_other_ids_says_the_same(make_bundle, move_tokens, tmp_path, sentences, kind):
    first = make_bundle(kind=kind, language_tags=("de", "fr"), **SHAPES["compiled"])
    tokenizer = move_tokens(first.tokenizer, MOVED)
    assert (tokenizer.pad_id, tokenizer.unk_id, tokenizer.language_tags["fr"]) == (211, 250, 199)
    config = ModelConfig(**{**first.model.config.model_dump(), **tokenizer.model_settings})
    model = Transformer(config).eval()
    order = [first.tokenizer._backend.token_to_id(tokenizer._backend.id_to_token(i)) for i in range(config.vocab_size)]
    with torch.no_grad():
        for name, weight in model.named_parameters():
            old = dict(first.model.named_parameters())[name]
            weight.copy_(old[order] if name == "source_embedding.weight" else old)
    save_bundle(tmp_path / "first", first)
    save_bundle(tmp_path / "moved", Bundle(model, tokenizer, first.decode))
    one, two = Translator.load(tmp_path / "first"), Translator.load(tmp_path / "moved")

    lines = [f"<2{language}> {line}" for line in sentences for language in ("de", "fr")]
    # Wider beams drop hypotheses that are the same but for rounding, and the order of the vocabulary rounds otherwise.
    for settings in ({"beam_size": 1}, {"beam_size": 2}):
        for expected, found in zip(one.translate(lines, **settings), two.translate(lines, **settings), strict=True):
            assert (found.text, found.tokens) == (expected.text, expected.tokens)
            assert found.score == pytest.approx(expected.score, rel=1e-5, abs=1e-4)
    targets = [line[::-1] for line in lines]
    assert two.score(lines, targets) == pytest.approx(one.score(lines, targets), rel=1e-5, abs=1e-4)
    before, after = (explain(translator, lines[0]) for translator in (one, two))
    assert (after.source_tokens, after.decoder_tokens) == (before.source_tokens, before.decoder_tokens)
    assert (after.source_tokens[0], after.decoder_tokens[0], after.target_tokens[-1]) == ("<2de>", "<s>", "</s>")
    assert after.score == pytest.approx(before.score, rel=1e-5, abs=1e-4)


def test_scoring_again_and_again_makes_no_engine_again(make_bundle, monkeypatch):
    made = []
    make = lambda *given: made.append(given) or make_engine(*given)  # noqa: E731
    monkeypatch.setattr("clearhead.translation.search.make_engine", make)
    translator = Translator(make_bundle())
    for _ in range(3):
        translator.score(["Ein Hund."], ["A dog."])
        translator.translate(["Ein Hund."])
    assert len(made) == 1


# Ensembles


def test_an_ensemble_translates_and_scores_with_the_mean(make_model_dir, sentences):
    paths = [make_model_dir(f"model-{seed}", seed=seed, **SHAPES["compiled"]) for seed in (7, 8)]
    alone = [Translator.load(path) for path in paths]
    both, same = Translator.load(paths[0], ensemble=paths[1:]), Translator.load(paths[0], ensemble=paths[:1])
    expected = alone[0].translate(sentences)
    for ours, theirs in zip(same.translate(sentences), expected, strict=True):
        assert (ours.text, ours.tokens) == (theirs.text, theirs.tokens)
        assert ours.score == pytest.approx(theirs.score, abs=1e-4, rel=1e-5)
    found = both.translate(sentences, num_best=3)
    assert [one.text for one in found] != [one.text for one in expected]
    assert [one.score for one in found] == both.score(sentences, [one.text for one in found])
    # The mean of two numbers lies between them, and so does its logarithm at every token.
    parts = zip(*(translator.score(sentences, [one.text for one in found]) for translator in alone), strict=True)
    for one, scores in zip(found, parts, strict=True):
        length = len(one.tokens) + 1
        assert min(scores) - 1e-4 <= one.score
        assert one.score >= max(scores) - length * math.log(2) - 1e-4
    sampled = both.translate(sentences, sampling=Sampling(seed=2))
    assert [one.score for one in sampled] == pytest.approx(
        both.score(sentences, [one.text for one in sampled]), abs=1e-4
    )
    with pytest.raises(ConfigError, match="a shortlist is learned from one model"):
        both.translate(sentences, shortlist=True)
    with pytest.raises(ConfigError, match="an ensemble has no attention of its own"):
        explain(both, sentences[0])


def test_another_vocabulary_is_refused_by_the_names_of_both_files(make_model_dir):
    first, second = make_model_dir("first"), make_model_dir("second", language_tags=("de",))
    with pytest.raises(ModelError) as error:
        Translator.load(first, ensemble=[first, second])
    assert f"{second}/tokenizer.json is not the vocabulary of {first}/tokenizer.json" in str(error.value)
    with pytest.raises(ModelError, match="no model at"):
        Translator.load(first, ensemble=[first.parent / "nowhere"])


def test_an_ensemble_ends_where_the_positions_of_a_member_end(make_model_dir):
    first = make_model_dir("first")
    second = make_model_dir("second", positions="learned", max_positions=9)
    both = Translator.load(first, ensemble=[second])
    (found,) = both.translate(["Zwei Männer sitzen auf einer Bank."], split="never")
    assert found.source_truncated
    assert len(found.tokens) < 9


# Minimum Bayes risk


@pytest.mark.parametrize("sampling", [None, Sampling(seed=3, epsilon=0.0, temperature=1.5)])
def test_mbr_takes_the_sample_that_is_most_like_the_others(translator, sentences, sampling):
    count, metric = 11, CHRF()
    found = translator.translate(sentences, mbr=count, sampling=sampling, num_best=3)
    drawn = translator.translate(sentences, sampling=sampling or Sampling(), num_best=count)
    for ours, samples in zip(found, drawn, strict=True):
        texts = [one.text for one in samples.alternatives]
        expected = {
            text: sum(metric.sentence_score(text, [other]).score for other in texts[:place] + texts[place + 1 :])
            / (count - 1)
            for place, text in enumerate(texts)
        }
        best = sorted(expected, key=lambda text: -expected[text])[:3]
        assert [one.text for one in ours.alternatives] == best
        assert [one.utility for one in ours.alternatives] == pytest.approx([expected[text] for text in best])
        assert (ours.text, ours.utility) == (ours.alternatives[0].text, ours.alternatives[0].utility)
    scores = translator.score(sentences, [one.text for one in found])
    assert [one.score for one in found] == pytest.approx(scores, rel=1e-9)
    assert [one.text for one in translator.translate(sentences, mbr=count, sampling=sampling)] == [
        one.text for one in found
    ]


def test_mbr_of_a_split_line_is_that_of_its_sentences(translator):
    line, settings = "Ein Hund rennt. Zwei Männer sitzen. Eine Frau.", {"mbr": 7, "num_best": 2}
    (whole,) = translator.translate([line], split="always", **settings)
    alone = translator.translate([one.source for one in whole.sentences], split="never", **settings)
    assert list(whole.sentences) == alone
    assert whole.text == " ".join(one.text for one in alone)
    assert whole.utility == pytest.approx(sum(one.utility for one in alone) / 3)
    assert translator.translate([" "], **settings)[0].utility is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mbr": 1}, r"mbr \(1\) must be at least 2 samples and at most 1,000"),
        ({"mbr": 0}, r"mbr \(0\) must be at least 2"),
        ({"mbr": 1_001}, r"mbr \(1001\) must be at least 2"),
        ({"mbr": 4, "num_best": 5}, r"nbest \(5\) must not be more than the samples to choose from, mbr \(4\)"),
        ({"mbr": "4"}, "mbr must be a whole number of samples, not str"),
        ({"mbr": True}, "mbr must be a whole number of samples, not bool"),
        ({"mbr": 4, "shortlist": True}, "a shortlist has no meaning for samples"),
    ],
)
def test_mbr_with_impossible_settings_is_refused(translator, settings, message):
    with pytest.raises(ConfigError, match=message):
        translator.translate(["x"], **settings)
    with pytest.raises(ConfigError, match="mbr chooses among samples"):
        SearchOptions(translator.bundle.decode, mbr=4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_best": 1.5}, "num_best must be a whole number, not float"),
        ({"sampling": {"seed": 1}}, "sampling must be a clearhead.Sampling, not dict"),
        ({"terms": {"Hund": "dog"}}, "terms must be a clearhead.Terms, not dict"),
        (
            {"memory": {"Hund": "dog"}},
            "memory must be a function, such as the method match of a translation memory",
        ),
        ({"scores": "no"}, "scores must be True or False, not str"),
        ({"alignments": 1}, "alignments must be True or False, not int"),
        ({"one_line": None}, "one_line must be True or False, not NoneType"),
        ({"name": 3}, "name must be text, not int"),
        ({"first": "2"}, "first must be a whole number, not str"),
        ({"on_progress": 3}, "on_progress must be a function, not int"),
        ({"beam_size": True}, "decode.beam_size = True: Input should be a number"),
        ({"beam_size": "4"}, "decode.beam_size = '4': Input should be a valid integer"),
        ({"end_loops": "no"}, "decode.end_loops = 'no': Input should be a valid boolean"),
    ],
)
def test_arguments_of_another_type_are_refused(translator, arguments, message):
    with pytest.raises(ConfigError, match=message):
        translator.translate(["x"], **arguments)
    if "on_progress" in arguments:
        for method in (translator.score, translator.align):
            with pytest.raises(ConfigError, match=message):
                method(["x"], ["y"], **arguments)


def test_arguments_of_wrong_types_are_rejected_with_the_type_expected(translator):
    with pytest.raises(DataError, match="lines must be a list of texts, not dict"):
        translator.translate({"x": "y"})
    with pytest.raises(ConfigError, match=r"ensemble must be a list of models; for one write \['3'\]"):
        Translator.load("anywhere", ensemble=3)
    with pytest.raises(ConfigError, match="words must be a function, not int"):
        translator.align(["x"], ["y"], words=3)
    with pytest.raises(ConfigError, match=r"translator must be a clearhead.Translator, not str; clearhead.Translator"):
        explain("runs/de-en", "x")


# Diversity


def test_diverse_translations_differ_more_and_have_the_models_scores(translator, sentences):
    def first_words(**settings):
        found = translator.translate(sentences, num_best=4, beam_size=4, **settings)
        for line in found:
            texts = [one.text for one in line.alternatives]
            assert len(set(texts)) == len(texts)
            scores = translator.score([line.source] * len(texts), texts)
            assert [one.score for one in line.alternatives] == pytest.approx(scores, abs=1e-3)
        return sum(len({one.text[:1] for one in line.alternatives}) for line in found)

    assert first_words(diversity=50.0) > first_words() == first_words(diversity=0.0)
    with pytest.raises(ConfigError, match="ask for several"):
        translator.translate(sentences, diversity=0.5)
    with pytest.raises(ConfigError, match="diversity must be a number, not str"):
        translator.translate(sentences, num_best=2, diversity="0.5")
    with pytest.raises(ConfigError, match="diversity must be a number, not bool"):
        translator.translate(sentences, num_best=2, diversity=True)


MARKED = [
    "Ein <b>Hund</b> %s.",
    "%(name)s rennt",
    "Ein Hund.",
    "{a}{b}{a} &amp; name@example.org",
    "<p>Der <a href='x'>Hund</a><br/> rennt. Er bellt {n} mal.</p>",
    "{% if x %}Ein <0>Hund</0>{% endif %} %1$ld #{x} $t(a.b) %<PRIu64>.",
    "{x}" * 20,
]


@pytest.mark.parametrize("settings", [{"beam_size": 1}, {"beam_size": 4}, {"split": "always"}, {"num_best": 3}])
def test_placeholders_are_kept_exactly_as_often_as_in_the_source(with_placeholders, settings):
    for line, found in zip(MARKED, with_placeholders.translate(MARKED, **settings), strict=True):
        assert found.source == line
        for text in [found.text, *(alternative.text for alternative in found.alternatives)]:
            wanted = Counter(placeholder().findall(line))
            there = Counter(placeholder().findall(text))
            missing = wanted - there
            assert not missing or (line == MARKED[-1] and sum(missing.values()) <= 4), (line, text)  # of 16 signs
            assert not any(sign in text for sign in SIGNS)
        assert "placeholders" not in [flag.kind for flag in found.warnings] or line == MARKED[-1]
        assert not any(sign in piece for piece in found.tokens for sign in SIGNS)


def test_numbers_are_kept_exactly_with_protect_numbers(with_placeholders, translator):
    line = "12 Hunde, 1.250,5 km %s um 20:15 Uhr, 12 mal."
    [found] = with_placeholders.translate([line], protect_numbers=True)
    assert [found.text.count(text) for text in ("1.250,5", "20:15", "%s")] == [1, 1, 1]
    assert found.text.count("12") >= 2
    [begun] = with_placeholders.translate([line], prefix="12 Ein", protect_numbers=True)  # whose numbers are text then
    assert begun.text.startswith("12 Ein")
    with pytest.raises(ConfigError, match=r"no tokens for placeholders; train one with decode\.protect_numbers"):
        translator.translate([line], protect_numbers=True)


def test_scores_of_placeholders_are_those_of_the_search(with_placeholders):
    lines = MARKED[:4]
    found = with_placeholders.translate(lines, split="never", raw=True)  # also the line that has no words
    scores = with_placeholders.score(lines, [translation.text for translation in found])
    assert scores == pytest.approx([translation.score for translation in found], abs=1e-4)


def test_a_prefix_with_a_placeholder_is_text_and_its_line_too(with_placeholders):
    [found] = with_placeholders.translate(["Ein %s Hund"], prefix="%s Ein")
    assert found.text.startswith("%s Ein")


def test_a_sign_in_a_prefix_stays_as_it_is(with_placeholders):
    for sign in (SIGNS[0], SIGNS[16], SIGNS[24]):
        [found] = with_placeholders.translate(["<b>%s</b> Hund"], prefix=f"{sign}Ein")
        assert found.text.startswith(f"{sign}Ein")


def test_a_line_end_within_a_tag_leaves_a_translation_on_one_line(with_placeholders):
    line = "<a href='x'\n title='y'\r>Hund</a>"
    [found] = with_placeholders.translate([line], one_line=True, num_best=2)
    for text in [found.text, *(alternative.text for alternative in found.alternatives)]:
        assert "<a href='x'  title='y' >" in text
        assert not set("\n\r") & set(text)


def test_a_translator_is_shown_in_one_line(make_bundle, make_model_dir):
    directory = make_model_dir(decode={"source_lang": "en"}, language_tags=("de", "fr", "es", "it"))
    translator = Translator.load(directory, device="cpu")
    parameters, pieces = translator.bundle.weights.num_parameters(), translator.bundle.tokenizer.vocab_size
    assert repr(translator) == (
        f"<Translator {directory}: from en, to de, fr, es and 1 more, 2+1 layers of width 22, "
        f"{parameters:,} parameters, {pieces:,} pieces, fp32 on cpu>"
    )
    info = {"data": {"languages": ["de", "en"]}}
    trained = Translator(make_bundle(info=info, decode={"precision": "bf16"}), ensemble=(make_bundle(8),))
    assert repr(trained).startswith("<Translator: from de, to en, ")
    assert repr(trained).endswith(" pieces, averaged with 1 more, bf16 on cpu>")


def test_help_shows_what_users_may_call_and_nothing_else():
    public = {name for name in vars(Translator) if not name.startswith("_")}
    assert public == {"load", "translate", "score", "align", "translates", "config", "model", "decode_config", "plain"}
    special = {name for name in vars(Translator) if name.startswith("__")}
    of_every_class = {"__doc__", "__module__", "__dict__", "__weakref__", "__slotnames__"}
    assert special - of_every_class == {"__init__", "__repr__"}
