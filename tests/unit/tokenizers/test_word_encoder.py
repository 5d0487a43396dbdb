"""Words and the parts that codes make of them are those of subword-nmt's own library, where it is installed."""

from __future__ import annotations

import gzip
import io
import random
from collections import Counter
from itertools import islice, pairwise

import pytest

from clearhead.errors import DataError
from clearhead.tokenizers.word_encoder import Codes, WordEncoder
from every_run import slow

# The example of Sennrich, Haddow and Birch (2016), figure 1: what is joined first, and the end of a word on its letter.
WORDS = {"low": 5, "lower": 2, "newest": 6, "widest": 3}
CODES = "#version: 0.2\ne s\nes t</w>\nl o\nlo w</w>\nn e\nne w\n"
ODD = [
    "",
    " ",
    "a",
    "ab",
    "  low  lower ",
    "a\tlow",
    "low\u00a0low",
    "l@@ low@@",
    "</w>",
    "low</w>",
    "日本語",
    "😀x",
    "lowest\r",
]
"""Spaces of all kinds, what looks like a mark, a letter alone, and letters that no code knows."""


def library():
    """Return the original."""
    from subword_nmt import apply_bpe

    return apply_bpe


def learned(words: Counter[str], count: int) -> list[tuple[str, str]]:
    """Learn codes as the paper's algorithm 1 says: join the most frequent pair, again and again."""
    split = {(*word[:-1], word[-1] + "</w>"): number for word, number in words.items() if word}
    codes = []
    for _ in range(count):
        pairs: Counter[tuple[str, str]] = Counter()
        for symbols, number in split.items():
            for pair in pairwise(symbols):
                pairs[pair] += number
        if not pairs:
            break
        best = max(pairs, key=lambda pair: (pairs[pair], pair))
        codes.append(best)
        joined = {}
        for symbols, number in split.items():
            text = "\0".join(("", *symbols, "")).replace("\0" + "\0".join(best) + "\0", "\0" + "".join(best) + "\0")
            joined[tuple(text.strip("\0").split("\0"))] = number
        split = joined
    return codes


def as_file(codes: list[tuple[str, str]], version: str) -> str:
    lines = [" ".join(pair) for pair in codes]
    return "\n".join([f"#version: {version}", *lines]) + "\n" if version else "\n".join(lines) + "\n"


def test_words_are_split_as_in_the_paper():
    encoded = "low lo@@ w@@ e@@ r new@@ est w@@ i@@ d@@ est"
    assert " ".join(Codes(CODES).marked("low lower newest widest")) == encoded


def test_the_first_version_has_the_end_of_a_word_as_a_symbol():
    codes = Codes("l o\nlo w\nlow </w>\ne r\ner </w>\n")
    assert codes.marked("low lower er e") == ["low", "low@@", "er", "er", "e"]


def test_files_of_fastbpe_have_a_count_behind_each_pair():
    counted = "".join(f"{line} {9 - rank}\n" for rank, line in enumerate(CODES.splitlines()[1:]))
    text = "low lower newest widest"
    assert Codes(counted).marked(text) == Codes(CODES).marked(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("#version: 0.2\nab\n", "pair of codes 1 is 'ab', not two symbols"),
        ("#version: 0.2\na b\na b c d\n", "pair of codes 2 is 'a b c d'"),
        ("#version: 0.3\na b\n", "codes are of version 0.3"),
    ],
)
def test_damaged_codes_are_named(text, message):
    with pytest.raises(ValueError, match=message):
        Codes(text)


@pytest.fixture(scope="module")
def text_lines(data_dir):
    """Return lines of real text in several scripts, or a few words where there is none."""
    lines = [f"{word} {word[::-1]}" for word in WORDS] * 3
    try:
        folder = data_dir("newstest-wmt")
    except pytest.skip.Exception:
        return lines
    for path in sorted(folder.glob("*.gz"))[:3]:
        with gzip.open(path, "rt", encoding="utf-8") as file:
            lines += [line.rstrip("\n") for line in islice(file, 40)]
    return lines


@pytest.fixture(scope="module")
def learned_codes(text_lines):
    return learned(Counter(word for line in text_lines for word in line.split(" ")), 100)


@pytest.mark.parametrize("version", ["0.2", slow("0.2.0"), "0.1", slow("")])
@pytest.mark.parametrize("known", [False, True])
def test_parts_are_those_of_the_original(text_lines, learned_codes, version, known):
    apply_bpe, codes = library(), [*learned_codes]
    if not version.startswith("0.2"):  # the end of a word apart
        codes = [(left, right.removesuffix("</w>") or right) for left, right in codes if left]
        codes += [(left + right, "</w>") for left, right in codes[:50]]
    rng = random.Random(4)
    codes += rng.choices(codes, k=20)  # the first of two counts
    file = as_file(codes, version)
    marked = {part for line in text_lines for part in Codes(file).marked(line)}
    vocabulary = set(rng.sample(sorted(marked), len(marked) // 2)) if known else None
    original = apply_bpe.BPE(io.StringIO(file), vocab=vocabulary)
    ours = Codes(file, vocabulary)
    for line in [*text_lines, *ODD]:
        assert ours.marked(line) == original.process_line(line).split(), line


PIECES = ["<s>", "<pad>", "</s>", "<unk>", "lo@@", "w@@", "e@@", "r", "low", "new@@", "est", None, "Hund", "@@"]


def make(codes: str = CODES, **settings) -> WordEncoder:
    return WordEncoder(codes, PIECES, special=(0, 1, 2), unk_id=3, **{"within_pieces": False, **settings})


def test_word_encoder_encodes_and_decodes():
    speller = make()
    assert speller.encode(["low lower newest", "low</s> <unk>"]) == [[8, 4, 5, 6, 7, 9, 10], [4, 5, *[3] * 9]]
    assert speller.decode([[0, 8, 4, 5, 6, 7, 9, 10, 2, 1], [4, 3, 12], [4], [11, 99], []]) == [
        "low lower newest",
        "lo<unk> Hund",
        "lo",
        "",
        "",
    ]


def test_word_encoder_without_codes_splits_at_white_space():
    speller = make("")
    assert speller.encode(["lo@@ w@@  Hund\tr", "</s> lower", ""]) == [[4, 5, 12, 7], [3, 3], []]
    assert (speller.kind, make().kind, speller.num_ids) == ("word", "bpe", len(PIECES))


def test_a_part_without_a_piece_is_split_again_where_that_is_asked_for():
    pieces = [*PIECES[:4], "l@@", "o@@", "w"]
    whole, split = (WordEncoder(CODES, pieces, (0, 1, 2), 3, within_pieces=within) for within in (False, True))
    assert (whole.encode(["low"]), split.encode(["low"])) == ([[3]], [[4, 5, 6]])


def test_small_letters_are_made_where_the_model_learned_them():
    speller = make()
    speller.lowercase = True
    assert speller.encode(["LOW NewEst"]) == [[8, 9, 10]]


def test_pieces_read_with_the_space_behind_them():
    speller = make()
    assert [speller.readable(token_id) for token_id in (2, 4, 8, 11, 99)] == ["</s>", "lo", "low ", "", ""]
    assert speller.token(4) == "lo@@"
    with pytest.raises(DataError, match="is none"):
        speller.token(-1)
