"""Tokenisation in pieces: the same data for any number of processes, and no process left that ends early."""

from __future__ import annotations

import multiprocessing
import os
import signal
from types import SimpleNamespace

import pytest
from pieces_of_text import PIECE, cut_small, of_linked_lines, of_pairs

from clearhead.config import Config
from clearhead.data import staged_corpus, survey, tokenised
from clearhead.data.clean import REASONS
from clearhead.data.prepare import prepare
from clearhead.errors import ClearheadError
from clearhead.files.finished_steps import FinishedSteps
from clearhead.formats import SKIPS
from clearhead.runtime.ray_shards import Actors, run_here_or_on_ray


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    cut_small(monkeypatch)


def contents(store) -> list[object]:
    links = [None if (own := store.links(row)) is None else own.tolist() for row in range(len(store))]
    ids = [(store.source_ids(row).tolist(), store.target_ids(row).tolist()) for row in range(len(store))]
    return [(store.source(row), store.target(row), ids[row], links[row]) for row in range(len(store))]


@pytest.mark.parametrize("corpus", [of_pairs, of_linked_lines])
def test_any_number_of_processes_prepares_the_same_data(tmp_path, corpus, monkeypatch):
    config = corpus(tmp_path)
    made = {}
    for processes in (1, 2, 3):
        data = tmp_path / str(processes) / "data"
        report = prepare(config, data, processes=processes, is_forced=True).report
        made[processes] = {path.name: path.read_bytes() for path in data.iterdir()}
        assert sorted(made[processes]) == sorted(["report.json", *report["checksums"].keys() - {"report.json"}])
    assert made[1] == made[2] == made[3]
    if corpus is of_pairs:
        dropped = report["train"]["dropped"]
        assert {reason for reason, count in dropped.items() if count} == REASONS.keys() - SKIPS.keys()
    else:
        assert 0 < report["links"]["pairs"] < report["train"]["kept"]

    assert sum(report["augmented"].values()) > PIECE

    # One piece holds all: nothing is added up. (Which pairs are altered is drawn for each piece.)
    plain = config.model_copy(update={"data": config.data.model_copy(update={"augment": False})})
    cut = prepare(plain, tmp_path / "cut" / "data", is_forced=True)
    monkeypatch.setattr(staged_corpus, "PIECE_ROWS", 10_000)
    whole = prepare(plain, tmp_path / "whole" / "data", is_forced=True)
    assert {**whole.report, "checksums": None} == {**cut.report, "checksums": None}
    assert contents(whole.train) == contents(cut.train)


def test_of_a_large_text_the_vocabulary_is_learned_from_some_of_the_pieces(tmp_path, monkeypatch):
    rows = [f"{'abc'[number // PIECE % 3] * 9} {number}\t{number}" for number in range(15 * PIECE)]
    (tmp_path / "p.tsv").write_text("\n".join(rows) + "\n")
    (tmp_path / "v.tsv").write_text("xx\tyy\n")
    data = {"pairs": [str(tmp_path / "p.tsv")], "valid_pairs": [str(tmp_path / "v.tsv")]}
    config = Config.from_dict({"data": data, "tokenizer": {"vocab_size": 265}})
    learned = {}
    for most, step in ((15 * PIECE, 1), (5 * PIECE, 3)):
        monkeypatch.setattr("clearhead.data.survey.MOST_LEARNED_FROM", most)
        tokenizer = prepare(config, tmp_path / str(step) / "data").tokenizer
        learned[step] = {letter for letter in "abc" if len(tokenizer.encode_batch([letter * 9])[0]) < 9}
    assert learned == {1: {"a", "b", "c"}, 3: {"a"}}


def test_of_a_large_text_some_of_the_pieces_are_searched_for_wrong_pairs(tmp_path, monkeypatch):
    rows = [
        f"Die Zahl {number}, die wir hier gewählt haben\tThe number {number} which we chose" for number in range(84)
    ]
    rows[5 * PIECE : 6 * PIECE] = ["FÃ¼r die MÃ¤nner\tFor the men" + "!" * number for number in range(PIECE)]
    (tmp_path / "p.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "v.tsv").write_text("xx\tyy\n")
    data = {"pairs": [str(tmp_path / "p.tsv")], "valid_pairs": [str(tmp_path / "v.tsv")]}
    config = Config.from_dict({"data": data, "tokenizer": {"vocab_size": 270}})
    found = {}
    for most in (84, 83, 21):  # all 12 pieces, every second, every fourth
        monkeypatch.setattr(survey, "MOST_PAIRS", most)
        wrong = prepare(config, tmp_path / str(most) / "data", is_forced=True).report["wrong"]
        found[most] = wrong["examined"], wrong["findings"].get("mojibake", 0)
    assert found == {84: (84, PIECE), 83: (42, 0), 21: (21, 0)}


def test_a_piece_that_is_all_held_out_is_tokenised_by_actors_too(tmp_path, monkeypatch):
    monkeypatch.setattr(
        tokenised, "run_here_or_on_ray", lambda *work, actors, **rest: run_here_or_on_ray(*work, actors=None, **rest)
    )
    config = of_linked_lines(tmp_path)
    tokenizer = prepare(config, tmp_path / "run" / "data", is_forced=True).tokenizer
    (tmp_path / "rows").write_text("[]\n")
    piece = staged_corpus.Piece(str(tmp_path / "rows"), 0, rows=0, number=0, left_out=(0,))
    text = SimpleNamespace(train=SimpleNamespace(pieces=[piece]), forbidden=set())
    with FinishedSteps.of(tmp_path / "parts", {}, print) as steps:
        steps.add("text", {})
        pieces = tokenised.TokenisedPieces(steps, text, tokenizer, config, ({}, {}))
        pieces.make(lambda stage, count: None, pytest.fail, 1, Actors(2, 0))
        assert len(list(steps.directory.glob("*.pairs.arrow"))) == 1


@pytest.mark.parametrize("is_killed", [True, False])
def test_preparation_that_ends_early_leaves_no_process_and_finished_parts_alone(tmp_path, is_killed):
    config = of_pairs(tmp_path)

    def stop(stage, count):
        if stage == "tokenising" and count:
            workers = multiprocessing.active_children()
            assert len(workers) == 2
            if not is_killed:
                raise KeyboardInterrupt
            for worker in workers:
                os.kill(worker.pid, signal.SIGKILL)

    expected = pytest.raises(ClearheadError, match=r"^one of 2 worker processes was ended.*--threads 1")
    with expected if is_killed else pytest.raises(KeyboardInterrupt):
        prepare(config, tmp_path / "run" / "data", processes=2, on_progress=stop, is_forced=True)
    assert os.listdir(tmp_path / "run") == ["data.parts"]
    assert multiprocessing.active_children() == []
