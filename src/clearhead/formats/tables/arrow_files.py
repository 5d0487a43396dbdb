"""Sentence pairs in Arrow and Parquet files (`.parquet`, `.arrow`, `.feather`), and a column added to their rows.

These are the files that Hugging Face's datasets and pandas write. The two sides are two text columns, or the fields of
a column `translation` that are named by languages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output, require_regular
from clearhead.files.streams import COMPRESSIONS, display_name, format_extension, whole_or_absent
from clearhead.formats.pair import LINE_ENDS, PairFile, SentencePair, Wanted, refuse_signs
from clearhead.formats.tables.columns import TextColumns, choose_columns, language_named
from clearhead.formats.tables.json_lines import TRANSLATION, side_names
from clearhead.runtime.memory import limited_memory
from clearhead.text.lines import segment_on_one_line

READ_ROWS = 1_000
READ_BYTES = 2**20
"""Bytes of a column of a Parquet file that are read at once."""
SPARE_MEMORY = 2**29
"""Bytes that one batch of rows may take beside four times the size of its file."""
WRITTEN_ROWS = 50_000
WRITTEN_CHARACTERS = 16_000_000
"""Maximum rows of a written batch, and its maximum characters, which only its last text may exceed."""
WRITTEN_BYTES = 64_000_000
"""Bytes in memory at which a group of copied rows is written."""


class _Columns(NamedTuple):
    """An open file."""

    schema: pa.Schema
    read: Callable[[list[str] | None], Iterator[pa.RecordBatch]]
    """Yields batches of rows; they contain the named columns, and perhaps others; None: all columns."""
    new_file: Callable[[str, pa.Schema], Any]
    """Opens a writer of the same format."""


def open_columns(path: str, wanted: Wanted) -> PairFile:
    """Open a Parquet file, or one in Arrow's IPC format (file or stream), which is also Feather version 2.

    The origin of a pair is its row number.

    Args:
        path: A regular file. Its columns are compressed internally, so `.gz` and the like are not supported.
        wanted: Columns of source and target; if not given, the column names decide, see `choose_columns`.

    Raises:
        ConfigError: If a requested column does not exist or holds no text, or the choice of columns is ambiguous.
        DataError: If the file cannot be read or is damaged; also raised during iteration.
    """
    refuse_what_is_around(path)
    with _opened(path) as columns:
        names, fields = _chosen(path, columns.schema, wanted)
    pairs, languages = _pairs(path, names, fields), (language_named(fields[0]), language_named(fields[1]))
    format = "Parquet" if _is_parquet(path) else "Arrow"
    return PairFile(path, format, (repr(fields[0]), repr(fields[1])), pairs, languages)


def text_columns(path: str) -> TextColumns:
    """Open a file of which a column is read as lines.

    Raises:
        DataError: If the file cannot be read or is damaged, or the column to read shares its name; the latter two also
            during iteration.
    """
    refuse_what_is_around(path)
    with _opened(path) as columns:
        names, types = columns.schema.names, columns.schema.types
    others = frozenset(place for place, kind in enumerate(types) if not _is_text(kind))

    def lines(column: int) -> Iterator[str]:
        if names.count(name := names[column]) > 1:
            raise DataError(f"{path} has several columns {name!r}; a column to read needs a name of its own")
        for batch in _batches_of(path, [name]):
            yield from (segment_on_one_line(text or "") for text in _texts(batch.column(name), name))

    return TextColumns(names, len(names), others, lines)


def add_column(path: str, output: str, name: str, values: Iterator[Any], kind: type) -> None:
    """Write the rows of a file again, in its format and with its schema, with another column at the end.

    Args:
        path: The file.
        output: File to write.
        name: Name of the column.
        values: Its values, one for each row.
        kind: Their type, `str` or `float`.

    Raises:
        DataError: If there are not as many rows as values, or a file cannot be read or written.
    """
    refuse_what_is_around(output)
    with _opened(path) as columns:
        schema, new_file = columns.schema.append(pa.field(name, _TYPES[kind])), columns.new_file
    with _written(output), whole_or_absent(output) as written, new_file(str(written), schema) as file:
        for table in _groups(_batches_of(path, None)):
            column = pa.array(islice(values, len(table)), schema.types[-1])
            if len(column) < len(table):
                raise DataError(_CHANGED.format(path))
            file.write_table(table.append_column(schema.field(len(schema) - 1), column), max(1, len(table)))
        if next(values, None) is not None:
            raise DataError(_CHANGED.format(path))


_CHANGED = "{} has another number of rows than when it was read first; run the command again"
_TYPES = {str: pa.string(), float: pa.float64()}


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Join batches to groups to write at once."""
    group: list[pa.RecordBatch] = []
    for batch in batches:
        group.append(batch)
        if sum(map(len, group)) >= WRITTEN_ROWS or sum(batch.nbytes for batch in group) >= WRITTEN_BYTES:
            yield pa.Table.from_batches(group)
            group = []
    if group:
        yield pa.Table.from_batches(group)


@contextmanager
def _opened(path: str) -> Iterator[_Columns]:
    """Open a file, and convert errors of opening and reading to `DataError`."""
    with _told(path), (_parquet if _is_parquet(path) else _arrow)(path) as columns:
        yield columns


def _is_parquet(path: str) -> bool:
    return format_extension(path) == ".parquet"


@contextmanager
def _parquet(path: str) -> Iterator[_Columns]:
    # Prepared reads (pre_buffer) would hold the whole file, and reads without a buffer a whole row group.
    with pq.ParquetFile(path, pre_buffer=False, buffer_size=READ_BYTES) as file:
        yield _Columns(file.schema_arrow, lambda names: file.iter_batches(READ_ROWS, columns=names), pq.ParquetWriter)


@contextmanager
def _arrow(path: str) -> Iterator[_Columns]:
    with pa.OSFile(path) as file:
        start = file.read(6)
        if start.startswith(b"FEA1"):
            raise DataError(f"{path} is Feather version 1, which is out of use; write it again as version 2 or Parquet")
        is_stream = start != b"ARROW1"  # the caches of Hugging Face's datasets are streams

        def reader(places: list[int] | None) -> Any:
            file.seek(0)
            options = pa.ipc.IpcReadOptions(included_fields=places)
            return (pa.ipc.open_stream if is_stream else pa.ipc.open_file)(file, options=options)

        schema = reader(None).schema

        def read(names: list[str] | None) -> Iterator[pa.RecordBatch]:
            batches = reader(None if names is None else [schema.get_field_index(name) for name in names])
            return batches if is_stream else map(batches.get_batch, range(batches.num_record_batches))

        yield _Columns(schema, read, pa.ipc.new_stream if is_stream else pa.ipc.new_file)


def _pairs(path: str, names: tuple[str, str], fields: tuple[str, str]) -> Iterator[SentencePair]:
    row = 0
    for batch in _batches_of(path, sorted(set(names))):
        sides = [_texts(batch.column(name), field) for name, field in zip(names, fields, strict=True)]
        for source, target in zip(*sides, strict=True):
            row += 1
            yield SentencePair(segment_on_one_line(source or ""), segment_on_one_line(target or ""), f"{path}:{row}")


def _batches_of(path: str, names: list[str] | None) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file in batches, see `_Columns.read`."""
    with _opened(path) as columns:
        most = SPARE_MEMORY + 4 * Path(path).stat().st_size
        with limited_memory(most):
            batches = iter(columns.read(names))
        while (batch := _next(batches, most)) is not None:
            yield batch


def _next(batches: Iterator[pa.RecordBatch], most: int) -> pa.RecordBatch | None:
    """Return the next batch, unpacked and checked; None after the last.

    Raises:
        pa.ArrowException: If it is damaged, or takes more than `most` bytes.
    """
    with limited_memory(most):  # a kilobyte can be unpacked to gigabytes
        batch = next(batches, None)
        if batch is not None:
            # Arrow does not check what it reads: offsets beyond the text would read other memory.
            batch.validate(full=True)
        return batch


def _texts(column: pa.Array, field: str) -> Iterator[str | None]:
    """Yield the texts of a column, one at a time: all of them together may take gigabytes."""
    if pa.types.is_struct(column.type):
        column = column.flatten()[column.type.get_field_index(field)]
    if pa.types.is_dictionary(column.type):  # a short column of numbers may stand for a long one of texts
        numbers = column.indices.to_pylist()
        texts = {number: None if number is None else column.dictionary[number].as_py() for number in set(numbers)}
        return (texts[number] for number in numbers)
    return (text.as_py() for text in column)


def _chosen(path: str, schema: pa.Schema, wanted: Wanted) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return the columns to read, and the names of the two texts: columns, or fields of one column.

    Raises:
        ConfigError: If the choice is ambiguous, or the columns hold no text.
    """
    nested = schema.get_field_index(TRANSLATION)
    is_nested = nested >= 0 and pa.types.is_struct(schema.field(nested).type)
    holder = schema.field(nested).type if is_nested else schema
    columns = [holder.field(place) for place in range(holder.num_fields if is_nested else len(schema))]
    names = [column.name for column in columns]
    others = frozenset(place for place, column in enumerate(columns) if not _is_text(column.type))
    types = ", ".join(f"{column.name[:40]!r} ({column.type})" for column in columns[:20])
    if len(names) - len(others) < 2:
        raise ConfigError(f"{path} has no two columns of text: {types or 'no columns'}")
    picked = choose_columns(path, [[""] * len(names)], wanted, names=names, others=others, is_named=True)
    chosen = picked.source, picked.target
    if others & {*chosen} or any(names.count(names[place]) > 1 for place in chosen):
        raise ConfigError(f"{path}: the columns to read must hold text and have names of their own; it has {types}")
    fields = names[chosen[0]], names[chosen[1]]
    return (TRANSLATION, TRANSLATION) if is_nested else fields, fields


def _is_text(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):  # such as a pandas category
        kind = kind.value_type
    return pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Convert errors of opening and reading to `DataError` with the name of the file."""
    try:
        require_regular(path)
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except MemoryError:
        raise DataError(
            f"{path}: a batch of rows takes more than {SPARE_MEMORY >> 20:,} MiB of memory beside four times the size "
            f"of the file, or more than there is; write it again in smaller batches or row groups"
        ) from None
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = str(error).splitlines() or [type(error).__name__]
        raise DataError(f"cannot read {path}, it is damaged or of another format: {reason[0]}") from None


def write_columns(path: str | None, pairs: Iterable[SentencePair], languages: tuple[str, str]) -> int:
    """Write two text columns, named by the languages, as Parquet or in Arrow's IPC format; return the number of pairs.

    Args:
        path: The file; standard output is not supported.
        pairs: Pairs to write, in order; `origin` is not written.
        languages: Names of the two columns; `source` and `target` are used if both are the same.

    Raises:
        DataError: If a text contains a line ending, which reading would change, or the file cannot be written.
    """
    if path is None or is_standard_output(path):
        raise DataError("columns of Arrow cannot be written to standard output, for they are no text; name a file")
    refuse_what_is_around(path)
    schema = pa.schema([(name, pa.string()) for name in side_names(languages)])
    writer: Callable[[str, pa.Schema], Any] = pq.ParquetWriter if _is_parquet(path) else pa.ipc.new_file
    count = 0
    with _written(path), whole_or_absent(path) as written, writer(str(written), schema) as file:
        for batch in _batches(pairs, schema):
            file.write_batch(batch)
            count += len(batch)
    return count


@contextmanager
def _written(path: str) -> Iterator[None]:
    """Convert errors of writing to `DataError` with the name of the file."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"cannot write {path}: {getattr(error, 'strerror', None) or error}") from None


def _batches(pairs: Iterable[SentencePair], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    sources: list[str] = []
    targets: list[str] = []
    characters = 0

    def batch() -> pa.RecordBatch:
        return pa.record_batch([pa.array(side, pa.string()) for side in (sources, targets)], schema=schema)

    for pair in pairs:
        refuse_signs(pair, LINE_ENDS, "a segment")
        _refuse_half_characters(pair)
        sources.append(pair.source)
        targets.append(pair.target)
        characters += len(pair.source) + len(pair.target)
        if len(sources) >= WRITTEN_ROWS or characters >= WRITTEN_CHARACTERS:
            yield batch()
            sources, targets, characters = [], [], 0
    if sources:
        yield batch()


def _refuse_half_characters(pair: SentencePair) -> None:
    for text in (pair.source, pair.target):
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            code = ord(text[error.start])
            raise DataError(f"{pair.origin}: U+{code:04X} is half of a surrogate pair, not a character") from None


def refuse_what_is_around(path: str) -> None:
    """Raise `DataError` for standard input and for compression around the file, because Arrow compresses internally."""
    if path == "-":
        raise DataError(f"columns of Arrow cannot be read from {display_name(path)}: they are not read in order")
    if (suffix := Path(path).suffix.lower()) in COMPRESSIONS:
        raise DataError(f"{path}: columns of Arrow are compressed within; decompress it, or leave {suffix} out")
