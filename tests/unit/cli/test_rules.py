"""The rules which options go together, and the options of a command in groups."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer

from clearhead.cli.evaluate import evaluate
from clearhead.cli.main import app
from clearhead.cli.options import MORE, SEARCH, with_option_groups
from clearhead.cli.rules import RULES
from clearhead.errors import ConfigError

COMMANDS = typer.main.get_command(app).commands
FACTS = {"a document", "a comparison as html"}
"""What the commands find out themselves."""


@pytest.mark.parametrize("command", RULES)
def test_rules_name_options_that_the_command_has(command):
    names = set(FACTS)
    for parameter in COMMANDS[command].params:
        names |= {*parameter.opts, *parameter.secondary_opts, parameter.metavar}
    for rule in RULES[command]:
        assert bool(rule.needs) != bool(rule.excludes), rule
        for option in re.split(", | and ", f"{rule.options}, {rule.needs or rule.excludes}".removeprefix(", ")):
            assert (option.split()[0] if option.startswith("-") else option) in names, rule


@dataclass(frozen=True)
class Words:
    word: Annotated[str, typer.Option("--word", rich_help_panel=MORE)] = "a"
    is_loud: Annotated[bool, typer.Option("--loud", rich_help_panel=SEARCH)] = False
    threads: Annotated[int, typer.Option("--threads", expose_value=False)] = 1


@with_option_groups
def translate(
    context: typer.Context,
    model: Annotated[str, typer.Argument(metavar="MODEL")],
    *,
    words: Words,
    count: Annotated[int, typer.Option("--count")] = 1,
) -> None:
    """Say a word."""
    typer.echo(f"{model} {words.word} {words.is_loud} {words.threads} {count} {context.command.name}")


def test_a_command_gets_its_options_in_groups(run_command):
    assert run_command(translate, "m").stdout == "m a False 1 1 translate\n"
    assert run_command(translate, "--word", "b", "--loud", "--count", 3, "--threads", 9, "m").stdout == (
        "m b True 1 3 translate\n"
    )


def test_the_help_shows_the_options_of_groups_by_panel(run_command):
    shown = re.findall(r"(--(?!help)\w+|─ \w+)", run_command(translate, "--help").stdout)
    assert shown == ["─ Arguments", "─ Options", "--threads", "--count", "─ Search", "--loud", "─ More", "--word"]


def test_values_that_are_the_defaults_break_no_rule(run_command, write_lines):
    hypotheses = ["--hypothesis", write_lines("h", "a"), "--reference", write_lines("r", "a")]
    given = [*hypotheses, "--device", "auto", "--workers", "1"]
    assert "BLEU" in run_command(evaluate, *given).stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--retranslate"], "--retranslate needs a document, for example a .csv or .po file"),
        (["--seed", "0", "--top-k", "3"], "--top-k, --seed need --sample or --mbr N"),
        (["--fuzzy", "0"], "--fuzzy needs --memory FILE"),
    ],
)
def test_a_value_that_is_false_is_given(write_lines, options, message):
    with pytest.raises(ConfigError, match=message):
        app(["translate", "none", str(write_lines("in.txt", "x")), *options], standalone_mode=False)
