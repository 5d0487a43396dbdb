from __future__ import annotations

from collections import Counter

import pytest

from clearhead.config import DecodeConfig
from clearhead.errors import DataError
from clearhead.text.line_statistics import LineCounter
from clearhead.text.sentence_splitting import cut_line
from clearhead.tokenizers import Tokenizer
from clearhead.translation import segmentation
from clearhead.translation.segmentation import align_samples
from clearhead.translation.segmentation import cut_lines as cut_lines_of_sentences

ONE, TWO = "Ein Hund rennt.", "Ein Hund rennt. Zwei Männer sitzen."
FIVE = "Eins ist da. Zwei ist da.\tDrei ist da. Vier ist da. Fünf ist da."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([ONE, TWO, FIVE], vocab_size=300, language_tags=("en",))


def cut_lines(lines, parts, tokenizer, config, trained):
    cuts = [cut_line(text, config.source_lang) for _, text in parts]
    return cut_lines_of_sentences(lines, parts, cuts, tokenizer, config, trained)


@pytest.fixture(scope="module")
def cut(tokenizer):
    """Return a function from lines to the texts of their pieces."""

    def pieces_of(lines, trained=None, **settings):
        parts = tokenizer.split_sources(lines)
        found = cut_lines(lines, parts, tokenizer, DecodeConfig(source_lang="de", **settings), trained)
        return [[piece.text for piece in pieces] for pieces in found.of_lines(found.pieces)]

    return pieces_of


def trained_on(*sentences, tokens=50):
    counter = LineCounter("de")
    for number in sentences:
        counter.add("Er ist da. " * number, "x", tokens, 1)
    return counter.statistics()


WHOLE = [[ONE], [TWO], [FIVE]]
SENTENCES = [
    [ONE],
    ["Ein Hund rennt.", "Zwei Männer sitzen."],
    ["Eins ist da.", "Zwei ist da.", "Drei ist da.", "Vier ist da.", "Fünf ist da."],
]
LIMIT = 25
"""Tokens, between those of `TWO` and of `FIVE`."""

CASES = {
    "nothing is known": (None, {}, WHOLE),
    "too long to be read": (None, {"max_input_tokens": LIMIT}, [*WHOLE[:2], SENTENCES[2]]),
    "always": (None, {"split": "always"}, SENTENCES),
    "never": (None, {"split": "never", "max_input_tokens": 3}, WHOLE),
    "single sentences": (trained_on(1), {}, SENTENCES),
    "single sentences, never": (trained_on(1), {"split": "never"}, WHOLE),
    "one and two sentences": (trained_on(1, 2), {}, [*WHOLE[:2], SENTENCES[2]]),
    "paragraphs": (trained_on(1, 5, 7), {}, WHOLE),
    "paragraphs, always": (trained_on(1, 5, 7), {"split": "always"}, SENTENCES),
    "paragraphs, too long to be read": (trained_on(1, 5, 7), {"max_input_tokens": LIMIT}, [*WHOLE[:2], SENTENCES[2]]),
    "paragraphs of two sentences": (trained_on(2, 2, 3), {}, [*WHOLE[:2], SENTENCES[2]]),
    "paragraphs of few tokens": (trained_on(5, 5, tokens=LIMIT), {}, [*WHOLE[:2], SENTENCES[2]]),
}


@pytest.mark.parametrize("case", CASES)
def test_lines_are_cut_where_they_are_longer_than_trained(cut, tokenizer, case):
    assert 12 < len(tokenizer.encode(TWO)) < LIMIT < len(tokenizer.encode(FIVE)) < 2 * LIMIT
    trained, settings, expected = CASES[case]
    assert cut([ONE, TWO, FIVE], trained, **settings) == expected


def test_the_language_says_where_sentences_end(tokenizer):
    lines = ["Am 3. Mai kam er."]
    for language, number in (("de", 1), ("en", 2)):
        config = DecodeConfig(source_lang=language, split="always")
        assert len(cut_lines(lines, [(None, lines[0])], tokenizer, config, None).pieces) == number


def test_every_piece_has_the_language_of_its_line_and_reads_as_a_line_of_its_own(tokenizer):
    lines = ["<2en> Eins ist da. Zwei ist da.", "Drei ist da. Vier ist da."]
    parts = tokenizer.split_sources(lines, "en")
    pieces = cut_lines(lines, parts, tokenizer, DecodeConfig(split="always"), None).pieces
    assert [piece.source for piece in pieces] == [
        *("<2en> Eins ist da.", "<2en> Zwei ist da."),  # the tag is the line's own
        *("Drei ist da.", "Vier ist da."),  # the call's
    ]
    assert [piece.ids for piece in pieces] == tokenizer.encode_sources([piece.source for piece in pieces], "en")


@pytest.mark.parametrize(("split", "sentences"), [("never", [1, 2, 5]), ("always", [1] * 8)])
def test_a_piece_counts_its_sentences(tokenizer, split, sentences):
    lines = [ONE, TWO, FIVE]
    config = DecodeConfig(source_lang="de", split=split)
    pieces = cut_lines(lines, tokenizer.split_sources(lines), tokenizer, config, None).pieces
    assert [piece.sentences for piece in pieces] == sentences


def test_blank_lines_stay_and_whole_lines_keep_all_white_space(cut):
    assert cut(["", "  ", f" {ONE} "], split="always") == [[""], ["  "], [f" {ONE} "]]


def test_a_message_counts_lines(tokenizer):
    lines = [TWO, "Half a \ud83d. Character."]
    with pytest.raises(DataError, match="text 2 holds an unpaired surrogate"):
        cut_lines(lines, [(None, line) for line in lines], tokenizer, DecodeConfig(split="always"), None)


def test_of_a_long_word_the_beginning_alone_is_tokenized(tokenizer, monkeypatch):
    word, config, given = "rennt" * 300, DecodeConfig(max_input_tokens=9), []
    encode_batch = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda self, texts: given.extend(texts) or encode_batch(self, texts))
    [piece] = cut_lines([word], [(None, word)], tokenizer, config, None).pieces
    assert piece.text == word
    assert given == [word[: 64 * 9]]
    assert len(piece.ids) > 9
    assert piece.ids[:9] == tokenizer.encode_sources([word])[0][:9]
    with pytest.raises(DataError, match="text 2 holds an unpaired surrogate"):
        cut_lines([ONE, word + "\ud83d"], [(None, ONE), (None, word + "\ud83d")], tokenizer, config, None)


def test_a_long_text_of_few_tokens_is_tokenized_whole(tokenizer, monkeypatch):
    monkeypatch.setattr(segmentation, "_CHARACTERS_OF_A_TOKEN", 1)
    [ids] = tokenizer.encode_sources([ONE])
    assert len(ids) < len(ONE) - 1
    [piece] = cut_lines([ONE], [(None, ONE)], tokenizer, DecodeConfig(max_input_tokens=len(ids)), None).pieces
    assert piece.ids == ids


# Progress


def test_progress_is_told_in_lines(tokenizer):
    lines = [ONE, "", FIVE, TWO]
    pieces = cut_lines(lines, [(None, line) for line in lines], tokenizer, DecodeConfig(split="always"), None)
    told = []
    filled = [number for number, piece in enumerate(pieces.pieces) if piece.text]
    done = pieces.lines_done(told.append, filled)
    assert done is not None
    for _ in range(8):
        done(1)
    assert sum(told) == 3  # the blank one is no work
    assert all(told)
    assert pieces.lines_done(None, filled) is None


# Samples


def test_lines_of_samples_are_draws_and_stand_by_their_probability():
    groups = [[-1.0, -2.0, -3.0], [-10.0, -20.0, -30.0]]
    aligned = align_samples(groups, float, seed=3)
    assert [sorted(column, reverse=True) for column in aligned] == groups
    totals = [sum(row) for row in zip(*aligned, strict=True)]
    assert totals == sorted(totals, reverse=True)
    assert align_samples(groups, float, seed=3) == aligned


def test_the_samples_of_sentences_meet_at_random():
    pairs = Counter(
        pair
        for seed in range(900)
        for pair in zip(*align_samples([[-1.0, -2.0, -3.0], [-10.0, -20.0, -30.0]], float, seed), strict=True)
    )
    assert len(pairs) == 9
    assert all(count == pytest.approx(300, abs=60) for count in pairs.values())  # more than four standard deviations
