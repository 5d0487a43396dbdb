"""Lines are translated chunk by chunk, and written as text or as JSON."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest

from clearhead.translation.lines import LineWriter, TranslatedLines, translate_lines
from clearhead.translation.result import Alternative, Translation

FOUND = [
    Translation("Ein Hund.", "A dog.", -1.5, ("A", "dog."), quality=0.9, alignment=((0, 0), (1, 1))),
    Translation("Ja.", "Yes.", -0.5, ("Yes.",), quality=0.2, alignment=((0, 0),)),
]


def test_translate_lines_reads_a_chunk_when_the_one_before_is_done(english_translator):
    read = []
    lines = (read.append(text) or text for text in ("A dog.", "A cat.", "", "Two men.", "A boat."))
    firsts = []
    chunks = translate_lines(english_translator, lines, chunk_lines=2, on_first=firsts.append, beam_size=1)
    first = next(chunks)
    assert (read, first.places) == (["A dog.", "A cat."], ["line 1", "line 2"])
    rest = list(chunks)
    assert [chunk.places for chunk in rest] == [["line 3", "line 4"], ["line 5"]]
    assert firsts == [["A dog.", "A cat."]]
    found = [one for chunk in (first, *rest) for one in chunk.translations]
    whole = english_translator.translate(read, beam_size=1)
    assert [replace(one, score=None) for one in found] == [replace(one, score=None) for one in whole]
    # On some processors the last bit depends on the batch.
    assert [one.score for one in found if one.source] == pytest.approx([one.score for one in whole if one.source])


def test_lines_below_a_quality_are_kept_blank():
    chunk = TranslatedLines(7, FOUND, only_if=0.5)
    assert (chunk.left, [one.text for one in chunk.kept]) == (["line 8"], ["A dog.", ""])
    assert TranslatedLines(7, FOUND).kept == FOUND


@pytest.mark.parametrize("num_best", [1, 2])
def test_line_writer_numbers_translations_over_all_files(num_best):
    out, links = io.StringIO(), io.StringIO()
    writer = LineWriter(out, num_best=num_best, links=links)
    best = Translation(
        "Ja.", "Yes.", -0.5, ("Yes.",), alternatives=(Alternative("Yes.", -0.5), Alternative("Yea.", -1))
    )
    writer.write(TranslatedLines(1, FOUND), "a.txt")
    writer.write(TranslatedLines(1, [best]), "b.txt")
    expected = {
        1: "A dog.\nYes.\nYes.\n",
        2: "0 ||| A dog. ||| -1.500000\n1 ||| Yes. ||| -0.500000\n2 ||| Yes. ||| -0.500000\n2 ||| Yea. ||| -1.000000\n",
    }
    assert (out.getvalue(), links.getvalue(), writer.count) == (expected[num_best], "0-0 1-1\n0-0\n\n", 3)


def test_line_writer_writes_an_object_a_line():
    out = io.StringIO()
    LineWriter(out, is_jsonl=True).write(TranslatedLines(1, FOUND), "a.txt")
    assert [json.loads(line)["text"] for line in out.getvalue().splitlines()] == ["A dog.", "Yes."]
