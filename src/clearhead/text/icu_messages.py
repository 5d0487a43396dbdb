"""ICU messages with branches (`plural`, `select`): extract their words, and write translations in their place.

An example is `{n, plural, one {# file} other {# files}}`. The grammar is that of ICU's class MessageFormat ("Patterns
and Their Interpretation"). Arguments are in braces. The branches of `plural`, `selectordinal` and `select` arguments
are messages in turn. Within a plural, `#` is the number. An apostrophe quotes braces, and two apostrophes are one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MOST_DEPTH = 50
"""Maximum nesting of branches; a deeper message is treated as text."""

_MAY_BRANCH = re.compile(r",\s*(?:plural|selectordinal|select)\s*,")
_ARGUMENT = re.compile(r"\{\s*(?:[^\W\d]\w*|\d+)\s*(?:,\s*(\w+)\s*(,)?)?")
_OFFSET = re.compile(r"\s*offset\s*:\s*\d+(?=\s)")
_SELECTOR = re.compile(r"\s*(=\d+|[^\W\d][\w-]*)\s*\{")
_END = re.compile(r"\s*\}")
_BRANCHING = {"plural": True, "selectordinal": True, "select": False}
"""Kinds of arguments with branches, and whether `#` is the number within their branches."""
_QUOTATION = re.compile(r"'((?:[^']++|'')*+)'?")
_BRACED = re.compile(r"\{[^{}]*\}")
_NAME = re.compile(r"\{\w+\}")


class _NoMessageError(Exception):
    """The text is not a message with branches."""


@dataclass(frozen=True, slots=True)
class MessageRun:
    """A run of words in a message, without branches, including its simple arguments."""

    start: int
    """Position of its beginning in the message."""
    end: int
    text: str
    """The run without quoting; each argument is a name in braces."""
    arguments: Mapping[str, str]
    """Names in braces to the original text of each argument."""
    is_counted: bool
    """Whether `#` is a number in this run."""
    doubles_apostrophes: bool
    """Whether the message doubles every apostrophe, as some parsers require."""

    def written(self, translation: str, line: str) -> str | None:
        """Return a translation as written in the message; None if its arguments differ from those of the line.

        What is written is read again: it is None too if it is not read as the translation.

        Args:
            translation: Translation of a line of the run.
            line: The line.
        """
        if Counter(_BRACED.findall(translation)) != Counter(_BRACED.findall(line)):
            return None
        originals, words = self.originals(translation), _BRACED.split(translation)
        written = self._quoted(words[0])
        written += "".join(original + self._quoted(word) for original, word in zip(originals, words[1:], strict=True))
        return written if self._is_read_as(written, words, originals) else None

    def originals(self, words: str) -> list[str]:
        """Return the original texts of the arguments in words of the run, in order."""
        return [self.arguments[name] for name in _BRACED.findall(words)]

    def _quoted(self, words: str) -> str:
        """Return words with the stretches that begin with a sign of the syntax quoted, apostrophes in them included."""
        signs = "{}#" if self.is_counted else "{}"
        lone = "'" if self.doubles_apostrophes else rf"'(?=['{signs}]|$)"

        def quoted(match: re.Match[str]) -> str:
            doubled = match[0].replace("'", "''")
            return f"'{doubled}'" if match[1] else doubled

        return re.sub(rf"([{signs}][{signs}']*)|{lone}", quoted, words)

    def _is_read_as(self, written: str, words: Sequence[str], originals: Sequence[str]) -> bool:
        """Return whether a text is read as the given words with the original arguments between them."""
        kind = "plural" if self.is_counted else "select"
        try:
            runs = _Reading(f"{{n, {kind}, other {{{written}}}}}", keeps_braces=True).runs
        except _NoMessageError:
            return False
        read = [(_BRACED.split(run.text), run.originals(run.text)) for run in runs]
        return read == [(words, originals)] if written else not any(words)


def message_runs(text: str) -> list[MessageRun]:
    """Return the runs of words of a message with branches, in order; empty if the text is not such a message.

    >>> [run.text for run in message_runs("{n, plural, one {# file} other {# files}} in {place}")]
    ['{n1} file', '{n1} files', ' in {place}']
    """
    if not _MAY_BRANCH.search(text):
        return []
    try:
        return _Reading(text).runs
    except _NoMessageError:
        return []


def message_syntax(text: str) -> tuple[str, ...]:
    """Return everything but the words of a message with branches, which a translation must keep exactly.

    >>> message_syntax("{n, plural, one {# file} other {# files}}")
    ('{n, plural, one {', '#', '} other {', '#', '}}')
    """
    parts, at = [], 0
    for run in message_runs(text):
        parts += [text[at : run.start], *sorted(run.originals(run.text))]
        at = run.end
    return tuple(part for part in (*parts, text[at:]) if part) if at else ()


class _Reading:
    """Parser of a message with branches.

    Raises:
        _NoMessageError: If the text is not a message, or has no branches.
    """

    def __init__(self, text: str, *, keeps_braces: bool = False) -> None:
        """Parse a message.

        Args:
            text: The message.
            keeps_braces: Whether quoted braces become words, which then look like those of an argument.
        """
        self.runs: list[MessageRun] = []
        self._text, self._keeps_braces = text, keeps_braces
        taken, most = set(_NAME.findall(text)), text.count("{") + text.count("#")
        self._new_names = [name for number in range(1, most + 1) if (name := f"{{n{number}}}") not in taken]
        self._doubles = not re.search(r"(?<!')'(?!['{}#|])", text)
        self._has_branches = False
        if self._message(0, 0, is_counted=False) != len(text) or not self._has_branches:
            raise _NoMessageError

    def _message(self, at: int, depth: int, *, is_counted: bool) -> int:
        """Parse a message up to its end, or to the closing brace of its branch, and return that position."""
        if depth > MOST_DEPTH:
            raise _NoMessageError
        start, words, names = at, "", iter(self._new_names)
        arguments: dict[str, str] = {}
        while at < len(self._text) and self._text[at] != "}":
            sign = self._text[at]
            if sign == "'":
                at, literal = self._quotation(at, is_counted=is_counted)
                words += literal
            elif sign == "{":
                end, is_branching = self._argument(at)
                if is_branching:
                    self._add(start, at, words, arguments, is_counted=is_counted)
                    at = self._branches(at, depth, is_counted=is_counted)
                    start, words, names, arguments = at, "", iter(self._new_names), {}
                else:
                    words += self._named(self._text[at:end], names, arguments)
                    at = end
            elif sign == "#" and is_counted:
                words += self._named("#", names, arguments)
                at += 1
            else:
                words += sign
                at += 1
        self._add(start, at, words, arguments, is_counted=is_counted)
        return at

    def _add(self, start: int, end: int, words: str, arguments: dict[str, str], *, is_counted: bool) -> None:
        if words:
            self.runs.append(MessageRun(start, end, words, arguments, is_counted, self._doubles))

    def _quotation(self, at: int, *, is_counted: bool) -> tuple[int, str]:
        """Return the position after an apostrophe or the quotation that it opens, and the literal text."""
        following = self._text[at + 1 : at + 2]
        if following == "'":
            return at + 2, "'"
        if not following or following not in ("{}#" if is_counted else "{}"):
            return at + 1, "'"
        match = _QUOTATION.match(self._text, at)
        assert match is not None
        return match.end(), self._plain(match[1].replace("''", "'"))

    def _plain(self, words: str) -> str:
        """Return quoted words; raise if they contain braces."""
        if not self._keeps_braces and ("{" in words or "}" in words):
            raise _NoMessageError  # unquoted, they would look like an argument
        return words

    def _named(self, original: str, names: Iterator[str], arguments: dict[str, str]) -> str:
        """Return a name in braces for an argument: its own if it has this form, else a new one."""
        name = original if _NAME.fullmatch(original) else next(names)
        arguments[name] = original
        return name

    def _argument(self, at: int) -> tuple[int, bool]:
        """Return the end of an argument and False; or, if it has branches, the start of these and True."""
        match = _ARGUMENT.match(self._text, at)
        if match is None:
            raise _NoMessageError
        if match[1] in _BRANCHING and match[2]:
            return match.end(), True
        end = self._text.find("}", match.end())
        if end < 0 or "{" in self._text[match.end() : end] or (match[1] is None and self._text[match.end() : end]):
            raise _NoMessageError
        return end + 1, False

    def _branches(self, at: int, depth: int, *, is_counted: bool) -> int:
        """Parse an argument with branches, and return its end."""
        match = _ARGUMENT.match(self._text, at)
        assert match is not None
        self._has_branches = True
        counts = _BRANCHING[match[1]]
        at = match.end()
        if counts and (offset := _OFFSET.match(self._text, at)):
            at = offset.end()
        selectors = set()
        while not (end := _END.match(self._text, at)):
            selector = _SELECTOR.match(self._text, at)
            if selector is None:
                raise _NoMessageError
            selectors.add(selector[1])
            at = self._message(selector.end(), depth + 1, is_counted=counts or is_counted)
            if not self._text.startswith("}", at):
                raise _NoMessageError
            at += 1
        if "other" not in selectors:
            raise _NoMessageError
        return end.end()
