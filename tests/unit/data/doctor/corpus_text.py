"""Pairs of text like that of a corpus, made of numbers in words: every one clean, no two alike."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.formats import SentencePair

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
