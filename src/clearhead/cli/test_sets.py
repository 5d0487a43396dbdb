"""Test sets of `clearhead evaluate --sets`: found in a directory and read whole, before anything is translated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from clearhead.cli.console import notice
from clearhead.errors import ClearheadError, ConfigError, DataError

if TYPE_CHECKING:
    from clearhead.cli.pairs import GivenPairs, PairOptions

_SHOWN = 5
"""Files or languages named in a message."""

Languages = tuple[Sequence[str], Sequence[str]]
"""Source and target languages of a model; empty where they are unknown."""


class EvaluationSet(NamedTuple):
    """A test set."""

    name: str
    """Name of its file; of two files the part before their languages."""
    files: list[str]
    given: GivenPairs


def refuse_other_than_table(output: str | None, directory: Path) -> None:
    """Make sure that a table can be written as its name asks, and is no test set of the next evaluation.

    Raises:
        ConfigError: If not.
    """
    if output is None:
        return
    if not output.lower().endswith((".csv", ".html", ".htm")):
        raise ConfigError(f"--output {output}: with --sets the table is written, as .csv or .html")
    if Path(output).resolve().parent == directory.resolve():
        raise ConfigError(f"--output {output}: it would be in the directory of the test sets; name another one")


def read_sets(directory: Path, options: PairOptions, models: Sequence[Path]) -> list[EvaluationSet]:
    """Read all test sets of a directory, sorted by name.

    Args:
        directory: Its files are read, those in folders are not.
        options: How pairs are read. The direction of two files is theirs, otherwise that of the first model.
        models: Models whose languages, where both are known, the sets must be in.

    Raises:
        DataError: If there is no set, or some cannot be used: one line for each, naming the file.
        ModelError: If a model is missing or damaged.
    """
    from clearhead.bundle import read_languages

    languages = {path: read_languages(path) for path in models}
    sets, problems = list[EvaluationSet](), list[str]()
    found = _found(directory)
    for name, files in found.items():
        try:
            sets.append(_read(name, files, options, languages))
        except ClearheadError as error:
            problems.append(f"  {error}")
    if problems:
        head = f"{len(problems)} of {len(found)} test sets cannot be used, and nothing was translated:"
        raise DataError("\n".join([head, *problems]))
    return sets


def _found(directory: Path) -> dict[str, str | dict[str, str]]:
    """Return the files of pairs of a directory, and those of one language by name and language."""
    from clearhead.files import os_error_as
    from clearhead.formats import holds_pairs, language_in_name
    from clearhead.text.lines import first_few

    found, others = dict[str, str | dict[str, str]](), list[str]()
    with os_error_as(DataError, f"cannot read {directory}"):
        paths = sorted(path for path in directory.iterdir() if not path.name.startswith("."))
    for path in paths:
        try:
            is_whole = holds_pairs(str(path))
        except DataError:  # its reader says what is wrong with it
            is_whole = True
        language = language_in_name(path.name) if path.is_file() else None
        if is_whole:
            found[path.name] = str(path)
        elif language is None:
            others.append(path.name)
        else:
            sides = found.setdefault(path.name[: path.name.lower().rindex(f".{language}")], {})
            if not isinstance(sides, dict) or language in sides:
                raise DataError(f"{path}: another file has the same side of this test set; remove one of them")
            sides[language] = str(path)
    if others:
        notice(f"{directory}: left out, by their names no test sets: {first_few(others, _SHOWN)}")
    if not found:
        raise DataError(f"{directory} holds no test set: a file of pairs, or two files such as news.de and news.en")
    return found


def _read(
    name: str, files: str | Mapping[str, str], options: PairOptions, models: Mapping[Path, Languages]
) -> EvaluationSet:
    from clearhead.formats.languages import without_region
    from clearhead.text.lines import first_few

    if isinstance(files, str):
        own = copy(options)
        own.pairs = files
        paths, given = [files], own.read(None, None)
    else:
        paths = list(_sides(files, options, next(iter(models.values()))))
        given = options.read(*paths)
    if not given.pairs:
        raise DataError(f"{' and '.join(paths)}: no pairs to translate")
    for model, known in models.items():
        for side, language, of_model in zip(("from", "into"), given.languages, known, strict=True):
            if language and of_model and without_region(language) not in map(without_region, of_model):
                theirs = first_few(of_model, _SHOWN)
                raise DataError(f"{' and '.join(paths)}: {side} {language}, but {model} translates {side} {theirs}")
    return EvaluationSet(name, paths, given)


def _sides(files: Mapping[str, str], options: PairOptions, model: Languages) -> tuple[str, str]:
    """Return the files of source and target, before they are exchanged by `--swap`."""
    from clearhead.formats.languages import without_region

    known = [languages[0] if len(languages) == 1 else None for languages in model]
    of_model = known[::-1] if options.swap else known
    wanted = [asked or own for asked, own in zip((options.from_lang, options.to_lang), of_model, strict=True)]
    sides = [language and files.get(without_region(language)) for language in wanted]
    if len(files) == 2 and sum(map(bool, sides)) == 1 and not all(wanted):  # the other is the only one left
        sides = [side or next(file for file in files.values() if file not in sides) for side in sides]
    match sides:
        case [str(source), str(target)] if source != target:
            return source, target
    there = " and ".join(files.values())
    if len(files) == 1:
        raise DataError(f"{there}: the file of the other language is missing")
    if all(wanted):
        raise DataError(f"{there}: the languages to read are {wanted[0]} and {wanted[1]}")
    raise DataError(f"{there}: which is the source? Name the languages with --from-lang and --to-lang")
