"""`clearhead score`: log-probabilities of given translations and, on request, their word alignments."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clearhead.cli.bulk_work import Ray, finished_parts, named_file
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


@with_option_groups
def score(
    context: typer.Context,
    model: Model,
    *,
    source: SourceFile = None,
    target: TargetFile = None,
    pairs: PairOptions,
    decoding: BatchOptions,
    output: Annotated[
        str | None, typer.Option(*OUTPUT, metavar="FILE", help="Output file; .gz, .xz and .zst are compressed.")
    ] = None,
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
    ray: Ray = None,
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
    from clearhead.text.word_links import pharaoh
    from clearhead.translation.line_shards import Models, Scoring, score_line

    given, models = pairs.read(source, target), Models(model, device, tuple(ensemble or ()))
    loaded = models.load("cpu" if ray else device)  # with Ray, the workers have the GPUs
    translator = loaded.plain if plain else loaded
    refuse_untold_language(translator, decoding.source_lang)
    if ray is not None:
        work, inputs = Scoring(plain, settings), [(given.name, Scoring.lines(given.sources, given.targets))]
        with finished_parts(ray, named_file(output), inputs, models, work, loaded) as parts, open_output(output) as out:
            out.writelines(part.text for _, part in parts)
        return
    with progress("scoring", total=len(given.pairs)) as advance:
        scores = translator.score(given.sources, given.targets, name=given.name, on_progress=advance, **settings)
    if alignments is not None:
        with progress("aligning", total=len(given.pairs)) as advance, open_output(alignments) as out:
            sides = given.sources, given.targets
            aligned = translator.align(*sides, name=given.name, on_progress=advance, align_by=align_by, **settings)
            out.writelines(pharaoh(links) + "\n" for links in aligned)
    with open_output(output) as out:
        out.writelines(map(score_line, scores))
