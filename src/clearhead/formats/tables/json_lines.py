"""JSON Lines of sentence pairs, `{"translation": {"de": .., "en": ..}}` or plain keys; and a key added to them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

from clearhead.errors import DataError
from clearhead.files import parse_json
from clearhead.files.streams import display_name, open_output, read_lines
from clearhead.formats.pair import EMPTY, LINE_ENDS, PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.columns import TextColumns, choose_columns, language_named
from clearhead.formats.tables.pairs import SHOWN_CHARACTERS, read_head
from clearhead.text.lines import segment_on_one_line

TRANSLATION = "translation"
"""Key of the object whose own keys are the two languages."""


def open_json_lines(path: str, wanted: Wanted) -> PairFile:
    """Open a JSON Lines file of sentence pairs; a blank line gives an empty pair, so that cleaning counts it.

    Args:
        path: The file; `-` is standard input; `.gz`, `.xz` and `.zst` are decompressed.
        wanted: Keys of source and target, given as columns; if not given, the keys of the first lines decide, see
            `choose_columns`.

    Raises:
        ConfigError: If a requested key does not exist, or the keys of the first lines leave the choice ambiguous.
        DataError: If none of the first lines is an object, or the file is not readable text; the latter also during
            iteration.
    """
    lines: Iterator[str] = read_lines(path)
    head = read_head(lines)
    filled = [line for line in head if line.strip()]
    objects = [row for row, _ in map(_parsed, filled) if row is not None]
    if filled and not objects:
        raise DataError(
            f"{display_name(path)}: none of the first {len(head)} lines is a JSON object (the first begins "
            f'{filled[0][:SHOWN_CHARACTERS]!r}); a line is {{"translation": {{"de": "..", "en": ".."}}}} or '
            f'{{"source": "..", "target": ".."}}'
        )
    is_nested = any(isinstance(row.get(TRANSLATION), dict) for row in objects)
    rows = [_inner(row) if is_nested else row for row in objects]
    source, target = _chosen(path, [row for row in rows if row is not None], wanted) if objects else ("", "")
    lines = read_lines(path) if os.path.isfile(path) else chain(head, lines)  # a pipe can be read only once
    name = "JSON lines" + (f", under {TRANSLATION!r}" if is_nested else "") if objects else EMPTY
    pairs, languages = _pairs(path, lines, is_nested, source, target), (language_named(source), language_named(target))
    return PairFile(path, name, (repr(source), repr(target)), pairs, languages)


def text_columns(path: str) -> TextColumns:
    """Open a file of which a key of the first lines is read as lines; a blank line is an empty text.

    Raises:
        DataError: If the file is not readable text; or during iteration, if a line is not an object with this key, or
            its value is no text.
    """
    names, others, _ = _columns([row for row, _ in map(_parsed, read_head(read_lines(path))) if row is not None])
    names = names or [""]  # there is no object yet; if any follows, it will not have this key

    def lines(column: int) -> Iterator[str]:
        for number, line in enumerate(read_lines(path), start=1):
            row, problem = _parsed(line) if line.strip() else ({names[column]: None}, "")
            texts, problem = (None, problem) if row is None else _texts(row, names[column])
            if texts is None:
                raise DataError(f"{path}, line {number}: {problem} (the line begins {line[:SHOWN_CHARACTERS]!r})")
            yield segment_on_one_line(texts[0])

    return TextColumns(names, len(names), others, lines)


def add_column(path: str, output: str | None, name: str, values: Iterator[Any]) -> None:
    """Write the lines of a file again, as they are, with another key at the end of each object.

    Args:
        path: The file.
        output: File to write, as for `open_output`.
        name: The key.
        values: Its values, one for each line; no value is written for a blank line.

    Raises:
        DataError: If a line has the key already, there are not as many lines as values, or a file cannot be read or
            written.
    """
    with open_output(output) as file:
        for number, line in enumerate(read_lines(path), start=1):
            row, value = _parsed(line)[0] or {}, next(values, values)
            if name in row or value is values:
                problem = "there is " + (f"{name!r} already" if name in row else "no such line when it was read first")
                raise DataError(f"{path}, line {number}: {problem}")
            # The other values keep their form, such as 1.50, which reading and writing would change.
            before = line.rstrip()[:-1].rstrip() + (", " if row else "")
            added = f"{json.dumps(name, ensure_ascii=False)}: {json.dumps(value, ensure_ascii=False)}}}"
            file.write((before + added if line.strip() else line) + "\n")
        if next(values, None) is not None:
            raise DataError(f"{path} has fewer rows than when it was read first; run the command again")


def write_json_lines(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write one object per line, in the form of Hugging Face's datasets, and return the number of pairs.

    Args:
        path: The file; `None` or `-` is standard output; `.gz`, `.xz` and `.zst` are compressed.
        pairs: Pairs to write, in order; `origin` is not written.
        languages: Keys of source and target; `source` and `target` are used if both are the same.

    Raises:
        DataError: If a text contains a line ending, which reading would change, or the file cannot be written.
    """
    first, second = side_names(languages)
    count = 0
    with open_output(path) as file:
        for pair in pairs:
            refuse_signs(pair, LINE_ENDS, "a segment of a .jsonl")
            row = {TRANSLATION: {first: pair.source, second: pair.target}}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            count += 1
    return count


def side_names(languages: tuple[str, str]) -> tuple[str, str]:
    """Return the names under which the two sides are written: their languages if these differ."""
    return languages if languages[0].strip() != languages[1].strip() else ("source", "target")


def _chosen(path: str, rows: list[dict[str, Any]], wanted: Wanted) -> tuple[str, str]:
    names, others, cells = _columns(rows)
    chosen = choose_columns(path, cells, wanted, names=names, others=others, is_named=True)
    return names[chosen.source], names[chosen.target]


def _columns(rows: list[dict[str, Any]]) -> tuple[list[str], frozenset[int], list[list[str]]]:
    """Return all keys of the rows, the places of keys without text values, and the texts of each row by key."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    kinds = [{type(row[name]) for row in rows if row.get(name) is not None} for name in names]
    others = frozenset(place for place, kind in enumerate(kinds) if kind and str not in kind)
    cells = [[value if isinstance(value := row.get(name), str) else "" for name in names] for row in rows]
    return names, others, cells


def _pairs(path: str, lines: Iterator[str], is_nested: bool, source: str, target: str) -> Iterator[SentencePair]:
    for number, line in enumerate(lines, start=1):
        origin = f"{path}:{number}"
        if not line.strip():
            yield SentencePair("", "", origin)
            continue
        row, problem = _parsed(line)
        if row is not None and is_nested:
            row, problem = _inner(row), f"there is no object under {TRANSLATION!r}"
        if row is not None:
            texts, problem = _texts(row, source, target)
            if texts is not None:
                yield SentencePair(segment_on_one_line(texts[0]), segment_on_one_line(texts[1]), origin)
                continue
        yield SentencePair("", "", origin, defect=f"{problem} (the line begins {line[:SHOWN_CHARACTERS]!r})")


def _texts(row: dict[str, Any], *keys: str) -> tuple[list[str] | None, str]:
    """Return the texts of keys, or None and the reason; `null` counts as an empty text."""
    texts: list[str] = []
    for key in keys:
        if key not in row:
            return None, f"there is no {key!r}"
        value = "" if row[key] is None else row[key]
        if not isinstance(value, str):
            return None, f"{key!r} is no text"
        texts.append(value)
    return texts, ""


def _parsed(line: str) -> tuple[dict[str, Any] | None, str]:
    """Return the object on a line, or None and the reason."""
    try:
        value = parse_json(line)
    except ValueError as error:
        return None, f"it is no JSON: {error}"
    return (value, "") if isinstance(value, dict) else (None, "it is no JSON object")


def _inner(row: dict[str, Any]) -> dict[str, Any] | None:
    inner = row.get(TRANSLATION)
    return inner if isinstance(inner, dict) else None
