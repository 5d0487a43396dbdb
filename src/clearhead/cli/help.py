"""Commands of typer with our help, in panels and for any width, and our message on arguments that they do not take."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from clearhead.cli.console import notice

PANELS = {
    "Files of pairs": "--columns --from-lang --to-lang --swap --weights --corrections",
    "Validation, test and general text": "--valid-source --valid-target --valid-pairs --test-source --test-target "
    "--test-pairs --general-source --general-target --general-pairs",
    "Metrics": "--metric --tokenize --lowercase",
    "Search": "--beam --length-penalty --nbest --diversity --prefix --sample --mbr --temperature --epsilon --top-k "
    "--top-p --seed",
    "Terms and memory": "--terms --memory --fuzzy --reuse-from --memory-weight",
    "Documents": "--paragraphs --skip-bad-units --only-missing",
    "Speed": "--batch-tokens --precision --shortlist --device --threads --workers --ray",
    "More": "--split --as-is --protect-numbers --ensemble --report --alignments --align-by --gold-alignments "
    "--gold-base --ablate --compare-text --golden",
}
"""Panels, in this order, behind the arguments and basic options; an option may name another one of them itself."""

INPUTS = ("--source", "--target", "--reference", "--hypothesis", "--pairs")
"""Options that name input files."""

MOST_WITHOUT_PANELS = 10
"""Maximum arguments and options of a command whose help needs no panels."""


class Command(TyperCommand):
    """A command that says which option an unexpected argument belongs to.

    Its help has panels if it has many options, and every paragraph on one line unless it is indented.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        """Make a command as typer does."""
        super().__init__(*arguments, **named)
        paragraphs = (self.help or "").split("\n\n")
        self.help = "\n\n".join(text if "\n " in text else text.replace("\n", " ") for text in paragraphs)
        parameters: Any = self.params
        if len(parameters) <= MOST_WITHOUT_PANELS:
            return
        panels = {flag: panel for panel, flags in PANELS.items() for flag in flags.split()}
        for parameter in parameters:
            parameter.rich_help_panel = parameter.rich_help_panel or panels.get(parameter.opts[0])
        order = [None, *PANELS]
        parameters.sort(key=lambda parameter: order.index(parameter.rich_help_panel))

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Parse arguments.

        Raises:
            typer.Exit: With status 2, after a message, if there are arguments that the command does not take.
        """
        given, unexpected, _ = self.make_parser(ctx).parse_args(args=list(args))
        asks_help = given.get("help") or ctx.resilient_parsing
        if not asks_help and (advice := _advice(self.params, given, unexpected)) is not None:
            words, advised = advice
            notice(f"unexpected argument{'s' if len(words) > 1 else ''} {' '.join(words)}: {advised}")
            raise typer.Exit(2)
        return super().parse_args(ctx, args)


def _advice(parameters: Sequence[Any], given: Mapping[str, Any], unexpected: list[str]) -> tuple[list[str], str] | None:
    """Return the arguments that a command does not take, and how to give them; None if there are none.

    The last of several input files is unexpected too, if it does not exist and may be the output, which is not named.
    """
    flags = {flag: parameter for parameter in parameters for flag in parameter.opts}
    arguments = [parameter for parameter in parameters if parameter.param_type_name == "argument"]
    output = flags.get("-o")
    if output is not None and given.get(output.name) is not None:
        output = None
    if not unexpected:
        many = next(
            (arg.name for arg in arguments if arg.nargs == -1 and not (arg.metavar or "").endswith(("OUT", "MODEL"))),
            "",
        )
        *others, last = given.get(many) or [""]
        if output is None or not others or last == "-" or os.path.exists(last):
            return None
        if not last.endswith(Path(output.metavar or "").suffix):
            return None
        return [last], f"name the output with -o {shlex.quote(last)} (it is no input, for it does not exist)"
    inputs = [flag for flag in INPUTS if flag in flags]
    names = [arg.metavar or arg.name.upper() for arg in arguments]
    if "TEXT" in names and not Path(unexpected[-1]).suffix:
        return unexpected, "put the text in quotation marks"
    if output is not None and len(unexpected) == 1 and not os.path.isfile(unexpected[0]):
        return unexpected, f"name the output with -o {shlex.quote(unexpected[0])}"
    if inputs:
        return unexpected, f"name files with {', '.join(inputs[:-1])} or {inputs[-1]}"
    return unexpected, f"this command takes {' and '.join([*names, 'options'])} alone"
