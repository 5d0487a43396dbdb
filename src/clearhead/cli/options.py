"""Arguments and options shared by several commands; groups of options as classes, and their decorator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import copy
from functools import cache, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer
from typer.models import OptionInfo

from clearhead.cli.checks import refuse_impossible_decoding
from clearhead.cli.console import notice
from clearhead.cli.from_settings import SettingOption, option
from clearhead.config.choices import AlignBy as AlignByChoice
from clearhead.text.languages import is_known_language

if TYPE_CHECKING:
    from clearhead.formats import Wanted


MEMORY_FILE = "a .tmx or any other file of pairs, or a .sqlite file of `corpus convert`"
"""What may be a translation memory, for the help of `--memory`."""


class OptionGroup:
    """Options of a command, as attributes: `option(..)` of a setting, `typer.Option(default, ..)`, or annotated.

    Making a dataclass of them takes half a millisecond.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update({**{parameter.name: parameter.default for parameter in self.parameters()}, **values})

    @classmethod
    @cache
    def parameters(cls) -> Sequence[inspect.Parameter]:
        """Return the options as parameters of a command."""
        hints, options = get_type_hints(cls, include_extras=True), dict[str, tuple[Any, Any]]()
        for name, value in _attributes(cls).items():
            match value:
                case SettingOption():
                    options[name] = value.unset, Annotated[value.kind | None, value]
                case OptionInfo():
                    option, default = copy(value), value.default
                    option.default = ...  # as typer has it in an annotation
                    options[name] = default, Annotated[hints[name], option]
                case _ if name in hints:
                    options[name] = value, hints[name]
        return [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=hint)
            for name, (default, hint) in options.items()
        ]

    def settings_of(self, section: str) -> dict[str, Any]:
        """Return the settings of a section that are options here; None was not given."""
        options = {name: flag for name, flag in _attributes(type(self)).items() if isinstance(flag, SettingOption)}
        keys = {name: flag.setting.rpartition(".") for name, flag in options.items()}
        return {key: options[name].value(getattr(self, name)) for name, (of, _, key) in keys.items() if of == section}


def _attributes(cls: type) -> dict[str, Any]:
    return {name: value for kind in reversed(cls.__mro__) for name, value in vars(kind).items()}


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take options in groups: typer knows single options alone."""
    parameters: list[inspect.Parameter] = []
    groups: dict[str, tuple[type[OptionGroup], list[str]]] = {}
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not (isinstance(group, type) and issubclass(group, OptionGroup)):
            parameters.append(parameter.replace(kind=parameter.KEYWORD_ONLY))
            continue
        options = group.parameters()
        groups[parameter.name] = group, [flag.name for flag in options]
        parameters += options

    @wraps(command)
    def run_command(**values: Any) -> None:
        for name, (group, options) in groups.items():
            values[name] = group(**{option: values.pop(option) for option in options if option in values})
        command(**values)

    run_command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_command


def _use_threads(count: int | None) -> int | None:
    if count is not None:
        from clearhead.runtime.threads import set_num_threads

        set_num_threads(count)
    return count


OUTPUT = ("--output", "-o", "--out")
"""Names of the option for the file or directory that a command writes, the same in every command."""

MACHINE = "TOML file that describes a device (docs/scaling.md)."

REFERENCE = "Reference translations, aligned line by line with the source."

Model = Annotated[
    Path, typer.Argument(metavar="MODEL", help="Model directory, or run directory that contains a model.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object instead of text.")]
Force = Annotated[bool, typer.Option("--force", help="Replace an existing model or export at the output.")]
NewModel = Annotated[Path, typer.Option(*OUTPUT, help="Model directory to write.", show_default=False)]
SourceFile = Annotated[str | None, option("data.source", metavar="FILE")]
TargetFile = Annotated[str | None, option("data.target", metavar="FILE")]
ReferenceFile = Annotated[str | None, typer.Option(metavar="FILE", help=REFERENCE)]
AlignBy = Annotated[AlignByChoice | None, option("decode.align_by")]
Ensemble = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="MODEL2",
        help="Another model with the same vocabulary, to translate with the mean of all models' probabilities; "
        "may be repeated. The decoding settings are MODEL's.",
        show_default=False,
    ),
]
Device = Annotated[str, option("device")]
Sample = Annotated[
    bool,
    typer.Option(
        "--sample",
        help="Draw translations at random instead of searching; in large amounts they make better back-translations.",
    ),
]
Plain = Annotated[bool, option("train.plain")]
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

    columns = option("data.columns", metavar="A,B", show_default="as defined by the file, otherwise the first two")
    from_lang = option("data.from_lang", metavar="L")
    to_lang = option("data.to_lang", metavar="L")
    swap = option("data.swap")

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        for flag, language in (("--from-lang", self.from_lang), ("--to-lang", self.to_lang)):
            if language is not None and not is_known_language(language):
                notice(f"{flag} {language}: Unicode CLDR knows no such language; the code is used as it is")

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


class DecodeSettings(OptionGroup):
    """Options that are settings of `[decode]`, possibly of sampling.

    Raises:
        ConfigError: If a value is impossible.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        refuse_impossible_decoding(self.settings)

    @property
    def settings(self) -> dict[str, Any]:
        """The options as settings of `[decode]`; None keeps the model's value."""
        return self.settings_of("decode")


class Languages(DecodeSettings):
    """The languages of lines that are not split."""

    source_lang = option("decode.source_lang", metavar="L", more="Lines are not split here: for such models only.")
    target_lang = option("decode.target_lang", metavar="L")


class BatchOptions(Languages):
    """The languages of lines that are not split, and how many are processed at once."""

    batch_tokens = option("decode.batch_tokens", metavar="N")


class DecodeOptions(DecodeSettings):
    """Decoding, in the commands that translate."""

    beam = option("decode.beam_size", "--beam", metavar="K")
    split = option("decode.split")
    as_is = option("decode.familiar", "--as-is", sets=False)
    source_lang = option(
        "decode.source_lang", metavar="L", show_default="the model's, otherwise guessed from the script"
    )
    target_lang = option("decode.target_lang", metavar="L")
    batch_tokens = option("decode.batch_tokens", metavar="N")
    precision = option("decode.precision")
    device: Device = "auto"
    threads: Threads = None


class TranslatorOptions(DecodeOptions):
    """Decoding with everything that a translator can use."""

    ensemble: Ensemble = None
    shortlist = option("decode.shortlist")
    workers: int = typer.Option(
        1,
        metavar="N",
        min=1,
        help="Number of processes that share the lines. Each loads the model, and uses a GPU of its own if there "
        "are GPUs.",
    )
