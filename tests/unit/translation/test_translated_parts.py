"""Translation part by part: the parts joined are the lines, and their texts what `translate` gives."""

from __future__ import annotations

import pytest
from trained_text import counted, info_of

from clearhead.translation.memory import TranslationMemory
from clearhead.translation.parts import MOST_PARTS_AT_ONCE, translate_parts
from clearhead.translation.translator import Translator

LINES = [
    "Ein kleiner Hund rennt. Zwei Männer sitzen.\tAm 3. Mai kostete es 12 €!",
    "",
    "Ein kleiner Hund rennt.",
    "犬が走る。犬が走る。",
    "  <2fr>  Zwei   Männer\u3000sitzen. Ein  Hund rennt ! ",
    "<2en> Ein Hund. <2fr> Zwei Hunde.",
]


@pytest.fixture(scope="module")
def translator(make_bundle, sentences):
    """Return a translator that was trained on lines of one sentence without stray space."""
    info = info_of(counted(zip(sentences, sentences, strict=True), "de", (90, 40), "".join(sentences)))
    return Translator(make_bundle(language_tags=("de", "en", "fr"), decode={"target_lang": "de"}, info=info))


def test_the_parts_joined_are_the_lines_and_their_texts_the_translations(translator):
    wanted = translator.translate(LINES)
    parts = [part for group in translate_parts(translator, LINES) for part in group]
    for number, (line, whole) in enumerate(zip(LINES, wanted, strict=True)):
        own = [part for part in parts if part.number == number]
        assert "".join(line[part.start : part.end] for part in own) == line
        assert "".join(part.text for part in own) == whole.text
        assert sum(part.translation.score for part in own) == pytest.approx(whole.score, abs=1e-4)
    assert [part.number for part in parts] == [0, 0, 0, 1, 2, 3, 3, 4, 4, 5]  # the last has a sentence like a tag
    first, second = (LINES[0][part.start : part.end] for part in parts[:2])
    assert [first, second] == [
        "Ein kleiner Hund rennt.",
        " Zwei Männer sitzen.",
    ]


def test_the_first_part_is_alone_and_the_groups_grow(translator):
    sizes = [len(group) for group in translate_parts(translator, [LINES[2]] * 40)]
    assert sizes == [1, 2, 4, 8, MOST_PARTS_AT_ONCE, 9]


def test_a_line_that_is_reused_is_one_part_and_each_line_is_looked_up_once(translator):
    asked, memory = [], TranslationMemory([(LINES[0], "Alles.")])

    def lookup(text):
        asked.append(text)
        return memory.exact(text)

    parts = [part for group in translate_parts(translator, LINES[::2], memory=lookup) for part in group]
    assert (parts[0].text, parts[0].start, parts[0].end) == ("Alles.", 0, len(LINES[0]))
    assert [part.translation.memory is not None for part in parts] == [True] + [False] * (len(parts) - 1)
    assert asked == LINES[::2]
