"""Numbers of a source that its translation lacks, and numbers of a translation that its source lacks."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

LARGEST_SPELLED = 31
"""Largest number that may become a word, an hour of the other clock or the name of a month; see `missing_numbers`."""

_DIGITS = re.compile(r"\d+")
NUMBER = re.compile(r"\d+(?:[.,:/'’ \u00a0\u2007\u2009\u202f\u066b\u066c\uff0c\uff0e-]\d+)*")  # in any script
MOST_RUNS = 5
"""Runs of digits in a number at most: 1.000.000.000,50 has five."""
MOST_DECIMALS = 2
"""Decimals of a number at most; three digits are thousands."""
GROUP = 3
"""Digits in a group of a large number."""


class _Number(NamedTuple):
    """A number in a text."""

    text: str
    runs: list[str]
    """Its runs of digits, in ASCII: `1.250,5` has three."""


def missing_numbers(source: str, text: str) -> list[str]:
    """Return the numbers of a source that are missing in its translation, as written in the source.

    Only digits are compared: `1,250.5`, `1.250,50` and `1250.5` are the same number, in any script, and `3.5.2016` and
    `2016-05-03` are the same three. A number up to 31 is missing only if the translation has another number that the
    source does not have. Otherwise it may have become a word, the name of a month or, less 12, an hour of the
    afternoon.

    >>> missing_numbers("1.250 Hunde am 3. Mai 2016", "1,250 dogs on May 3, 2018")
    ['2016']
    >>> missing_numbers("1.250 Hunde am 3.5.2016", "1 dog on May 3, 2018")
    ['1.250', '3.5.2016']
    >>> missing_numbers("12 Hunde um 20 Uhr", "twelve dogs at 8 pm")
    []
    >>> missing_numbers("Zug 7", "train 9")
    ['7']
    """
    read, written = _numbers(source), _numbers(text)
    missing = _absent(read, written)
    if any(map(_is_large, missing)):
        return list(dict.fromkeys(missing.values()))
    added = _absent(written, read)
    hours = {(a, b) for a in missing for b in added if not _is_large(b) and abs(_value(a) - _value(b)) == 12}
    if not added.keys() - {hour for _, hour in hours}:
        return []
    return list(dict.fromkeys(text for run, text in missing.items() if run not in {hour for hour, _ in hours}))


def invented_numbers(source: str, text: str) -> list[str]:
    """Return the numbers above 31 of a translation that its source does not have, as written in the translation.

    They are compared as in `missing_numbers`. A source may have one in words.

    >>> invented_numbers("Der Zug hat 1.250 Plätze.", "The train of 2016 has 1,250 seats.")
    ['2016']
    >>> invented_numbers("zwölf Hunde", "12 dogs")
    []
    """
    added = _absent(_numbers(text), _numbers(source))
    return list(dict.fromkeys(number for run, number in added.items() if _is_large(run)))


def _numbers(text: str) -> list[_Number]:
    """Return the numbers of a text; runs of digits joined by one separator are one number, as `1.250,5` and dates."""
    numbers = [_Number(number, _DIGITS.findall(number)) for number in NUMBER.findall(text)]
    if text.isascii():
        return numbers
    return [
        _Number(number, ["".join(str(unicodedata.decimal(digit)) for digit in run) for run in runs])
        for number, runs in numbers
    ]


def _is_large(run: str) -> bool:
    return len(run) >= GROUP or _value(run) > LARGEST_SPELLED


def _value(run: str) -> int:
    return int(run or "0")


def _absent(numbers: Sequence[_Number], others: Sequence[_Number]) -> dict[str, str]:
    """Return the digit runs of numbers that other numbers do not have, alone or joined with neighbouring runs.

    Each run is mapped to its number. Trailing groups of zeros do not match alone: 5,000,000 is not 5,000.
    """
    joined = {
        _joined(runs, start, end)
        for _, runs in others
        for start in range(len(runs))
        if start == 0 or runs[start] != "0" * GROUP
        for end in range(start + 1, min(start + MOST_RUNS, len(runs)) + 1)
    }
    amounts = {_amount(runs) for _, runs in others}
    absent: dict[str, str] = {}
    for number, runs in numbers:
        start = len(runs) if _amount(runs) in amounts else 0
        while start < len(runs):
            ends = range(min(start + MOST_RUNS, len(runs)), start, -1)
            end_of_number = next((end for end in ends if _joined(runs, start, end) in joined), None)
            if end_of_number is None:
                absent.setdefault(_joined(runs, start, start + 1), number)
            start = end_of_number or start + 1
    return absent


def _joined(runs: Sequence[str], start: int, end: int) -> str:
    """Return the digits of some runs without meaningless leading zeros; those of `1,000` are kept."""
    digits = "".join(runs[start:end])
    return digits if start > 0 and len(runs[start]) == GROUP else digits.lstrip("0")


def _amount(runs: Sequence[str]) -> tuple[str, str]:
    """Return the digits before and after the decimal sign, without trailing zeros: `1.50` is `1.5`."""
    has_decimals = len(runs) > 1 and len(runs[-1]) <= MOST_DECIMALS
    whole, decimals = (runs[:-1], runs[-1]) if has_decimals else (runs, "")
    return "".join(whole).lstrip("0"), decimals.rstrip("0")
