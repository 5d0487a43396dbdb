"""Columns of source and target in a table, chosen by number, by name or from the header."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from clearhead.errors import ConfigError
from clearhead.formats.languages import is_variant
from clearhead.formats.pair import Wanted
from clearhead.text.languages import codes_by_name
from clearhead.text.lines import first_few

SIDES = {
    *("source", "src", "target", "tgt", "trg", "original", "translation", "translated", "reference", "ref"),
    *("input", "output", "text", "sentence", "segment", "phrase", "front", "back", "question", "answer"),
}
FILLERS = {"text", "sentence", "segment", "language", "lang", "column"}
"""Words that are ignored in a name if it has other words, as in `text-de`."""
LABEL = re.compile(r"[^\W_]+([ _-][^\W_]+){0,2}")
"""Up to three words without punctuation; a longer cell is no column name."""
TAG = re.compile(r"([a-z]{2,3})([-_]([A-Z][a-z]{3}|[A-Z]{2}|[0-9]{3}))+")
"""Language code with a script or region, such as `zh-Hant` or `pt-BR`."""


class NoSuchColumn(ConfigError):
    """A table whose columns are named has none of a requested name."""


class TextColumns(NamedTuple):
    """Columns of a file, any of which can be read as lines."""

    names: Sequence[str]
    """Names of all columns; empty if the file has none."""
    width: int
    """Number of columns."""
    others: frozenset[int]
    """Columns, counted from 0, that hold no text."""
    lines: Callable[[int], Iterator[str]]
    """Yields the texts of a column, one for each row; missing values are empty ones."""


class TwoColumns(NamedTuple):
    """The columns of source and target."""

    source: int
    """Column of the source, counted from 0."""
    target: int
    has_header: bool
    """Whether the first row names the columns."""
    names: Sequence[str]
    """Names of all columns; empty if the table has none."""

    def languages(self) -> tuple[str | None, str | None]:
        """Return the languages after which the columns of source and target are named; None for other names."""
        first, second = (
            language_named(self.names[index]) if self.names[index : index + 1] else None
            for index in (self.source, self.target)
        )
        return first, second

    def sides(self) -> tuple[str, str]:
        """Return descriptions of the columns of source and target."""
        first, second = (
            f"column {index + 1}" + (f" ({self.names[index].strip()})" if self.names[index : index + 1] else "")
            for index in (self.source, self.target)
        )
        return first, second


def choose_columns(
    path: str,
    rows: Sequence[Sequence[str]],
    wanted: Wanted,
    *,
    names: Sequence[str] = (),
    others: frozenset[int] = frozenset(),
    is_named: bool = False,
    separator: str = "\t",
) -> TwoColumns:
    """Choose the columns of source and target.

    Requested columns come first. Otherwise, if the header names languages and some are requested: the columns of the
    requested languages, or the column of the one requested language and the only other text column. Otherwise, the two
    text columns that the header names. Without a header: the first two columns, or the second and fourth of four if the
    first and third hold numbers, as in exports of Tatoeba.

    Args:
        path: The file, for messages.
        rows: The first rows; at least one.
        wanted: The requested columns and languages.
        names: Names of the columns, if they are not in the first row.
        others: Columns, counted from 0, that hold no text.
        is_named: Whether the format itself names every column, so that the order of columns means nothing. Two columns
            with other names are then chosen only if there are no more.
        separator: What is between two columns, for messages.

    Raises:
        NoSuchColumn: If the header has no column of a requested name.
        ConfigError: If a requested column does not exist, a column is requested by name and there is no header, or the
            header names more than two text columns.
    """
    by_name = [column for column in wanted.columns or () if isinstance(column, str)]
    has_own_header = not names and is_header(rows[0])
    if by_name and not names and not has_own_header and not {*by_name} & {*map(str.strip, rows[0])}:
        raise ConfigError(_without_header(path, rows[0], by_name, separator))
    has_header = has_own_header or (not names and bool(by_name))
    names = [name.strip() for name in (rows[0] if has_header else names)]
    if (asked := wanted.columns) is not None:
        width = max(len(names), *map(len, rows))
        try:
            source, target = (column_index(path, column, names, width) for column in asked)
        except NoSuchColumn as error:
            raise error if has_own_header or not has_header else ConfigError(str(error)) from None
        if source == target:
            raise ConfigError(f"columns {asked[0]},{asked[1]}: in {path} they are the same one; name two")
        return TwoColumns(source, target, has_header, names)
    numbers = _columns_of_numbers(rows[1:] if has_header else rows)
    # Only with more than two columns: `id` is also the code of Indonesian, and a text may be a number.
    ignored = others | (numbers if len(names) > 2 else frozenset())
    sides = [index for index, name in enumerate(names) if _meaning(name) is not None and index not in ignored]
    if (wanted.from_lang or wanted.to_lang) and any(language_named(names[side]) for side in sides):
        source, target = _of_languages(path, wanted, names, sides)
        return TwoColumns(source, target, has_header, names)
    if len(sides) == 2:
        return TwoColumns(sides[0], sides[1], has_header, names)
    texts = [index for index in range(len(names)) if index not in ignored]
    if is_named and len(texts) == 2:
        return TwoColumns(texts[0], texts[1], has_header, names)
    if has_header or is_named:
        which = "say which two hold source and target" if len(names) > 1 else "source and target are two"
        example = f", for example --columns {names[-2]},{names[-1]}" if len(names) > 1 else ""
        raise ConfigError(f"{path} has {len(names)} columns: {_listed(names)}; {which}{example}")
    if numbers >= {0, 2} and Counter(map(len, rows)).most_common(1)[0][0] == 4:
        return TwoColumns(1, 3, has_header, names)
    source, target, *_ = (index for index in range(len(others) + 2) if index not in others)
    return TwoColumns(source, target, has_header, names)


def is_header(row: Sequence[str]) -> bool:
    """Return whether a row is a header: two or more of its cells name different languages or sides.

    >>> is_header(["id", "en", "Deutsch"]), is_header(["source text", "target_text"])
    (True, True)
    >>> is_header(["English is easy", "Englisch"]), is_header(["English", "Englisch"])
    (False, False)
    """
    return len({_meaning(cell) for cell in row} - {None}) >= 2


def column_index(path: str, column: int | str, names: Sequence[str], width: int) -> int:
    """Return the index of a requested column, counted from 0.

    Args:
        path: The file, for messages.
        column: Number of the column, counted from 1, or its name.
        names: Names of all columns; empty if the table has none.
        width: Number of columns.

    Raises:
        NoSuchColumn: If no column has the name.
        ConfigError: If there is no column of the number, or several have the name.
    """
    if isinstance(column, int):
        if 0 < column <= width:
            return column - 1
        there = f"{width} columns" + (f": {_listed(names)}" if names else "")
        raise ConfigError(f"column {column} is asked for, but {path} has {there}")
    match [index for index, name in enumerate(names) if name == column]:
        case [index]:
            return index
        case []:
            raise NoSuchColumn(
                f"{path} has no column {column!r}; it has {_listed(names)} (columns may also be given by number, "
                f"from 1)"
            )
        case several:
            numbers = ", ".join(str(index + 1) for index in several)
            raise ConfigError(f"{path} has several columns {column!r}, number {numbers}; give the number")


def _without_header(path: str, first: Sequence[str], asked: Sequence[str], separator: str) -> str:
    """Return why columns cannot be read by name from a file without a header, with a header to add."""
    line = separator.join([*asked, *(f"column{number}" for number in range(len(asked) + 1, len(first) + 1))])
    return (
        f"{path} has no header with {' and '.join(map(repr, asked))}: its first row is {_listed(first)}; if that is "
        f"text, add the line {line!r} before it, with the names in the order of the columns, or give columns by number"
    )


def language_named(name: str) -> str | None:
    """Return the code of the language that a column's name means, such as `de` for `German`; None for other names."""
    meaning = _meaning(name)
    return meaning if meaning is not None and meaning.partition("-")[0] in _codes() else None


def _of_languages(path: str, wanted: Wanted, names: Sequence[str], sides: Sequence[int]) -> tuple[int, int]:
    """Return the columns of the requested languages; if one is requested, the other column is the only one left.

    Raises:
        ConfigError: If no such columns exist, or the choice is ambiguous.
    """
    asked = wanted.from_lang, wanted.to_lang
    places = [None if language is None else _of_language(path, language, names, sides) for language in asked]
    others = [side for side in sides if side not in places]
    if places[0] == places[1] or (None in places and len(others) != 1):
        words = " and ".join(repr(language) for language in asked if language is not None)
        there = _listed([names[side] for side in sides])
        raise ConfigError(
            f"{path}: the languages asked for are {words}, which leaves open two columns; it has {there}; give two "
            f"different ones with --from-lang and --to-lang"
        )
    source, target = (others[0] if place is None else place for place in places)
    return source, target


def _of_language(path: str, language: str, names: Sequence[str], sides: Sequence[int]) -> int:
    """Return the column that is named after a language or a variant of it.

    Raises:
        ConfigError: If there is no such column, or more than one.
    """
    places = [side for side in sides if is_variant(_meaning(names[side]) or "", language)]
    if len(places) == 1:
        return places[0]
    which = "no column" if not places else "several columns"
    there = _listed([names[side] for side in sides])
    raise ConfigError(
        f"{path} has {which} of the language {language!r}; it has {there}; say with --columns which two to read"
    )


def _columns_of_numbers(rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the columns that hold only whole numbers, among the rows of the most frequent width."""
    width = max(Counter(map(len, rows)).most_common(1), default=(0, 0))[0]
    return {index for index in range(width) if all(row[index].isdecimal() for row in rows if len(row) == width)}


def _meaning(cell: str) -> str | None:
    """Return the language or side that a cell names, normalised so that all names of a language agree; else None."""
    cell = cell.strip()
    if not LABEL.fullmatch(cell):
        return None
    if tag := TAG.fullmatch(cell):
        return cell.replace("_", "-") if tag[1] in codes_by_name() else None
    if language := codes_by_name().get(cell.casefold()):
        return language
    words = [codes_by_name().get(word, word) for word in re.split(r"[ _-]", cell.casefold())]
    known = _codes(), SIDES, FILLERS
    if not all(any(word in names for names in known) or word.rstrip("0123456789") in SIDES for word in words):
        return None
    return " ".join([word for word in words if word not in FILLERS] or words)


@cache
def _codes() -> frozenset[str]:
    return frozenset(codes_by_name().values())


def _listed(names: Sequence[str]) -> str:
    return first_few([f"{name[:40]!r}" for name in names], 20)
