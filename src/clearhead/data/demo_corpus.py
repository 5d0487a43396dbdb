"""Synthetic parallel corpus: dates, amounts, country and language names, written in two of twelve CLDR locales.

A sentence is a *meaning*, a kind and a value such as a date, rendered in two locales. Every rendering contains the
whole meaning, and no text has two meanings, so that translation is a function and exact match a fair score. Nothing
depends on the clock, the network or the hash seed; the same version of Babel gives the same corpus everywhere.

A new kind is a row of `KINDS`: a sampler of values and their renderer in a locale. `KINDS` and the constants above it
are the parameters to tune.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any, Literal, get_args

from babel import Locale, dates, lists, numbers, units

from clearhead.errors import ConfigError, nearest_name
from clearhead.formats.pair import SentencePair
from clearhead.text.languages import LOCALES, language_tag

FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2050, 12, 31)
DAY_SPANS = ((1, 14), (30, 150))
"""Lengths of intervals in days, from and to: within a month, over months; equally likely."""
MONTH_SPAN = (1, 11)
"""Length of an interval in months, from and to."""
MAX_COUNT = 99
"""Largest number of units in a relative time."""
MAX_DIGITS = 4
"""Most significant digits of an amount."""
DECIMAL_PLACES = (0, 1, 2)
"""Decimal places. With three, the English 1.234 would be the German 1,234."""
LIST_LENGTHS = (2, 2, 3)
"""Number of items of a list, drawn evenly."""

TimeUnit = Literal["second", "minute", "hour", "day", "week", "month", "year"]
SECONDS = dict(zip(get_args(TimeUnit), (1, 60, 3_600, 86_400, 604_800, 2_592_000, 31_536_000), strict=True))
"""Seconds of each unit as in Babel: months of 30 days, years of 365."""

CURRENCIES = ("USD", "EUR", "GBP", "JPY", "CHF", "PLN", "SEK", "TRY")
UNITS = ("kilogram", "kilometer", "liter", "celsius", "kilometer-per-hour", "square-meter", "watt", "percent")
COUNTRIES = (
    *("AR", "AT", "AU", "BE", "BR", "CA", "CH", "CN", "CZ", "DE", "DK", "EG", "ES", "FI", "FR", "GB"),
    *("GR", "HU", "IE", "IN", "IS", "IT", "JP", "KE", "MX", "NL", "NO", "PL", "PT", "SE", "TR", "US"),
)
LANGUAGES = (
    *("ar", "cs", "da", "de", "el", "en", "es", "fi", "fr", "hu"),
    *("it", "ja", "nl", "no", "pl", "pt", "sv", "tr", "uk", "zh"),
)

# Spanish writes "e" for "y" before an i sound. CLDR leaves that to the program that formats the list (ICU does it,
# too).
_SPANISH_Y = re.compile(r" y (?=i|hi(?![ae]))", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class PairKind:
    """One kind of sentence: its name, sampling weight, sampler of values, and renderer."""

    name: str
    weight: float
    sample: Callable[[Random], Hashable]
    render: Callable[[Any, Locale], str]


@dataclass(frozen=True, slots=True)
class CldrCorpus:
    """Training and test pairs; no text of a test meaning, in any locale, occurs in `train`.

    A source starts with the tag of the target locale; `origin` is `cldr:KIND:SOURCE-TARGET`.
    """

    train: list[SentencePair]
    test: list[SentencePair]


def generate(num_pairs: int, *, seed: int, num_test: int = 1_000, locales: Sequence[str] = LOCALES) -> CldrCorpus:
    """Generate a corpus; the same arguments give the same one, and more pairs with the same seed only append.

    Args:
        num_pairs: Number of training pairs, all distinct.
        seed: Determines meanings and locales.
        num_test: Number of test pairs, each with a meaning of its own; they do not depend on `num_pairs`. Numbers far
            above the default use up the small kinds (there are 1,386 relative times), which training then lacks.
        locales: Locales to translate between, in all directions; two or more of `LOCALES`.

    Raises:
        ConfigError: If a count is out of range, or `locales` are not two or more different known ones.
    """
    if num_pairs < 1 or num_test < 0:
        raise ConfigError(f"num_pairs ({num_pairs}) must be at least 1 and num_test ({num_test}) at least 0")
    if unknown := [code for code in locales if code not in LOCALES]:
        raise ConfigError(f"no built-in corpus for the locale {unknown[0]!r}{nearest_name(unknown[0], LOCALES)}")
    if len(set(locales)) < 2 or len(set(locales)) < len(locales):
        raise ConfigError(f"locales {tuple(locales)} must be two or more different ones, for example ('en', 'de')")

    rng = Random(seed)
    # Held out by text, not by value: two values may have the same text, such as one weekday and day in two years.
    held_out: set[str] = set()
    test: list[SentencePair] = []
    while len(test) < num_test:
        kind, value, source, target = _draw(rng, locales, _WEIGHTS)
        texts = {code: kind.render(value, _locale(code)) for code in locales}
        if held_out.isdisjoint(texts.values()):
            held_out.update(texts.values())
            test.append(_pair(kind, source, target, texts[source], texts[target]))

    # This loop ends even if small kinds run out of pairs: the largest kind has over a hundred million.
    seen: set[str] = set()
    train: list[SentencePair] = []
    while len(train) < num_pairs:
        kind, value, source, target = _draw(rng, locales, _PRACTICE_WEIGHTS)
        source_text, target_text = kind.render(value, _locale(source)), kind.render(value, _locale(target))
        pair = _pair(kind, source, target, source_text, target_text)
        if source_text not in held_out and target_text not in held_out and pair.source not in seen:
            seen.add(pair.source)
            train.append(pair)
    return CldrCorpus(train=train, test=test)


def _draw(rng: Random, locales: Sequence[str], weights: Sequence[float]) -> tuple[PairKind, Hashable, str, str]:
    kind = rng.choices(KINDS, weights)[0]
    source, target = rng.sample(locales, 2)
    return kind, kind.sample(rng), source, target


def _pair(kind: PairKind, source: str, target: str, source_text: str, target_text: str) -> SentencePair:
    return SentencePair(f"{language_tag(target)} {source_text}", target_text, f"cldr:{kind.name}:{source}-{target}")


@cache
def _locale(code: str) -> Locale:
    return Locale.parse(code)


# Samplers: each draws a value that contains the whole meaning.


def _day(rng: Random) -> date:
    return date.fromordinal(rng.randint(FIRST_DAY.toordinal(), LAST_DAY.toordinal()))


def _clock(rng: Random) -> time:
    return time(rng.randrange(24), rng.randrange(60))


def _clock_with_seconds(rng: Random) -> time:
    return time(rng.randrange(24), rng.randrange(60), rng.randrange(60))


def _moment(rng: Random) -> datetime:
    return datetime.combine(_day(rng), _clock(rng))


def _days(rng: Random) -> tuple[date, date]:
    start = _day(rng)
    return start, start + timedelta(days=rng.randint(*rng.choice(DAY_SPANS)))


def _months(rng: Random) -> tuple[date, date]:
    start = _day(rng).replace(day=1)
    years, month = divmod(start.month - 1 + rng.randint(*MONTH_SPAN), 12)
    return start, date(start.year + years, month + 1, 1)


def _hours(rng: Random) -> tuple[time, time]:
    start, end = sorted(rng.sample(range(24 * 60), 2))
    return time(*divmod(start, 60)), time(*divmod(end, 60))


def _distance(rng: Random) -> tuple[int, TimeUnit]:
    return rng.choice((-1, 1)) * rng.randint(1, MAX_COUNT), rng.choice(tuple(SECONDS))


def _number(rng: Random, places: Sequence[int] = DECIMAL_PLACES) -> Decimal:
    digits = rng.randrange(1, 10 ** rng.randint(1, MAX_DIGITS))
    # Without trailing zeros: plural rules see them (1.0 kilograms) though they are not printed (1 kilogram).
    return Decimal(digits).scaleb(-rng.choice(places)).normalize() + 0


def _price(rng: Random) -> tuple[Decimal, str]:
    currency = rng.choice(CURRENCIES)
    return _number(rng, DECIMAL_PLACES if numbers.get_currency_precision(currency) else (0,)), currency


def _quantity(rng: Random) -> tuple[Decimal, str]:
    return _number(rng), rng.choice(UNITS)


def _countries(rng: Random) -> tuple[str, ...]:
    return tuple(rng.sample(COUNTRIES, rng.choice(LIST_LENGTHS)))


def _languages(rng: Random) -> tuple[str, ...]:
    return tuple(rng.sample(LANGUAGES, rng.choice(LIST_LENGTHS)))


# Renderers: each formats a value in one locale. Non-breaking spaces stay as in CLDR.


def _write_moment(value: datetime, locale: Locale) -> str:
    # `format_datetime` has no style with long date and short time; the longer ones include the time zone.
    pattern = str(dates.get_datetime_format("long", locale=locale)).replace("'", "")
    day = dates.format_date(value, "long", locale=locale)
    return pattern.replace("{0}", dates.format_time(value, "short", locale=locale)).replace("{1}", day)


def _write_hours(value: tuple[time, time], locale: Locale) -> str:
    # "a" is am or pm in a CLDR pattern: such locales count hours from 1 to 12.
    skeleton = "hm" if "a" in locale.time_formats["short"].pattern else "Hm"
    return dates.format_interval(value[0], value[1], skeleton, locale=locale)


def _write_distance(value: tuple[int, TimeUnit], locale: Locale) -> str:
    count, unit = value
    delta = timedelta(seconds=count * SECONDS[unit])
    # Above the threshold Babel would change to the larger unit and round.
    return dates.format_timedelta(delta, granularity=unit, threshold=MAX_COUNT + 1, add_direction=True, locale=locale)


def _write_list(names: list[str], locale: Locale) -> str:
    text = lists.format_list(names, locale=locale)
    return _SPANISH_Y.sub(" e ", text) if locale.language == "es" else text


KINDS = (
    PairKind("date", 3, _day, lambda value, locale: dates.format_date(value, "full", locale=locale)),
    PairKind("moment", 3, _moment, _write_moment),
    PairKind("time", 2, _clock_with_seconds, lambda value, locale: dates.format_time(value, "medium", locale=locale)),
    PairKind("weekday", 1, _day, lambda value, locale: dates.format_skeleton("MMMEd", value, locale=locale)),
    PairKind("month", 0.5, _day, lambda value, locale: dates.format_skeleton("yMMMM", value, locale=locale)),
    PairKind("days", 4, _days, lambda value, locale: dates.format_interval(value[0], value[1], "yMMMd", locale=locale)),
    PairKind(
        "months", 3, _months, lambda value, locale: dates.format_interval(value[0], value[1], "yMMMM", locale=locale)
    ),
    PairKind("hours", 2, _hours, _write_hours),
    PairKind("distance", 2, _distance, _write_distance),
    PairKind("price", 3, _price, lambda value, locale: numbers.format_currency(value[0], value[1], locale=locale)),
    PairKind("quantity", 3, _quantity, lambda value, locale: units.format_unit(value[0], value[1], locale=locale)),
    PairKind(
        "countries", 3, _countries, lambda value, locale: _write_list([locale.territories[c] for c in value], locale)
    ),
    PairKind(
        "languages", 2, _languages, lambda value, locale: _write_list([locale.languages[c] for c in value], locale)
    ),
)
"""Every kind: name, weight, sampler, renderer."""
PRACTICE = {
    **dict.fromkeys(("date", "moment", "time", "weekday"), 0.5),
    **dict.fromkeys(("distance", "quantity", "countries"), 1.5),
    **dict.fromkeys(("months", "hours"), 2.0),
}
"""Factors on the weights of some kinds in training: lower for kinds without errors, higher for hard ones."""

_WEIGHTS = [kind.weight for kind in KINDS]
_PRACTICE_WEIGHTS = [kind.weight * PRACTICE.get(kind.name, 1.0) for kind in KINDS]
