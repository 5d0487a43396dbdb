from __future__ import annotations

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st

from clearhead.text.sentence_splitting import cut_line, join_sentences, list_marker, split_sentences


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("de", "Ein Hund rennt. Zwei Männer sitzen.", ["Ein Hund rennt. ", "Zwei Männer sitzen."]),
        ("de", "Am 3. Oktober kam z. B. Dr. Roth.  Er blieb.", ["Am 3. Oktober kam z. B. Dr. Roth.  ", "Er blieb."]),
        ("de-AT", "Am 3. Oktober kam er. Er blieb.", ["Am 3. Oktober kam er. ", "Er blieb."]),
        ("en", "Mr. Smith paid 3.50. Why?\tHe was asked to.", ["Mr. Smith paid 3.50. ", "Why?\t", "He was asked to."]),
        ("en", "“Go away!” he said. Then he left.", ["“Go away!” he said. ", "Then he left."]),
        ("en", "Well... yes. No!", ["Well... yes. ", "No!"]),
        ("ja", "私は犬です。あなたは猫です！はい。", ["私は犬です。", "あなたは猫です！", "はい。"]),
        ("ja", "「はい。」と言った。「いえ。」彼は帰った。", ["「はい。」と言った。", "「いえ。」", "彼は帰った。"]),
        (None, "我是狗。你是猫吗？", ["我是狗。", "你是猫吗？"]),
        (None, "И т.д. и т.п. было. Да.", ["И т.д. и т.п. было. ", "Да."]),
        (None, "Είμαι σκύλος; Ναι.", ["Είμαι σκύλος; ", "Ναι."]),
        ("ell_Grek", "Είμαι σκύλος\u037e Ναι.", ["Είμαι σκύλος\u037e ", "Ναι."]),
        (None, "मैं कुत्ता हूं। तुम बिल्ली हो।", ["मैं कुत्ता हूं। ", "तुम बिल्ली हो।"]),
    ],
)
def test_sentences_end_as_their_language_has_it(language, text, sentences):
    assert split_sentences(text, language) == sentences


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("Am 3. Oktober kam er.", {"de": 1, None: 1, "en": 2, "eng_Latn": 2}),  # many languages write ordinals so
        ("She was 21. He was 20.", {"en": 2, None: 1}),
        ("It was 1999. He left.", {"en": 2, None: 2, "de": 2}),
        ("Das kostet 5 Mio. Euro.", {"de": 1, "deu_Latn": 1, None: 2}),
        ("Selon M. Dupont et A. Smith, oui.", {"fr": 1, None: 1, "en": 1}),  # initials end none
        ("Es war ggü. dem Vorjahr mehr.", {"de": 1, None: 1}),  # nor does what a small letter follows
        ("see it. then buy it.", {"en": 2, None: 2, "de": 2, "cs": 2}),  # but where there are no capitals
        ("er kam z. b. am 3. mai. sie ging zu dr. roth.", {"de": 2}),
        ("Er sah iOS. iPhone kam. Er ging.", {"de": 2, "en": 2}),
        ("ის წავიდა NATO-ში. მე დავრჩი.", {"ka": 2, None: 2}),  # or those of another script
        ("Ja. – Nein.", {"de": 1, "fr": 1}),
    ],
)
def test_the_language_and_what_follows_decide_where_a_sentence_ends(text, numbers):
    assert {language: len(split_sentences(text, language)) for language in numbers} == numbers


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "   ",
            "...",
            "5.",
            "1. Open it.",
            "Open it. 5.",
            "What? …",
            "Use Node.js here",
            "It ran.It slept.",
        ),
        *("See http://example.org/a.html?b=c for it", "<b>Bold.</b> is it", "Half a \ud83d. Character.", "a\u2028b"),
    ],
)
def test_split_sentences_keeps_text_without_boundaries(text):
    assert split_sentences(text, "en") == [text]


PIECES = [*'aB3 .!?…"“”()<>\t\n\u00a0\u3000。！犬カ।;1-\ud83d', "z. B.", "Dr. ", "Ein Hund. "]
TEXT = st.lists(st.sampled_from(PIECES)).map("".join)


@given(TEXT | st.text(), st.sampled_from([None, "de", "en", "ja", "xx"]))
def test_the_pieces_are_the_text_and_a_cut_line_loses_only_outer_white_space(text, language):
    assert "".join(split_sentences(text, language)) == text
    cut = cut_line(text, language)
    assert len(cut.sentences) == len(cut.gaps) + 1
    together = "".join(sentence + gap for sentence, gap in zip(cut.sentences, [*cut.gaps, ""], strict=True))
    assert together == (text if len(cut.sentences) == 1 else text.strip())
    if len(cut.sentences) > 1:
        assert all(any(map(str.isalpha, sentence)) for sentence in cut.sentences)
        assert all(gap.isspace() or not gap for gap in cut.gaps)


@pytest.mark.parametrize("space", ["\u00a0", "\u2009", "\u3000", "\u2028", "\x85", "\t"])
def test_white_space_of_several_bytes_is_white_space(space):
    text = f"Das ist Plan B{space}. Er ist gut.{space}Sehr gut."
    assert cut_line(text, "de").sentences == (f"Das ist Plan B{space}. Er ist gut.", "Sehr gut.")


def test_the_capitals_of_a_text_are_looked_for_once():
    looked_at = []

    class Text(str):
        def __iter__(self):
            looked_at.append(len(self))
            return super().__iter__()

    assert len(split_sentences(Text("abc! " * 50))) == 50
    assert len(looked_at) < 5


def test_the_white_space_between_sentences_stays_in_its_place():
    cut = cut_line("  Eins ist hier.  Zwei.\tDrei.\n\nVier. ", "de")
    assert cut.sentences == ("Eins ist hier.", "Zwei.", "Drei.", "Vier.")
    assert join_sentences(["One.", "Two.", "Three.", "Four."], cut.gaps) == "One.  Two.\tThree.\n\nFour."


@pytest.mark.parametrize(
    ("texts", "gaps", "line"),
    [
        (["犬です。", "猫です。"], [" "], "犬です。猫です。"),
        (["犬です。", "猫です。"], [" \n"], "犬です。\n猫です。"),
        (["犬です。", "猫です。"], ["\u3000\u00a0\t"], "犬です。\t猫です。"),
        (["A dog.", "A cat."], [""], "A dog. A cat."),
        (["개예요.", "고양이예요."], [" "], "개예요. 고양이예요."),
        (["หมา", "แมว"], [" "], "หมา แมว"),
        (["Yes!", "犬です。", "No."], [" ", " "], "Yes! 犬です。No."),
        (["", "A cat.", "", "A cow."], [" ", " ", " "], "A cat. A cow."),
        (["5", "犬。"], [" "], "5犬。"),
        ([""], [], ""),
    ],
)
def test_joined_sentences_have_the_spaces_of_their_script(texts, gaps, line):
    assert join_sentences(texts, gaps) == line


def test_a_long_text_is_read_in_windows_that_overlap_little(monkeypatch):
    read = []
    segment = sentencex.segment
    monkeypatch.setattr(sentencex, "segment", lambda rules, text: read.append(len(text)) or segment(rules, text))
    for piece in ("「ß~''", "'", "«", "a. ", "Er kam. “Er ging. ", "犬。」", "x"):
        for size in (5_000, 10_000, 20_000):
            read.clear()
            split_sentences((piece * size)[:size])
            assert max(read) <= 2_000
            assert sum(read) <= 2 * size


def test_a_long_text_has_the_sentences_of_its_parts():
    parts = ["Er kam am 3. Mai. ", "„Sie ging. Und wie!“, sagte er. ", "Wer? ", "(Niemand?) Doch. "]
    parts.append("Er war sehr " + "sehr " * 600 + "müde. ")
    expected = [sentence for part in parts for sentence in split_sentences(part, "de")]
    assert split_sentences("".join(parts * 300), "de") == expected * 300


@pytest.mark.parametrize(
    "marker",
    [
        "- ",
        "* ",
        "• ",
        "– ",
        "> ",
        ">> ",
        "> > ",
        "> - ",
        "a) ",
        "(b) ",
        "iv) ",
        "1) ",
        "(12) ",
        "1. ",
        "  - ",
        "-\t",
        "1. a) ",
    ],
)
def test_markers_have_words_behind(marker):
    assert list_marker(f"{marker}Open the file.") == marker
    assert list_marker(f"{marker}½ Tasse") == marker
    assert list_marker(marker) == list_marker(f"{marker}12,50 €") == ""


@pytest.mark.parametrize(
    "text",
    [
        "-5 °C am Morgen",
        "*Ein* Hund",
        "1.250 Hunde",
        "12. März 2004",
        "1. Mai ist Feiertag.",
        "3. května",
        "3. 5. 2016 war es",
        "A dog",
        "a dog",
        "dog) ",
        ">50 Hunde",
        "2016. Ein Jahr",
        "(c) 2016",
        "Ein Hund - eine Katze",
    ],
)
def test_numbers_signs_and_words_are_no_markers(text):
    assert list_marker(text) == ""


@pytest.mark.parametrize("text", ["1. Öffnen Sie", "1. Maiskolben kaufen", "2. 開く", "3. „Ja“ sagen", "4. %s öffnen"])
def test_a_number_with_a_full_stop_is_a_marker_before_a_beginning_of_a_sentence(text):
    assert list_marker(text) == text[:3]
