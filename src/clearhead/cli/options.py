"""Arguments and options that several commands share, so that they are named and explained alike."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from clearhead.config.choices import AlignBy as AlignByChoice
from clearhead.config.choices import DecodePrecision
from clearhead.config.choices import Split as SplitChoice


def _use_threads(count: int | None) -> int | None:
    if count is not None:
        from clearhead.runtime.device import set_num_threads

        set_num_threads(count)
    return count


Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model directory, or run directory (its model).")]
SourceFile = Annotated[str, typer.Option("--source", metavar="FILE", help="Source text, one segment a line.")]
TargetFile = Annotated[
    str, typer.Option("--target", metavar="FILE", help="Its translations, line by line beside the source.")
]
PairsFile = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="Both sides in one file, such as .tmx, .po, .tsv or .csv (docs/formats.md); - is TSV. A row that is no "
        "pair is an error.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Columns of source and target in files of pairs: numbers counted from 1, or names from a header line.",
        show_default="what the file itself says, else the first two",
    ),
]
FromLang = Annotated[
    str | None,
    typer.Option("--from-lang", metavar="L", help="Language of the source in files of pairs that name languages."),
]
ToLang = Annotated[
    str | None,
    typer.Option("--to-lang", metavar="L", help="Language of the target in files of pairs that name languages."),
]
Swap = Annotated[
    bool, typer.Option("--swap", help="The other direction: what would be the source is the target, and vice versa.")
]
Beam = Annotated[
    int | None, typer.Option("--beam", metavar="K", help="Beam size; 1 is greedy search.", show_default="the model's")
]
TargetLang = Annotated[
    str | None,
    typer.Option(
        "--target-lang",
        metavar="L",
        help="Language of the translations, for a model with language tags; a line's own tag goes before.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option("--batch-tokens", metavar="N", help="Source tokens computed at once.", show_default="the model's"),
]
Split = Annotated[
    SplitChoice | None,
    typer.Option(
        "--split",
        help="Translate a line of several sentences sentence by sentence: always, never, or auto, if it is longer than "
        "the lines the model was trained on.",
        show_default="the model's, which is auto",
    ),
]
AlignBy = Annotated[
    AlignByChoice | None,
    typer.Option(
        "--align-by",
        help="What links words: attention, of the heads chosen for it, or occlusion, what a word loses when one of the "
        "source is hidden; better, in as many passes as the source has tokens (docs/alignment.md).",
        show_default="the model's",
    ),
]
AsIs = Annotated[
    bool,
    typer.Option(
        "--as-is",
        help="Read lines in capitals, in small letters or with stray white space as they are, not in the form that the "
        "training text has.",
    ),
]
SourceLang = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="L",
        help="Language of the source text, such as de: its abbreviations and marks say where sentences end.",
        show_default="the model's, or what the script makes likely",
    ),
]
ToldSourceLang = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="L",
        help="Language of the source text, for a model that is told it.",
        show_default="the model's",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        metavar="MODEL2",
        help="Another model of the same vocabulary: the mean of both models' probabilities counts. Give it once for "
        "each; how to translate is MODEL's.",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", help="auto, cpu, cuda or cuda:N.")]
Precision = Annotated[
    DecodePrecision | None,
    typer.Option(
        "--precision",
        help="fp32 gives the model's own numbers. bf16x3 is faster on CPUs with AMX and changes nothing but near ties. "
        "bf16 is faster on GPUs and CPUs with AMX or AVX-512 BF16, int8 on CPUs with AMX or VNNI; both round, so a few "
        "translations differ.",
        show_default="the model's",
    ),
]
Shortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist",
        help="Write only what the model's shortlist allows (clearhead optimize learns it): faster, and a few "
        "translations differ.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=1_024,
        help="CPU threads.",
        show_default="all cores",
        callback=_use_threads,
        expose_value=False,
    ),
]
"""Takes effect by itself."""
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Processes that share the lines, each with the model, and with a GPU of its own where there are GPUs.",
    ),
]


def decode_settings(
    *,
    beam: int | None,
    split: str | None,
    as_is: bool,
    source_lang: str | None,
    target_lang: str | None,
    batch_tokens: int | None,
    precision: str | None,
    shortlist: bool = False,
) -> dict[str, Any]:
    """Return the options that say how a model translates as settings of `[decode]`; None leaves the model's own."""
    return {
        "beam_size": beam,
        "split": split,
        "familiar": False if as_is else None,
        "source_lang": source_lang,
        "target_lang": target_lang,
        "batch_tokens": batch_tokens,
        "precision": precision,
        "shortlist": shortlist or None,
    }
