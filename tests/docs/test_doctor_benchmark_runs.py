"""The benchmark of the data doctor plants its faults in a corpus, and prints what becomes of each kind."""

from __future__ import annotations

import gzip

import pytest
from benchmarks import run_here

DIGITS = {
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
}
BEGINNINGS = {"de": "Die Zahl heißt", "en": "The number is"}
NUM_PAIRS = 6_000
PLANTED = {
    "swapped": 500,
    "untranslated": 500,
    "third language": 800,
    "shifted": 1_000,
    "garbled": 500,
    "entities": 300,
    "wrong pair": 400,
    "truncated": 300,
    "duplicate or empty": 200,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return a directory with a corpus of numbers read out, no two alike, and with captions in two other languages."""
    directory = tmp_path_factory.mktemp("data") / "multi30k"
    directory.mkdir()
    texts = {
        side: [f"{BEGINNINGS[side]} {' '.join(words[int(digit)] for digit in str(n))}." for n in range(NUM_PAIRS)]
        for side, words in DIGITS.items()
    }
    texts |= {"fr": ["Deux hommes sont assis sur un banc."] * 2, "cs": ["Dva muži sedí na lavičce."] * 2}
    for language, lines in texts.items():
        with gzip.open(directory / f"train.{language}.gz", "wt", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
    return directory.parent, list(zip(texts["de"], texts["en"], strict=True))


def test_every_fault_is_planted_counted_and_written(data, tmp_path):
    directory, clean = data
    printed = run_here("doctor.py", str(directory), "--corpora", "multi30k", "--write", str(tmp_path / "messy"))
    assert printed.startswith("multi30k: 6,000 pairs, 4,500 with a fault\n")
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed.splitlines() if "|" in line]
    assert rows[0] == ["fault", "planted", "found", "recall", "precision", "made right", "dropped", "left"]
    numbers = {
        fault: [int(cell.replace(",", "")) for cell in (planted, *rest)] for fault, planted, _, _, _, *rest in rows[2:]
    }
    assert {fault: planted for fault, (planted, *_) in numbers.items()} == {**PLANTED, "none": 1_500}
    assert all(planted == right + dropped + left for planted, right, dropped, left in numbers.values())
    assert numbers["duplicate or empty"][2] == 200  # cleaning drops them all

    written = (tmp_path / "messy/multi30k.tsv").read_text(encoding="utf-8").splitlines()
    messy = [tuple(line.split("\t")) for line in written]
    _, *faults = (tmp_path / "messy/multi30k.faults.tsv").read_text(encoding="utf-8").splitlines()
    fault_of = {int(line) - 1: fault for line, fault in (row.split("\t") for row in faults)}
    assert len(fault_of) == 4_500
    assert all(messy[place] == pair for place, pair in enumerate(clean) if place not in fault_of)
    assert all(messy[place] == clean[place][::-1] for place, fault in fault_of.items() if fault == "swapped")
