from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path

import pytest

from clearhead.errors import DataError
from clearhead.evaluation import GoldLinks, alignment_scores, read_gold_links

SOURCES = ["Der Hund rennt .", "Sie sind mit dem Bus gefahren .", "Ja !"]
TARGETS = ["The dog is running .", "They took the bus .", "Yes !"]
# Set by hand: `is` only goes with `rennt`, `took` with `sind gefahren`; `mit` perhaps with it, too.
GOLD = ["0-0 1-1 2-3 2?2 3-4", "0-0 5-1 1?1 2p1 3-2 4-3 6-4", "0-0 1-1"]


@pytest.fixture
def gold(write_lines):
    return read_gold_links(str(write_lines("gold.txt", *GOLD)), SOURCES, TARGETS)


def test_scores_are_those_counted_by_hand(gold):
    links = [[(0, 0), (1, 1), (2, 2), (2, 3)], [(0, 0), (1, 1), (3, 2), (3, 3), (6, 4)], [(0, 0)]]
    found = alignment_scores(links, gold)
    # 10 links, of which (3, 3) alone is not possible; 11 sure ones, of which 7 are found.
    assert (found.links, found.sure, found.possible) == (10, 11, 14)
    assert found.precision == pytest.approx(9 / 10)
    assert found.recall == pytest.approx(7 / 11)
    assert found.error_rate == pytest.approx(1 - (7 + 9) / (10 + 11))
    best = alignment_scores([one.possible for one in gold], gold)
    assert (best.precision, best.recall, best.error_rate) == (1.0, 1.0, 0.0)
    none = alignment_scores([[], [], []], gold)
    assert (none.precision, none.recall, none.error_rate) == (1.0, 0.0, 1.0)


def test_the_same_links_in_every_form_and_counted_from_one(gold, write_lines):
    def moved(line):
        return " ".join(
            sign.join(str(int(word) + 1) for word in link.split(sign))
            for link in line.split()
            for sign in "-?p"
            if sign in link
        )

    assert read_gold_links(str(write_lines("one.txt", *map(moved, GOLD))), SOURCES, TARGETS, base=1) == gold
    rows = [
        f"{number:04} {int(link.split(sign)[0]) + 1} {int(link.split(sign)[1]) + 1}{' S' if sign == '-' else ' P'} 1.0"
        for number, line in enumerate(GOLD, start=1)
        for link in line.split()
        for sign in "-?p"
        if sign in link
    ]
    rows.append("0001 3 0 S")  # a word without a link, as NULL links are written
    assert read_gold_links(str(write_lines("naacl.txt", *rows)), SOURCES, TARGETS) == gold
    assert read_gold_links(str(write_lines("sure.txt", "1 1 1", "3 2 2 P")), SOURCES, TARGETS) == [
        GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0)})),
        GoldLinks(frozenset(), frozenset()),
        GoldLinks(frozenset(), frozenset({(1, 1)})),
    ]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0", "0-9", ""], "sentence 2 names word 9 of the target, which has 5 words, counted from 0"),
        (["4-0", "", ""], "sentence 1 names word 4 of the source, which has 4 words"),
        (["0-0", "0:1", ""], "line 2: '0:1' is no link such as 3-5"),
        (["1 1 1 S", "1 2 2 X", "3 1 1"], "line 2: '1 2 2 X' is no link such as 17 3 5 S"),
        (["0-0", ""], "has links of 2 sentences, but there are 3"),
        (["1 1 1", "4 1 1 S"], "line 2: there is no sentence 4; they are 1 to 3"),
        (["1 1 1", "2 1 6"], "sentence 2 names word 6 of the target, which has 5 words, counted from 1"),
    ],
)
def test_read_gold_links_rejects_invalid_links_with_their_place(write_lines, lines, message):
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        read_gold_links(str(write_lines("gold.txt", *lines)), SOURCES, TARGETS)


def test_links_of_real_captions_name_words_that_are_there(data_dir):
    def lines(language):
        with gzip.open(data_dir("multi30k") / f"val.{language}.gz", "rt", encoding="utf-8") as file:
            return [line.rstrip("\n") for line in islice(file, 40)]

    sources, targets = lines("de"), lines("en")
    gold = read_gold_links(str(Path(__file__).with_name("multi30k_val_de_en.links")), sources, targets)
    assert sum(len(one.sure) for one in gold) == 431
    assert sum(len(one.possible) for one in gold) == 519
