"""`clearhead score`: log-probabilities of given translations and, on request, their word alignments."""

from __future__ import annotations

from collections.abc import Iterable
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.bulk_work import BulkOptions, finished_parts, named_file
from clearhead.cli.checks import (
    refuse_alignments_in_output,
    refuse_missing,
    refuse_mixing,
    refuse_overwriting,
    refuse_untold_language,
)
from clearhead.cli.console import progress
from clearhead.cli.options import (
    OUTPUT,
    AlignBy,
    BatchOptions,
    Device,
    Ensemble,
    Model,
    Plain,
    SourceFile,
    TargetFile,
    Threads,
    with_option_groups,
)
from clearhead.cli.pairs import PairOptions
from clearhead.cli.rules import refuse_clashes
from clearhead.files.streams import format_extension

if TYPE_CHECKING:
    from clearhead.cli.pairs import GivenPairs

_COLUMN = "score"
"""Name of the column of scores."""

Output = Annotated[
    str | None,
    typer.Option(
        *OUTPUT,
        metavar="FILE",
        help="Output file; .gz, .xz and .zst are compressed. In a .jsonl, .parquet or .arrow file the scores are a "
        "column beside the pairs.",
    ),
]


@with_option_groups
def score(
    context: typer.Context,
    model: Model,
    *,
    source: SourceFile = None,
    target: TargetFile = None,
    pairs: PairOptions,
    decoding: BatchOptions,
    output: Output = None,
    alignments: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Write word alignments: for each line, pairs such as 3-5 of source word and target word, both "
            "counted from 0 (Pharaoh format, docs/alignment.md).",
        ),
    ] = None,
    align_by: AlignBy = None,
    ensemble: Ensemble = None,
    plain: Plain = False,
    device: Device = "auto",
    threads: Threads = None,
    bulk: BulkOptions,
) -> None:
    """Print the model's log-probability of each translation given its source, in nats, one per line.

    Examples:
      clearhead score runs/de-en --source test.de --target test.en
      clearhead score runs/de-en --pairs pairs.tsv > scores.txt
      clearhead score runs/de-en --pairs pairs.tsv --alignments pairs.links

    The score is the sum over the tokens of the translation and its end token. An empty translation has the score of its
    end token alone; for a blank source line this score is 0. A line is always scored whole and as it is. `translate`
    may split or normalize a line; the score that it reports is then the sum over the sentences that it translated.
    """
    refuse_clashes(context)
    refuse_mixing("--alignments", alignments, "scores")
    files = [path for path in (source, target, pairs.pairs) if path is not None]
    refuse_missing(files)
    refuse_overwriting(alignments, files)
    refuse_overwriting(output, files)
    refuse_alignments_in_output(alignments, output, "scores")
    settings: Any = decoding.settings

    from clearhead.files import open_output
    from clearhead.files.reading import file_version
    from clearhead.formats.row_files import is_same_kind, refuse_unwritable_rows, require_new_column
    from clearhead.text.word_links import pharaoh
    from clearhead.translation.line_shards import Models, Scoring, score_line

    refuse_unwritable_rows(output)
    since = None if pairs.pairs is None else file_version(pairs.pairs)
    given = pairs.read(source, target)
    if pairs.pairs is not None and is_same_kind(pairs.pairs, output):
        require_new_column(pairs.pairs, output, _COLUMN)
    models = Models(model, device, tuple(ensemble or ()))
    loaded = models.load("cpu" if bulk.ray else device)  # with Ray, the workers have the GPUs
    translator = loaded.plain if plain else loaded
    refuse_untold_language(translator, decoding.source_lang)
    if bulk.ray is not None:
        work, inputs = Scoring(plain, settings), [(given.name, Scoring.lines(given.sources, given.targets))]
        with finished_parts(bulk, named_file(output), inputs, models, work, loaded) as parts:
            _write(output, (part.text for _, part in parts), given, pairs.pairs, since)
        return
    with progress("scoring", total=len(given.pairs)) as advance:
        scores = translator.score(given.sources, given.targets, name=given.name, on_progress=advance, **settings)
    if alignments is not None:
        with progress("aligning", total=len(given.pairs)) as advance, open_output(alignments) as out:
            sides = given.sources, given.targets
            aligned = translator.align(*sides, name=given.name, on_progress=advance, align_by=align_by, **settings)
            out.writelines(pharaoh(links) + "\n" for links in aligned)
    _write(output, map(score_line, scores), given, pairs.pairs, since)


def _write(
    output: str | None,
    lines: Iterable[str],
    given: GivenPairs,
    path: str | None,
    since: tuple[int, int, int] | None,
) -> None:
    """Write scores as lines, or as a column: beside the rows of the file of pairs if it has the format of the output.

    Args:
        output: File to write.
        lines: The scores.
        given: The pairs.
        path: Their file, if they are in one.
        since: Its `file_version` before it was read.

    Raises:
        DataError: If a file cannot be read or written.
    """
    from clearhead.files import open_output
    from clearhead.formats.document_files import is_row_file

    if output is None or not is_row_file(output):
        with open_output(output) as out:
            out.writelines(lines)
        return
    from clearhead.formats import write_pairs
    from clearhead.formats.row_files import added_column, is_same_kind

    with TemporaryDirectory() as directory:
        if path is None or not is_same_kind(path, output):
            path, since = f"{directory}/pairs{format_extension(output)}", None
            write_pairs(path, given.pairs, ("source", "target"))
        with added_column(path, output, _COLUMN, float, since) as out:
            out.writelines(lines)
