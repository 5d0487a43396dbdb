"""Options that are settings take type and words from the field; other options of the same name are listed here."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, Literal

import pytest
import typer
from test_help import COMMANDS

import clearhead.config
from clearhead.cli.from_settings import option
from clearhead.cli.main import app
from clearhead.cli.options import OptionGroup, with_option_groups
from clearhead.config.words import SECTIONS, words

OF_ANOTHER_MEANING = {
    ("--alignments", "score"),  # a file to write
    ("--alignments", "translate"),
    ("--columns", "review"),  # of a table to translate
    ("--columns", "translate"),
    ("--from-lang", "review"),  # of a document
    ("--from-lang", "translate"),
    ("--to-lang", "review"),
    ("--to-lang", "translate"),
    ("--kind", "import"),  # of another library
    ("--pairs", "score"),  # one file, of which every row has to be a pair
    ("--pairs", "evaluate"),
    ("--precision", "export"),  # of the file
    ("--target", "explain"),  # a text
}
"""Options that bear the name of a setting and mean something else; the list only shrinks."""

SEVERAL_TEXTS = {
    *("--alignments", "--all", "--columns", "--compare", "--format", "--from-lang", "--keys", "--memory", "--output"),
    *("--pairs", "--precision", "--set", "--target", "--terms", "--to-lang", "--workers"),
}
"""Options that mean something else in another command; the list only shrinks."""


def settings_named(flag: str) -> list[str]:
    """Return the settings whose key a flag bears."""
    key = flag.removeprefix("--").replace("-", "_")
    classes = {section: getattr(clearhead.config, name.partition(":")[2]) for section, name in SECTIONS.items()}
    return [f"{section}.{key}" for section, one in classes.items() if key in one.model_fields]


def test_options_named_like_settings_have_their_words():
    own = {
        (parameter.opts[0], command.name)
        for command in COMMANDS
        for parameter in command.params
        if parameter.opts[0].startswith("--") and (named := settings_named(parameter.opts[0]))
        if not any(parameter.help.startswith(words(one.removeprefix("."))) for one in named)
    }
    assert own == OF_ANOTHER_MEANING, "take the words of the setting: option('section.key') of cli/from_settings.py"


def test_options_have_one_text_in_all_commands():
    texts = defaultdict(set)
    for command in COMMANDS:
        for parameter in command.params:
            if (flag := parameter.opts[0]).startswith("--"):
                of_settings = [words(one.removeprefix(".")) for one in settings_named(flag)]
                texts[flag].add(next((one for one in of_settings if parameter.help.startswith(one)), parameter.help))
    several = {flag for flag, found in texts.items() if len(found) > 1}
    assert several == SEVERAL_TEXTS


def test_words_of_settings_are_shown_whole(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "200")
    app(["train", "--help"], standalone_mode=False)
    shown = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for setting in ("data.weights", "data.alignments", "data.pairs", "train.max_minutes", "golden"):
        assert words(setting) in shown


@pytest.mark.parametrize(
    ("setting", "kind"),
    [
        ("decode.beam_size", int),
        ("decode.length_penalty", float),
        ("decode.split", Literal["auto", "always", "never"]),
        ("decode.source_lang", str),
        ("decode.familiar", bool),
        ("train.max_minutes", float),
        ("data.source", list[str]),
        ("data.columns", str),
        ("data.weights", str),
        ("data.fix", str),
    ],
)
def test_options_have_the_type_of_their_setting(setting, kind):
    assert option(setting).kind == kind


class Ways(OptionGroup):
    ways = option("decode.beam_size", "--ways", metavar="N", more="Or more.")
    plainly = option("decode.familiar", "--plainly", sets=False)
    shortlist = option("decode.shortlist")
    seed = option("sampling.seed")
    name: Annotated[str, typer.Option("--name")] = "a"


@with_option_groups
def show(ways: Ways) -> None:
    typer.echo(f"{ways.settings_of('decode')} {ways.settings_of('sampling')} {ways.ways} {ways.name}")


def test_groups_give_the_settings_of_a_section(run_command):
    unset = {"beam_size": None, "familiar": None, "shortlist": None}
    assert run_command(show).stdout == f"{unset} {{'seed': None}} None a\n"
    given = {"beam_size": 3, "familiar": False, "shortlist": True}
    arguments = ["--ways", "3", "--plainly", "--shortlist", "--seed", "0", "--name", "b"]
    assert run_command(show, *arguments).stdout == f"{given} {{'seed': 0}} 3 b\n"
    assert Ways().settings_of("decode") == unset


def test_words_of_options_are_those_of_the_setting_and_what_is_more():
    assert Ways.ways.help == f"{words('decode.beam_size')} Or more."
    assert Ways.plainly.help.startswith("Do not normalize a line to the form of the training text")
    assert (Ways.ways.show_default, Ways.seed.show_default) == ("the model's", "1")
