"""Texts are brought to the Unicode form of the training text, letter by letter, and positions stay known."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trained_text import counted

from clearhead.text.line_statistics import LineStatistics
from clearhead.text.unicode_forms import MARKS, TextForm, count_forms, form_of_vocabulary, normalized


def statistics(*sources: str, target: str = "x") -> LineStatistics:
    return counted([(source, target) for source in sources], tokens=(3, 2))


def source_form(*sources: str) -> TextForm:
    return statistics(*sources).forms()[0]


COMPOSED = ["Für zwölf Männer."] * 99


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("fu\u0308r", "für"),
        ("a\u0323\u0302", "ậ"),  # two marks
        ("a\u0302\u0323", "ậ"),  # in another order
        ("\u1112\u1161\u11ab", "한"),
        ("\u212b", "Å"),
        ("e\u0308\u00adu\u0308", "ëü"),
        ("u\u00ad\u0308", "ü"),  # a mark between a letter and its dots
        ("plain %s", "plain %s"),
    ],
)
def test_canonically_equivalent_texts_have_one_form(text, form):
    assert source_form(*COMPOSED)(text) == form
    assert source_form(*COMPOSED)(unicodedata.normalize("NFD", form)) == form
    assert source_form(*COMPOSED)(form) == form


def test_a_training_text_in_nfd_is_read_in_nfd():
    source, target = statistics(*[unicodedata.normalize("NFD", line) for line in COMPOSED], "für", target="ü").forms()
    assert source("für") == source("fu\u0308r") == "fu\u0308r"
    assert target("fu\u0308r") == "für"


def test_letters_that_nfc_takes_apart_are_read_as_the_training_text_writes_them():
    one, two = (
        "\u0958\u0932\u092e",
        "\u0915\u093c\u0932\u092e",
    )  # the same word with U+0958, which has no NFC of its own
    assert unicodedata.normalize("NFC", one) == two
    assert source_form(*[one] * 9, two)(two) == source_form(*[one] * 9, two)(one) == one
    assert source_form(one, *[two] * 9)(one) == source_form(one, *[two] * 9)(two) == two


@pytest.mark.parametrize("mark", MARKS)
def test_marks_that_are_rare_in_training_are_left_out(mark):
    rare, frequent = f"Schiff{mark}fahrt", [f"Schiff{mark}fahrt"] * 2
    assert source_form(*COMPOSED, "Schifffahrt", rare)(rare) == "Schifffahrt"  # in 1 of 101 lines
    assert source_form(*COMPOSED, *frequent)(rare) == rare  # in 2 of 101


def test_joiners_are_spelling_and_so_are_marks_of_direction_beside_letters_from_right_to_left():
    persian = "می\u200cخواهم \u200f\u200e"
    assert source_form(*["کتاب"] * 9)(persian) == persian
    assert source_form(*COMPOSED)("a\u200cb\u200d 👩\u200d🚀") == "a\u200cb\u200d 👩\u200d🚀"
    assert source_form(*COMPOSED)("ab\u200e") == "ab"  # such a model knows no letter that runs the other way


def test_white_space_is_judged_by_kind():
    prices = ["3,00\u00a0SEK"] * 2 + COMPOSED
    form = source_form(*prices)
    assert form("5\u00a0EUR") == "5\u00a0EUR"
    assert form("Ein\u00a0Hund\tund\u3000eine\u2003Katze") == "Ein Hund und eine Katze"
    form = source_form("12\u00a0345", "12\u2009345", "1 2", *["a 1"] * 500)  # the usual one between digits, if rare
    assert form("1\u00a02") == "1 2"
    form = source_form("12\u00a0345", *["a 1"] * 500)
    assert form("1\u00a02 a\u00a02") == "1\u00a02 a 2"
    form = source_form(*["Belgie a\u00a0Keňa"] * 2, *COMPOSED)  # words of one letter stay with the next
    for text in ("Polsko e\u0301\u00a0a\u00ad\u00a0Anglie", "Polsko é\u00a0a\u00a0Anglie"):
        assert form(text) == "Polsko é\u00a0a\u00a0Anglie"
    assert form("fünf\u00a0Äpfel") == form("fu\u0308nf\u00a0A\u0308pfel") == "fünf Äpfel"


def test_full_width_forms_that_the_training_text_lacks_are_those_of_ascii():
    assert source_form("12 Hunde")("１２ Hunde３") == "12 Hunde３"
    assert source_form("12 Hunde １")("１２") == "１2"


def test_placeholders_keep_their_bytes():
    form = source_form(*COMPOSED)
    assert form("fu\u0308r <a title='u\u0308\u00ad'> u\u0308") == "für <a title='u\u0308\u00ad'> ü"


def test_each_character_is_found_in_the_original_text():
    text = "\ufeffFu\u0308r\u00ad %s a\u0323\u0302\u200b"
    found, starts = source_form(*COMPOSED).aligned(text)
    assert found == "Für %s ậ"
    assert starts == [1, 2, 4, 6, 7, 8, 9, 10, 14]
    assert source_form(*COMPOSED).aligned(found) == (found, None)


def test_damaged_counts_are_refused():
    values = statistics("ü").model_dump()
    for damage in ({"U+110000": 1, "U+XY": 1}, {"composed": -1}, {"U+00A0 xyz": 1}):
        with pytest.raises(ValueError, match="source_forms"):
            LineStatistics.from_dict({**values, "source_forms": damage})


def test_a_vocabulary_whose_training_text_is_unknown_loses_the_marks_that_it_lacks():
    def pieces(text: str) -> list[str]:
        return [one if one in "a \u00ad" else "<unk>" for one in text.replace("\u200b", " ").replace("\ufeff", "")]

    form = form_of_vocabulary(pieces)
    assert {"\u00ad", "\ufeff", "\u200b"}.isdisjoint(form.left_out)  # known, left out and a space already
    assert "\u2060" in form.left_out
    assert form("fu\u0308r\u2060") == "für"


def test_any_number_of_marks_takes_time_in_proportion():
    few = "a" + "\u0301\u0316" * 15
    for form in ("NFC", "NFD", "NFKD"):
        assert normalized(f"{few} {few}ﬁ" * 3, form) == unicodedata.normalize(form, f"{few} {few}ﬁ" * 3)
    start = time.process_time()
    for marks in ("\u0301\u0316" * 100_000, "\u0301" * 200_000, "\u1161" * 200_000):
        text = f"Boot {marks} Boot"
        assert len(TextForm()(text)) == len(normalized(text)) == len(text)
    assert time.process_time() - start < 10  # to sort 200,000 marks as one letter's takes a minute


def space_keys(text: str) -> set[str]:
    """Return the white space of a text by the kinds of its neighbours, one after the other."""

    def kind(place: int) -> str:
        if not 0 <= place < len(text) or text[place].isspace():
            return " "
        category = unicodedata.category(text[place])
        return "a" if category[0] in "LM" else "1" if category == "Nd" else "."

    keys = set()
    for place, character in enumerate(text):
        if character.isspace():
            before, letter = kind(place - 1), place - 1
            while letter > 0 and unicodedata.category(text[letter])[0] == "M":
                letter -= 1
            if before == "a" and kind(letter - 1) not in "a1":
                before = "s"
            keys.add(f"U+{ord(character):04X} {before}{kind(place + 1)}")
    return keys


@given(st.text(st.sampled_from("ab\u00e9\u4e001\u0663.-\u2028 \u00a0\t\u3000\u0308\u093f"), max_size=9))
def test_white_space_is_counted_by_its_neighbours(text):
    counted_keys = {key for key in count_forms(text) if key.startswith("U+") and " " in key}
    assert {key for key in counted_keys if not key.endswith("canonical")} == space_keys(text)
