"""Scripts of letters, as Unicode has them."""

from __future__ import annotations

import pytest

from clearhead.text.scripts import count_scripts, script_of


@pytest.mark.parametrize(
    ("letters", "script"),
    [
        ("aÅßĳＡ", "LATIN"),
        ("αΩἀ", "GREEK"),
        ("яЇ", "CYRILLIC"),
        ("אב", "HEBREW"),
        ("عپ", "ARABIC"),
        ("हि"[0], "DEVANAGARI"),
        ("語㐀豈", "HAN"),
        ("ひ", "HIRAGANA"),
        ("カｶー", "KATAKANA"),
        ("한ㅎ", "HANGUL"),
        ("ก", "THAI"),
        ("7.-€ \u0301\x00🙂", None),
    ],
)
def test_a_letter_has_its_script_and_nothing_else_has_one(letters, script):
    assert {script_of(letter) for letter in letters} == {script}


def test_letters_are_counted_over_all_texts():
    assert count_scripts(["Ein Wort, 12 Wörter", "", "слово!"]) == {"LATIN": 13, "CYRILLIC": 5}
    assert not count_scripts([])
