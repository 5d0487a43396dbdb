"""Lines of several sentences and flags, as `Translator` gives them."""

from __future__ import annotations

import string

import pytest
from model_files import rewrite_config
from trained_text import counted, info_of

from clearhead.config import DecodeConfig
from clearhead.decoding import Sampling
from clearhead.errors import ConfigError, ModelError
from clearhead.inspection.explain import explain
from clearhead.translation.normalization import Normalizer
from clearhead.translation.parts import translate_parts
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator
from every_run import slow

LINES = [
    "Ein kleiner Hund rennt. Zwei Männer sitzen.\tAm 3. Mai kostete es 12 €!",
    "",
    "Ein kleiner Hund rennt.",
    "犬が走る。犬が走る。",
]
SENTENCES = [
    ["Ein kleiner Hund rennt.", "Zwei Männer sitzen.", "Am 3. Mai kostete es 12 €!"],
    [""],
    ["Ein kleiner Hund rennt."],
    ["犬が走る。", "犬が走る。"],
]
ALWAYS = {"split": "always", "source_lang": "de"}


@pytest.fixture
def knowing(make_bundle, sentences):
    """Return a function to a translator that knows what it was trained on: lines of so many sentences."""

    def make(number=1, **settings):
        pairs = [
            (" ".join([sentence] * number), target * number)
            for sentence in sentences
            for target in (sentence[:5], sentence * 2)
        ]
        info = info_of(counted(pairs, "de", (90, 40), string.printable))
        return Translator(make_bundle(info=info, **{**COMPILED, **settings}))

    return make


COMPILED = {"d_model": 64, "num_heads": 2, "d_ff": 64}
"""A shape that the compiled core supports."""


@pytest.fixture(scope="module", params=[COMPILED, slow({})], ids=["compiled", "in PyTorch"])
def translator(request, make_bundle):
    """Return a translator that the compiled core runs, where there is one, and one that it does not."""
    return Translator(make_bundle(**request.param))


def scored(translator, translations):
    return translator.score([one.source for one in translations], [one.text for one in translations])


def test_a_split_line_is_its_sentences_translated_as_lines_of_their_own(translator):
    found = translator.translate(LINES, **ALWAYS)
    assert [translation.source for translation in found] == LINES
    for translation, sentences in zip(found, SENTENCES, strict=True):
        alone = translator.translate(sentences, split="never")
        assert translation.text.split() == " ".join(one.text for one in alone).split()
        assert translation.tokens == tuple(token for one in alone for token in one.tokens)
        assert translation.score == pytest.approx(sum(one.score for one in alone), rel=1e-6, abs=1e-4)
        if len(sentences) == 1:
            assert translation.sentences == ()
        else:
            assert [one.source for one in translation.sentences] == sentences
            assert [one.text for one in translation.sentences] == [one.text for one in alone]
    assert "\t" in found[0].text


def test_score_of_sentences_is_as_reported_and_of_a_whole_line_another(translator):
    (line,) = translator.translate(LINES[:1], **ALWAYS)
    own = scored(translator, line.sentences)
    assert [f"{one.score:.6f}" for one in line.sentences] == [f"{score:.6f}" for score in own]
    assert f"{line.score:.6f}" == f"{sum(own):.6f}"
    assert translator.score([line.source], [line.text])[0] != pytest.approx(line.score, abs=1e-3)


def test_lines_are_split_where_the_model_was_trained_on_fewer_sentences(knowing, translator):
    def numbers(translator, **settings):
        return [len(line.sentences) for line in translator.translate(LINES, source_lang="de", **settings)]

    assert numbers(knowing()) == [3, 0, 0, 2]
    assert numbers(knowing(2)) == [3, 0, 0, 0]
    assert numbers(knowing(3)) == [1, 0, 0, 0]  # the tab is read as a space
    assert numbers(knowing(3), familiar=False) == [0, 0, 0, 0]
    assert numbers(translator) == [0, 0, 0, 0]  # nothing is known
    assert numbers(translator, max_input_tokens=20) == [3, 0, 0, 2]
    assert numbers(knowing(), split="never", familiar=False) == [0, 0, 0, 0]


def test_unsplit_lines_have_the_translations_of_models_without_statistics(knowing, make_bundle):
    plain = Translator(make_bundle(**COMPILED))
    texts = [translation.text for translation in plain.translate(LINES)]
    for translator, settings in ((knowing(3), {"source_lang": "de"}), (knowing(), {"split": "never"})):
        assert [one.text for one in translator.translate(LINES, familiar=False, **settings)] == texts


def test_every_sentence_has_the_language_of_its_line(make_bundle):
    translator = Translator(make_bundle(language_tags=("de", "fr")))
    lines = ["<2fr> Ein Hund rennt. Zwei Männer sitzen.", "Ein Hund rennt. Zwei Männer sitzen."]
    french, german = translator.translate(lines, split="always", target_lang="de")
    assert [sentence.source for sentence in french.sentences] == ["<2fr> Ein Hund rennt.", "<2fr> Zwei Männer sitzen."]
    for line, language in ((french, "fr"), (german, "de")):
        texts = [t.text for t in translator.translate(["Ein Hund rennt.", "Zwei Männer sitzen."], target_lang=language)]
        assert [sentence.text for sentence in line.sentences] == texts
    assert french.text != german.text
    own = scored(translator, french.sentences)
    assert [f"{one.score:.6f}" for one in french.sentences] == [f"{score:.6f}" for score in own]


def test_the_n_best_of_a_split_line_are_combined_and_scored(translator):
    (line,) = translator.translate(LINES[:1], num_best=4, **ALWAYS)
    assert len(line.alternatives) == 4
    assert (line.alternatives[0].text, line.alternatives[0].score) == (line.text, line.score)
    # One of the three sentences has its second best, the others their best.
    changed = [line.score - one.alternatives[0].score + one.alternatives[1].score for one in line.sentences]
    scores = [other.score for other in line.alternatives[1:]]
    assert scores == pytest.approx(sorted(changed, reverse=True), abs=1e-6)


def test_samples_of_a_split_line_are_those_of_its_sentences(translator):
    sampling = Sampling(seed=5, temperature=3.0)
    (line,) = translator.translate(LINES[:1], num_best=6, sampling=sampling, **ALWAYS)
    assert len(line.alternatives) == 6
    scores = [sample.score for sample in line.alternatives]
    assert scores == sorted(scores, reverse=True)
    alone = translator.translate(SENTENCES[0], num_best=6, sampling=sampling, split="never")
    for one, other in zip(line.sentences, alone, strict=True):
        drawn = sorted((sample.text, sample.score) for sample in one.alternatives)
        assert drawn == sorted((sample.text, sample.score) for sample in other.alternatives)
    assert line.tokens == tuple(token for sentence in line.sentences for token in sentence.tokens)
    assert translator.translate(LINES[:1], num_best=6, sampling=sampling, **ALWAYS) == [line]
    one = translator.translate(LINES[:1], sampling=sampling, **ALWAYS)[0]
    assert [sentence.text for sentence in one.sentences] == [
        t.text for t in translator.translate(SENTENCES[0], sampling=sampling, split="never")
    ]


def test_the_first_sentence_of_a_split_line_begins_as_given(translator):
    prefixes = ["A small d", "", "It is. It", ""]
    found = translator.translate(LINES, prefix=prefixes, **ALWAYS)
    assert [len(line.sentences) for line in found] == [3, 0, 0, 2]
    assert all(line.text.startswith(prefix) for line, prefix in zip(found, prefixes, strict=True))
    free = translator.translate(LINES, **ALWAYS)
    assert [one.text for one in found[0].sentences[1:]] == [one.text for one in free[0].sentences[1:]]
    for line in translator.translate(LINES, prefix="A dog. A c", **ALWAYS):
        assert line.sentences == ()  # a prefix of several sentences may be that of several of the line
        assert line.text.startswith("A dog. A c") or not line.source


def test_a_sentence_that_is_too_long_is_cut_and_its_neighbours_are_not(translator):
    (line,) = translator.translate(["Ein Hund. " + "Zwei Männer sitzen " * 9 + "hier."], max_input_tokens=20)
    assert [sentence.source_truncated for sentence in line.sentences] == [False, True]
    assert line.source_truncated


def test_line_ends_between_sentences_stay_unless_one_line_is_wanted(translator):
    line = "Ein Hund rennt.\r\nZwei Männer sitzen."
    (kept,), (made,) = (translator.translate([line], one_line=wish, **ALWAYS) for wish in (False, True))
    assert "\r\n" in kept.text
    assert made.text == kept.text.replace("\r", " ").replace("\n", " ")


def test_progress_counts_lines_though_they_are_split(translator):
    done = []
    translator.translate(LINES, on_progress=done.append, batch_tokens=1, **ALWAYS)
    assert sum(done) == 3


def test_splitting_changes_with_no_neighbour(knowing):
    translator = knowing()
    together = translator.translate(LINES, batch_tokens=9)
    assert [translator.translate([line])[0].text for line in LINES] == [translation.text for translation in together]


@pytest.mark.parametrize("settings", [{"split": "sometimes"}, {"split": 3}, {"source_lang": "German"}])
def test_impossible_settings_are_refused(translator, settings):
    with pytest.raises(ConfigError, match=f"decode.{next(iter(settings))} = "):
        translator.translate([], **settings)


# Flags


def speaking(monkeypatch, translator, *texts):
    remaining = iter(texts)
    monkeypatch.setattr(
        type(translator.bundle.tokenizer), "decode_batch", lambda _, batch: [next(remaining) for _ in batch]
    )


def test_flags_are_those_of_the_text_and_of_what_was_trained_on(knowing, monkeypatch):
    translator = knowing()
    speaking(monkeypatch, translator, "Two men, 12", "The word Σ", "it is a bat bat bat bat bat")
    found = translator.translate(["", "Zwei 12.", "Das Wort Σ…", "Es ist eine Fledermaus."])
    assert [[flag.kind for flag in translation.warnings] for translation in found] == [
        *([], [], ["unseen_script", "unseen_characters"], ["repetition"])
    ]


def test_a_split_line_has_the_flags_of_its_sentences_once(knowing, monkeypatch):
    translator = knowing()
    speaking(monkeypatch, translator, "In 2018.", "It was in May.", "Two of 77.")
    (line,) = translator.translate(["Es war 2017. Es war Mai. Zwei von 78."], source_lang="de")
    assert [(flag.kind, flag.detail) for flag in line.warnings] == [
        ("numbers", "2017; not in the source: 2018; 78; not in the source: 77")
    ]
    assert [len(sentence.warnings) for sentence in line.sentences] == [1, 0, 1]


def test_a_line_that_is_longer_than_trained_is_flagged_where_it_is_not_split(knowing):
    def kinds(translator, line, **settings):
        return {flag.kind for flag in translator.translate([line], **settings)[0].warnings}

    line = "Ein Hund rennt. Zwei Männer sitzen."
    assert "longer_than_trained" in kinds(knowing(), line, split="never")
    assert "longer_than_trained" not in kinds(knowing(), line)
    assert "longer_than_trained" in kinds(knowing(), "Zwei Männer sitzen auf der Wiese " * 9)


def test_an_ensemble_flags_by_what_its_first_model_was_trained_on(knowing, make_bundle):
    line, copying, other = "Zwei Männer sitzen auf der Wiese.", knowing().bundle, make_bundle()
    for first, second, kinds in ((other, copying, {"copied"}), (copying, other, set())):  # whose targets were copies
        [found] = Translator(first, ensemble=(second,)).translate([line], prefix=line)
        assert found.text.startswith(line)
        assert {flag.kind for flag in found.warnings} & {"copied"} == kinds


def test_language_tag_is_not_part_of_the_source_in_warnings(make_bundle, monkeypatch):
    translator = Translator(make_bundle(language_tags=("x7",)))
    speaking(monkeypatch, translator, "A dog.")
    assert translator.translate(["<2x7> Ein Hund."])[0].warnings == ()


# As the model directory says it


def test_load_reads_the_line_statistics_of_a_model_directory(make_model_dir):
    statistics = counted([("Ein Hund.", "A dog.")])
    directory = make_model_dir(info=info_of(statistics))
    assert Translator.load(directory).bundle.line_statistics == statistics
    assert Translator.load(make_model_dir("other")).bundle.line_statistics is None


@pytest.mark.parametrize("damage", [{"sentences": [0]}, 7, [], {}])
def test_damaged_statistics_of_a_model_directory_are_named(make_model_dir, damage):
    message = r"config.json is damaged: info.data.line_statistics: "
    with pytest.raises(ModelError, match=message):  # nothing is written that could not be read
        make_model_dir(info={"data": {"line_statistics": damage}})
    directory = make_model_dir("sound")
    rewrite_config(directory, info={"data": {"line_statistics": damage}})
    with pytest.raises(ModelError, match=message):
        Translator.load(directory)


def test_a_line_in_capitals_is_read_as_trained_and_translated_in_capitals(knowing):
    translator = knowing()
    line, familiar = (
        "EIN KLEINER HUND RENNT.",
        Normalizer(translator.bundle.tokenizer, translator.bundle.line_statistics),
    )
    form = familiar(line, DecodeConfig()).text
    assert form not in (line, line.lower())
    (found,), (read,) = translator.translate([line], num_best=3), translator.translate([form], num_best=3)
    assert (found.source, found.text, found.score) == (line, read.text.upper(), read.score)
    assert found.sentences == (read,)
    assert [one.text for one in found.alternatives] == [one.text.upper() for one in read.alternatives]
    (as_is,) = translator.translate([line], num_best=3, familiar=False)
    assert as_is.sentences == ()
    assert as_is.score == pytest.approx(translator.score([line], [as_is.text])[0])


NFD = "Zwei Ma\u0308nner sitzen."


@pytest.mark.parametrize("line", [NFD, "\ufeffZwei Män\u00adner sitzen.\u200b", "Zwei\u3000Männer\tsitzen."])
def test_the_same_text_in_another_unicode_form_is_the_same_text(knowing, line):
    translator, plain = knowing(), "Zwei Männer sitzen."
    (found,), (wanted,) = (translator.translate([one], num_best=3, alignments=True) for one in (line, plain))
    assert (found.source, found.sentences[0].source) == (line, plain)
    assert (found.text, found.score, found.warnings) == (wanted.text, wanted.score, wanted.warnings)
    assert found.alternatives == wanted.alternatives


def test_equivalent_sources_are_scored_and_explained_alike(knowing):
    translator, plain = knowing(), "Zwei Männer sitzen."
    (wanted,) = translator.translate([plain])
    for line in (NFD, "\ufeffZwei Män\u00adner sitzen.\u200b"):
        assert translator.score([line], [wanted.text])[0] == pytest.approx(wanted.score)
        assert explain(translator, line).to_dict() == explain(translator, plain).to_dict()


def test_equivalent_targets_prefixes_and_terms_are_the_same(knowing):
    translator, line = knowing(), "Zwei Männer sitzen."
    composed, decomposed = translator.score([line, line], ["Fünf", "Fu\u0308nf"])
    assert composed == decomposed
    assert translator.align([line], ["Fünf"]) == translator.align([line], ["Fu\u0308nf"])
    (one,), (other,) = (translator.translate([line], prefix=text) for text in ("Fünf", "Fu\u0308nf"))
    assert (one.text, one.score) == (other.text, other.score)
    assert one.text.startswith("Fünf")
    terms = Terms([Term("Ma\u0308nner", ("Fu\u0308nf",))])
    (found,) = translator.translate([line], terms=terms)
    assert found.terms[0].form == "Fünf"


def test_a_line_of_marks_alone_keeps_its_bytes(knowing):
    (found,) = knowing().translate(["\u200b\ufeff"])
    assert (found.text, found.score) == ("\u200b\ufeff", None)


@pytest.mark.parametrize("marker", ["- ", "* ", "> ", "a) ", "1. ", " 2)\t"])
def test_list_markers_are_kept_as_structure(knowing, marker):
    translator, plain = knowing(), "Zwei Männer sitzen. Ein Hund rennt."
    how = {"num_best": 3, "alignments": True, "source_lang": "de"}
    (found,), (wanted,) = (translator.translate([line], **how) for line in (marker + plain, plain))
    assert (found.text, found.score) == (marker + wanted.text, wanted.score)
    assert [one.text for one in found.alternatives] == [marker + one.text for one in wanted.alternatives]
    assert found.sentences == wanted.sentences
    assert found.alignment == ((0, 0), *((left + 1, right + 1) for left, right in wanted.alignment))
    (upper,) = translator.translate([marker + plain.upper()], source_lang="de")
    assert upper.text == marker + translator.translate([plain.upper()], source_lang="de")[0].text


def test_list_markers_are_text_in_raw_translations_and_with_prefixes(knowing):
    translator, line = knowing(), "- Ein Hund rennt."
    raw, prefixed = translator.translate([line], raw=True)[0], translator.translate([line], prefix="- A")[0]
    assert raw.score == pytest.approx(translator.score([line], [raw.text])[0])
    assert prefixed.text.startswith("- A")


def test_a_line_with_a_list_marker_is_one_part_of_a_stream(knowing):
    translator, lines = knowing(), ["- Zwei Männer sitzen. Ein Hund rennt.", "Zwei Männer sitzen."]
    parts = [part for group in translate_parts(translator, lines, source_lang="de") for part in group]
    assert [part.text for part in parts] == [one.text for one in translator.translate(lines, source_lang="de")]


def test_stray_spaces_do_not_change_translations_and_blank_lines_stay_blank(knowing):
    translator = knowing()
    plain, stray, blank = translator.translate(["Ein Hund rennt.", "  Ein   Hund rennt. ", "   "])
    assert (stray.source, stray.text) == ("  Ein   Hund rennt. ", plain.text)
    assert (blank.source, blank.text, blank.sentences) == ("   ", "", ())


def test_a_line_that_is_read_in_another_form_keeps_its_language_and_is_split(make_bundle, knowing, sentences):
    statistics = knowing().bundle.info["data"]["line_statistics"]
    tagged = make_bundle(language_tags=("de", "fr"), info={"data": {"line_statistics": statistics}})
    line = "<2fr> EIN KLEINER HUND RENNT. ZWEI MÄNNER SITZEN."
    (found,) = Translator(tagged).translate([line], split="always", source_lang="de")
    assert len(found.sentences) == 2
    assert all(one.source.startswith("<2fr> ") and not one.source[6:].isupper() for one in found.sentences)
    assert found.text == " ".join(one.text for one in found.sentences).upper()


def test_a_line_with_a_prefix_is_read_as_it_is(knowing):
    (found,) = knowing().translate(["EIN KLEINER HUND RENNT."], prefix="A")
    assert found.sentences == ()
    assert found.text.startswith("A")
