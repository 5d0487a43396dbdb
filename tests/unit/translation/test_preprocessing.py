from __future__ import annotations

from collections import Counter

import pytest
from trained_text import counted

from clearhead.config import DecodeConfig, Sampling
from clearhead.decoding import SearchOptions
from clearhead.errors import DataError
from clearhead.text.placeholder_masking import Protected
from clearhead.text.sentence_splitting import CutLine, cut_line
from clearhead.tokenizers import Tokenizer
from clearhead.translation import preprocessing
from clearhead.translation.normalization import NormalizedLine
from clearhead.translation.preprocessing import cut_lines
from clearhead.translation.search import align_samples, lines_done
from clearhead.translation.segment import DecodedText, Segment, SegmentedLine

ONE, TWO = "Ein Hund rennt.", "Ein Hund rennt. Zwei Männer sitzen."
FIVE = "Eins ist da. Zwei ist da.\tDrei ist da. Vier ist da. Fünf ist da."


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.train([ONE, TWO, FIVE], vocab_size=300, language_tags=("en",))


def segmented(lines, parts, tokenizer, config, trained=None):
    """Return lines in segments that are not normalized."""
    found = []
    for line, (language, text) in zip(lines, parts, strict=True):
        sentences = cut_line(text, config.source_lang)
        form = NormalizedLine(text, sentences, sentences.sentences)
        found.append(SegmentedLine(line, line.removesuffix(text), language, form))
    cut_lines(found, tokenizer, config, trained)
    return found


def segments_of(lines):
    return [segment for line in lines for segment in line.segments]


@pytest.fixture(scope="module")
def cut(tokenizer):
    """Return a function from lines to the texts of their segments."""

    def texts_of(lines, trained=None, **settings):
        parts = tokenizer.split_sources(lines)
        found = segmented(lines, parts, tokenizer, DecodeConfig(source_lang="de", **settings), trained)
        return [[segment.text for segment in line.segments] for line in found]

    return texts_of


def trained_on(*sentences, tokens=50):
    return counted([("Er ist da. " * number, "x") for number in sentences], "de", (tokens, 1))


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
        assert len(segments_of(segmented(lines, [(None, lines[0])], tokenizer, config))) == number


def test_segments_have_the_language_of_their_line_and_read_as_lines_of_their_own(tokenizer):
    lines = ["<2en> Eins ist da. Zwei ist da.", "Drei ist da. Vier ist da."]
    parts = tokenizer.split_sources(lines, "en")
    segments = segments_of(segmented(lines, parts, tokenizer, DecodeConfig(split="always")))
    assert [segment.source for segment in segments] == [
        *("<2en> Eins ist da.", "<2en> Zwei ist da."),  # the tag is the line's own
        *("Drei ist da.", "Vier ist da."),  # the call's
    ]
    ids = tokenizer.encode_sources([segment.source for segment in segments], "en")
    assert [segment.ids for segment in segments] == ids
    assert [segment.num_tokens for segment in segments] == list(map(len, ids))


@pytest.mark.parametrize(("split", "sentences"), [("never", [1, 2, 5]), ("always", [1] * 8)])
def test_a_segment_counts_its_sentences(tokenizer, split, sentences):
    lines = [ONE, TWO, FIVE]
    config = DecodeConfig(source_lang="de", split=split)
    segments = segments_of(segmented(lines, tokenizer.split_sources(lines), tokenizer, config))
    assert [segment.num_sentences for segment in segments] == sentences


def test_blank_lines_stay_and_whole_lines_keep_all_white_space(cut):
    assert cut(["", "  ", f" {ONE} "], split="always") == [[""], ["  "], [f" {ONE} "]]


def test_a_message_counts_lines(tokenizer):
    lines = [TWO, "Half a \ud83d. Character."]
    with pytest.raises(DataError, match="text 2 holds an unpaired surrogate"):
        segmented(lines, [(None, line) for line in lines], tokenizer, DecodeConfig(split="always"))


def test_of_a_long_word_the_beginning_alone_is_tokenized(tokenizer, monkeypatch):
    word, config, given = "rennt" * 300, DecodeConfig(max_input_tokens=9), []
    encode_batch = Tokenizer.encode_batch
    monkeypatch.setattr(Tokenizer, "encode_batch", lambda self, texts: given.extend(texts) or encode_batch(self, texts))
    [segment] = segments_of(segmented([word], [(None, word)], tokenizer, config))
    assert segment.text == word
    assert given == [word[: 64 * 9]]
    assert segment.num_tokens == len(segment.ids) > 9
    assert segment.ids[:9] == tokenizer.encode_sources([word])[0][:9]
    with pytest.raises(DataError, match="text 2 holds an unpaired surrogate"):
        segmented([ONE, word + "\ud83d"], [(None, ONE), (None, word + "\ud83d")], tokenizer, config)


def test_a_long_text_of_few_tokens_is_tokenized_whole(tokenizer, monkeypatch):
    monkeypatch.setattr(preprocessing, "_CHARACTERS_OF_A_TOKEN", 1)
    [ids] = tokenizer.encode_sources([ONE])
    assert len(ids) < len(ONE) - 1
    [segment] = segments_of(segmented([ONE], [(None, ONE)], tokenizer, DecodeConfig(max_input_tokens=len(ids))))
    assert segment.ids == ids


# Progress


def test_progress_is_counted_in_lines(tokenizer):
    lines = [ONE, "", FIVE, TWO]
    read = segmented(lines, [(None, line) for line in lines], tokenizer, DecodeConfig(split="always"))
    read[1].segments[0].is_translated = False
    counts = []
    on_segments_done = lines_done(read, counts.append)
    assert on_segments_done is not None
    for _ in range(8):
        on_segments_done(1)
    assert sum(counts) == 3  # the blank one is no work
    assert all(counts)
    assert lines_done(read, None) is None


# Samples


def aligned(seed, *samples):
    """Return the log-probabilities of the samples of a line's segments, aligned."""
    segments = [
        Segment(
            "",
            "",
            "",
            "",
            1,
            Protected(""),
            hypotheses=[DecodedText((), log_prob, False, "") for log_prob in log_probs],
        )
        for log_probs in samples
    ]
    line = SegmentedLine("", "", None, NormalizedLine("", CutLine(("",), ()), ("",)), segments=segments)
    align_samples([line], SearchOptions(DecodeConfig(), num_best=3, sampling=Sampling(seed=seed)))
    return [[one.log_prob for one in segment.hypotheses] for segment in segments]


SAMPLES = [[-1.0, -2.0, -3.0], [-10.0, -20.0, -30.0]]


def test_lines_of_samples_are_draws_sorted_by_their_probability():
    found = aligned(3, *SAMPLES)
    assert [sorted(column, reverse=True) for column in found] == SAMPLES
    totals = [sum(row) for row in zip(*found, strict=True)]
    assert totals == sorted(totals, reverse=True)
    assert aligned(3, *SAMPLES) == found


def test_samples_of_a_single_segment_stay():
    assert aligned(3, [-2.0, -1.0]) == [[-2.0, -1.0]]


def test_the_samples_of_sentences_are_combined_at_random():
    pairs = Counter(pair for seed in range(900) for pair in zip(*aligned(seed, *SAMPLES), strict=True))
    assert len(pairs) == 9
    assert all(count == pytest.approx(300, abs=60) for count in pairs.values())  # more than four standard deviations
