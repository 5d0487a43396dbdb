"""`clearhead backtranslate` and `clearhead distill`: create training pairs from monolingual text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.bulk_work import BulkOptions, finished_parts
from clearhead.cli.checks import given, refuse_missing, refuse_overwriting
from clearhead.cli.console import notice, progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import OUTPUT, DecodeOptions, Sample, with_option_groups
from clearhead.cli.rules import refuse_clashes
from clearhead.config import Sampling
from clearhead.errors import ConfigError, DataError
from clearhead.formats.document_files import ROW_FILES

if TYPE_CHECKING:
    from clearhead.training.synthetic_pairs import MachineSide

_WRITTEN = (".tsv", *ROW_FILES)
"""Extensions of the pairs that are written."""

Output = Annotated[
    str,
    typer.Option(
        *OUTPUT,
        metavar="FILE",
        help="Output file of pairs, source and target: .tsv, .jsonl, .parquet or .arrow (docs/formats.md).",
    ),
]
Column = Annotated[
    str | None,
    typer.Option(
        metavar="A",
        help="Column of the text in .tsv, .csv, .jsonl, .parquet and .arrow files: its name, or its number from 1.",
        show_default="the only one of text",
    ),
]
Tag = Annotated[
    str | None,
    typer.Option("--tag", metavar="L", help="Put the tag <2L> before each source line, for models with language tags."),
]


@with_option_groups
def backtranslate(
    context: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(
            metavar="MODEL", help="Model that translates from the target language into the source language."
        ),
    ],
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE", help="Text in the target language, one segment per line; - is standard input. Or tables."
        ),
    ],
    output: Output,
    decoding: DecodeOptions,
    *,
    sample: Sample = False,
    seed: Annotated[int | None, option("sampling.seed")] = None,
    column: Column = None,
    tag: Tag = None,
    bulk: BulkOptions,
) -> None:
    """Create training pairs from monolingual target text by back-translation: MODEL generates the source side.

    Examples:
      clearhead backtranslate runs/en-de mono.en -o back.tsv
      clearhead backtranslate runs/en-de mono.en --sample -o back.tsv.gz
      clearhead train --pairs train.tsv back.tsv -o runs/de-en
    """
    refuse_clashes(context)
    # From the whole distribution, as Edunov et al. 2018 found it best for back-translation.
    sampling = Sampling(epsilon=0.0, **given(seed=seed)) if sample else None
    _write(model, files, column, output, decoding, machine_side="source", tag=tag, bulk=bulk, sampling=sampling)


@with_option_groups
def distill(
    context: typer.Context,
    model: Annotated[
        Path, typer.Argument(metavar="TEACHER", help="Model whose translations the new model is trained on.")
    ],
    files: Annotated[
        list[str],
        typer.Argument(metavar="FILE", help="Source text, one segment per line; - is standard input. Or tables."),
    ],
    output: Output,
    decoding: DecodeOptions,
    *,
    column: Column = None,
    tag: Tag = None,
    bulk: BulkOptions,
) -> None:
    """Create training pairs for a smaller model by distillation: TEACHER generates the target side.

    Examples:
      clearhead distill runs/teacher train.de -o taught.tsv
      clearhead distill runs/teacher train.de --beam 8 -o taught.tsv.gz
      clearhead train --pairs taught.tsv -o runs/student --preset fast
    """
    refuse_clashes(context)
    _write(model, files, column, output, decoding, machine_side="target", tag=tag, bulk=bulk)


def _write(
    model: Path,
    files: list[str],
    column: str | None,
    output: str,
    decoding: DecodeOptions,
    *,
    machine_side: MachineSide,
    tag: str | None,
    bulk: BulkOptions,
    sampling: Sampling | None = None,
) -> None:
    from clearhead.files import display_name
    from clearhead.files.streams import format_extension
    from clearhead.formats import write_pairs
    from clearhead.formats.row_files import refuse_unwritable_rows

    if format_extension(output) not in _WRITTEN:
        raise ConfigError(
            f"--output {output}: pairs are written as {', '.join(_WRITTEN)}; text may be compressed, such as .tsv.gz"
        )
    refuse_unwritable_rows(output)
    refuse_missing(files)
    read = [(display_name(path), _reader(path, column)) for path in files]
    refuse_overwriting(output, files)

    from clearhead.training.synthetic_pairs import Synthesizing, SyntheticReport, pairs_in, require_tag
    from clearhead.translation.line_shards import Models

    require_tag(tag)
    models, report = Models(model, decoding.device), SyntheticReport()
    translator = models.load("cpu" if bulk.ray else None)  # with Ray, the workers have the GPUs
    inputs = ((name, lines()) for name, lines in read)

    with progress("translating") if bulk.ray is None else nullcontext() as advance:
        work = Synthesizing(machine_side, tag, sampling, decoding.settings, advance)
        with finished_parts(bulk, output, inputs, models, work, translator) as parts:
            pairs = pairs_in(parts, report)
            first = list(islice(pairs, 1))
            if first:
                write_pairs(output, chain(first, pairs), ("source", "target"))
    if not first:  # not within the block, which would keep the parts
        raise DataError("no pair could be made; " + "; ".join(line.strip() for line in report.lines()))
    for line in report.lines():
        notice(line)


def _reader(path: str, column: str | None) -> Callable[[], Iterator[str]]:
    """Return a function that reads lines: of a file of text, or of a column of a table.

    Raises:
        ConfigError: If there is no such column, or it holds no text; or a column of text is asked for.
        DataError: If the file is a document, of an unknown format, or cannot be read.
    """
    from clearhead.files import read_lines
    from clearhead.formats.document_files import is_document, refuse_foreign_format, typed_columns
    from clearhead.formats.row_files import has_columns, lines_in_column

    if has_columns(path):
        columns = [None] if column is None else typed_columns("--column", column)
        if len(columns) != 1:
            raise ConfigError(f"--column {column}: name one column")
        read = partial(lines_in_column, path, columns[0], "--column")
        read()  # what it cannot read is refused before anything is translated
        return read
    if column is not None:
        raise ConfigError(f"--column {column}: {path} has lines of text, and no columns")
    if is_document(path):
        raise DataError(f"{path} is a document; give its text in a .txt file, one segment per line")
    refuse_foreign_format(path)
    return partial(read_lines, path)
