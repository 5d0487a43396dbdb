"""Format strings by the rules of gettext's flags, such as `c-format`: arguments, comparison, and reordered arguments.

The rules are those of `msgfmt --check-format` (gettext-tools/src/format-*.c): a translation must use the arguments of
its source, with the same types, and be valid itself. A source that is not valid is not compared. Of languages without
rules here, such as Lisp and Perl, the formats must stay as they are, in the same order. `icu-format` is no flag of
gettext: it is that of messages of ICU without branches.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count

Key = int | str
"""Number of an argument, counted from 1, or its name."""
Arguments = Mapping[Key, str]
"""Types of the arguments of a text; empty if the language has none."""


class _InvalidError(Exception):
    """The text is not valid in its format; the message says why."""


def _types(**conversions: str) -> dict[str, str]:
    return {letter: kind.replace("_", " ") for kind, letters in conversions.items() for letter in letters}


@dataclass(frozen=True, slots=True)
class _Printf:
    """A language whose formats begin with a percent sign."""

    types: Mapping[str, str]
    """Conversions, with the types of their arguments; empty for those without one."""
    flags: str = r"[-+ #0]*+"
    sizes: str = ""
    """Pattern of the sizes before a conversion, which are part of the type."""
    width: str = r"[0-9]++|\*"
    is_numbered: bool = True
    """Whether `%1$s` is the first argument."""
    is_named: bool = False
    """Whether `%(name)s` is a named argument."""
    has_sized_types: bool = False
    """Whether `%ld` has another type than `%d`."""
    may_skip: bool = False
    """Whether a text may use the second argument without the first."""
    may_mix: bool = False
    """Whether some arguments may have a number and others none."""
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self) -> None:
        number = r"(?:([0-9]{1,6})\$)?+" if self.is_numbered else "()"
        name = r"(?:\(([^()]*+)\))?+" if self.is_named else "((?!))?"
        width = rf"({self.width})?+(?:\.({self.width})?+)?+"
        pattern = rf"%{number}{name}{self.flags}{width}({self.sizes})(<PRI[a-zA-Z0-9]++>|.?)"
        object.__setattr__(self, "pattern", re.compile(pattern, re.DOTALL))

    def __call__(self, text: str) -> Arguments:
        kinds: dict[Key, str] = {}
        ways: set[type | None] = set()
        numbers = count(1)
        for key, kind in self._arguments(text):
            ways.add(None if key is None else type(key))
            place = next(numbers) if key is None else key
            if kinds.setdefault(place, kind) != kind:
                raise _InvalidError(f"argument {place} is {kinds[place]} and {kind}")
        if len(ways) > 1 and not self.may_mix:
            raise _InvalidError("some arguments have a number or a name, and others have none")
        if int in ways and not self.may_skip and (unused := set(range(1, len(kinds) + 1)).difference(kinds)):
            raise _InvalidError(f"argument {min(unused)} is not used")
        return kinds

    def _arguments(self, text: str) -> Iterator[tuple[Key | None, str]]:
        """Yield number or name, if any, and type of every argument in the order of the text."""
        for match in self.pattern.finditer(text):
            number, name, *widths, size, conversion = match.groups()
            if conversion == "%" and not name:
                continue
            for star in widths:
                if star and star[0] == "*":
                    yield int(star[1:-1]) if star[1:] else None, "integer"
            if kind := self._type(match[0], size, conversion):
                yield (int(number) if number else name), kind

    def _type(self, directive: str, size: str, conversion: str) -> str:
        if len(conversion) > 1:  # a macro of C, such as <PRIu64>
            return f"{self.types['d' if conversion[4] in 'di' else 'u']} {conversion[5:-1]}"
        if conversion not in self.types:
            raise _InvalidError(f"{directive} is no format")
        kind = self.types[conversion]
        if kind == "double":
            size = size.strip("l")
        elif conversion in "CS":
            size = "l"
        return f"{kind} {_SAME_SIZES.get(size, size)}".strip() if kind and self.has_sized_types else kind

    def numbered(self, source: str, translation: str) -> str:
        """Return a translation that has the formats of its source in another order, with the numbers of the source."""
        own, theirs = (list(self._directives(text)) for text in (source, translation))
        texts, wanted = [match[0] for match in own], [match[0] for match in theirs]
        has_place = any(match[1] or match[2] or "*" in match[0] for match in own)
        if not self.is_numbered or has_place or texts == wanted or sorted(texts) != sorted(wanted):
            return translation
        waiting: defaultdict[str, deque[int]] = defaultdict(deque)
        for number, text in enumerate(texts, start=1):
            waiting[text].append(number)
        written, end = [], 0
        for match in theirs:
            written += [translation[end : match.start()], f"%{waiting[match[0]].popleft()}$", match[0][1:]]
            end = match.end()
        return "".join([*written, translation[end:]])

    def _directives(self, text: str) -> Iterator[re.Match[str]]:
        """Yield the formats that have an argument."""
        return (match for match in self.pattern.finditer(text) if match[6] != "%" and self.types.get(match[6]) != "")


def _named(pattern: str, stray: str = r"(?!)") -> Callable[[str], Arguments]:
    """Return a reader of named arguments: the first group of a pattern is the name, the second the type, if any.

    Names left out are the numbers from 0, as in Python.

    Args:
        pattern: Pattern of the arguments, and of what only looks like one, which has no name.
        stray: Pattern of what makes a text invalid outside these.
    """
    compiled, is_stray = re.compile(pattern), re.compile(stray)

    def read(text: str) -> Arguments:
        if lone := is_stray.search(compiled.sub(" ", text)):
            raise _InvalidError(f"{lone[0]} is no format")
        fields = [match.groups("") for match in compiled.finditer(text) if match[1] is not None]
        kinds: defaultdict[Key, set[str]] = defaultdict(set)
        for place, (name, *kind) in enumerate(fields):
            kinds[name or str(place)].update(filter(None, map(str.strip, kind)))
        return {name: " and ".join(sorted(some)) for name, some in kinds.items()}

    return read


def _in_order(pattern: str) -> Callable[[str], Arguments]:
    """Return a reader for a language without rules here: the formats must stay as they are, in the same order."""
    compiled = re.compile(pattern)
    return lambda text: dict(enumerate(compiled.findall(text), start=1))


def _ruby(text: str) -> Arguments:
    """Return the arguments of a text in Ruby: `%{name}` is a text, and `%<name>d` is written as in Python."""
    return _RUBY(_RUBY_NAME.sub(lambda match: f"%({match[2] or match[3]}){match[1]}{'s' * bool(match[2])}", text))


_C = _types(integer="di", unsigned="ouxX", double="eEfFgGaA", character="cC", string="sS", pointer="p", counter="n")
_SAME_SIZES = {"L": "ll", "q": "ll"}
_C_SIZES = "hh|h|ll?|[Lqjzt]|"
_C_WIDTH = r"[0-9]++|\*(?:[0-9]{1,6}\$)?+"
_RUBY = _Printf(
    _types(integer="bBdiouxX", number="aAeEfgG", character="c", text="s", inspection="p"),
    width=_C_WIDTH,
    is_named=True,
)
_RUBY_NAME = re.compile(r"%([-+ #0-9.*]*+)(?:\{([^{}()]++)\}|<([^<>()]++)>)")
_GO_NUMBER = r"(?:\[([0-9]{1,6})\])?+"
_GO_SIZE = rf"{_GO_NUMBER}(\*)?+[0-9]*+"
_GO = re.compile(rf"%[-+# 0]*+{_GO_SIZE}(?:\.{_GO_SIZE})?+{_GO_NUMBER}(.?)")


def _go(text: str) -> Arguments:
    """Return the arguments of a text in Go: `%[2]q` is the second one, and the next one without a number the third."""
    kinds: dict[Key, str] = {}
    place = 0
    for match in _GO.finditer(text):
        for number, kind in (match.group(1, 2), match.group(3, 4), match.group(5, 6)):
            place = int(number) - 1 if number else place
            if kind and kind != "%":
                place += 1
                if kinds.setdefault(place, kind) != kind:
                    raise _InvalidError(f"argument {place} is {kinds[place]} and {kind}")
        if not match[6].isalpha() and match[6] != "%":
            raise _InvalidError(f"{match[0]} is no format")
    return kinds


_IN_BRACES = _named(r"\{\{|\}\}|\{([^{}:]*+)(?::((?:[^{}]|\{[^{}]*+\})*+))?+\}", "[{}]")
_DIRECTIVE = r"[%~](?:[<>]| ?[^\sA-Za-z%~<>{}\[\]]*+(?:[hjlLqtvwz]*+[A-Za-z%~{}\[\]])?)"
_FORMATS: dict[str, Callable[[str], Arguments]] = {
    "c-format": _Printf({**_C, "m": ""}, "[-+ #0'I]*+", _C_SIZES, _C_WIDTH, has_sized_types=True),
    "objc-format": _Printf({**_C, "m": "", "@": "object"}, "[-+ #0'I]*+", _C_SIZES, _C_WIDTH, has_sized_types=True),
    "python-format": _Printf(
        _types(integer="dioxXu", number="eEfFgG", character="c", text="sra", percent="%"),
        sizes="[hlL]?", is_numbered=False, is_named=True,
    ),
    "php-format": _Printf(
        _types(integer="bdouxX", number="eEfFgG", character="c", string="s"),
        r"(?:[- 0]|'.)*+", "l?", "[0-9]++", may_skip=True, may_mix=True,
    ),
    "javascript-format": _Printf(
        _types(integer="bdoxX", number="f", character="c", string="s", value="jJ"), may_skip=True
    ),
    "lua-format": _Printf(
        _types(integer="diouxX", number="aAeEfFgG", character="c", string="s", literal="q"),
        "[-+#0]*+", width="[0-9]++", is_numbered=False,
    ),
    "awk-format": _Printf(
        _types(integer="di", unsigned="ouxX", number="eEfFgG", character="c", string="s"),
        width=_C_WIDTH, may_skip=True,
    ),
    # The name of an argument includes its format: gettext 0.21 compares `{0:.2f}` so.
    "python-brace-format": _named(r"\{\{|\}\}|\{((?:[^{}]|\{[^{}]*+\})*+)\}", "[{}]"),
    "perl-brace-format": _named(r"\{([A-Za-z_]\w*)\}"),
    "ruby-format": _ruby,
    "csharp-format": _named(r"\{\{|\}\}|\{([0-9]+)(?:,[^{}:]*+)?(?::[^{}]*+)?\}", "[{}]"),
    "java-format": _named(r"'[^']*'?|\{([0-9]+)(?:,((?:[^{}]|\{[^{}]*+\})*+))?\}", "[{}]"),
    "icu-format": _named(r"''|'(?=[{}])(?:[^']|'')*+'?|\{\s*(\w+)\s*(?:,((?:[^{}]|\{[^{}]*+\})*+))?\}", "[{}]"),
    "qt-format": _named("%(?=L?([0-9]{1,2}))(L?)[0-9]{1,2}"),
    "kde-format": _named("%([0-9]+)"),
    "ycp-format": _named("%%|%([1-9])", "%.?"),
    "sh-format": _named(r"\$(?:\{(?=\w+\}))?([A-Za-z_]\w*)\}?", r"\$\S?"),
    # Of gettext 0.23 and later.
    "rust-format": _IN_BRACES,
    "c++-format": _IN_BRACES,
    "go-format": _go,
    "d-format": _in_order(r"%(?:[0-9]++\$)?+[-+ #0]*+(?:[0-9]++|\*)?+(?:\.(?:[0-9]++|\*)?+)?+[A-Za-z%()|]?"),
    "ocaml-format": _in_order(r"%[-+ #0_]*+(?:[0-9]++|\*)?+(?:\.(?:[0-9]++|\*)?+)?+[lnL]?[A-Za-z%!,@{}()]?"),
    "kde-kuit-format": _in_order(rf"{_DIRECTIVE}|[<&][^\s<>&]*+[>;]?"),
    **dict.fromkeys(
        (
            "boost-format", "elisp-format", "gcc-internal-format", "gfc-internal-format", "librep-format",
            "lisp-format", "modula2-format", "object-pascal-format", "perl-format", "qt-plural-format", "scheme-format",
            "smalltalk-format", "tcl-format",
        ),
        _in_order(_DIRECTIVE),
    ),
}  # fmt: skip
"""Flags of gettext, with the readers of their arguments."""
_QUOTATION = {"java-format": re.compile(r"''|'[^']*'?"), "icu-format": re.compile(r"''|'(?=[{}])[^']*'?")}
"""Patterns of quotations, by flag; two apostrophes are one apostrophe."""


def format_of(flags: set[str]) -> str:
    """Return the flag of a message that names a format with known rules; empty if there is none."""
    return next((flag for flag in _FORMATS if flag in flags), "")


def checked_format(source: str, translation: str, flag: str) -> tuple[str, str]:
    """Return a translation and what is wrong with its arguments, so that `msgfmt` refuses it; empty if nothing.

    Formats without numbers that are in another order than in the source get the numbers of the source. Apostrophes that
    would begin a quotation that the source does not have are doubled.

    Args:
        source: Source text.
        translation: Its translation.
        flag: What `format_of` returned.

    >>> checked_format("%s has %d files", "%d Dateien hat %s", "c-format")
    ('%2$d Dateien hat %1$s', '')
    >>> checked_format("%s has %d files", "%s hat Dateien", "c-format")
    ('%s hat Dateien', 'c-format: argument 2 (integer) is missing')
    >>> checked_format("The photo of {0}", "La photo de l'{0}", "java-format")
    ("La photo de l''{0}", '')
    """
    read = _FORMATS[flag]
    try:
        own = read(source)
    except _InvalidError:
        return translation, ""
    text = read.numbered(source, translation) if isinstance(read, _Printf) else translation
    if quotation := _QUOTATION.get(flag):
        text = _with_quotations_of(source, text, quotation)
    try:
        theirs = read(text)
    except _InvalidError as error:
        return translation, f"{flag}: {error}"
    problems = [f"argument {key}{_shown(own[key])} is missing" for key in own if key not in theirs]
    problems += [f"argument {key}{_shown(theirs[key])} is not in the source" for key in theirs if key not in own]
    problems += [
        f"argument {key} is {kind or 'untyped'} in the source, and {theirs[key] or 'untyped'} in the translation"
        for key, kind in own.items()
        if theirs.get(key, kind) != kind
    ]
    return (translation, f"{flag}: {'; '.join(problems)}") if problems else (text, "")


def _with_quotations_of(source: str, text: str, quotation: re.Pattern[str]) -> str:
    """Return a text in which an apostrophe that begins a quotation is doubled, unless the source has that quotation."""
    kept = {"''", *quotation.findall(source)}
    written, at = [], 0
    while match := quotation.search(text, at):
        is_kept = match[0] in kept
        written += [text[at : match.start()], match[0] if is_kept else "''"]
        at = match.end() if is_kept else match.start() + 1
    return "".join([*written, text[at:]])


def _shown(kind: str) -> str:
    return f" ({kind})" if kind else ""
