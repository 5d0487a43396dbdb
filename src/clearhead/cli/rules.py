"""Rules on which options of a command need or exclude each other, and the check of given options by them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import typer

from clearhead.errors import ConfigError


class Rule(NamedTuple):
    """What options need, or cannot be used with.

    Several options are separated by commas. An option with a value in lower case (`--format png`) is given if it has
    this value; a value in capitals (`--memory FILE`) is any value. A name without dashes is an argument, or a fact that
    the command finds out (`a document`).
    """

    options: str
    """The rule holds if one of these is given; empty: always."""
    needs: str = ""
    """One of these must be given; or several of them, joined by "and"."""
    excludes: str = ""
    """None of these may be given."""
    why: str = ""
    """End of the message."""


ROWS = "a file of rows"
"""Name of a file of `formats.row_files`, as a fact."""
_BOTH_SIDES = "which contains both sides"
_DRAWN = "which draws translations instead of searching for them"
_ALL_CPUS = "which uses all CPUs or GPUs of the cluster"
_MACHINE = Rule("--machine", needs="--ray ADDRESS", why="whose work has a price")
_RAY = (
    _MACHINE,
    Rule("--ray", needs="--output FILE", why="beside which finished parts are kept"),
    Rule("--ray", excludes="--threads", why=_ALL_CPUS),
)
_OF_PAIRS = Rule("--columns, --from-lang, --to-lang", needs="--pairs FILE")

RULES: Mapping[str, tuple[Rule, ...]] = {
    "translate": (
        Rule("--sample", excludes="--mbr", why="which draws samples itself, and takes the best of them"),
        Rule("--beam, --length-penalty, --diversity, --precision, --shortlist", excludes="--sample, --mbr", why=_DRAWN),
        Rule("--temperature, --epsilon, --top-k, --top-p, --seed", needs="--sample, --mbr N"),
        Rule("--align-by", needs="--alignments FILE"),
        Rule("--quality", needs="--format jsonl"),
        Rule("--nbest", excludes="--only-if", why="which leaves some lines blank"),
        Rule("--fuzzy, --reuse-from, --memory-weight", needs="--memory FILE"),
        Rule("--nbest", excludes="--memory", why="which has one translation for a line"),
        Rule("--prefix", excludes="--memory", why="whose translations are fixed"),
        Rule("--nbest, --diversity, --prefix, --alignments", excludes="a document", why="only with lines of text"),
        Rule("--columns", needs=f"a document, {ROWS}", why="for example a .csv or .jsonl file"),
        Rule("--only-missing, --retranslate", needs="a document", why="for example a .csv or .po file"),
        Rule(ROWS, excludes="more than one FILE, --format jsonl, --nbest, --paragraphs"),
        Rule("--keys", needs="a document", why="for example a .json file"),
        Rule("--skip-bad-units", needs="a document", why="for example a .tmx or .xlf file"),
        Rule("--from-lang, --to-lang", needs="a document, --memory FILE, --terms FILE"),
        Rule(
            "--plain", excludes="--terms, --diversity, --shortlist, --ensemble, --precision", why="without a plain form"
        ),
        Rule("--as-text", excludes="--paragraphs", why="which reads other units than lines"),
        _MACHINE,
        Rule("--ray", needs="--output FILE", why="beside which finished parts are kept"),
        Rule("--ray", excludes="more than one FILE, --memory, --alignments, --report, --workers, --threads"),
    ),
    "review": (Rule("--fuzzy, --reuse-from", needs="--memory FILE"),),
    "backtranslate": (
        Rule("--beam, --precision", excludes="--sample", why=_DRAWN),
        Rule("--seed", needs="--sample"),
        *_RAY,
    ),
    "distill": _RAY,
    "score": (
        Rule("--source, --target", excludes="--pairs", why=_BOTH_SIDES),
        Rule("", needs="--source FILE and --target FILE, --pairs FILE"),
        Rule("--align-by", needs="--alignments FILE"),
        Rule("--plain", excludes="--ensemble", why="without a plain form"),
        *_RAY,
        Rule("--ray", excludes="--alignments"),
        _OF_PAIRS,
    ),
    "evaluate": (
        Rule("", needs="MODEL, --hypothesis FILE"),
        Rule("more than one MODEL", needs="--sets DIR"),
        Rule("--sets", needs="MODEL"),
        Rule(
            "--sets",
            excludes="--source, --reference, --pairs, --ensemble, --compare, --gold-alignments",
            why="which is for one test set",
        ),
        Rule(
            "MODEL, --source, --ensemble, --compare, --output, --gold-alignments, --beam, --split, --as-is, "
            "--source-lang, --target-lang, --batch-tokens, --precision, --shortlist, --device, --workers",
            excludes="--hypothesis",
            why="whose translations exist already",
        ),
        Rule("--source, --reference", excludes="--pairs", why=_BOTH_SIDES),
        Rule("MODEL", needs="--source FILE and --reference FILE, --pairs FILE, --sets DIR"),
        Rule("--hypothesis", needs="--reference FILE, --pairs FILE"),
        Rule("--swap", needs="MODEL, --pairs FILE"),
        Rule("--align-by, --gold-base", needs="--gold-alignments FILE"),
        Rule("--tokenize", needs="--metric bleu"),
        Rule("--ray", needs="--sets DIR"),
        *_RAY,
        Rule("--ray", excludes="--memory, --workers"),
        _OF_PAIRS._replace(needs="--pairs FILE, --sets DIR"),
    ),
    "export": (
        Rule("--source, --target", needs="--to clearhead", why="whose translations are compared on it"),
        Rule("--target", needs="--source FILE"),
        Rule("--single-file, --module", needs="--to web"),
        Rule("--module", excludes="--single-file"),
    ),
    "api-key": (
        Rule("", needs="NAME, --list"),
        Rule("--list", excludes="NAME, --revoke, --requests-per-minute"),
        Rule("--revoke", excludes="--requests-per-minute"),
    ),
    "explain": (
        Rule("--walk", excludes="--ablate, --picture, --attribution, --compare, --compare-text"),
        Rule("--walk", needs="--format text, --format html, --format json"),
        Rule("--ablate, --picture", excludes="--compare, --compare-text"),
        Rule("--attribution, --no-attribution", needs="--format html, --format json"),
        Rule("--attribution, --no-attribution", excludes="a comparison as html", why="only as json"),
        Rule("--picture", needs="--format png, --format svg", why="whose content it selects"),
        Rule("--picture ablation", needs="--ablate", why="whose result it shows"),
        Rule("--source, --reference", needs="--ablate", why="whose test set they are"),
        Rule("--source", needs="--reference FILE"),
        Rule("--reference", needs="--source FILE"),
    ),
}


def refuse_clashes(context: typer.Context, facts: Mapping[str, Any] | None = None) -> None:
    """Make sure that the options of a command go together.

    Args:
        context: The command, with the values of its options.
        facts: What the command derived: values of options, in place of those of `context`, and other facts, if true.

    Raises:
        ConfigError: Naming the options that break the first broken rule.
    """
    given = {**_given(context), **{name: value for name, value in (facts or {}).items() if value}}
    for options, needs, excludes, why in RULES[str(context.command.name)]:
        named = [option for option in options.split(", ") if _is_given(option, given)]
        if options and not named:
            continue
        clashing = [option for option in excludes.split(", ") if _is_given(option, given)]
        if clashing:
            relation = f"cannot be used with {clashing[0]}"
        elif needs and not any(_is_given(option, given) for option in needs.split(", ")):
            either = ", or " if " and " in needs else " or "
            relation = f"{'need' if len(named) > 1 else 'needs'} {needs.replace(', ', either)}"
        else:
            continue
        raise ConfigError(f"{', '.join(named) or context.command.name} {relation}{why and ', '}{why}")


def _given(context: typer.Context) -> dict[str, Any]:
    """Return the options and arguments whose values are not their defaults, by flag or metavar."""
    given = {}
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        if not parameter.expose_value and (source := context.get_parameter_source(str(parameter.name))) is not None:
            value = source.name == "COMMANDLINE" or None
        if value not in (None, (), [], parameter.default):
            flags = parameter.secondary_opts if value is False else parameter.opts
            given[flags[0] if flags[0].startswith("-") else str(parameter.metavar)] = value
    return given


def _is_given(option: str, given: Mapping[str, Any]) -> bool:
    if " and " in option:
        return all(_is_given(part, given) for part in option.split(" and "))
    name, has_value, wanted = option.partition(" ") if option.startswith("-") else (option, "", "")
    if name not in given:
        return False
    values = given[name] if isinstance(given[name], list | tuple) else [given[name]]
    return not has_value or wanted.isupper() or wanted in values
