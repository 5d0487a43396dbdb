"""Checks before the work of a command: inputs exist, outputs can be written and overwrite no input."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.translation.translator import Translator


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user set."""
    return {name: value for name, value in options.items() if value is not None}


def refuse_impossible_decoding(settings: Mapping[str, Any]) -> None:
    """Make sure that settings of `[decode]` are possible, before a model is loaded; None is not set.

    Raises:
        ConfigError: If one is not.
    """
    from clearhead.config import DecodeConfig

    DecodeConfig().with_changes(given(**settings))


def refuse_report(report: str | None, inputs: Iterable[str], outputs: Iterable[str | None]) -> None:
    """Make sure that a report can be written and overwrites no input or output.

    Raises:
        ConfigError: If its name does not end in `.html`, or it is an output as well.
        DataError: As in `refuse_overwriting`.
    """
    if report is None:
        return
    refuse_other_than_page("--report", report, inputs)
    if any(path is not None and os.path.realpath(path) == os.path.realpath(report) for path in outputs):
        raise ConfigError(f"--report {report}: a translation goes there; name another file")


def refuse_untold_language(translator: Translator, source_lang: str | None) -> None:
    """Reject --source-lang for models without source-language tokens, if lines are not split.

    Raises:
        ConfigError: If a language is given for such a model.
    """
    if source_lang is not None and not translator.bundle.tokenizer.tells_languages:
        raise ConfigError("--source-lang has no meaning here: this model is not told the language of its source")


def refuse_missing(paths: Iterable[str]) -> None:
    """Make sure that input files exist, without reading them: a pipe can be read only once.

    Raises:
        DataError: If one is missing or is a directory, or standard input is named twice.
    """
    from clearhead.files import read_lines

    paths = list(paths)
    if paths.count("-") > 1:
        raise DataError("standard input (-) is named more than once, but it can be read only once")
    for path in paths:
        if path != "-" and (not os.path.exists(path) or os.path.isdir(path)):
            next(read_lines(path), None)  # the reader says what is wrong with it


def refuse_mixing(option: str, path: str | None, output: str) -> None:
    """Make sure that a file is not standard output, where the output of the command goes.

    Raises:
        ConfigError: If it is.
    """
    if path is not None and is_standard_output(path):
        raise ConfigError(f"{option} {path} would be mixed with the {output}; name a file")


def refuse_binary(what: str, output: str | None) -> None:
    """Make sure that what is no text goes to standard output only if asked for, and never to a terminal.

    Raises:
        ConfigError: If no output is named, or it is a terminal.
    """
    if output is None or (is_standard_output(output) and sys.stdout.isatty()):
        raise ConfigError(f"{what} is no text, which a terminal could show; name a file with -o, or -o - for a pipe")


def refuse_alignments_in_output(alignments: str | None, output: str | None, what: str) -> None:
    """Make sure that word alignments and the output are not the same file.

    Raises:
        ConfigError: If they are.
    """
    if alignments is not None and output is not None and os.path.realpath(alignments) == os.path.realpath(output):
        raise ConfigError(f"--alignments {alignments} is where the {what} go; name another file")


def refuse_other_than_page(option: str, path: str, inputs: Iterable[str] = ()) -> None:
    """Make sure that the file of a page has an extension that browsers open, and can be written.

    Raises:
        ConfigError: If its name does not end in `.html`.
        DataError: As in `refuse_overwriting`.
    """
    if is_standard_output(path) or not path.lower().endswith((".html", ".htm")):
        raise ConfigError(f"{option} {path}: the page is a file whose name ends in .html")
    refuse_overwriting(path, inputs)


def refuse_overwriting(output: str | None, inputs: Iterable[str]) -> None:
    """Make sure that the output file can be written, and is not one of the inputs.

    Raises:
        DataError: If it is one of the inputs, under any name, or cannot be written.
    """
    if output is None or is_standard_output(output):
        return
    from clearhead.files.streams import refuse_unwritable

    refuse_unwritable(output)
    for path in inputs:
        if os.path.isfile(path) and os.path.isfile(output) and os.path.samefile(output, path):
            raise DataError(f"{output} is an input as well, and would be overwritten; name another file")
