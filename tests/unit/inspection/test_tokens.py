"""Where tokens stand in a text, and which make a word."""

from __future__ import annotations

import pytest

from clearhead.inspection.tokens import Reader, token_words, visible
from clearhead.text.placeholder_masking import protect
from clearhead.tokenizers import Tokenizer


def words(text, spans):
    return [(word.text, word.tokens) for word in token_words(text, spans)]


def test_words_end_at_spaces_punctuation_and_each_cjk_character():
    text = "Hund, läuft 犬が"
    spans = [None, (0, 2), (2, 4), (4, 5), (6, 8), (8, 11), (12, 13), (13, 14), None]
    assert words(text, spans) == [("Hund", (1, 2)), (",", (3,)), ("läuft", (4, 5)), ("犬", (6,)), ("が", (7,))]


def test_marks_and_joined_emoji_stay_with_what_they_belong_to():
    family, accented = "👩\u200d👧", "e\u0301a"
    assert words(family, [(0, 1), (1, 2), (2, 3)]) == [(family, (0, 1, 2))]
    assert words(accented, [(0, 1), (1, 2), (2, 3)]) == [(accented, (0, 1, 2))]


def test_a_token_of_spaces_is_in_no_word():
    assert words("a  b", [(0, 1), (1, 3), (3, 4)]) == [("a", (0,)), ("b", (2,))]


@pytest.mark.parametrize("text", ["Ein Hund.", "犬が走る。 שלום", "<b>Delete %s</b>\nnow?", "👩‍👧 e\u0301 \t x  y "])
def test_every_character_of_a_lossless_encoding_has_a_token(text):
    tokenizer = Tokenizer.train(["Ein Hund rennt.", "Delete all of it now"] * 3, vocab_size=330, placeholders=True)
    protected = protect(text, tokenizer.num_placeholders)
    ids = [*tokenizer.encode(protected.text), tokenizer.eos_id]
    reader = Reader(tokenizer, protected)
    spans = reader.source_spans(ids)
    assert spans == reader.target_spans(protected.text, ids)
    assert spans[-1] is None
    standing = [(piece, span) for piece, span in zip(reader.pieces(ids), spans, strict=True) if span is not None]
    covered = {place for _, span in standing for place in range(*span)}
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    starts = [start for _, (start, _) in standing]
    assert starts == sorted(starts)
    for piece, (start, end) in standing:
        if "\ufffd" not in piece:
            assert piece.strip() == text[start:end].strip()


def test_visible_shortens_tokens_and_marks_white_space():
    assert visible(" Hund") == "Hund"
    assert visible("a\nb ") == "a↵b"
    assert visible("\u202f") == "⍽"
    assert len(visible("x" * 99)) == 18
