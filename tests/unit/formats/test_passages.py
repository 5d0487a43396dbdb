"""Passages: what looks like a tag is none of ours, and translations stand within translations."""

from __future__ import annotations

from clearhead.formats.document import Filling
from clearhead.formats.passages import Passage, Run, changes


def test_words_that_look_like_a_tag_are_an_element():
    run = Run()
    run.words("say <g1> ", 0, 9)
    run.opening("b", 9, 12)
    run.words("now", 12, 15)
    run.closing("b", 15, 19)
    passage = run.passage()
    assert passage is not None
    assert passage.text == "say <x1/> <g2>now</g2>"
    assert [element.opening for element in passage.elements] == ["<g1>", (9, 12)]


def test_changes_puts_an_inner_passage_where_its_markup_moves():
    text = "see <a title='tip'>it</a>."
    passages = [Passage(0, 26, "see <g1>it</g1>."), Passage(14, 17, "tip")]

    def write(passage, translation, source):
        return translation.replace("<a>", source((4, 19))).replace("</a>", source((21, 25)))

    done = changes(text, passages, [Filling("<a>es</a> sieh."), Filling("Rat")], write)
    assert done == [(0, 26, "<a title='Rat'>es</a> sieh.")]
    assert changes(text, passages, [None, Filling("Rat")], write) == [(14, 17, "Rat")]
    assert changes(text, passages, [None, None], write) == []
