"""Arguments and options shared by several commands, with the same names and help texts."""

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


Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model directory, or run directory that contains a model.")
]
SourceFile = Annotated[str, typer.Option("--source", metavar="FILE", help="Source text, one segment per line.")]
TargetFile = Annotated[
    str, typer.Option("--target", metavar="FILE", help="Translations of the source text, aligned line by line.")
]
PairsFile = Annotated[
    str | None,
    typer.Option(
        "--pairs",
        metavar="FILE",
        help="File that contains both sides, such as .tmx, .po, .tsv or .csv (docs/formats.md); - is TSV from "
        "standard input. A row that is not a pair is an error.",
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="A,B",
        help="Columns of source and target in files of pairs: numbers counted from 1, or names from the header line.",
        show_default="as defined by the file, otherwise the first two",
    ),
]
FromLang = Annotated[
    str | None,
    typer.Option("--from-lang", metavar="L", help="Source language to read from files of pairs with named languages."),
]
ToLang = Annotated[
    str | None,
    typer.Option("--to-lang", metavar="L", help="Target language to read from files of pairs with named languages."),
]
Swap = Annotated[bool, typer.Option("--swap", help="Exchange source and target.")]
Beam = Annotated[
    int | None, typer.Option("--beam", metavar="K", help="Beam size; 1 is greedy search.", show_default="the model's")
]
TargetLang = Annotated[
    str | None,
    typer.Option(
        "--target-lang",
        metavar="L",
        help="Target language, for models with language tags; a tag at the start of a line takes precedence.",
    ),
]
BatchTokens = Annotated[
    int | None,
    typer.Option("--batch-tokens", metavar="N", help="Source tokens processed at once.", show_default="the model's"),
]
Split = Annotated[
    SplitChoice | None,
    typer.Option(
        "--split",
        help="Whether to translate a line of several sentences sentence by sentence: always, never, or auto (if "
        "the line is longer than the lines that the model was trained on).",
        show_default="the model's, usually auto",
    ),
]
AlignBy = Annotated[
    AlignByChoice | None,
    typer.Option(
        "--align-by",
        help="Method of word alignment: attention, which uses selected attention heads, or occlusion, which "
        "measures how much a word's log-probability falls when a source word is hidden. Occlusion is more "
        "accurate, but needs as many passes as the source has tokens (docs/alignment.md).",
        show_default="the model's",
    ),
]
AsIs = Annotated[
    bool,
    typer.Option(
        "--as-is",
        help="Translate lines as they are: do not normalize all-capital or all-lowercase lines and superfluous "
        "white space to the form of the training text.",
    ),
]
SourceLang = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="L",
        help="Source language, such as de; its abbreviations and punctuation are used to split sentences.",
        show_default="the model's, otherwise guessed from the script",
    ),
]
ToldSourceLang = Annotated[
    str | None,
    typer.Option(
        "--source-lang",
        metavar="L",
        help="Source language, for models with source-language tokens.",
        show_default="the model's",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        "--ensemble",
        metavar="MODEL2",
        help="Another model with the same vocabulary, to translate with the mean of all models' probabilities; "
        "may be repeated. The decoding settings are MODEL's.",
        show_default=False,
    ),
]
Device = Annotated[str, typer.Option("--device", help="Device: auto, cpu, cuda or cuda:N.")]
Precision = Annotated[
    DecodePrecision | None,
    typer.Option(
        "--precision",
        help="Precision of matrix products. fp32 is the model's own precision. bf16x3 is faster on CPUs with AMX, and "
        "only near ties can be decided differently. bf16 is faster on GPUs and on CPUs with AMX or AVX-512 BF16; "
        "int8 is faster on CPUs with AMX or VNNI. bf16 and int8 round, so a few translations differ.",
        show_default="the model's",
    ),
]
Shortlist = Annotated[
    bool,
    typer.Option(
        "--shortlist",
        help="Restrict output tokens to the model's shortlist, which clearhead optimize creates: faster, and a "
        "few translations differ.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=1_024,
        help="Number of CPU threads.",
        show_default="all cores",
        callback=_use_threads,
        expose_value=False,
    ),
]
"""Applied by its callback; commands do not use the value."""
Workers = Annotated[
    int,
    typer.Option(
        "--workers",
        metavar="N",
        min=1,
        help="Number of processes that share the lines. Each loads the model, and uses a GPU of its own if there "
        "are GPUs.",
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
    """Return decoding options as settings of `[decode]`; None keeps the model's value."""
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
