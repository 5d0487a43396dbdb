"""The tree of a search is the search as it went: its scores are the model's, and its best is what search finds."""

from __future__ import annotations

import pytest

from clearhead.config import DecodeConfig
from clearhead.decoding import length_penalty
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.sentence import NO_PREFIX, given_prefix
from clearhead.decoding.step import token_log_probs
from clearhead.inspection.beam_tree import FATES, record_search
from plain_search import plain_search

pytestmark = pytest.mark.usefixtures("inference")

CONFIG = DecodeConfig(beam_size=3, extra_length=4)


@pytest.fixture(scope="module")
def model(make_translator):
    return make_translator().bundle.model


@pytest.fixture(scope="module")
def source():
    return [40, 41, 57, 2]


@pytest.fixture(scope="module")
def tree(model, source):
    return record_search(PlainEngine(model), source, CONFIG, NO_PREFIX)


def tokens(tree, node):
    return [tree.nodes[number].token for number in tree.path(node.number)]


def test_an_observer_changes_nothing(model):
    sources = [[40, 41, 57, 2], [99, 2], [50, 60, 70, 80, 90, 2]]
    options = {"max_lengths": [8, 3, 11], "beam_size": 3, "alpha": 0.6, "num_best": 3}
    seen = []
    observed = plain_search(model, sources, observer=seen.append, **options)
    assert observed == plain_search(model, sources, **options)
    assert {step.sentence for step in seen} == {0, 1, 2}
    for sentence in range(3):
        endings = [step.ending for step in seen if step.sentence == sentence]
        assert endings[-1] != ""
        assert not any(endings[:-1])


def test_every_score_is_what_the_model_gives_the_tokens(model, source, tree):
    nodes = [node for node in tree.nodes if node.step <= 4]
    paths = [tokens(tree, node) for node in nodes]
    log_probs = token_log_probs(model, [source] * len(paths), paths)
    for node, row in zip(nodes, log_probs, strict=True):
        assert node.score == pytest.approx(row.sum().item(), abs=1e-4)
        assert node.log_prob == pytest.approx(row[node.step - 1].item(), abs=1e-4)
        assert node.rank_score == pytest.approx(node.score / length_penalty(node.step, 0.6), abs=1e-4)


def test_the_chosen_one_is_the_best_that_finished(model, source, tree):
    [[best]] = plain_search(model, [source], max_lengths=[8], beam_size=3, alpha=0.6)
    assert tree.hypothesis == best
    assert tuple(tokens(tree, tree.nodes[tree.finished[0]])) == best.tokens
    scores = [tree.nodes[number].rank_score for number in tree.finished]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(best.rank_score, abs=1e-5)


def test_beam_tree_keeps_beam_size_nodes_and_prunes_worse_ones(tree):
    assert {node.fate for node in tree.nodes} <= FATES.keys()
    last = max(node.step for node in tree.nodes)
    for step in range(1, last + 1):
        nodes = [node for node in tree.nodes if node.step == step]
        on = [node for node in nodes if node.fate in ("kept", "hopeless")]
        assert len(on) <= 3
        assert [node.score for node in nodes] == sorted((node.score for node in nodes), reverse=True)
        if pruned := [node for node in nodes if node.fate == "beam"]:
            assert len(on) == 3
            assert max(node.score for node in pruned) <= min(node.score for node in on)
        for node in nodes:
            assert (node.token == 2) == (node.fate in ("finished", "late end"))
            if step > 1:
                assert tree.nodes[node.parent].fate == "kept"
                assert tree.nodes[node.parent].step == step - 1
            else:
                assert node.parent is None


def test_a_beam_of_one_is_greedy_search(model, source):
    greedy = record_search(PlainEngine(model), source, CONFIG.with_changes({"beam_size": 1}), NO_PREFIX)
    [expected] = greedy_search(model, [source], max_lengths=[8])
    assert greedy.hypothesis.tokens == expected.tokens
    assert greedy.length_penalty == 0.0


def test_given_prefix_tokens_have_score_zero_in_the_beam_tree(model, source):
    told = record_search(PlainEngine(model), source, CONFIG, given_prefix((45,)))
    first, *rest = told.nodes
    assert (first.token, first.score, first.fate) == (45, 0.0, "kept")
    after = next(node for node in rest if node.step == 2)
    assert after.score == pytest.approx(after.log_prob, abs=1e-6)
