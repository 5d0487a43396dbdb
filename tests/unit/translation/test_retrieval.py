"""Similar pairs of a memory that the model consults: what is looked up, what is left out, and what the result says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clearhead.decoding import neighbours
from clearhead.decoding.neighbours import automatic_weight
from clearhead.errors import ConfigError
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.memory_file import MemoryFile, write_memory
from clearhead.translation.options import TranslateOptions
from clearhead.translation.translator import Translator

PAIRS = [
    ("Open the old file now.", "Öffne jetzt die alte Datei."),
    ("Open the file now.", "Öffne jetzt die Datei."),
    ("Stop it!", "Halte an!"),
]
SIZES = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 32, "d_ff": 96}
LINES = ["Open the new file now.", " ", "Nothing like it", "Close the door now."]


@pytest.fixture
def memory():
    return TranslationMemory(PAIRS)


@pytest.fixture
def translator(make_translator, monkeypatch):
    monkeypatch.setattr(neighbours, "REACH", 50.0)  # states of a random model are not near each other
    return make_translator(**SIZES)


def found(translator, lines, memory, **settings):
    """Return the segments of lines after the look-up."""
    config = translator.decode_config(settings)
    read = translator.preprocessor(lines, config, "", TranslateOptions())
    segments = [segment for line in read for segment in line.to_translate]
    translator.find_neighbours(segments, memory.nearest, config)
    return segments


def test_the_nearest_pairs_come_best_first_from_either_kind_of_memory(memory, tmp_path):
    write_memory(str(tmp_path / "m.sqlite"), [(*pair, None) for pair in PAIRS], ("en", "de"))
    for kind in (memory, MemoryFile(tmp_path / "m.sqlite")):
        nearest = kind.nearest("Open the new file now.")
        assert [(match.source, match.similarity) for match in nearest] == [
            ("Open the file now.", 0.8333),  # of equally similar ones the last comes first
            ("Open the old file now.", 0.8333),
        ]
        assert kind.nearest("Open the new file now.", 1) == nearest[:1]
        assert kind.nearest("Something else entirely") == kind.nearest(" ") == []


def test_pairs_that_share_other_words_with_the_text_are_chosen_of_similar_ones(tmp_path):
    sources = ["a red dog runs on grass", "a red dog runs on ice", "the man runs home with a kite", "some red dog runs"]
    pairs = [(source, f"{number}") for number, source in enumerate(sources)]
    write_memory(str(tmp_path / "m.sqlite"), [(*pair, None) for pair in pairs], ("en", "de"))
    for kind in (TranslationMemory(pairs), MemoryFile(tmp_path / "m.sqlite")):
        found = [kind.nearest("a red dog runs with a kite", count, least=0.2) for count in (1, 2, 3, 9)]
        assert [[match.target for match in some] for some in found] == [
            ["1"],
            ["1", "2"],  # 0 is more similar than 2, but shares nothing that 1 lacks
            ["1", "0", "2"],
            ["1", "0", "3", "2"],
        ]


def test_a_memory_file_chooses_among_the_most_similar_pairs_not_those_of_the_same_length(tmp_path, monkeypatch):
    sources = [f"a red {number} runs on ice" for number in range(9)]
    sources += ["a red dog stays with it", "a big dog runs with it again"]
    write_memory(str(tmp_path / "m.sqlite"), [(source, "x", None) for source in sources], ("en", "de"))
    for module in ("memory", "memory_file"):
        monkeypatch.setattr(f"clearhead.translation.{module}.POOL", 4)
    nearest = MemoryFile(tmp_path / "m.sqlite").nearest("a red dog runs with it", 2)
    assert [(match.source, match.similarity) for match in nearest] == [(sources[9], 0.8333), (sources[10], 0.7143)]


def test_the_weight_is_that_of_the_most_similar_pair_or_the_setting(translator, memory):
    weights = [segment.neighbours and segment.neighbours.weight for segment in found(translator, LINES, memory)]
    assert weights == [automatic_weight(0.8333), None, automatic_weight(0.6)]
    fixed = found(translator, LINES, memory, memory_weight=0.25)
    assert [segment.neighbours and segment.neighbours.weight for segment in fixed] == [0.25, None, 0.25]
    assert not any(segment.neighbours for segment in found(translator, LINES, memory, memory_weight=0.0))


def test_the_weight_is_that_of_the_most_similar_pair_that_is_consulted(translator):
    """An equal source whose translation has a tag that the line lacks has no say."""
    memory = TranslationMemory([(LINES[0], "Öffne <b>die</b> Datei."), ("Lock the old door now.", "Schließe ab.")])
    (segment,) = found(translator, LINES[:1], memory)
    assert (len(segment.neighbours.pairs), segment.neighbours.weight) == (1, automatic_weight(0.5))
    assert automatic_weight(0.5) < automatic_weight(1.0)


def test_neighbours_are_tokenized_as_lines_and_translations_are(translator, memory):
    (segment,) = found(translator, LINES[:1], memory)
    sources = [match.source for match in memory.nearest(LINES[0])]
    targets = [match.target for match in memory.nearest(LINES[0])]
    encoded = translator.pair_encoder.encode([(None, source) for source in sources], targets, translator.bundle.decode)
    assert [[list(pair.source), list(pair.target)] for pair in segment.neighbours.pairs] == list(
        map(list, zip(*encoded, strict=True))
    )


def test_a_neighbour_with_other_placeholders_is_left_out(translator):
    memory = TranslationMemory([("Open the file now.", "Öffne <b>jetzt</b> die Datei.")])
    assert [segment.neighbours for segment in found(translator, ["Open the new file now."], memory)] == [None]
    memory = TranslationMemory([("Open %s the file now.", "Öffne %s die Datei jetzt.")])
    assert [segment.neighbours for segment in found(translator, ["Open {0} the file now."], memory)] != [None]


def test_scores_are_the_models_own(translator, memory):
    alone = translator.translate(LINES)
    consulted = translator.translate(LINES, neighbours=memory.nearest, memory_weight=0.9)
    assert consulted[0].text != alone[0].text
    assert [line.text for line in consulted[1:3]] == [line.text for line in alone[1:3]]
    for line in (consulted[0], consulted[3]):
        assert line.score == pytest.approx(translator.score([line.source], [line.text])[0], abs=1e-4)


def test_a_line_does_not_depend_on_the_others(translator, memory):
    options = {"neighbours": memory.nearest, "memory_weight": 0.6}
    together = translator.translate(LINES, **options)
    assert together == [translator.translate([line], **options)[0] for line in LINES]


def test_plain_code_consults_the_same_pairs(translator, memory):
    options = {"neighbours": memory.nearest, "memory_weight": 0.6}
    texts = [line.text for line in translator.translate(LINES, **options)]
    assert [line.text for line in translator.translate(LINES, plain=True, **options)] == texts


def test_a_memory_weight_is_refused_where_no_memory_can_be_consulted(translator, memory):
    ensemble = Translator(translator.bundle, ensemble=(translator.bundle,))
    expected = ensemble.translate(LINES)
    assert ensemble.translate(LINES, neighbours=memory.nearest) == expected
    assert ensemble.translate(LINES, neighbours=memory.nearest, memory_weight=0.0) == expected
    with pytest.raises(ConfigError, match="memory_weight: only a single encoder-decoder on the CPU consults"):
        ensemble.translate(LINES, neighbours=memory.nearest, memory_weight=0.5)


def test_without_near_pairs_nothing_changes(translator, memory):
    lines = ["Nothing like it", "Nor this one"]
    assert translator.translate(lines, neighbours=memory.nearest) == translator.translate(lines)


def test_a_line_with_an_inexact_match_is_translated_with_its_neighbours(translator, memory):
    both = translator.translate(LINES, memory=memory.match, neighbours=memory.nearest, memory_weight=0.9)
    alone = translator.translate(LINES, neighbours=memory.nearest, memory_weight=0.9)
    assert [replace(line, memory=None) for line in both] == alone
    assert both[0].memory is not None
