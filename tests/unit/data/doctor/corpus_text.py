"""Pairs of text like that of a corpus, made of numbers in words: every one clean, no two alike."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import strategies as st

from clearhead.formats import SKIPS, SentencePair

DIGITS = (
    ("null", "zero"),
    ("eins", "one"),
    ("zwei", "two"),
    ("drei", "three"),
    ("vier", "four"),
    ("fünf", "five"),
    ("sechs", "six"),
    ("sieben", "seven"),
    ("acht", "eight"),
    ("neun", "nine"),
)


def texts(number: int) -> tuple[str, str]:
    """Return a number read out in German and in English; how long it is depends on the number alone."""
    code = str(number * 7_919 % 1_000_003)[: 1 + number * 31 % 6] + str(number)
    source, target = zip(*(DIGITS[int(digit)] for digit in code), strict=True)
    return f"Die Zahl heißt {' '.join(source)}.", f"The number is {' '.join(target)}."


def pairs_of(rows: Sequence[tuple[str, str]], name: str = "f.tsv") -> list[SentencePair]:
    """Return rows as the pairs of a file."""
    return [SentencePair(source, target, f"{name}:{line}") for line, (source, target) in enumerate(rows, start=1)]


def rows_of(text: st.SearchStrategy[str], *, max_size: int) -> st.SearchStrategy[list[SentencePair]]:
    """Return rows with such texts, some of which are torn or skipped."""
    pairs = st.builds(lambda source, target: {"source": source, "target": target}, text, text)
    others = st.builds(lambda reason: {"skipped": reason}, st.sampled_from(list(SKIPS)))
    rows = st.lists(st.one_of(pairs, st.just({"defect": "it is torn"}), others), max_size=max_size)
    return rows.map(
        lambda rows: [
            SentencePair(**{"source": "", "target": "", **row}, origin=f"f:{line}") for line, row in enumerate(rows)
        ]
    )
