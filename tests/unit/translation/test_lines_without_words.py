"""What has nothing to translate is left as it is: in lines, sentences, texts and documents, by one rule."""

from __future__ import annotations

import pytest
from trained_text import counted, info_of

from clearhead.decoding import Sampling
from clearhead.formats.document_files import read_document
from clearhead.translation.documents import translate_document
from clearhead.translation.golden import check_golden, make_golden
from clearhead.translation.parts import translate_parts
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator, searching_by

NO_WORDS = ["😆", "!?!?", "...", "12345", "  1 \t 2 ", "12,50 €", "%s", "https://example.org", "\u200b", "<b>7</b>"]
WORDS = [("Ein Hund rennt.", "A dog runs."), ("Ja 7", "Yes 7")]
REVERSED = [("123", "321"), ("907", "709")]


@pytest.fixture
def trained_on(make_bundle):
    """Return a function from training pairs to a translator that knows their statistics, and notes its searches."""

    def make(pairs, asked):
        info = None if pairs is None else info_of(counted(pairs, "de", (9, 9)))
        translator = Translator(make_bundle(info=info))

        def decode(engine, sources, *others):
            asked.extend(translator.bundle.tokenizer.decode_batch(sources))
            return search(engine, sources, *others)

        search = translator.decode
        return searching_by(translator, decode)

    return make


@pytest.mark.parametrize("pairs", [None, WORDS], ids=["imported", "of words"])
def test_a_line_without_words_is_left_without_a_search(trained_on, pairs):
    asked = []
    found = trained_on(pairs, asked).translate(NO_WORDS)
    assert [(one.text, one.score, one.tokens, one.warnings) for one in found] == [
        (line, None, (), ()) for line in NO_WORDS
    ]
    assert asked == []


def test_figures_within_a_text_are_translated_with_it(trained_on):
    asked = []
    [made] = trained_on(WORDS, asked).translate(["Ja 12345"])
    assert asked == ["Ja 12345"]
    assert made.score is not None


def test_of_a_line_in_sentences_those_without_words_are_left(trained_on):
    asked = []
    translator, line = trained_on(WORDS, asked), "A dog runs. README.txt! Ja 7."
    how = {"split": "always", "source_lang": "en"}
    [made] = translator.translate([line], num_best=2, beam_size=2, **how)
    assert asked == ["A dog runs.", "Ja 7."]
    assert [one.text == one.source for one in made.sentences] == [False, True, False]
    assert " README.txt! " in made.text
    assert made.score is None  # of the whole line there is none
    assert len(made.alternatives) == 2
    [drawn] = translator.translate([line], **how, num_best=3, sampling=Sampling())
    assert len(drawn.alternatives) == 3
    assert all(" README.txt! " in one.text for one in drawn.alternatives)
    assert translator.translate(["..."], num_best=2, beam_size=2)[0].alternatives[0].text == "..."


@pytest.mark.parametrize(
    ("pairs", "is_left"),
    [
        (REVERSED, False),
        ([*WORDS, *REVERSED], False),
        ([*WORDS, ("123", "123")], True),  # copied in training as here
        ([*WORDS * 100, ("123", "321")], True),  # 1 of 201 lines: rare
    ],
)
def test_a_model_that_learned_to_change_such_lines_translates_them(trained_on, pairs, is_left):
    asked = []
    translator = trained_on(pairs, asked)
    translator.translate(["321", "😆"])  # no training source has anything of the other line
    assert asked == ([] if is_left else ["321"])


def test_a_prefix_or_a_term_is_a_reason_to_translate(trained_on):
    asked = []
    translator = trained_on(WORDS, asked)
    assert translator.translate(["12345"], prefix="Yes")[0].text.startswith("Yes")
    [made] = translator.translate(["24/7"], terms=Terms([Term("24/7", ("runs",))]))
    assert (made.text != "24/7", len(made.terms)) == (True, 1)


def test_documents_and_streams_follow_the_same_rule(trained_on, tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("12345\n\nJa 7\n", encoding="utf-8")
    document = read_document(str(path), paragraphs=True)
    for pairs, statuses in ((WORDS, ["without_words", "translated"]), (REVERSED, ["translated"] * 2)):
        translator = trained_on(pairs, [])
        assert [one.status for one in translate_document(translator, document)] == statuses
    [[part]] = translate_parts(trained_on(WORDS, []), ["..."])
    assert part.text == "..."


def test_golden_and_raw_translation_decode_lines_without_words(trained_on):
    asked = []
    translator = trained_on(WORDS, asked)
    golden = make_golden(translator, ["12345"])
    assert asked == ["12345"]
    assert check_golden(translator, golden) == []
    assert translator.translate(["12345"], raw=True)[0].score is not None


def test_lines_that_are_left_are_no_progress(trained_on):
    told = []
    lines = ["A dog runs. Ja 7.", "...", "Ja 7. README.txt!", "12345"]
    trained_on(WORDS, []).translate(lines, split="always", source_lang="en", on_progress=told.append)
    assert sum(told) == 2
