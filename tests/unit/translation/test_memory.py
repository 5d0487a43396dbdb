"""Translation memories: what is found again, and how similar it is."""

from __future__ import annotations

import random

import pytest
from rapidfuzz.distance import Levenshtein

from clearhead.errors import ConfigError, DataError
from clearhead.translation.memory import MOST_WORDS, TranslationMemory, recalled
from clearhead.translation.result import MemoryMatch, Translation
from clearhead.translation.terminology import term_words
from clearhead.translation.translator import Translator

PAIRS = [
    ("Open the file.", "Öffne die Datei."),
    (" Close the window now. ", "Schließe das Fenster jetzt."),
    ("Delete %s?", "Löschen?"),
    ("Save %s", "%s sichern"),
    ("blank", " "),
    ("Open the file.", "Öffnen Sie die Datei."),
]


def distance_by_table(one, other):
    """Return the edit distance of words, by the table that every textbook has."""
    row = list(range(len(other) + 1))
    for place, word in enumerate(one, start=1):
        before, row[0] = row[0], place
        for column, second in enumerate(other, start=1):
            before, row[column] = row[column], min(row[column] + 1, row[column - 1] + 1, before + (word != second))
    return row[-1]


def similarity_by_table(one, other):
    one, other = ([word.text for word in term_words(text)] for text in (one, other))
    return 1 - distance_by_table(one, other) / max(len(one), len(other))


def test_an_exact_match_is_reused_and_the_last_translation_counts():
    match = TranslationMemory(PAIRS).match("  Open the file.\n")
    assert match == MemoryMatch("Open the file.", "Öffnen Sie die Datei.", 1.0, is_reused=True)


def test_canonically_equivalent_texts_match_exactly():
    memory = TranslationMemory([("Fu\u0308nf kleine Ma\u0308nner", "five little men")])
    exact = memory.match("Fünf kleine Männer")
    assert exact == MemoryMatch("Fu\u0308nf kleine Ma\u0308nner", "five little men", 1.0, is_reused=True)
    assert memory.match("Fünf große kleine Männer").similarity == 0.75  # one word of four more


def test_match_with_other_placeholders_is_not_reused():
    memory = TranslationMemory(PAIRS)
    assert memory.match("Delete %s?") == MemoryMatch("Delete %s?", "Löschen?", 1.0, is_reused=False)
    assert memory.match("Save %s").is_reused


def test_the_translation_of_the_same_context_is_reused():
    pairs = [("Open", "Öffnen", "verb"), ("Open", "Offen", "adjective"), ("Close", "Schließen", "verb")]
    memory = TranslationMemory(pairs)
    for context, target in (("verb", "Öffnen"), ("adjective", "Offen")):
        assert memory.match("Open", context=context) == MemoryMatch("Open", target, 1.0, is_reused=True)
    # Another context, or none: which of two translations is right is not known.
    for context in ("noun", None):
        assert memory.match("Open", context=context) == MemoryMatch("Open", "Offen", 1.0, is_reused=False)
        assert memory.match("Close", context=context).is_reused
    for with_plain in ([("Open", "Auf"), *pairs], [*pairs, ("Open", "Auf")]):
        memory = TranslationMemory(with_plain)
        assert memory.exact("Open") == MemoryMatch("Open", "Auf", 1.0, is_reused=True)
        assert memory.exact("Open", context="verb").target == "Öffnen"
        assert not memory.exact("Open", context="noun").is_reused


def test_contexts_of_a_catalogue_are_those_of_a_memory(tmp_path):
    message = 'msgctxt "{}"\nmsgid "Open"\nmsgstr "{}"\n\n'
    path = tmp_path / "a.po"
    path.write_text(message.format("verb", "Öffnen") + message.format("", "Offen"), encoding="utf-8")
    memory = TranslationMemory.load([str(path)])
    assert [memory.match("Open", context=one).target for one in ("verb", "")] == ["Öffnen", "Offen"]


def test_match_returns_similar_texts_from_the_given_similarity_on():
    memory = TranslationMemory(PAIRS)
    expected = MemoryMatch("Close the window now.", "Schließe das Fenster jetzt.", 0.8)
    assert memory.match("Close the door now.", 0.8) == expected
    assert memory.match("Close the door now.", 0.81) is None
    assert memory.match("") is memory.match("etwas anderes") is memory.match("blank") is None


def test_the_index_finds_what_comparing_with_everything_finds():
    draw = random.Random(3)
    texts = [" ".join(draw.choices("abcdefg", k=draw.randint(1, 9))) for _ in range(160)]
    memory = TranslationMemory((text, text) for text in texts[:120])
    for text in texts[120:]:
        best = max(similarity_by_table(text, other) for other in texts[:120])
        for least in (0.3, 0.75):
            match = memory.match(text, least)
            if best < least - 1e-9:
                assert match is None
            else:
                assert match.similarity == pytest.approx(best, abs=1e-4)
                assert similarity_by_table(text, match.source) == pytest.approx(best)


@pytest.mark.parametrize("size", [1, 63, 64, 65, 130])
def test_similarity_is_that_of_the_table_at_any_length(size):
    draw = random.Random(size)
    one, other = (" ".join(draw.choices("abc", k=size + extra)) for extra in (0, draw.randint(0, 5)))
    match = TranslationMemory([(other, "x")]).match(one, 1e-9)
    assert match.similarity == pytest.approx(similarity_by_table(one, other), abs=1e-4)


def test_recalled_replaces_translations_by_reused_matches():
    lines, match = ["a", "b", "c"], MemoryMatch("a", "A", 1.0, is_reused=True)
    made = [Translation(line, line * 2, -1.0, ("x",)) for line in lines]
    found = recalled(lines, {0: match, 1: MemoryMatch("bb", "B", 0.8)}, made)
    assert [(one.text, one.score) for one in found] == [("A", None), ("bb", -1.0), ("cc", -1.0)]
    assert [one.memory and one.memory.similarity for one in found] == [1.0, 0.8, None]


def test_recalled_joins_line_breaks_with_one_line():
    match, made = MemoryMatch("a", "A\u2028B\nC", 1.0, is_reused=True), [Translation("", "", 0.0, (), alignment=())]
    assert [recalled(["a"], {0: match}, made, one_line=it)[0].text for it in (True, False)] == ["A B C", "A\u2028B\nC"]
    assert recalled(["a"], {0: match}, made)[0].alignment == ()


def test_a_translator_translates_only_what_the_memory_lacks(make_bundle):
    translator, lines = Translator(make_bundle()), ["Open the file.", "Close the door now.", " ", "Save %s"]
    told = []
    found = translator.translate(lines, memory=TranslationMemory(PAIRS).match, on_progress=told.append)
    assert [one.source for one in found] == lines
    assert [one.text for one in found][::3] == ["Öffnen Sie die Datei.", "%s sichern"]
    assert [one.memory and one.memory.is_reused for one in found] == [True, False, None, True]
    assert found[1].tokens == translator.translate(lines)[1].tokens
    assert sum(told) == 1


def test_files_are_read_in_the_languages_asked_for_and_unfinished_ones_left_out(tmp_path):
    (tmp_path / "m.tmx").write_text(
        '<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>ja</seg></tuv>'
        '<tuv xml:lang="en"><seg>yes</seg></tuv></tu></body></tmx>',
        encoding="utf-8",
    )
    (tmp_path / "m.po").write_text('#, fuzzy\nmsgid "no"\nmsgstr "nein"\n', encoding="utf-8")
    memory = TranslationMemory.load([str(tmp_path)], from_lang="en", to_lang="de")
    assert len(memory) == 1
    assert memory.match("yes").target == "ja"
    with pytest.raises(DataError, match="no translation in it"):
        TranslationMemory.load([str(tmp_path / "m.po")])
    with pytest.raises(ConfigError, match=r"the least similarity \(1.5\) must be above 0 and at most 1"):
        memory.match("x", 1.5)


def test_a_text_of_too_many_words_matches_exactly_or_not():
    words = ["ja"] * MOST_WORDS
    most, more = " ".join(words), " ".join([*words, "ja"])
    memory = TranslationMemory([(most, "yes"), (more, "yes, yes")])
    assert memory.match(" ".join([*words[1:], "nein"])).similarity == 1 - 1 / MOST_WORDS
    assert memory.match(more).target == "yes, yes"
    assert memory.match(" ".join([*words, "nein"])) is None


def test_a_repeated_word_is_not_compared_with_every_entry_that_has_it(monkeypatch):
    compared = []
    similarity = Levenshtein.similarity
    monkeypatch.setattr(Levenshtein, "similarity", lambda *a, **how: compared.append(a) or similarity(*a, **how))
    memory = TranslationMemory([(f"the {number}", "x") for number in range(50)] + [("the the the dog", "y")])
    assert memory.match("the the the the").target == "y"
    assert len(compared) == 1
