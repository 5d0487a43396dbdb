"""Links of words beside text: read with their pairs, in every way of counting; what cannot be meant is refused."""

from __future__ import annotations

import pytest
from written_files import written_lines

from clearhead.errors import DataError
from clearhead.formats import GivenLinks, read_parallel


@pytest.fixture
def written(tmp_path):
    return lambda name, *lines: written_lines(tmp_path / name, lines)


def links_of(sources, targets, *paths, swap=False, **how):
    pairs = read_parallel(sources, targets, swap=swap, links=GivenLinks(paths, is_swapped=swap, **how))
    return [pair.links for pair in pairs]


def test_every_file_has_its_links_line_by_line(written):
    sources = [written("a.de", "ein Hund", "", "zwei"), written("b.de", "drei vier")]
    targets = [written("a.en", "a dog", "", "two"), written("b.en", "four three")]
    files = written("a.links", "1-1 0-0 1-1", "", ""), written("b.links", "0-1\t1-0")
    assert links_of(sources, targets, *files) == [((0, 0), (1, 1)), (), (), ((0, 1), (1, 0))]
    assert links_of(sources, targets, *files, swap=True) == [((0, 0), (1, 1)), (), (), ((1, 0), (0, 1))]
    assert [pair.links for pair in read_parallel(sources, targets)] == [None] * 4


def test_links_count_words_or_characters_from_the_base(written):
    sides = [written("de", "Ein 犬走る。 Hund")], [written("en", "One dog")]
    assert links_of(*sides, written("from-one", "1-1 3-2"), base=1) == [((0, 0), (5, 1))]
    # What white space parts is here four characters, each a word where characters are counted.
    assert links_of(*sides, written("spaced", "1-1 2-0")) == [((1, 1), (2, 1), (3, 1), (4, 1), (5, 0))]
    assert links_of(*sides, written("characters", "1-1 5-0"), by_character=True) == [((1, 1), (5, 0))]


@pytest.mark.parametrize("swap", [False, True])
def test_links_do_not_count_a_language_tag_as_a_word(written, swap):
    tagged, plain, links = written("x", "<2de> a dog"), written("y", "ein Hund"), written("links", "1-1")
    sides = ([plain], [tagged]) if swap else ([tagged], [plain])
    assert links_of(*sides, links, swap=swap, tagged=("de",)) == [((1, 1),)]
    assert links_of(*sides, written("third", "1-2" if swap else "2-1"), swap=swap) == [((2, 1),)]
    with pytest.raises(DataError, match=r"names word 2 of .*x, whose line has 2 words"):
        links_of(*sides, written("third", "1-2" if swap else "2-1"), swap=swap, tagged=("de",))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["0-0"], r"links ends after line 1, but .*de has a line 2; every line of text needs its line of links"),
        (["0-0", "", "0-0", ""], r"links has 4 lines of links, but .*de and .*en have 2 of text"),
        (["0-0", "0-0 0?1"], r"links, line 2: '0\?1' is no link such as 3-5"),
        (["0-0", "-1-0"], r"links, line 2: '-1-0' is no link"),
        (
            ["1-2"],
            r"links, line 1: 1-2 names word 2 of .*en, whose line has 2 words counted from 0; data.alignment_base",
        ),
    ],
)
def test_invalid_links_are_rejected_with_their_line(written, lines, message):
    sides = [written("de", "ein Hund", "zwei")], [written("en", "a dog", "two")]
    with pytest.raises(DataError, match=message):
        links_of(*sides, written("links", *lines))


def test_words_counted_from_one_begin_with_one(written):
    sides = [written("de", "ein Hund")], [written("en", "a dog")]
    with pytest.raises(DataError, match=r"0-1 names word 0 of .*, whose line has 2 words counted from 1"):
        links_of(*sides, written("links", "0-1"), base=1)


def test_links_of_files_other_than_parallel_lines_are_rejected(written):
    with pytest.raises(DataError, match=r"files of links \(data\.alignments\): l; source files: a, b; "):
        links_of(["a", "b"], ["c", "d"], "l")
    with pytest.raises(DataError, match=r"source files: none; .* Only text line by line .* can have links"):
        links_of([], [], "l")
    with pytest.raises(DataError, match=r"a\.srt: subtitles are paired by their times"):
        links_of(["a.srt"], ["b.srt"], "l")
