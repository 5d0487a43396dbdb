"""Several processes find and clean what one does, to the letter."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import pytest
from corpus_text import pairs_of, texts

from clearhead.data.doctor import KINDS, code_points, examination, examine
from clearhead.data.doctor.batch_examination import BatchExaminer
from clearhead.data.doctor.cleaning import DROPPABLE, FIXABLE, Cleaning
from clearhead.data.doctor.row_list import FindingList
from clearhead.errors import ClearheadError, DataError
from clearhead.formats import SentencePair
from clearhead.runtime import shards

PLACES = range(620, 2_000, 23)
DE, EN = texts(7_777)
FAULTS = [
    (DE.replace("ß", "Ã\x9f"), EN),
    (EN, DE),
    (DE, DE.replace("Zahl", "Zahlen")),
    ("Le numéro que nous avons choisi est un, deux, trois ou quatre.", EN),
    ("Привет, как дела? こんにちは世界です", EN),  # eleven letters of one script, nine of others
    ("アイウ αβγ кло", EN),  # three letters of each
    (DE, " "),
    (DE + " %s", EN + " %d"),
    ("Karl Johann Xaver", "Karl Johann Xaver"),
    (DE, EN * 9),
    (DE * 99, EN * 99),
    (DE + "\x07", EN),
    (DE, EN + "\u200b"),
    (DE + " &amp;", EN + " &amp;"),
    (DE + " 1984", EN + " 1985"),
    (DE + " (", EN),
    texts(3),
    (texts(4)[0], "It is another one."),
]


class Killed(BatchExaminer):
    """Examines batches in this process, and ends another one."""

    def __call__(self, shard):
        os.kill(os.getpid(), signal.SIGKILL)


def corpus() -> list[SentencePair]:
    """Return rows with every finding: faults between clean pairs, a shifted block, and rows that are no pairs."""
    rows = [texts(number) for number in range(2_300)]
    targets = [target for _, target in rows[2_060:2_260]]
    rows[2_060:2_260] = zip(
        [source for source, _ in rows[2_060:2_260]], ["A line too much.", *targets[:-1]], strict=True
    )
    for place, fault in zip(PLACES, FAULTS * 3, strict=False):
        rows[place] = fault
    pairs = pairs_of(rows)
    pairs[40] = replace(pairs[40], source="", target="", defect="it is torn")
    pairs[1_500] = replace(pairs[1_500], skipped="unfinished")
    return pairs


@pytest.fixture
def small_batches(monkeypatch):
    """Let a batch be of 97 pairs, and other processes begin with the fifth; return the numbers of processes."""
    monkeypatch.setattr(code_points, "BATCH_PAIRS", 97)
    monkeypatch.setattr(examination, "ALONE_BATCHES", 4)
    numbers, run = [], shards.run_shards

    def noted(make_worker, batches, *, workers, **more):
        numbers.append(workers)
        return run(make_worker, batches, workers=workers, **more)

    monkeypatch.setattr(examination, "run_shards", noted)
    return numbers


def all_found(processes: int):
    """Return everything that is found."""
    rows, written = corpus(), []
    found = FindingList(written.append)
    held_out = {"valid": pairs_of([texts(9), ("Neu.", "New.")], "v"), "test": pairs_of([texts(1_999), texts(9)], "t")}
    result = examine(rows, held_out, None, found.add, processes=processes)
    found.finish(result, rows)
    return result.to_dict(), written, result.kinds_of_pairs.tolist(), result.shifted


def test_any_number_of_processes_finds_the_same(small_batches):
    alone = all_found(1)
    assert small_batches == []
    found = {one["name"]: one["count"] for one in alone[0]["findings"] if one["count"]}
    assert KINDS.keys() - found.keys() == {"unequal_files", "no_translation"}
    assert found["numbers"] == 3
    assert all_found(2) == alone
    assert all_found(3) == alone
    assert small_batches == [2, 3]


def test_any_number_of_processes_cleans_the_same(small_batches):
    def cleaned(processes: int):
        cleaning = Cleaning(corpus(), FIXABLE, DROPPABLE, processes=processes)
        return list(cleaning.cleaned()), cleaning.lines(), cleaning.unchecked_lines()

    alone = cleaned(1)
    assert sum("shifted" in row.reasons for row in alone[0]) > 150
    assert cleaned(2) == alone
    assert small_batches == [2]


def test_an_error_of_reading_is_raised_with_any_number_of_processes(small_batches):
    def rows():
        yield from corpus()[:800]
        raise DataError("f.tsv: it ended")

    for processes in (1, 2):
        with pytest.raises(DataError, match="it ended"):
            examine(rows(), processes=processes)
    assert small_batches == [2]


def test_a_killed_process_is_one_line_with_its_option(small_batches, monkeypatch):
    monkeypatch.setattr(examination, "BatchExaminer", Killed)
    with pytest.raises(ClearheadError, match=r"one of 2 worker processes was ended.* try fewer \(--threads 1\)$"):
        examine(corpus(), processes=2)


def test_a_small_corpus_starts_no_process(monkeypatch):
    monkeypatch.setattr(shards, "ProcessPoolExecutor", None)
    assert examine(pairs_of([texts(number) for number in range(900)]), processes=2).rows.pairs == 900
