"""Emoji are spans that are not translated: masked, restored and compared as placeholders are."""

from __future__ import annotations

import pytest

from clearhead.text.placeholder_masking import protect, protected_pair
from clearhead.text.placeholders import has_words, placeholder


@pytest.mark.parametrize(
    "emoji",
    [
        "😆",
        "👨\u200d👩\u200d👧",
        "🇫🇷",
        "1\ufe0f\u20e3",
        "❤\ufe0f",
        "👍🏽",
        "✅",
        "🏳\ufe0f\u200d🌈",
        "🏴\U000e0067\U000e0062\U000e007f",
    ],
)
def test_an_emoji_is_one_span_whatever_it_is_made_of(emoji):
    text = f"Ich{emoji} liebe {emoji}dich"
    assert [found[0] for found in placeholder().finditer(text)] == [emoji, emoji]
    masked = protect(text)
    assert emoji not in masked.text
    assert masked.restored(masked.text) == text
    assert not has_words(emoji)


@pytest.mark.parametrize("text", ["犬が走る。", "© 2016 ®", "12 # 3 *", "★ ♪ ❤ →", "Ⓜ é"])
def test_placeholder_pattern_finds_no_emoji_in_other_text(text):
    assert not placeholder().search(text)


def test_flags_side_by_side_are_two():
    assert [found[0] for found in placeholder().finditer("🇫🇷🇩🇪")] == ["🇫🇷", "🇩🇪"]


def test_a_training_pair_has_the_same_sign_for_an_emoji_on_both_sides():
    source, target = protected_pair("Ja 😆!", "😆 Yes!")
    assert source.text == f"Ja {target.text[0]}!"
    assert target.text[1:] == " Yes!"
