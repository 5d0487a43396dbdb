"""The data doctor on corpora with planted faults: how many of each kind it finds, and what cleaning makes of them.

python bench/doctor.py DATA                          # DATA holds multi30k, tatoeba-de-en and python-docs-en-fr
python bench/doctor.py DATA --meaning                # what comparing the meanings of both sides finds; minutes
python bench/doctor.py DATA --write messy            # messy/CORPUS.tsv, and messy/CORPUS.faults.tsv: line and fault

In the first 19,000 pairs of each corpus, 4,500 get a fault of one of nine kinds, always the same ones.
"""

from __future__ import annotations

import argparse
import gzip
import html
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

from clearhead.data.doctor import examine
from clearhead.data.doctor.cleaning import DEFAULT_DROP, FIXABLE, Cleaning
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


class Messy(NamedTuple):
    """A corpus with faults."""

    rows: list[Row]
    right: list[Row]
    """What the rows should be."""
    faults: list[str]
    """The fault of each row, if any."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("data", type=Path, metavar="DATA", help="directory of the corpora")
    parser.add_argument("--corpora", nargs="+", choices=CORPORA, default=list(CORPORA))
    parser.add_argument("--write", type=Path, metavar="DIR", help="also write the corpora with their faults")
    parser.add_argument("--meaning", action="store_true", help="show only what is found by meanings")
    options = parser.parse_args()
    for name in options.corpora:
        messy = messy_corpus(options.data, CORPORA[name])
        if options.write is not None:
            write(options.write / name, messy)
        report_meaning(name, messy) if options.meaning else report(name, messy)


def messy_corpus(data: Path, corpus: Corpus) -> Messy:
    """Return the first pairs of a corpus, some of them with a fault."""
    rows = list(zip(lines(data / corpus.source), lines(data / corpus.target), strict=True))[:NUM_PAIRS]
    right = list(rows)
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
            plant(fault, rows, right, place, others, choose)
            faults[place] = fault
        left = left[count:]
    return Messy(rows, right, faults)


def plant(
    fault: str, rows: list[Row], right: list[Row], place: int, others: Sequence[str], choose: random.Random
) -> None:
    """Give a pair a fault."""
    source, target = rows[place]
    other = choose.choice(others)
    match fault:
        case "swapped":
            rows[place] = target, source
        case "untranslated":
            rows[place] = source, source
        case "third language":
            rows[place] = choose.choice([(other, target), (source, other)])
        case "garbled":
            if (source + target).isascii():
                right[place] = source, target = f"{source} – §", f"{target} – §"
            rows[place] = choose.choice([pair for pair in garbled_pairs(source, target) if pair != right[place]])
        case "entities":
            right[place] = source, f"{target} & so"
            rows[place] = source, html.escape(f"{target} & so", quote=False)
        case "wrong pair":
            rows[place] = source, choose.choice(rows)[1]
        case "truncated":
            rows[place] = source, target[: len(target) // 3]
        case _:
            rows[place] = choose.choice([rows[place - 1], (source, ""), ("", target)])


def garbled_pairs(source: str, target: str) -> list[Row]:
    return [(garbled(source), target), (source, garbled(target)), (garbled(source), garbled(target))]


def garbled(text: str) -> str:
    """Return a text as it is after its UTF-8 was read as Windows-1252."""
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())


def report(name: str, messy: Messy) -> None:
    """Print how much of each kind was planted and found, and what cleaning with its defaults makes of it."""
    start = process_time()
    kinds = examine(pairs_of(messy.rows)).kinds_of_pairs
    examined = process_time() - start
    cleaned = list(Cleaning(list(pairs_of(messy.rows)), FIXABLE, DEFAULT_DROP).cleaned())
    took = process_time() - start - examined
    num_faults = sum(map(bool, messy.faults))
    print(f"{name}: {len(messy.rows):,} pairs, {num_faults:,} with a fault")
    print(f"examined in {examined:.1f} s of a core, cleaned in {took:.1f} s\n")
    print("| fault | planted | found | recall | precision | made right | dropped | left |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for fault in (*PLANTED, ""):
        at = [place for place, one in enumerate(messy.faults) if one == fault]
        now = [cleaned[place].after for place in at]
        right = sum(
            pair is not None and (pair.source, pair.target) == messy.right[place]
            for place, pair in zip(at, now, strict=True)
        )
        dropped = now.count(None)
        has = kinds & sum(BITS[one] for one in FINDINGS.get(fault, ())) != 0
        found, all_found = int(has[at].sum()), int(has.sum())
        true = sum(bool(one) for one, is_found in zip(messy.faults, has, strict=True) if is_found)
        rates = f"{found:,} | {found / len(at):.1%} | {true / max(1, all_found):.1%}" if fault else " | | "
        print(
            f"| {fault or 'none'} | {len(at):,} | {rates} | {right:,} | {dropped:,} | {len(at) - right - dropped:,} |"
        )
    print()


def report_meaning(name: str, messy: Messy) -> None:
    """Print the share of each kind that `no_translation` finds."""
    start = process_time()
    kinds = examine(pairs_of(messy.rows), kinds=["no_translation"], with_meaning=True).kinds_of_pairs
    print(f"{name}: {len(messy.rows) / (process_time() - start):,.0f} pairs a second and core")
    for fault in (*PLANTED, ""):
        at = [place for place, one in enumerate(messy.faults) if one == fault]
        print(f"{fault or 'none':>20} {(kinds[at] != 0).mean():.2%}", flush=True)


def pairs_of(rows: Sequence[Row]) -> Iterator[SentencePair]:
    for number, (source, target) in enumerate(rows, start=1):
        yield SentencePair(source, target, f"messy:{number}")


def write(path: Path, messy: Messy) -> None:
    """Write a corpus, and its faults beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{path}.tsv", "w", encoding="utf-8", newline="") as file:
        file.writelines(f"{source}\t{target}\n" for source, target in messy.rows)
    with open(f"{path}.faults.tsv", "w", encoding="utf-8", newline="") as file:
        file.write("line\tfault\n")
        file.writelines(f"{line}\t{fault}\n" for line, fault in enumerate(messy.faults, start=1) if fault)


def lines(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        return [line.rstrip("\n").replace("\t", " ") for line in file]


if __name__ == "__main__":
    main()
