r"""JSON files of strings, such as the messages of a program: every string value at any depth is a segment; keys stay.

Where not all strings are text, keys are given below which they are. Only translated strings are rewritten. White space,
numbers, the order of keys and duplicate keys are unchanged. If all of the file is ASCII, with escapes such as `\u00e9`,
translations are escaped as well.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Sequence
from enum import Enum, auto

from clearhead.errors import ConfigError
from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText

MOST_DEPTH = 500
"""Maximum nesting depth; other programs read up to about 1,000 levels."""

_TOKEN = re.compile(
    r"""
      (?P<string>"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+)*+")
    | (?P<plain>-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?(?![\w.+-])|(?:true|false|null)(?!\w))
    | (?P<sign>[{}\[\],:])
    | (?P<end>\Z)
    """,
    re.VERBOSE,
)
_SPACE = re.compile(r"[ \t\r\n]*+")
_BEYOND_ASCII = re.compile(r"\\u(?!00[0-7])")
_ARGUMENT = re.compile(r"\$[1-9]")
_HALF_PAIR = re.compile("[\ud800-\udfff]")


class _Due(Enum):
    """Tokens that are allowed next."""

    VALUE = auto()
    VALUE_OR_END = auto()
    KEY = auto()
    KEY_OR_END = auto()
    COLON = auto()
    COMMA_OR_END = auto()
    NOTHING = auto()


_WORDS = {
    _Due.VALUE: "a value is missing",
    _Due.VALUE_OR_END: "a value or ] is missing",
    _Due.KEY: "a key in quotation marks is missing",
    _Due.KEY_OR_END: "a key in quotation marks or } is missing",
    _Due.COLON: "a colon is missing",
    _Due.COMMA_OR_END: "a comma or the closing bracket is missing",
    _Due.NOTHING: "something follows the end of the JSON value",
}


class JsonStrings(Document):
    """A JSON file; its segments are the string values without unpaired surrogates."""

    format = "JSON strings"
    unwritable = None

    def __init__(self, source: FileText, keys: Collection[str] | None = None) -> None:
        """Find the string values.

        Args:
            source: The file.
            keys: See `read_json_strings`.

        Raises:
            ConfigError: If the file has no string below one of the keys.
            DataError: If the text is not JSON, or is nested too deeply.
        """
        self._source = source
        self._spans: list[tuple[int, int]] = []
        self.segments: list[DocumentSegment] = []
        has_escapes = False
        unused = set(keys or ())
        for start, end, path in _string_values(source):
            written = source.text[start:end]
            has_escapes = has_escapes or _BEYOND_ASCII.search(written) is not None
            text = json.loads(written) if "\\" in written else written[1:-1]
            # An unpaired surrogate is no text, and an argument of a browser extension's message no amount of money.
            named = {key for key in keys or () if _is_below(path, key)}
            unused -= named
            if (named or keys is None) and not _HALF_PAIR.search(text) and not _ARGUMENT.fullmatch(text):
                self._spans.append((start, end))
                self.segments.append(self.watched(DocumentSegment(text, source.line(start))))
        if unused or (keys is not None and not keys):
            which = f"the key {sorted(unused)[0]!r}" if unused else "no key"
            raise ConfigError(f"{source.path} has no string below {which}; --keys takes names of keys, such as a,b.c")
        self._is_ascii = has_escapes and source.text.isascii()

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations in place of the strings.

        Raises:
            DataError: If a translation contains half of a surrogate pair.
        """
        return self._source.replaced(
            (*span, json.dumps(filling.text, ensure_ascii=self._is_ascii))
            for span, filling in zip(self._spans, fillings, strict=True)
            if filling is not None
        )


def read_json_strings(path: str, *, keys: Collection[str] | None = None) -> JsonStrings:
    """Read a JSON file.

    Args:
        path: The file; `-` is standard input.
        keys: Names of keys, or paths of them from any level on, such as `button.label`; only strings below one of them
            are segments. None makes all strings segments.

    Raises:
        ConfigError: If the file has no string below one of the keys.
        DataError: If the file cannot be read, is too large, is not JSON, or is nested too deeply.
    """
    return JsonStrings(FileText.read(path), keys)


def _is_below(path: Sequence[str], key: str) -> bool:
    """Return whether a value is that of a key, or within it.

    Args:
        path: Keys above the value, from the outermost on.
        key: The name of a key, or a path that ends with it.
    """
    return any(f".{'.'.join(path[:count])}".endswith(f".{key}") for count in range(1, len(path) + 1))


def _string_values(source: FileText) -> Iterator[tuple[int, int, Sequence[str]]]:
    """Yield the start and end of each string value, including its quotation marks, and the keys above it.

    Raises:
        DataError: If the text is not JSON, or is nested too deeply.
    """
    due, closing = _Due.VALUE, [""]  # `closing`: the closing brackets of all open values
    keys: list[str | None] = [None]  # for each of them, its current key; None in a list
    position = 0
    while True:
        position = _skip_space(source.text, position)
        token = _TOKEN.match(source.text, position)
        kind = token.lastgroup if token is not None else None
        sign = token[0] if token is not None else ""
        after = _Due.COMMA_OR_END if len(closing) > 1 else _Due.NOTHING
        match due, kind, sign:
            case _Due.VALUE | _Due.VALUE_OR_END, "string", _:
                assert token is not None
                yield *token.span(), [key for key in keys if key is not None]
                due = after
            case _Due.VALUE | _Due.VALUE_OR_END, "plain", _:
                due = after
            case _Due.VALUE | _Due.VALUE_OR_END, _, "{" | "[":
                closing.append("}" if sign == "{" else "]")
                keys.append(None)
                due = _Due.KEY_OR_END if sign == "{" else _Due.VALUE_OR_END
                if len(closing) - 1 > MOST_DEPTH:
                    raise source.refuse(position, f"the JSON is nested deeper than {MOST_DEPTH} levels")
            case _Due.KEY | _Due.KEY_OR_END, "string", _:
                keys[-1] = json.loads(sign)
                due = _Due.COLON
            case _Due.COLON, _, ":":
                due = _Due.VALUE
            case _Due.COMMA_OR_END, _, ",":
                due = _Due.KEY if closing[-1] == "}" else _Due.VALUE
            case _Due.COMMA_OR_END | _Due.KEY_OR_END | _Due.VALUE_OR_END, "sign", _ if sign == closing[-1]:
                closing.pop()
                keys.pop()
                due = _Due.COMMA_OR_END if len(closing) > 1 else _Due.NOTHING
            case _Due.NOTHING, "end", _:
                return
            case _:
                raise source.refuse(position, f"this is no JSON: {_problem(source.text, position, due)}")
        assert token is not None
        position = token.end()


def _skip_space(text: str, position: int) -> int:
    match = _SPACE.match(text, position)
    assert match is not None
    return match.end()


def _problem(text: str, position: int, due: _Due) -> str:
    if text[position : position + 1] == '"' and due in (_Due.VALUE, _Due.VALUE_OR_END, _Due.KEY, _Due.KEY_OR_END):
        return "a string is not closed on its line, or holds a wrong escape"
    here = text[position : position + 20].splitlines()
    return f"{_WORDS[due]}, before {here[0]!r}" if here else f"{_WORDS[due]} at the end of the file"
