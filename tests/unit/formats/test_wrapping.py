from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.formats.wrapping import balanced, width_of, wrapped

WORDS = st.lists(st.text("abcé", min_size=1, max_size=9), min_size=1, max_size=12)


@given(WORDS, st.integers(1, 30), st.integers(0, 5))
def test_lines_hold_all_words_in_order_and_no_more_than_fits(words, width, first):
    lines = wrapped(" ".join(words), width, first=first)
    assert " ".join(lines).split() == words
    for number, line in enumerate(lines):
        assert len(line) <= width - (0 if number else first) or " " not in line
    for number, (line, after) in enumerate(pairwise(lines)):  # nothing is broken without need
        assert len(line) + 1 + len(after.split()[0]) > width - (0 if number else first)


@given(WORDS, st.integers(1, 4))
def test_balanced_has_the_shortest_possible_longest_line(words, count):
    longest = max(map(len, balanced(" ".join(words), count)))
    assert len(balanced(" ".join(words), count)) <= count

    def shortest(words, count):
        """Try every way to break."""
        if count == 1:
            return len(" ".join(words))
        rests = [max(len(" ".join(words[:n])), shortest(words[n:], count - 1)) for n in range(1, len(words))]
        return min([len(" ".join(words)), *rests])

    if len(words) <= 8:
        assert longest == shortest(words, count)


def test_chinese_and_japanese_are_broken_between_characters_but_not_before_marks():
    assert wrapped("「犬が走る。」猫です。", 12) == ["「犬が走", "る。」猫で", "す。"]
    assert wrapped("犬、猫。「猫」です。", 4) == ["犬、", "猫。", "「猫」", "で", "す。"]
    assert wrapped("ｶﾞﾗｽ。ㄅㄆ𠀀〇", 4) == ["ｶﾞﾗ", "ｽ。", "ㄅㄆ", "𠀀〇"]
    assert wrapped("한국어 문장", 6) == ["한국어", "문장"]


@pytest.mark.parametrize("size", [100, 200, 400])
def test_each_word_is_measured_once(size):
    measured = []
    balanced("ab " * size, 3, width=lambda text: measured.append(text) or len(text))
    assert len(measured) <= size + 1  # and the whole text


@pytest.mark.parametrize("text", ["", " ", "a", "a\u00a0b"])
def test_balanced_and_wrapped_strip_texts_of_one_word_or_none(text):
    assert balanced(text, 3) == wrapped(text, 1) == [text.strip(" ")]


def test_width_counts_columns():
    assert [width_of(text) for text in ("", "ab", "é", "e\u0301", "犬", "ｱ", "Ａ")] == [0, 2, 1, 1, 2, 1, 2]
