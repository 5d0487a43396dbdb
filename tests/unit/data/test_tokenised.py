"""Tokenisation in pieces: the same data for any number of processes, and nothing left of processes that end early."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal

import pytest

from clearhead.config import Config
from clearhead.data import staged_corpus, survey, tokenised
from clearhead.data.clean import REASONS
from clearhead.data.prepare import prepare
from clearhead.errors import ClearheadError
from clearhead.formats import SKIPS

WORDS = ["Hund", "Katze", "Häuser", "Baum", "Kind", "<b>", "3,5", "Straße", "Ｂall", "%s", "Berg", "u\u0308ber", "12"]
PIECE = 7
"""Rows of a piece in these tests."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    monkeypatch.setattr(staged_corpus, "PIECE_ROWS", PIECE)
    monkeypatch.setattr(survey, "LEAST_PAIRS", 1)
    monkeypatch.setattr(tokenised, "LEAST_PAIRS", 1)
    monkeypatch.setattr(staged_corpus, "PAIRS_HELD_OUT_FROM", 1)


def lines(count: int, seed: int, tags=("<2nl> ", "<2de> ")) -> list[str]:
    """Rows of two columns, with a row for every reason of dropping in every stretch of 23 rows."""
    choose = random.Random(seed)
    rows: list[str] = []
    for number in range(count):
        words = choose.choices(WORDS, k=choose.randint(2, 9))
        source, target = f"{number} {' '.join(words)}.", f"{' '.join(words[::-1]).lower()} {number}."
        match number % 23:
            case 3:
                target = " "  # empty
            case 5:
                target = "lang " * 60  # too many characters
            case 7:
                source = "viel " * 25  # length ratio
            case 11 if rows:
                rows.append(rows[-1])  # duplicate
                continue
            case 13:
                source = "Ein Satz der Validierung."  # leakage
            case 17:
                source = target = f"{number} {'9876543210' * 10}"  # too many tokens: each digit is one
            case 19:
                rows.append(f"<2xx> {source}\t{target}")  # unknown tag
                continue
        rows.append(f"{tags[number % len(tags)]}{source}\t{target}")
    rows[count // 2] = "no pair"  # malformed; at most 1 % may be
    return rows


def of_pairs(tmp_path) -> Config:
    """Pairs of two languages from two files, each with a weight, beside general text; some are excluded."""
    for name, count, seed in (("news", 301, 1), ("chat", 127, 2), ("general", 113, 3)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(lines(count, seed)) + "\n", encoding="utf-8")
    (tmp_path / "held.txt").write_text("Ein Satz der Validierung.\n")
    data = {
        "pairs": [str(tmp_path / "news.tsv"), str(tmp_path / "chat.tsv")],
        "weights": [1, 3],
        "general_pairs": [str(tmp_path / "general.tsv")],
        "general_share": 0.2,
        "exclude": [str(tmp_path / "held.txt")],
        "max_characters": 250,
        "max_length": 90,
        "max_ratio": 4.0,
    }
    tokenizer = {"language_tags": ["de", "nl"], "vocab_size": 340, "placeholders": True}
    return Config.from_dict({"data": data, "tokenizer": tokenizer, "train": {"seed": 5}, "from_model": "model"})


def of_linked_lines(tmp_path) -> Config:
    """Line-aligned text with links of words, none of them in every fifth line."""
    rows = [row.split("\t") for row in lines(173, 4, tags=("",)) if "\t" in row]
    columns = [source for source, _ in rows], [target for _, target in rows]
    links = [
        " ".join(f"{at}-{at}" for at in range(min(len(target.split()), number % 5)))
        for number, (_, target) in enumerate(rows)
    ]
    for name, column in zip(("a.de", "a.nl", "a.links"), (*columns, links), strict=True):
        (tmp_path / name).write_text("\n".join(column) + "\n", encoding="utf-8")
    paths = {
        role: [str(tmp_path / name)]
        for role, name in zip(("source", "target", "alignments"), ("a.de", "a.nl", "a.links"), strict=True)
    }
    return Config.from_dict({"data": {**paths, "valid_size": 5}, "tokenizer": {"vocab_size": 300}})


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


@pytest.mark.parametrize("is_killed", [True, False])
def test_preparation_that_ends_early_leaves_nothing(tmp_path, is_killed):
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
    assert os.listdir(tmp_path / "run") == []
    assert multiprocessing.active_children() == []
