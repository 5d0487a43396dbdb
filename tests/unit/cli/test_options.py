"""The options of a command in groups."""

from __future__ import annotations

from typing import Annotated

import typer

from clearhead.cli.options import OptionGroup, PairFormat, with_option_groups


class Words(OptionGroup):
    word: Annotated[str, typer.Option("--word")] = "a"
    is_loud: Annotated[bool, typer.Option("--loud")] = False
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


def test_unknown_language_code_is_noticed_and_used(capsys):
    assert PairFormat(from_lang="xx", to_lang="pt-BR").wanted.from_lang == "xx"
    assert capsys.readouterr().err == (
        "clearhead: --from-lang xx: Unicode CLDR knows no such language; the code is used as it is\n"
    )
