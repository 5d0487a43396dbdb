"""What differs between two explanations, on numbers small enough to work out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from clearhead.errors import ConfigError
from clearhead.inspection.compare import compare
from clearhead.inspection.explain import Step, explain
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.token_steps import Candidate


def explanation(source, target, cross, probabilities, **changes):
    num_source, num_target = len(source), len(target)
    values = {
        "source": "".join(source[:-1]).strip(),
        "translation": "".join(target[:-1]).strip(),
        "score": float(np.log(probabilities).sum()),
        "source_tokens": source,
        "target_tokens": target,
        "encoder": np.full((1, 1, num_source, num_source), 1 / num_source, dtype=np.float32),
        "decoder": np.tril(np.ones((1, 1, num_target, num_target), dtype=np.float32)),
        "cross": np.array([[cross]], dtype=np.float32),
        "steps": [Step(token, p, (Candidate(token, p),)) for token, p in zip(target, probabilities, strict=True)],
    }
    return Explanation(**{**values, **changes})


FIRST = explanation([" ein", " Hund", "</s>"], [" a", " dog", "</s>"], np.eye(3), [0.5, 0.6, 0.9])
SECOND = explanation(
    [" ein", " alter", " Hund", "</s>"],
    [" a", " old", " dog", "</s>"],
    [[0.5, 0.25, 0.25, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]],
    [0.5, 0.3, 0.2, 0.9],
)


def test_compare_finds_no_differences_in_equal_explanations():
    found = compare(FIRST, FIRST)
    assert all((values == 0).all() for values in found.heads.values())
    assert all(change.is_same for change in (*found.source_changes, *found.target_changes))
    assert found.to_dict()["score_change"] == 0


def test_a_word_more_is_a_change_and_the_others_are_matched():
    found = compare(FIRST, SECOND)
    runs = [(change.is_same, change.first, change.second) for change in found.target_changes]
    assert runs == [(True, (0, 1), (0, 1)), (False, (1, 1), (1, 2)), (True, (1, 3), (2, 4))]
    assert [(pair.first, pair.second, pair.probabilities) for pair in found.steps] == [
        (0, 0, (0.5, 0.5)),
        (1, 2, (0.6, 0.2)),
        (2, 3, (0.9, 0.9)),
    ]


def test_compare_lists_visible_differences_or_says_that_there_are_none():
    assert compare(FIRST, FIRST).lines()[-2:] == [
        "every token that both write is as probable",
        "every head looks at the same",
    ]
    lines = compare(FIRST, SECOND).lines()
    assert "  dog: 60.0%, then 20.0%" in lines
    assert not [line for line in lines if line.startswith(("  a:", "  </s>:"))]  # as probable in both


def test_compare_distinguishes_byte_tokens_of_different_characters():
    spans = [(0, 1), (0, 1), (1, 2), None]
    tokens = ["\ufffd", "\ufffd", "b", "</s>"]  # as bytes of a character read
    same = explanation(tokens, tokens, np.eye(4), [0.5] * 4, source_spans=spans, target_spans=spans)
    first = replace(same, source="\u72acb", translation="\u72acb")
    second = replace(first, source="\u732bb")
    found = compare(first, second)
    assert [(change.is_same, change.first) for change in found.source_changes] == [(False, (0, 2)), (True, (2, 4))]
    assert [change.is_same for change in found.target_changes] == [True]


def test_compare_measures_heads_by_half_the_moved_weight():
    # Both read <s>, a and dog: rows 0, 1, 2 and 0, 1, 3; columns ein, Hund and </s>: 0, 1, 2 and 0, 2, 3.
    # Row <s>: (1, 0, 0) and (.5, .25, 0), .25 elsewhere: (.5 + .25 + .25) / 2; row a: Hund and alter: 1; dog: 0.
    np.testing.assert_allclose(compare(FIRST, SECOND).heads["cross"], [[(0.5 + 1 + 0) / 3]])


def test_models_of_different_shape_have_no_heads_to_compare():
    other = explanation([" ein", " Hund", "</s>"], [" a", "</s>"], [[1, 0, 0]] * 2, [0.5, 0.9])
    two = Explanation(**{**vars(other), "cross": np.concatenate([other.cross] * 2)})
    found = compare(FIRST, two)
    assert found.heads["cross"] is None
    assert found.heads["encoder"] is not None
    assert found.to_dict()["heads"]["cross"] is None
    with pytest.raises(ConfigError, match="encoder-decoder and decoder"):
        compare(FIRST, Explanation(**{**vars(other), "kind": "decoder"}))


def test_two_models_and_two_sentences_in_words(make_translator):
    translator, other = make_translator(), make_translator(norm="post")
    text = "Ein kleiner Hund rennt."
    first = explain(translator, text, "A dog.")
    lines = compare(first, explain(other, text, "A dog.")).lines()
    assert sum("source" in line for line in lines) == 2
    assert any("heads that look elsewhere" in line for line in lines)
    values = compare(first, explain(translator, "Ein Hund rennt.", "A dog.")).to_dict(packed=True)
    assert values["first"]["cross"]["type"] == "root16"
    assert not values["is_same_source"]
