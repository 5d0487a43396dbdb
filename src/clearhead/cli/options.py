"""Arguments and options shared by several commands; groups of options as classes, and their decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from clearhead.cli.checks import refuse_impossible_decoding
from clearhead.config.choices import AlignBy as AlignByChoice
from clearhead.config.choices import DecodePrecision
from clearhead.config.choices import Split as SplitChoice

if TYPE_CHECKING:
    from clearhead.formats import Wanted


class OptionGroup:
    """Options of a command: annotated attributes with defaults. Making a dataclass of them takes half a millisecond."""

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in groups: typer knows single options alone."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], Iterable[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not (isinstance(group, type) and issubclass(group, OptionGroup)):
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        options = get_type_hints(group, include_extras=True)
        groups[parameter.name] = group, options.keys()
        parameters += [
            inspect.Parameter(name, parameter.KEYWORD_ONLY, default=getattr(group, name), annotation=option)
            for name, option in options.items()
        ]

    @wraps(command)
    def run_command(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options if option in values})
        command(**values)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_command


def _use_threads(count: int | None) -> int | None:
    if count is not None:
        from clearhead.runtime.device import set_num_threads

        set_num_threads(count)
    return count


OUTPUT = ("--output", "-o", "--out")
"""Names of the option for the file or directory that a command writes, the same in every command."""

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model directory, or run directory that contains a model.")
]
SourceFile = Annotated[str | None, typer.Option(metavar="FILE", help="Source text, one segment per line.")]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="A,B",
        help="Columns of source and target in files of pairs: numbers counted from 1, or names from the header line.",
        show_default="as defined by the file, otherwise the first two",
    ),
]
FromLang = Annotated[
    str | None, typer.Option(metavar="L", help="Source language to read from files of pairs with named languages.")
]
ToLang = Annotated[
    str | None, typer.Option(metavar="L", help="Target language to read from files of pairs with named languages.")
]
Swap = Annotated[bool, typer.Option("--swap", help="Exchange source and target.")]
Beam = Annotated[
    int | None, typer.Option(metavar="K", help="Beam size; 1 is greedy search.", show_default="the model's")
]
Seed = Annotated[
    int | None, typer.Option(help="Random seed of sampling; the same seed gives the same samples.", show_default="1")
]
TargetLang = Annotated[
    str | None,
    typer.Option(
        metavar="L",
        help="Target language, for models with language tags; a tag at the start of a line takes precedence.",
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
AlignBy = Annotated[
    AlignByChoice | None,
    typer.Option(
        help="Method of word alignment: attention, which uses selected attention heads, or occlusion, which "
        "measures how much a word's log-probability falls when a source word is hidden. Occlusion is more "
        "accurate, but needs as many passes as the source has tokens (docs/alignment.md).",
        show_default="the model's",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="MODEL2",
        help="Another model with the same vocabulary, to translate with the mean of all models' probabilities; "
        "may be repeated. The decoding settings are MODEL's.",
        show_default=False,
    ),
]
BatchTokens = Annotated[
    int | None, typer.Option(metavar="N", help="Source tokens processed at once.", show_default="the model's")
]
Device = Annotated[str, typer.Option(help="Device: auto, cpu, cuda or cuda:N.")]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Run the readable code alone, so that a change of it counts (docs/architecture.md); many times slower.",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
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


class PairFormat(OptionGroup):
    """How files of pairs are read."""

    columns: Columns = None
    from_lang: FromLang = None
    to_lang: ToLang = None
    swap: Swap = False

    @property
    def wanted(self) -> Wanted:
        """The columns and languages to read.

        Raises:
            ConfigError: If there are not exactly two columns.
        """
        from clearhead.config import DataConfig
        from clearhead.formats import Wanted

        columns = DataConfig.from_dict({"columns": self.columns}, origin="--columns").columns
        return Wanted(columns, self.from_lang, self.to_lang)


class DecodeOptions(OptionGroup):
    """Decoding, in the commands that translate.

    Raises:
        ConfigError: If a value is impossible.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        refuse_impossible_decoding(self.settings)

    source_lang: Annotated[
        str | None,
        typer.Option(
            metavar="L",
            help="Source language, such as de; its abbreviations and punctuation are used to split sentences.",
            show_default="the model's, otherwise guessed from the script",
        ),
    ] = None
    target_lang: TargetLang = None
    beam: Beam = None
    batch_tokens: BatchTokens = None
    precision: Annotated[
        DecodePrecision | None,
        typer.Option(
            help="Precision of matrix products. fp32 is the model's own precision. bf16x3 is faster on CPUs with AMX, "
            "and only near ties can be decided differently. bf16 is faster on GPUs and on CPUs with AMX or AVX-512 "
            "BF16; int8 is faster on CPUs, with the compiled core. bf16 and int8 round, so a few "
            "translations differ.",
            show_default="the model's",
        ),
    ] = None
    device: Device = "auto"
    threads: Threads = None
    split: Annotated[
        SplitChoice | None,
        typer.Option(
            help="Whether to translate a line of several sentences sentence by sentence: always, never, or auto (if "
            "the line is longer than the lines that the model was trained on).",
            show_default="the model's, usually auto",
        ),
    ] = None
    as_is: Annotated[
        bool,
        typer.Option(
            "--as-is",
            help="Translate lines as they are: do not normalize all-capital or all-lowercase lines and superfluous "
            "white space to the form of the training text.",
        ),
    ] = False

    @property
    def settings(self) -> dict[str, Any]:
        """The options as settings of `[decode]`; None keeps the model's value."""
        return {
            "beam_size": self.beam,
            "split": self.split,
            "familiar": False if self.as_is else None,
            "source_lang": self.source_lang,
            "target_lang": self.target_lang,
            "batch_tokens": self.batch_tokens,
            "precision": self.precision,
        }


class TranslatorOptions(DecodeOptions):
    """Decoding with everything that a translator can use."""

    ensemble: Ensemble = None
    shortlist: Annotated[
        bool,
        typer.Option(
            "--shortlist",
            help="Restrict output tokens to the model's shortlist, which clearhead optimize creates: faster, and a "
            "few translations differ.",
        ),
    ] = False
    workers: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=1,
            help="Number of processes that share the lines. Each loads the model, and uses a GPU of its own if there "
            "are GPUs.",
        ),
    ] = 1

    @property
    def settings(self) -> dict[str, Any]:
        """The options as settings of `[decode]`; None keeps the model's value."""
        return {**super().settings, "shortlist": self.shortlist or None}
