"""The data doctor on corpora with planted faults: how many of each kind it finds, and how much of what it finds is one.

python bench/doctor.py DATA                          # DATA holds multi30k, tatoeba-de-en and python-docs-en-fr
python bench/doctor.py DATA --write messy            # messy/CORPUS.tsv, and messy/CORPUS.faults.tsv: line and fault

In the first 19,000 pairs of each corpus, 4,500 get a fault of one of nine kinds, always the same ones.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import html
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np

from clearhead.data.doctor import examine
from clearhead.data.doctor.examination import BITS
from clearhead.formats import SentencePair

NUM_PAIRS = 19_000
BLOCK = 100
"""Rows of a shifted block."""

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
FINDINGS = {
    "swapped": ("swapped",),
    "untranslated": ("identical", "wrong_language"),
    "third language": ("other_language", "wrong_script"),
    "shifted": ("shifted",),
    "garbled": ("mojibake",),
    "entities": ("entities",),
    "wrong pair": ("length_ratio", "numbers", "brackets", "placeholders"),
    "truncated": ("length_ratio", "numbers", "brackets", "placeholders"),
    "duplicate or empty": ("duplicate", "empty"),
}
"""The findings that a fault should have."""

MULTI30K, TATOEBA, DOCS = "multi30k", "tatoeba-de-en", "python-docs-en-fr"


class Corpus(NamedTuple):
    """Files of a clean corpus, and of texts in third languages, in the directory of the data."""

    source: str
    target: str
    others: tuple[str, ...]


CAPTIONS = tuple(f"{MULTI30K}/train.{language}.gz" for language in ("fr", "cs", "de"))


CORPORA = {
    MULTI30K: Corpus(f"{MULTI30K}/train.de.gz", f"{MULTI30K}/train.en.gz", CAPTIONS[:2]),
    TATOEBA: Corpus(f"{TATOEBA}/train.de.gz", f"{TATOEBA}/train.en.gz", CAPTIONS[:2]),
    DOCS: Corpus(f"{DOCS}/train.en.gz", f"{DOCS}/train.fr.gz", CAPTIONS[1:]),
}

Row = tuple[str, str]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA", help="directory of the corpora")
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--write", type=Path, metavar="DIR", help="also write the corpora with their faults")
    options = parser.parse_args()
    for name in options.corpora:
        rows, faults = messy_corpus(options.data, CORPORA[name])
        if options.write is not None:
            write(options.write / name, rows, faults)
        report(name, rows, faults)


def messy_corpus(data: Path, corpus: Corpus) -> tuple[list[Row], list[str]]:
    """Return the pairs of a corpus, and for each its fault, if any."""
    rows = list(zip(lines(data / corpus.source), lines(data / corpus.target), strict=True))[:NUM_PAIRS]
    others = [line for path in corpus.others for line in lines(data / path)[:NUM_PAIRS]]
    choose = random.Random(1)
    faults = [""] * len(rows)
    blocks = choose.sample(range(len(rows) // BLOCK - 1), PLANTED["shifted"] // BLOCK)
    for start in (BLOCK * block for block in blocks):
        far = choose.choice((1, 1, 1, 2, 3))
        targets = [target for _, target in rows[start : start + BLOCK]]
        for place, target in enumerate(targets[-far:] + targets[:-far], start=start):
            rows[place], faults[place] = (rows[place][0], target), "shifted"
    left = [place for place, fault in enumerate(faults) if not fault]
    choose.shuffle(left)
    for fault, count in PLANTED.items():
        if fault == "shifted":
            continue
        for place in left[:count]:
            rows[place], faults[place] = planted(fault, rows, place, others, choose), fault
        left = left[count:]
    return rows, faults


def planted(fault: str, rows: Sequence[Row], place: int, others: Sequence[str], choose: random.Random) -> Row:
    """Return a pair with a fault."""
    source, target = rows[place]
    side = choose.randrange(2)
    match fault:
        case "swapped":
            return target, source
        case "untranslated":
            return source, source
        case "third language":
            other = choose.choice(others)
            return (other, target) if side else (source, other)
        case "garbled":
            return (source, garbled(target)) if garbled(target) != target else (garbled(source + " – ja"), target)
        case "entities":
            return source, html.escape(target) if html.escape(target) != target else f"{target} &amp; &quot;"
        case "wrong pair":
            return source, choose.choice(rows)[1]
        case "truncated":
            return source, target[: len(target) // 3]
    return choose.choice([rows[place - 1], (source, ""), ("", target)])


def garbled(text: str) -> str:
    """Return a text as it is after its UTF-8 was read as Windows-1252."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


def report(name: str, rows: Sequence[Row], faults: Sequence[str]) -> None:
    """Print how much of each kind was planted and found."""
    start = process_time()
    kinds = examine(pairs_of(rows)).kinds_of_pairs
    took = process_time() - start
    print(f"{name}: {len(rows):,} pairs, {sum(map(bool, faults)):,} with a fault; examined in {took:.1f} s of a core\n")
    print("| fault | planted | found | recall | precision |\n| --- | --- | --- | --- | --- |")
    for fault, count in PLANTED.items():
        has = kinds & sum(BITS[one] for one in FINDINGS[fault]) != 0
        found = sum(one == fault for one, is_found in zip(faults, has, strict=True) if is_found)
        right = sum(bool(one) for one, is_found in zip(faults, has, strict=True) if is_found)
        print(
            f"| {fault} | {count:,} | {found:,} | {found / count:.1%} | {right / max(1, np.count_nonzero(has)):.1%} |"
        )
    print()


def pairs_of(rows: Sequence[Row]) -> Iterator[SentencePair]:
    for number, (source, target) in enumerate(rows, start=1):
        yield SentencePair(source, target, f"messy:{number}")


def write(path: Path, rows: Sequence[Row], faults: Sequence[str]) -> None:
    """Write a corpus, and its faults beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.tsv", "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in rows)
    with open(f"{path}.faults.tsv", "w", encoding="utf-8", newline="") as file:
        csv.writer(file, delimiter="\t").writerows(
            [("line", "fault"), *((line, fault) for line, fault in enumerate(faults, start=1) if fault)]
        )


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n").replace("\t", " ") for line in file]


if __name__ == "__main__":
    main()
