"""Checks before the work of a command starts, and warnings about single lines."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from clearhead.cli.console import notice
from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.translation.result import Translation
    from clearhead.translation.translator import Translator


MOST_LINES_NAMED = 10
"""Maximum line numbers in a notice; of the rest only the count is given."""


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user set."""
    return {name: value for name, value in options.items() if value is not None}


def refuse_idle_options(drawing: str | None, idle: Iterable[str], *, ways: str) -> None:
    """Refuse options of sampling in a search, and options of the search in sampling.

    Args:
        drawing: The option that selects sampling; None for a search.
        idle: Names of the given options that do not apply to it.
        ways: The options that would select sampling, for the message.

    Raises:
        ConfigError: If `idle` is not empty.
    """
    flags = ["--" + name.replace("_", "-") for name in idle]
    if not flags:
        return
    names, have = ", ".join(flags), "has" if len(flags) == 1 else "have"
    if drawing:
        raise ConfigError(f"{names} {have} no meaning with {drawing}, which draws translations and searches for none")
    raise ConfigError(f"{names} {have} no meaning without {ways}")


def refuse_report(report: str | None, inputs: Iterable[str], outputs: Iterable[str | None]) -> None:
    """Make sure that a report can be written and overwrites no input or output.

    Raises:
        ConfigError: If its name does not end in `.html`, or it is an output as well.
        DataError: As in `refuse_overwriting`.
    """
    if report is None:
        return
    refuse_other_than_page("--report", report)
    refuse_overwriting(report, inputs)
    if any(one is not None and os.path.realpath(one) == os.path.realpath(report) for one in outputs):
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


def refuse_other_than_page(option: str, path: str) -> None:
    """Make sure that the file of a page has an extension that browsers open.

    Raises:
        ConfigError: If its name does not end in `.html`.
    """
    if is_standard_output(path) or not path.lower().endswith((".html", ".htm")):
        raise ConfigError(f"{option} {path}: the page is a file whose name ends in .html")


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


def warn_of_truncation(
    translations: Iterable[Translation], translator: Translator, *, name: str, numbers: Iterable[int]
) -> None:
    """Report on stderr which lines were truncated before translation, and which translations were truncated.

    Args:
        translations: The translations of lines.
        translator: The translator that made them.
        name: File that contains the lines.
        numbers: Line numbers in the file; several segments may begin on one line.
    """
    positions = translator.model.config.max_length
    found = list(zip(numbers, translations, strict=True))
    if cut := list(dict.fromkeys(number for number, translation in found if translation.source_truncated)):
        limit = translator.decode_config({}).max_input_tokens
        source_limit = "model.max_positions" if limit == positions else "decode.max_input_tokens"
        notice(
            f"{name}, {_lines(cut)}: longer than {limit:,} tokens ({source_limit}); only the beginning is translated"
        )
    if cut := list(dict.fromkeys(number for number, translation in found if translation.output_truncated)):
        output_limit = f"decode.extra_length ({translator.bundle.decode.extra_length:,})"
        if positions is not None:
            output_limit += f" or model.max_positions ({positions:,})"
        notice(
            f"{name}, {_lines(cut)}: the translation was ended by the length limit, {output_limit}, or as a repetition "
            f"loop (decode.end_loops), not by the model"
        )


class Flagged:
    """Counts the suspicious translations of a file, and reports them on stderr."""

    def __init__(self, name: str) -> None:
        """Start counting for a file."""
        self._name = name
        self._counts: Counter[str] = Counter()
        self._first: defaultdict[str, list[int]] = defaultdict(list)
        self._last: dict[str, int] = {}
        self._num_lines: Counter[str] = Counter()

    def add(self, translations: Iterable[Translation], *, numbers: Iterable[int]) -> None:
        """Count the translations of lines, or of segments that begin on them; line numbers must ascend."""
        for number, translation in zip(numbers, translations, strict=True):
            for flag in translation.warnings:
                self._counts[flag.kind] += 1
                if self._last.get(flag.kind) == number:
                    continue  # another segment of the same line
                self._last[flag.kind] = number
                self._num_lines[flag.kind] += 1
                if len(self._first[flag.kind]) < MOST_LINES_NAMED:
                    self._first[flag.kind].append(number)

    def tell(self) -> None:
        """Report for each kind its number of lines, the first line numbers and its meaning; then reset the counts."""
        from clearhead.text.quality_flags import KINDS

        for kind, meaning in KINDS.items():
            if count := self._counts[kind]:
                lines = _lines(self._first[kind], self._num_lines[kind])
                notice(f"{self._name}: {count:,} with {kind} ({meaning}): {lines}")
        self._counts.clear()
        self._num_lines.clear()
        self._first.clear()
        self._last.clear()


def _lines(numbers: Sequence[int], count: int | None = None) -> str:
    """Return the first line numbers as text, and how many more there are of `count` (default: of those given)."""
    count = len(numbers) if count is None else count
    named = ", ".join(map(str, numbers[:MOST_LINES_NAMED]))
    more = count - MOST_LINES_NAMED
    return f"line{'s' if count > 1 else ''} {named}" + (f" and {more:,} more" if more > 0 else "")
