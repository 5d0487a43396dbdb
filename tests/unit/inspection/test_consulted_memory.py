"""Similar pairs of a memory at each step of an explained translation."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.decoding import neighbours
from clearhead.inspection.explain import explain
from clearhead.inspection.summary import summary_lines
from clearhead.translation.memory import TranslationMemory

PAIRS = [("Open the old file now.", "Öffne jetzt die alte Datei."), ("Stop it!", "Halte an!")]
TEXT = "Open the new file now."
SIZES = {"d_model": 64, "num_heads": 2, "d_k": 16, "d_v": 32, "d_ff": 96}


@pytest.fixture
def translator(make_translator, monkeypatch):
    monkeypatch.setattr(neighbours, "REACH", 50.0)  # states of a random model are not near each other
    return make_translator(**SIZES)


@pytest.fixture
def nearest():
    return TranslationMemory(PAIRS).nearest


def test_each_step_names_the_pair_that_supports_its_token(translator, nearest):
    explained = explain(translator, TEXT, PAIRS[0][1], neighbours=nearest, memory_weight=0.4)
    memory = explained.memory
    assert [pair.source for pair in memory.pairs] == [PAIRS[0][0]]
    assert memory.weight == 0.4
    assert len(memory.steps) == len(explained.target_tokens)
    assert all(step.pair == (0 if step.weight else None) and 0 < step.probability <= 1 for step in memory.steps)
    other = explain(translator, TEXT, PAIRS[1][1], neighbours=nearest, memory_weight=0.4).memory
    absent = [step for step in other.steps if step.pair is None]
    assert absent
    assert all(step.probability == 0 or step.weight == 0 for step in absent)


def test_the_same_source_and_target_have_the_same_states(translator, nearest):
    steps = explain(translator, PAIRS[0][0], PAIRS[0][1], neighbours=nearest, memory_weight=0.4).memory.steps
    np.testing.assert_allclose([step.weight for step in steps], 0.4, rtol=1e-6)


def test_the_explained_translation_is_that_of_translate_and_its_score_the_models_own(translator, nearest):
    explained = explain(translator, TEXT, neighbours=nearest, memory_weight=0.9)
    [translated] = translator.translate([TEXT], neighbours=nearest, memory_weight=0.9)
    assert explained.translation == translated.text != explain(translator, TEXT).translation
    assert explained.score == pytest.approx(translator.score([TEXT], [translated.text])[0], abs=1e-4)
    assert explained.to_search()["is_translation"]


def test_text_and_json_show_the_pairs_only_if_some_were_consulted(translator, nearest):
    explained = explain(translator, TEXT, neighbours=nearest, memory_weight=0.4)
    [line] = [line for line in summary_lines(explained) if "->" in line]
    assert PAIRS[0][0] in line
    assert explained.to_dict()["memory"]["pairs"][0]["target"] == PAIRS[0][1]
    for other in (explain(translator, "Nothing", neighbours=nearest), explain(translator, TEXT)):
        assert "memory" not in other.to_dict()
        assert not any("->" in line for line in summary_lines(other))
