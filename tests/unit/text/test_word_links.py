from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from clearhead.text.word_links import joined_links, link_words, parts_of_words, pharaoh, words_of
from clearhead.tokenizers import Tokenizer
from clearhead.tokenizers.spans import matched_spans


def texts(spans, text):
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("  Ein  Hund. ", ["Ein", "Hund."]),
        ("犬が iPhoneを見る。", ["犬", "が", "iPhone", "を", "見", "る", "。"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("ไป", ["ไ", "ป"]),
        ("བོད་ ｶﾅ ㄅㄆ", ["བ", "ོ", "ད", "་", "ｶ", "ﾅ", "ㄅ", "ㄆ"]),
        ("\u3000", []),
    ],
)
def test_words_are_parted_by_white_space_or_are_characters_of_scripts_without_it(text, words):
    assert texts(words_of(text), text) == words


def test_signs_are_parts_of_their_own():
    text = "l'ami (犬), x_1!"
    assert texts(parts_of_words(text), text) == ["l", "'", "ami", "(", "犬", ")", ",", "x_1", "!"]


def test_link_words_sums_the_weights_of_a_words_tokens_without_the_end():
    # Source `ab c`, tokens a, b, c and the end; target `x yz`, tokens x, y, z and the end.
    weights = np.array([[0.2, 0.2, 0.3, 0.3], [0.0, 0.1, 0.2, 0.7], [0.1, 0.0, 0.4, 0.5], [0.0, 0.0, 0.0, 1.0]])
    source, target = [(0, 1), (1, 2), (3, 4), (4, 4)], [(0, 1), (2, 3), (3, 4), (4, 4)]
    assert link_words(weights, source, target, words_of("ab c"), words_of("x yz")) == [(0, 0), (1, 1)]


def test_link_words_discounts_a_word_that_every_token_attends_to():
    # By hand: the full stop gets 2.1 in all, so (.6, .6, .9) / 2.2; what the others get is divided by 0.55.
    weights = np.array([[0.4, 0.0, 0.6], [0.0, 0.4, 0.6], [0.05, 0.05, 0.9]])
    spans = [(0, 1), (2, 3), (4, 5)]
    assert link_words(weights, spans, spans, spans, spans) == [(0, 0), (1, 1), (2, 2)]


def test_characters_of_one_token_are_linked_alike_and_words_without_attention_not_at_all():
    weights = np.array([[0.9, 0.1], [0.0, 0.0]])
    assert link_words(weights, [(0, 2), (2, 3)], [(0, 1), (2, 3)], words_of("日本語"), words_of("x y")) == [
        (0, 0),
        (1, 0),
    ]
    assert link_words(np.zeros((1, 1)), [(0, 0)], [(0, 0)], [], []) == []


def test_words_that_no_token_reaches_take_no_memory():
    def peak(num_words):
        words = words_of("w " * num_words)
        tracemalloc.start()
        found = link_words(np.eye(2), [(0, 1), (2, 3)], words[:2], words, words[:2])
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert found == [(0, 0), (1, 1)]
        return peak

    peak(10)
    assert peak(100_000) <= peak(100) + 10_000


def test_links_of_sentences_become_those_of_their_line():
    links = [[(0, 0), (1, 1)], [(0, 0), (1, 1)]]
    joined = joined_links(links, ["A b.", "C d."], ["x y!", "z w"], "A b.\tC d.", "x y! z w")
    assert joined == [(0, 0), (1, 1), (2, 2), (3, 3)]
    # No space between the sentences: the sign that ends the first is one word with what begins the second.
    assert joined_links(links, ["A b.", "C d."], ["犬!", "x y"], "A b. C d.", "犬!x y") == [
        (0, 0),
        (1, 1),
        (2, 1),
        (3, 2),
    ]
    assert pharaoh(joined) == "0-0 1-1 2-2 3-3"


def test_pieces_of_a_vocabulary_that_changes_text_are_found_in_it():
    text = "Straße №5 İstanbul ändern"
    pieces = ["▁stra".replace("▁", " "), "ße", " no", "5", " i", "stanbul", " <unk>", "ndern", ""]
    found = texts(matched_spans(pieces, text), text)
    assert found == ["Stra", "ße", "№", "5", "İ", "stanbul", "ä", "ndern", ""]


@pytest.mark.parametrize(
    ("text", "pieces", "spans"),
    [
        ("Ein Hund", [" Ein", " H", "und", ""], [(0, 3), (4, 5), (5, 8), (8, 8)]),
        ("Ein  HUND", [" ein", " hund"], [(0, 3), (5, 9)]),  # a vocabulary of small letters
        ("ein \ufb01n", [" ein", " fin"], [(0, 3), (4, 6)]),  # a ligature and what it is compatible with
        ("ein Xyz da", [" ein", "<unk>", " da"], [(0, 3), (4, 7), (8, 10)]),
        ("ein 犬 da", [" ein", " \ufffd", "\ufffd", "\ufffd", " da"], [(0, 3), (4, 5), (4, 5), (4, 5), (6, 8)]),
        ("a\ufffdb", ["a", "\ufffd", "b"], [(0, 1), (1, 2), (2, 3)]),  # as a model writes half a character
        ("da da", ["<unk>", " da"], [(0, 0), (0, 2)]),  # what is not there has no room left
        ("a b", ["a ", "b "], [(0, 1), (2, 3)]),  # spaces behind, as in vocabularies of words
        ("", [""], [(0, 0)]),
    ],
)
def test_matched_spans_finds_the_pieces_in_the_text(text, pieces, spans):
    assert matched_spans(pieces, text) == spans


def test_half_a_character_of_a_model_moves_nothing_behind_it():
    tokenizer = Tokenizer.train(["Ein Hund rennt."], vocab_size=300)
    space, first, _, _, *rest = tokenizer.encode("犬 da")  # three bytes
    ids = [space, first, *rest]
    text = tokenizer.decode(ids)
    assert text == "\ufffd da"
    found = texts(tokenizer.target_spans(ids, text), text)
    assert found[1] == "\ufffd"
    assert "".join(found[2:]).strip() == "da"


def test_target_spans_of_tokens_without_the_first_space():
    tokenizer = Tokenizer.train(["Ein Hund rennt."], vocab_size=300)
    ids = [one for one in tokenizer.encode("da") if tokenizer.pieces([one]) != [" "]]
    assert tokenizer.decode(ids) == "da"
    assert tokenizer.target_spans(ids, "da") == [(0, 1), (1, 2)]


@pytest.mark.parametrize("placeholders", [False, True])
def test_spans_of_our_own_tokens_cover_the_text(make_bundle, sentences, placeholders):
    tokenizer = make_bundle(placeholders=placeholders).tokenizer
    signs = "\U000f0000 a\U000f0010\U000f0001b \U000f0018" if placeholders else "😀"
    for text in [*sentences, signs, " x\u0301  😀\n", "", "犬"]:
        ids = tokenizer.encode(text)
        spans = tokenizer.source_spans([*ids, tokenizer.eos_id], text)
        assert spans[-1] == (len(text), len(text))
        covered = sorted({place for start, end in spans for place in range(start, end)})
        assert covered == list(range(len(text)))
        assert [start for start, _ in spans] == sorted(start for start, _ in spans)
        for piece, (start, end) in zip(tokenizer.pieces(ids), spans, strict=False):
            assert "\ufffd" in piece or piece.strip() == text[start:end].strip()
