from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

PIECES = ["", " ", "\t", "- ", "1. ", "> ", "Ein Hund", "rennt", "犬", "---", "é.", "\f", "\u2028", "  "]
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=5).map("".join), min_size=1, max_size=8)


@settings(max_examples=50)
@given(LINES, st.sampled_from(["\n", "\r\n", "\r"]), st.sampled_from(["", "\ufeff"]), st.booleans())
def test_translated_paragraphs_keep_their_places(read, fill, lines, line_end, mark, ends):
    written = mark + line_end.join(lines) + line_end * ends
    document = read("a.txt", written, paragraphs=True)
    found = fill(document, lambda text: "x").removeprefix(mark)
    assert len(read("a.txt", found, paragraphs=True).segments) == len(document.segments)
    for segment in document.segments:
        assert segment.text == segment.text.strip()
    without_text = [line for line in lines if not any(map(str.isalnum, line))]
    assert [line for line in found.split(line_end) if not any(map(str.isalnum, line))] == without_text + [""] * ends


def test_lines_up_to_a_blank_one_are_a_segment(read, fill, places):
    written = "Ein Hund rennt\nüber die Wiese.  \n \n\n  Zwei Hunde\r\nbellen und\nlaufen.\n\nTitel\n=====\n\nEnde"
    document = read("a.txt", written, paragraphs=True)
    assert places(document) == [
        (1, "Ein Hund rennt über die Wiese."),
        (5, "Zwei Hunde bellen und laufen."),
        (9, "Titel"),
        (12, "Ende"),
    ]
    new = {
        "Ein Hund rennt über die Wiese.": "A dog runs across the wide meadow.",  # 14, 15 columns -> 15 at most
        "Zwei Hunde bellen und laufen.": "Two.",
        "Titel": "A long title that stays on one line",
    }
    assert fill(document, new) == (
        "A dog runs\nacross the wide\nmeadow.  \n \n\n  Two.\n\nA long title that stays on one line\n=====\n\nEnde"
    )


def test_indentation_and_markers_stay(read, fill, places):
    written = "  - Ein Hund\n    rennt weit.\n  - Zwei\n1. Eins\n(a) Drei\n> Mail von\n> gestern\n>> und früher\nneu\n"
    document = read("a.txt", written, paragraphs=True)
    assert places(document) == [
        (1, "Ein Hund rennt weit."),
        (3, "Zwei"),
        (4, "Eins"),
        (5, "Drei"),
        (6, "Mail von gestern"),
        (8, "und früher"),
        (9, "neu"),
    ]
    new = {"Ein Hund rennt weit.": "A dog runs far away from here.", "Zwei": "Two", "Mail von gestern": "old mail"}
    assert fill(document, new) == (
        # 15 columns: "    rennt weit."
        "  - A dog runs\n    far away\n    from here.\n  - Two\n1. Eins\n(a) Drei\n> old mail\n>> und früher\nneu\n"
    )


def test_spaces_that_do_not_break_stay_and_do_not_break(read, fill):
    document = read("a.txt", "ja ja\nja\n\nnein", paragraphs=True)
    new = {"ja ja ja": "oui\u00a0! oui\u00a0!", "nein": "non\u00a0!\nnon"}
    assert fill(document, new) == "oui\u00a0!\noui\u00a0!\n\nnon\u00a0! non"


def test_no_line_of_a_wrapped_translation_begins_another_paragraph(read, fill):
    document = read("a.txt", "> eins zwei\n> drei\n", paragraphs=True)  # 9 columns of text
    for text, filled in {
        "A meadow \u2013 and a dog": "> A meadow \u2013 and a\n> dog\n",
        "Neighbour ` understood": "> Neighbour `\n> understood\n",
        "` Neighbours are > > dogs": "> ` Neighbours\n> are > >\n> dogs\n",
        "A meadow a) of ours": "> A meadow a) of\n> ours\n",
        "A meadow \u00a0\u2013 and dogs": "> A meadow \u00a0\u2013 and\n> dogs\n",
        "> 2 dogs of ours": "> > 2 dogs of ours\n",
    }.items():
        assert fill(document, lambda _, text=text: text) == filled
        assert len(read("a.txt", filled, paragraphs=True).segments) == 1


@pytest.mark.parametrize("written", ["犬が\n走る。\n", "犬が走る。\n"])
def test_japanese_lines_are_joined_without_a_space(read, fill, written):
    document = read("a.txt", written, paragraphs=True)
    assert [one.text for one in document.segments] == ["犬が走る。"]
    assert fill(document, {"犬が走る。": "猫です。"}) == ("猫で\nす。\n" if written.count("\n") == 2 else "猫です。\n")


def test_a_long_paragraph_costs_no_time(read):
    assert len(read("a.txt", "Hund\n" * 50_000, paragraphs=True).segments) == 1
    assert len(read("a.txt", " " * 200_000 + ">" * 200_000 + "a", paragraphs=True).segments) == 1
