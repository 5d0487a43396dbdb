"""Markup put into translations: by hand-made links, and by a model that never saw any."""

from __future__ import annotations

import re
from collections import Counter
from difflib import SequenceMatcher
from itertools import pairwise

import pytest
from steps import assert_linear

from clearhead.decoding import score
from clearhead.text.markup_projection import Stripped, parts_with_placeholders, strip_markup
from clearhead.text.quality_flags import missing_placeholders, placeholders_of
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator

CASES = [
    # source, what is translated, translation, links of parts, placed
    ("Delete <b>%s</b>?", "Delete %s?", "%s löschen?", "1-0 0-1 2-2", "<b>%s</b> löschen?"),
    ("a <b>red <i>dog</i></b> runs", "a red dog runs", "un chien rouge court", "0-0 1-2 2-1 3-3",
     "un <b><i>chien</i> rouge</b> court"),
    ("<p>red <b>dog</b></p>", "red dog", "chien rouge.", "0-1 1-0", "<p><b>chien</b> rouge</p>."),
    ("a dog <br/> runs", "a dog runs", "ein Hund rennt", "0-0 1-1 2-2", "ein Hund <br/> rennt"),
    ("dog<br/>runs", "dogruns", "Hund rennt", "0-0 0-1", "Hund rennt<br/>"),
    ("the <b>x</b> of <i>y</i>", "the x of y", "l'x d'y", "0-0 1-2 2-3 3-5", "l'<b>x</b> d'<i>y</i>"),
    # Equal shares of two pairs: none goes into the other, and none is lost.
    ("<b>a</b> <i>c</i>", "a c", "u v", "0-0 0-1", "<b>u v</b> <i>c</i>"),
    ("Read *n* bytes", "Read n bytes", "Lit des octets", "0-0 2-2", "Lit *n* des octets"),
    ("Say <b></b>.", "Say .", "Sag.", "0-0 1-1", "Sag <b></b>."),
    ("<b>%s</b>", "%s", "", "", "<b>%s</b>"),
    ("{% if x %}red{% endif %} dog", "red dog", "chien rouge", "0-1 1-0", "chien {% if x %}rouge{% endif %}"),
    ("See `the page <https://a.org>`_ now", "See the page now", "Sieh die Seite jetzt", "0-0 1-1 2-2 3-3",
     "Sieh `die Seite <https://a.org>`_ jetzt"),
    ("[b]red[/b] dogs", "red dogs", "chiens rouges", "0-1 1-0", "chiens [b]rouges[/b]"),
    ("He met (<b>Anna</b>)", "He met (Anna)", "Er traf", "0-0 1-1", "Er traf <b>Anna</b>"),
    ("(<b>%s</b>) left", "(%s) left", "Weg", "3-0", "<b>%s</b> Weg"),
    ("<0>red</0> %{n} dogs", "red %{n} dogs", "%{n} chiens rouges", "0-2 1-0 2-1", "%{n} chiens <0>rouges</0>"),
]  # fmt: skip
KEPT = [
    ("See :func:`open` and :func:`read`.", "Voir :func:`reed` et :func:`opn`.", "0-0 1-3 2-2 3-1 4-4",
     "Voir :func:`read` et :func:`open`."),
    ("Press %s now.", "Drücke %d jetzt {x}.", "0-0 1-1 2-2 3-4", "Drücke %s jetzt."),
    ("Press %1$ld.", "Drücke %1$d.", "0-0 1-1 2-2", "Drücke %1$ld."),
    ("See <%= x %> now.", "Sieh <% = x %> jetzt.", "0-0 1-1 2-2 3-3", "Sieh <%= x %> jetzt."),
    ("Press %s.", "Drücke schnell zu.", "0-0 2-3", "Drücke %s schnell zu."),
    ("Press %s now %s.", "Drücke jetzt.", "0-0 2-1 4-2", "Drücke %s jetzt %s."),
    ("3 hours (%s)", "in 3 Stunden", "0-1 1-2", "in 3 Stunden %s"),
    ('Write to "info@example.org".', "Schreib uns.", "0-0 1-1 5-2", "Schreib uns info@example.org."),
    ("Open /https://example.org now", "Öffne jetzt", "0-0 3-1", "Öffne https://example.org jetzt"),
    ("Well (:smile:)", "Gut", "0-0", "Gut :smile:"),
    ("Wait (%s)/(%d) please", "Warte bitte", "0-0 8-1", "Warte %s %d bitte"),
    ("Take %s%d now", "Nimm jetzt", "0-0 3-1", "Nimm %s%d jetzt"),
    ("Take (%s) from (%d).", "Nimm %s.", "0-0 2-1 8-2", "Nimm %s %d."),
    ("At 5 (%s)", "Um 5", "0-0 1-1", "Um 5 %s"),
    ("Call (:name) now", "Ruf (jetzt)", "0-0 4-2", "Ruf :name (jetzt)"),
    ("- / %1$d turtles", "- /Schildkröten", "0-0 1-1 3-2", "- / %1$d Schildkröten"),
    ("%1$d turtles", "%dSchildkröten", "1-1", "%1$d Schildkröten"),
    ("the %1$d turtles", "die%d Schildkröten", "0-0 2-2", "die %1$d Schildkröten"),
    ("%1$d turtles", "거북이 %d마리", "1-0", "거북이 %1$d마리"),
    ("Buy %s turtles", "Kaufe %s %dSchildkröten", "0-0 1-1 2-3", "Kaufe %s Schildkröten"),
    ("Mail a@b.org (now)", "Jetzt (l'instant) mailen", "0-0 1-2 3-4", "Jetzt a@b.org (l'instant) mailen"),
]  # fmt: skip


def links(text):
    return [tuple(map(int, link.split("-"))) for link in text.split()]


@pytest.mark.parametrize(("source", "read", "translation", "linked", "placed"), CASES, ids=[case[0] for case in CASES])
def test_placed_puts_tags_at_the_linked_words(source, read, translation, linked, placed):
    stripped = strip_markup(source)
    assert stripped.text == read
    assert stripped.has_lost
    assert stripped.placed(translation, links(linked)) == placed


@pytest.mark.parametrize(("source", "translation", "linked", "placed"), KEPT, ids=[case[0] for case in KEPT])
def test_placeholders_take_the_place_of_what_became_of_them(source, translation, linked, placed):
    stripped = strip_markup(source, tags=False)
    assert (stripped.text, stripped.has_lost) == (source, False)
    assert stripped.placed(translation, links(linked)) == placed


def test_a_placeholder_is_one_part():
    text = 'l\'<a href="x">%s</a>, :func:`a b`!'
    parts = [text[start:end] for start, end in parts_with_placeholders(text)]
    assert parts == ["l", "'", '<a href="x">', "%s", "</a>", ",", ":func:`a b`", "!"]


LINES = ["Ein <b>kleiner</b> Hund %s rennt.", "Zwei {name} sitzen.", "Ein Hund.", "%s", "<i>Ein</i> Hund. Drei %d!"]


COMPILED = {"d_model": 64, "num_heads": 2, "d_ff": 64}
"""A shape that the compiled core supports."""


@pytest.fixture(scope="module", params=[False, True], ids=["our tokens", "with tags"])
def translator(request, make_bundle):
    return Translator(make_bundle(language_tags=("de",) if request.param else (), **COMPILED))


def test_a_model_that_loses_markup_gets_it_placed(translator):
    how = {"target_lang": "de"} if translator.bundle.tokenizer.language_tags else {}
    how["raw"] = True  # also the line that has no words
    found = translator.translate(LINES, num_best=3, split="always", **how)
    plain = translator.translate(LINES, place_markup=False, **how)
    del how["raw"]
    for line, before in zip(found, plain, strict=True):
        assert not missing_placeholders(line.source, line.text)
        kinds = [flag.kind for flag in line.warnings]
        assert ("placed_markup" in kinds) == bool(missing_placeholders(line.source, before.text))
        assert "placeholders" not in kinds
        for one in line.sentences or (line,):
            assert one.alternatives[0].text == one.text
            assert len({other.text for other in one.alternatives}) == len(one.alternatives)
            own = translator.score([one.source] * len(one.alternatives), [a.text for a in one.alternatives], **how)
            assert [a.score for a in one.alternatives] == pytest.approx(own, abs=1e-3)
            if "placed_markup" in [flag.kind for flag in one.warnings]:
                for other in one.alternatives:
                    assert Counter(placeholders_of(other.text)) == Counter(placeholders_of(one.source))
    alone = translator.translate([LINES[2]], num_best=3, **how)[0]  # a line without any is as ever
    assert [one.text for one in found[2].alternatives] == [one.text for one in alone.alternatives]
    assert [one.score for one in found[2].alternatives] == pytest.approx([one.score for one in alone.alternatives])


def test_a_line_without_its_tags_still_has_its_terms(translator):
    how = {"target_lang": "de"} if translator.bundle.tokenizer.language_tags else {}
    terms = Terms([Term("Hund", ("small dog",))])
    found = translator.translate([LINES[0]], terms=terms, extra_length=20, **how)[0]
    assert "placed_markup" in [flag.kind for flag in found.warnings]
    codes = [code for code in placeholders_of(found.text) if code.strip("*")]  # emphasis may be added
    assert Counter(codes) == Counter(placeholders_of(LINES[0]))
    words = re.findall(r"\w+", re.sub(r"</?b>|%s", " ", found.text).lower())  # a tag may have come between
    assert ("small", "dog") in pairwise(words)


def test_the_quality_of_a_line_is_that_of_its_words(translator):
    how = {"target_lang": "de"} if translator.bundle.tokenizer.language_tags else {}
    lines = ["A <b>brown</b> dog", "A brown dog"]
    marked, plain = translator.translate(lines, quality=True, extra_length=5, **how)  # room for the tags
    assert "placed_markup" in [flag.kind for flag in marked.warnings]
    assert marked.quality == pytest.approx(plain.quality, rel=1e-4)
    assert marked.score < plain.score - 1  # with the tags, which the model would not have written


def test_lines_are_placed_as_if_they_were_alone(translator):
    how = {"target_lang": "de"} if translator.bundle.tokenizer.language_tags else {}
    together = [line.text for line in translator.translate(LINES, **how)]
    assert together == [translator.translate([line], **how)[0].text for line in LINES]


def test_a_prefix_and_samples_are_left_as_they_are(translator):
    from clearhead.decoding import Sampling

    how = {"target_lang": "de"} if translator.bundle.tokenizer.language_tags else {}
    for asked in ({"prefix": "Ein"}, {"sampling": Sampling()}):
        placed, plain = (translator.translate(LINES, **asked, **how, place_markup=it) for it in (True, False))
        assert placed == plain


def test_a_model_with_tokens_for_placeholders_keeps_its_own(make_bundle):
    translator = Translator(make_bundle(placeholders=True, **COMPILED))
    assert translator.translate(LINES) == translator.translate(LINES, place_markup=False)


@pytest.mark.parametrize("text", ["%%<g1>%1$s${", "<b>a</b> ", "a %s "])
def test_markup_longer_than_the_model_reads_is_neither_placed_nor_scored(make_bundle, monkeypatch, text):
    translator = Translator(make_bundle(**COMPILED))
    lengths = []

    def scored(engine, sources, targets, **how):
        lengths.extend(map(len, targets))
        return score(engine, sources, targets, **how)

    monkeypatch.setattr("clearhead.translation.search.score", scored)
    (found,) = translator.translate(["Ein Hund " + text * 500], max_input_tokens=100, extra_length=50)
    kinds = [flag.kind for flag in found.warnings]
    assert found.source_truncated
    assert "placeholders" in kinds
    assert "placed_markup" not in kinds
    assert max(lengths, default=0) <= 3 * 150  # what was found, in other tokens; the markup alone has thousands


def test_a_text_that_markup_makes_too_long_is_not_scored(make_bundle, monkeypatch):
    translator = Translator(make_bundle(**COMPILED))
    line = "Ein Hund " + "<b>" * 8
    tokens = len(translator.bundle.tokenizer.encode_sources([line])[0])
    (plain,) = translator.translate([line], max_input_tokens=tokens, extra_length=1, place_markup=False)
    monkeypatch.setattr(Stripped, "placed", lambda stripped, translation, links: line * 2)
    (found,) = translator.translate([line], max_input_tokens=tokens, extra_length=1)
    assert found == plain


def test_long_placeholders_are_compared_in_part(monkeypatch):
    compared = []

    class Counted(SequenceMatcher):
        def ratio(self):
            compared.append(len(self.a) * len(self.b))
            return super().ratio()

    monkeypatch.setattr("clearhead.text.markup_projection.SequenceMatcher", Counted)
    for count in (1, 30, 60):
        source, translation = (
            " ".join(f"https://{letters * 100}{number}" for number in range(count)) for letters in ("ab", "ba")
        )
        strip_markup(source).placed(translation, [])
    assert max(compared) == 200**2
    assert sum(compared[1:]) <= 2 * 3_000_000


def test_marks_nested_a_thousand_deep_are_all_placed_and_well_nested():
    text = "<a>" * 1_200 + "word" + "</a>" * 1_200
    placed = strip_markup(text).placed("Wort", [(0, 0)])
    assert sorted(re.findall("</?a>|Wort", placed)) == sorted(re.findall("</?a>|Wort", text.replace("word", "Wort")))
    depth = 0
    for tag in re.findall("</?a>", placed):
        depth += 1 if tag == "<a>" else -1
        assert depth >= 0


@pytest.mark.parametrize(
    "text",
    [
        lambda size: "<a>" * size,
        lambda size: "<a>w</a> " * size,
        lambda size: "w <br> " * size,
        lambda size: "<a>" * size + "w " * size + "</a>" * size,
        lambda size: "%s and %d " * size,
    ],
    ids=["never closed", "side by side", "alone", "nested", "placeholders"],
)
@pytest.mark.parametrize("word", ["v ", "%i "], ids=["words", "other placeholders"])
def test_twice_the_markup_is_placed_in_twice_the_steps(text, word):
    def place(size):
        stripped = strip_markup(text(size))
        words = len(parts_with_placeholders(stripped.text))
        stripped.placed(word * words, [(number, number) for number in range(words)])

    assert_linear(place, 150)


def test_names_that_the_model_dropped_do_not_run_together():
    stripped = strip_markup("He met <b>Anna</b> <i>Ben</i> <br/> <u>Eva</u><s>Max</s>")
    placed = stripped.placed("Er traf", [(0, 0), (1, 1)])
    assert placed == "Er traf <b>Anna</b> <i>Ben</i> <br/> <u>Eva</u><s>Max</s>"


def test_a_name_that_the_model_dropped_is_written_once_in_the_innermost_pair_around_it():
    assert strip_markup("<p><b>Anna</b></p> runs").placed("rennt", [(1, 0)]) == "<p><b>Anna</b></p> rennt"
    assert strip_markup("<p>Mary<b>Ann</b></p> runs").placed("rennt", [(1, 0)]) == "<p>MaryAnn<b></b></p> rennt"
    placed = strip_markup("<a>" * 1_200 + "word" + "</a>" * 1_200).placed("", [])
    assert placed.count("word") == 1
