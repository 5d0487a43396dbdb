"""The rules which options go together."""

from __future__ import annotations

import re

import pytest
import typer

from clearhead.cli.evaluate import evaluate
from clearhead.cli.main import app
from clearhead.cli.rules import ROWS, RULES
from clearhead.errors import ConfigError

COMMANDS = typer.main.get_command(app).commands
FACTS = {"a document", ROWS, "a comparison as html", "more than one FILE", "more than one MODEL"}
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
