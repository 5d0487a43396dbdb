"""The help of a command: its options in panels, and its text for a terminal of any width."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

PANELS = {
    "Files of pairs": "--columns --from-lang --to-lang --swap --weights",
    "Validation, test and general text": "--valid-source --valid-target --valid-pairs --test-source --test-target "
    "--test-pairs --general-source --general-target --general-pairs",
    "Metrics": "--metric --tokenize --lowercase",
    "Search": "--beam --length-penalty --nbest --diversity --prefix --sample --mbr --temperature --epsilon --top-k "
    "--top-p --seed",
    "Terms and memory": "--terms --memory --fuzzy",
    "Documents": "--paragraphs --only-missing",
    "Speed": "--batch-tokens --precision --shortlist --device --threads --workers",
    "More": "--split --as-is --protect-numbers --ensemble --report --alignments --align-by --gold-alignments "
    "--gold-base --ablate --compare-text --golden",
}
"""Panels, in this order, behind the arguments and basic options; an option may name another one of them itself."""

MOST_WITHOUT_PANELS = 10
"""Maximum arguments and options of a command whose help needs no panels."""


class Command(TyperCommand):
    """A command whose help has panels if it has many options, and every paragraph on one line unless it is indented."""

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
