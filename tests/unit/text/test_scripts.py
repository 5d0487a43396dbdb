"""Scripts of letters, as Unicode has them."""

from __future__ import annotations

import re
import sys

import pytest

from clearhead.text.languages import (
    CHINESE_AND_JAPANESE,
    CHINESE_AND_JAPANESE_LETTERS,
    LETTERS_WITHOUT_SPACES,
    WITHOUT_SPACES,
    count_scripts,
    script_of,
)


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


@pytest.mark.parametrize(
    ("ranges", "scripts"),
    [(LETTERS_WITHOUT_SPACES, WITHOUT_SPACES), (CHINESE_AND_JAPANESE_LETTERS, CHINESE_AND_JAPANESE)],
)
def test_the_ranges_have_all_letters_of_their_scripts_and_no_letter_of_another(ranges, scripts):
    letters = "".join(filter(str.isalpha, map(chr, range(sys.maxunicode + 1))))
    assert set(re.findall(f"[{ranges}]", letters)) == {letter for letter in letters if script_of(letter) in scripts}
