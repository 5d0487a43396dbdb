"""A text that is not blank never gets a blank translation, unless a raw one is wanted."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from clearhead.decoding import Sampling
from clearhead.decoding.rules import Hypothesis
from clearhead.formats.document_files import read_document
from clearhead.model import Transformer
from clearhead.text.quality_flags import KINDS
from clearhead.translation.documents import fillings, translate_document
from clearhead.translation.golden import check_golden, make_golden
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.parts import translate_parts
from clearhead.translation.result import MemoryMatch, Translation, digits, translation_object
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.test_set import evaluate_model
from clearhead.translation.translator import Translator, searching_by


@pytest.fixture
def finding(make_bundle):
    """Return a function from texts to a translator whose every search finds them, best first."""

    def make(*texts, asked=None, **settings):
        bundle = make_bundle(**settings)

        def decode(engine, sources, options, on_progress=None, prefixes=(), required=(), neighbours=()):
            if asked is not None:
                asked.append((len(sources), options.num_best))
            ids = bundle.tokenizer.encode_targets(texts)[: options.mbr or options.num_best]
            found = [Hypothesis(tuple(own), -1.0 - rank, -1.0 - rank) for rank, own in enumerate(ids)]
            return [list(found) for _ in sources]

        return searching_by(Translator(bundle), decode)

    return make


def kinds(translation):
    return [flag.kind for flag in translation.warnings]


def empty_detail(translation):
    return {flag.kind: flag.detail for flag in translation.warnings}["empty"]


@pytest.mark.parametrize("blank", ["", " ", "\u200b", "\u00ad\u2060", "<b></b>", "\u3164"])
def test_blank_translation_is_replaced_by_the_next_best_text_with_its_score(finding, blank):
    asked = []
    translator = finding(blank, "", "A dog", "A cat", asked=asked)
    [made] = translator.translate(["Ein Hund rennt."], beam_size=4)
    assert made.text == "A dog"
    assert made.score == pytest.approx(translator.score(["Ein Hund rennt."], ["A dog"])[0])
    assert "".join(made.tokens).strip() == "A dog"
    assert empty_detail(made) == "the next best translation"
    assert asked == [(1, 1), (1, 4)]  # only what is blank is searched again


def test_blank_translation_without_other_texts_is_replaced_by_the_source(finding):
    translator = finding("", " ", "\ufeff")
    [made] = translator.translate(["Ein Hund rennt."], beam_size=3, alignments=True)
    assert (made.text, made.score, made.tokens, made.alignment) == ("Ein Hund rennt.", None, (), ())
    assert empty_detail(made) == "the source"
    assert made.score_per_token is None
    [best, *others] = translator.translate(["Ein Hund"], num_best=3, beam_size=3)[0].alternatives
    assert (best.text, best.score, others) == ("Ein Hund", None, [])


def test_a_blank_line_stays_blank_and_others_are_as_they_were(finding):
    assert [(one.text, one.score, one.warnings) for one in finding("A").translate(["", " "])] == [("", 0.0, ())] * 2
    asked = []
    assert "empty" not in kinds(finding("A", asked=asked).translate(["Ein Hund"])[0])
    assert asked == [(1, 1)]


def test_blank_alternatives_are_left_out(finding):
    [made] = finding("A dog", "", "A cat").translate(["Ein Hund"], num_best=3, beam_size=3)
    assert [one.text for one in made.alternatives] == ["A dog", "A cat"]
    assert "empty" not in kinds(made)


def test_blank_samples_are_last_among_alternatives(finding):
    sampling = Sampling()
    [made] = finding("", "A dog", "").translate(["Ein Hund"], num_best=3, sampling=sampling)
    assert [one.text for one in made.alternatives] == ["A dog", "", ""]
    assert made.text == "A dog"
    [none] = finding("", "").translate(["Ein Hund"], num_best=2, sampling=sampling)
    assert (none.text, [one.text for one in none.alternatives]) == ("Ein Hund", ["Ein Hund", ""])
    two = "Ein Hund rennt. Zwei Hunde rennen."
    [split] = finding("", "A dog").translate([two], num_best=2, sampling=sampling, split="always")
    assert (split.text, len(split.alternatives)) == ("A dog A dog", 2)


def test_minimum_bayes_risk_takes_the_best_sample_that_is_not_blank(finding):
    [made] = finding("", "", "", "A dog").translate(["Ein Hund"], mbr=4)
    assert made.text == "A dog"
    assert made.utility is not None
    [none] = finding("", "").translate(["Ein Hund"], mbr=2)
    assert (none.text, none.utility, none.score) == ("Ein Hund", None, None)


def test_blank_sentences_of_a_split_line_are_replaced_by_the_source(finding):
    [made] = finding("").translate(["Ein Hund rennt. Zwei Hunde rennen."], split="always", beam_size=1)
    assert made.text == "Ein Hund rennt. Zwei Hunde rennen."
    assert made.score is None
    assert [empty_detail(one) for one in made.sentences] == ["the source"] * 2


def test_replacement_by_the_source_restores_placeholders_and_reports_unmet_terms(finding):
    [made] = finding("", placeholders=True).translate(["<b>%s Hunde</b>"], beam_size=1)
    assert made.text == "<b>%s Hunde</b>"
    [used] = finding("").translate(["Ein Hund"], beam_size=1, terms=Terms([Term("Hund", ("dog",))]))[0].terms
    assert (used.form, used.reason) == ("", "unmet")


def test_a_raw_translation_is_what_the_model_wrote(finding):
    translator = finding("", "A dog")
    [made] = translator.translate(["Ein Hund"], raw=True)
    assert (made.text, empty_detail(made)) == ("", "the model wrote nothing")
    assert made.score == pytest.approx(translator.score(["Ein Hund"], [""])[0])
    evaluation = evaluate_model(translator, ["Ein Hund"], ["Ein Hund"])
    assert (evaluation.texts, evaluation.scores.exact_match) == ([""], 0.0)  # a copy of the source would be right


def test_golden_sentences_are_what_the_model_wrote(finding):
    translator = finding("", "A dog")
    golden = make_golden(translator, ["Ein Hund"])
    assert golden[0]["text"] == ""
    assert math.isfinite(golden[0]["score"])
    assert check_golden(translator, golden) == []


def test_the_continuation_of_a_text_may_be_empty(finding):
    translator = finding("")
    config = translator.model.config.model_copy(update={"num_encoder_layers": 0})
    bundle = replace(translator.bundle, weights=Transformer(config).eval())
    alone = searching_by(Translator(bundle), translator.decode)
    [made] = alone.translate(["Ein Hund"], beam_size=1)
    assert (made.text, made.warnings) == ("", ())


def test_blank_translation_in_document_or_parts_is_the_source_flagged_empty(finding, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("Ein Hund\n", encoding="utf-8")
    translator = finding("", " ")
    document = read_document(str(path), paragraphs=True)
    [segment] = translate_document(translator, document, beam_size=2)
    assert (segment.translation.text, kinds(segment.translation)) == ("Ein Hund", ["empty"])
    [filling] = fillings([segment])
    assert (filling.text, filling.note) == ("Ein Hund", f"{KINDS['empty'].meaning}: the source")
    [[part]] = translate_parts(translator, ["Ein Hund"], beam_size=2)
    assert (part.text, kinds(part.translation)) == ("Ein Hund", ["empty"])


def test_a_text_without_a_score_has_nan_in_lists_and_null_in_json():
    assert digits(None) == "nan"
    assert translation_object(Translation("a", "a", None, ()))["score"] is None


def test_blank_targets_of_a_translation_memory_do_not_match(finding):
    memory = TranslationMemory([("Ein Hund", "\u200b"), ("Zwei Hunde", " ")])
    assert len(memory) == 0
    [made] = finding("A dog").translate(["Ein Hund"], memory=lambda line: MemoryMatch(line, " ", 1.0, is_reused=True))
    assert (made.text, made.memory) == ("A dog", None)
