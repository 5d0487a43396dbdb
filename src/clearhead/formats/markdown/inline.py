"""Inline parser for Markdown that gives positions (CommonMark 0.31, section 6).

It also parses strikethrough, footnote marks and bare addresses, as GitHub does, and template expressions. It follows
the algorithm in the specification's appendix, because Markdown parsers do not report positions within a line. Each
look-ahead is done only once, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from html.entities import html5
from typing import NamedTuple

from clearhead.formats.html.references import resolved
from clearhead.formats.html.tokens import RUBY, VOID_ELEMENTS
from clearhead.text.placeholders import pair_role

_SPECIAL = re.compile(r"[\\`*_~\[\]!<&{]|(?<![ \t])[ \t]*+\n[ \t]*+|(?<![a-zA-Z0-9])https?://")
_PUNCTUATION = frozenset("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~")
_REFERENCE = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|([a-zA-Z][a-zA-Z0-9]{1,31}));")
_ADDRESS = re.compile(r"https?://[^\s<>*`\[\]\\|]*[^\s<>*`\[\]\\|?!.,:;_~'\")]")
_AUTOLINK = re.compile(
    r"<(?:[a-zA-Z][a-zA-Z0-9+.-]{1,31}:[^\s<>]*|[a-zA-Z0-9.!#$%&'*+/=?^_`{|}~-]{1,64}@[a-zA-Z0-9.-]{1,253})>"
)
_BRACES = r"\{(?:[^{}]++|\{(?:[^{}]++|\{(?:[^{}]++|\{[^{}]*+\})*+\})*+\})*+\}"
HTML_TAG = re.compile(
    r"<(/?)([A-Z][a-zA-Z0-9.-]*+|[a-zA-Z][a-zA-Z0-9-]*+)"
    rf"(?:\s++{_BRACES}|\s++[a-zA-Z_:][a-zA-Z0-9_.:-]*+"
    rf"(?:\s*+=\s*+(?:{_BRACES}|[^\s\"'=<>`]++|'[^']*+'|\"[^\"]*+\"))?+)*+\s*+(/?)>"
)
"""A tag of HTML or of a component of MDX, whose attributes may be expressions in braces."""
_HTML_OTHERS = (("<!--", "-->"), ("<?", "?>"), ("<![CDATA[", "]]>"), ("<!", ">"))
_CODE = frozenset({"code", "pre", "ruby", "script", "style", "svg"})
_MARK = re.compile(r"\[(?:\^[^\]\s]{1,100}|-?@[^\[\]\n]{1,200})\]")
"""The mark of a footnote, or a citation."""
_WIKI_LINK = re.compile(r"\[\[([^\[\]\n]{1,500})\]\](?![(\[])")
_FORMULA = re.compile(r"\\\((?:[^\\\n]|\\[^()\n]){1,500}\\\)")
_FORMULA_WORD = re.compile(r"(?<![\\a-zA-Z])[^\W\d_]{2}")
"""The beginning of a word; escaped parentheses around words are text, others enclose a formula, such as `\\(a+b\\)`."""
_TEMPLATE = re.compile(r"\{%[^\n%]{0,500}%\}|\{\{[^\n{}]{0,500}\}\}|\{/\*(?:[^*]|\*(?!/)){0,5000}\*/\}")
"""An expression or a statement of a template, or a comment of MDX."""
_ATTRIBUTES = re.compile(r"\{[ \t]?(?:[:#.]|[\w-]+=)[^\n{}]{1,500}\}")
_ROLE = re.compile(r"\{[a-zA-Z][\w:.+-]{0,100}\}(?=`)")
"""The role of the code behind it, in MyST."""
_SPACE = re.compile(r"[ \t]*+(?:\n[ \t]*+)?")
_ANGLE = re.compile(r"<(?:[^<>\n\\]|\\.)*+>")
_BARE = re.compile(r"[^\x00-\x20\x7f()\\]++|\\[^\s]|\\|[()]")
_TITLE = re.compile(r"\"(?:[^\"\\]|\\.)*+\"|'(?:[^'\\]|\\.)*+'|\((?:[^()\\]|\\.)*+\)", re.DOTALL)
_LABEL = re.compile(r"\[((?:[^\[\]\\]|\\.){0,999})\]", re.DOTALL)
_TICKS = re.compile("`+")
_RUNS = {"*": re.compile(r"\*+"), "_": re.compile("_+"), "~": re.compile("~+")}
_LONGEST_LABEL = 999
_DEEPEST_PARENTHESES = 32


class InlineEvent(NamedTuple):
    """Words or markup in a text, with its position."""

    form: str
    """`words`; `alone` for standalone markup; `open` or `close` for the ends of a pair."""
    start: int
    end: int
    words: str = ""
    """Words in decoded form; for the tags of a pair, their common name."""
    is_seen: bool = True


@dataclass
class MarkdownInlineText:
    """Parsed inline content of a text."""

    events: list[InlineEvent] = field(default_factory=list)
    """Events in the order of the text."""
    descriptions: list[tuple[int, int]] = field(default_factory=list)
    """Start and end of each image description that is plain text."""


def scanned(text: str, is_label: Callable[[str], bool]) -> MarkdownInlineText:
    """Parse the inline content of a text.

    Args:
        text: Text of a block, its lines without indentation.
        is_label: Returns whether a label has a link reference definition.
    """
    return _Scanner(text, is_label).scan()


@dataclass
class _Delimiters:
    """A run of `*`, `_` or `~`; pairs are formed from its inner ends."""

    character: str
    start: int
    end: int
    can_open: bool
    can_close: bool
    size: int
    closing: list[InlineEvent] = field(default_factory=list)
    opening: list[InlineEvent] = field(default_factory=list)

    @property
    def count(self) -> int:
        return self.end - self.start

    def events(self) -> list[InlineEvent]:
        words = [InlineEvent("words", self.start, self.end, self.character * self.count)] if self.count else []
        return [*self.closing, *words, *reversed(self.opening)]


class _Bracket(NamedTuple):
    start: int
    end: int
    node: int  # index in the scanner's nodes
    bottom: int  # number of delimiters before it
    is_image: bool


class _Scanner:
    def __init__(self, text: str, is_label: Callable[[str], bool]) -> None:
        self._text = text
        self._is_label = is_label
        self._nodes: list[InlineEvent | _Delimiters] = []
        self._delimiters: list[_Delimiters] = []
        self._brackets: list[_Bracket] = []
        self._num_behind_link = 0  # number of open brackets around a link, which can start no other link
        self._num_pairs = 0
        self._ticks: dict[int, list[int]] | None = None
        self._absent: set[str] = set()  # strings that do not occur in the rest of the text
        self._descriptions: list[tuple[int, int]] = []

    def scan(self) -> MarkdownInlineText:
        text, at = self._text, 0
        while (special := _SPECIAL.search(text, at)) is not None:
            if special.start() > at:
                self._words(at, special.start())
            at = self._special(special)
        if at < len(text):
            self._words(at, len(text))
        self._emphasise(0)
        inline = MarkdownInlineText(descriptions=sorted(self._descriptions))
        for node in self._nodes:
            inline.events += node.events() if isinstance(node, _Delimiters) else [node]
        return inline

    def _words(self, start: int, end: int, words: str | None = None) -> int:
        self._nodes.append(InlineEvent("words", start, end, self._text[start:end] if words is None else words))
        return end

    def _alone(self, start: int, end: int, is_seen: bool = True) -> int:
        self._nodes.append(InlineEvent("alone", start, end, is_seen=is_seen))
        return end

    def _special(self, special: re.Match[str]) -> int:
        """Parse the construct at a special character, and return its end."""
        text, start = self._text, special.start()
        match text[start]:
            case "\\":
                if text.startswith("\n", start + 1):
                    return self._alone(start, _end(_SPACE, text, start + 1))
                if (formula := _FORMULA.match(text, start)) and not _FORMULA_WORD.search(formula[0]):
                    return self._alone(start, formula.end())
                if text[start + 1 : start + 2] in _PUNCTUATION and start + 1 < len(text):
                    return self._words(start, start + 2, text[start + 1])
            case "`":
                return self._code(start)
            case "*" | "_" | "~":
                return self._delimiter_run(start)
            case "[":
                if mark := _MARK.match(text, start):
                    return self._alone(start, mark.end())
                if (link := _WIKI_LINK.match(text, start)) and not self._is_label(link[1]):
                    return self._alone(start, link.end())
                return self._bracket(start, start + 1, is_image=False)
            case "!" if link := _WIKI_LINK.match(text, start + 1):
                return self._alone(start, link.end())
            case "!" if text.startswith("[", start + 1) and not _MARK.match(text, start + 1):
                return self._bracket(start, start + 2, is_image=True)
            case "]":
                return self._bracket_end(start)
            case "<":
                return self._angle(start)
            case "&":
                reference = _REFERENCE.match(text, start)
                if reference and (reference[1] is None or f"{reference[1]};" in html5):
                    return self._words(start, reference.end(), resolved(reference[0]))
            case "{":
                if template := _TEMPLATE.match(text, start):
                    if (pair := pair_role(template[0])) is None:
                        return self._alone(start, template.end())
                    name, is_closing = pair
                    self._nodes.append(InlineEvent("close" if is_closing else "open", start, template.end(), name))
                    return template.end()
                if (role := _ROLE.match(text, start)) and (behind := self._behind_code(role.end())) is not None:
                    return self._alone(start, behind)
                if attributes := _ATTRIBUTES.match(text, start):
                    return self._alone(start, attributes.end(), is_seen=False)
            case "h":
                if address := _ADDRESS.match(text, start):
                    return self._alone(start, address.end())
            case _ if "\n" in special[0]:
                if special[0].startswith("  ") and special.end() < len(text):
                    return self._alone(start, special.end())
                return self._words(start, special.end(), " ")
        return self._words(start, start + 1)

    def _code(self, start: int) -> int:
        behind = self._behind_code(start)
        return self._words(start, _end(_TICKS, self._text, start)) if behind is None else self._alone(start, behind)

    def _behind_code(self, start: int) -> int | None:
        """Return the end of the code whose backticks begin here; None if they are not closed."""
        text = self._text
        if self._ticks is None:
            self._ticks = defaultdict(list)
            for ticks in re.finditer("`+", text):
                self._ticks[len(ticks[0])].append(ticks.start())
        behind = _end(_TICKS, text, start)
        same = self._ticks.get(behind - start, [])
        place = bisect_right(same, start)
        return None if place == len(same) else same[place] + behind - start

    def _angle(self, start: int) -> int:
        text = self._text
        if autolink := _AUTOLINK.match(text, start):
            return self._alone(start, autolink.end())
        if tag := HTML_TAG.match(text, start):
            name = tag[2].lower()
            if ruby := RUBY.match(text, start):
                name = self._new_name()
                self._nodes += [
                    InlineEvent("open", start, ruby.start("base"), name),
                    InlineEvent("words", *ruby.span("base"), resolved(ruby["base"])),
                    InlineEvent("close", ruby.start("reading"), ruby.end(), name),
                ]
                return ruby.end()
            if not tag[1] and name in _CODE and (behind := self._find(f"</{name}>", tag.end())) is not None:
                return self._alone(start, behind)
            if name in VOID_ELEMENTS or tag[3]:
                return self._alone(start, tag.end())
            self._nodes.append(InlineEvent("close" if tag[1] else "open", start, tag.end(), f"<{name}>"))
            return tag.end()
        for first, last in _HTML_OTHERS:
            if text.startswith(first, start):
                behind_first = start + len(first)
                if first == "<!" and not text[behind_first : behind_first + 1].isalpha():
                    break
                if (behind := self._find(last, behind_first)) is not None:
                    return self._alone(start, behind, is_seen=False)
                break
        return self._words(start, start + 1)

    def _find(self, wanted: str, at: int) -> int | None:
        """Return the position after the next occurrence of a string; a string once not found is not searched again."""
        if wanted in self._absent:
            return None
        place = self._text.find(wanted, at)
        if place < 0:
            self._absent.add(wanted)
            return None
        return place + len(wanted)

    def _delimiter_run(self, start: int) -> int:
        text, character = self._text, self._text[start]
        end = _end(_RUNS[character], text, start)
        before, behind = text[start - 1 : start] or " ", text[end : end + 1] or " "
        is_left = not behind.isspace() and (not _is_punctuation(behind) or before.isspace() or _is_punctuation(before))
        is_right = not before.isspace() and (not _is_punctuation(before) or behind.isspace() or _is_punctuation(behind))
        can_open, can_close = is_left, is_right
        if character == "_":
            can_open = is_left and (not is_right or _is_punctuation(before))
            can_close = is_right and (not is_left or _is_punctuation(behind))
        if character == "~" and end - start > 2:
            can_open = can_close = False
        run = _Delimiters(character, start, end, can_open, can_close, end - start)
        self._nodes.append(run)
        if can_open or can_close:
            self._delimiters.append(run)
        return end

    def _emphasise(self, bottom: int) -> None:
        """Match delimiters from index `bottom` on into pairs, and remove them from the list."""
        stack: list[_Delimiters] = []
        bottoms: dict[tuple[str, bool, int], int] = {}  # for each kind of closer: no opener below this index matches
        for closer in self._delimiters[bottom:]:
            while closer.can_close and closer.count:
                key = (closer.character, closer.can_open, closer.size % 3 if closer.character != "~" else closer.size)
                lowest = bottoms.get(key, 0)
                place = next((i for i in range(len(stack) - 1, lowest - 1, -1) if _fits(stack[i], closer)), None)
                if place is None:
                    bottoms[key] = len(stack)
                    break
                opener = stack[place]
                del stack[place + 1 :]
                self._make_pair(opener, closer)
                if not opener.count:
                    stack.pop()
                bottoms = {key: min(lowest, len(stack)) for key, lowest in bottoms.items()}
            if closer.can_open and closer.count:
                stack.append(closer)
        del self._delimiters[bottom:]

    def _make_pair(self, opener: _Delimiters, closer: _Delimiters) -> None:
        size = 2 if opener.count >= 2 and closer.count >= 2 else 1
        name = self._new_name()
        opener.end -= size
        opener.opening.append(InlineEvent("open", opener.end, opener.end + size, name))
        closer.closing.append(InlineEvent("close", closer.start, closer.start + size, name))
        closer.start += size

    def _new_name(self) -> str:
        self._num_pairs += 1
        return str(self._num_pairs)

    def _bracket(self, start: int, end: int, *, is_image: bool) -> int:
        self._brackets.append(_Bracket(start, end, len(self._nodes), len(self._delimiters), is_image))
        return self._words(start, end)

    def _bracket_end(self, start: int) -> int:
        if not self._brackets:
            return self._words(start, start + 1)
        bracket = self._brackets.pop()
        is_inactive = len(self._brackets) < self._num_behind_link and not bracket.is_image
        self._num_behind_link = min(self._num_behind_link, len(self._brackets))
        behind = None if is_inactive else self._behind_target(bracket, start)
        if behind is None:
            return self._words(start, start + 1)
        self._emphasise(bracket.bottom)
        if bracket.is_image:
            inner = self._nodes[bracket.node + 1 :]
            is_label = self._text[start:behind].replace(" ", "") in ("]", "][]")  # it is also the reference label
            if start > bracket.end and not is_label and all(map(self._is_plain, inner)):
                self._descriptions.append((bracket.end, start))
            del self._nodes[bracket.node :]
            return self._alone(bracket.start, behind)
        name = self._new_name()
        self._nodes[bracket.node] = InlineEvent("open", bracket.start, bracket.end, name)
        self._nodes.append(InlineEvent("close", start, behind, name))
        self._num_behind_link = len(self._brackets)
        return behind

    def _is_plain(self, node: InlineEvent | _Delimiters) -> bool:
        if isinstance(node, _Delimiters):
            return not (node.opening or node.closing)
        first = self._text[node.start]
        return node.form == "words" or first == "{" or (node.form == "alone" and first == "h")

    def _behind_target(self, bracket: _Bracket, end: int) -> int | None:
        """Return the end of the link whose text ends at a bracket; None if it is no link."""
        text = self._text
        if text.startswith("(", end + 1) and (behind := _behind_address(text, end + 2)) is not None:
            return behind
        label = _LABEL.match(text, end + 1)
        if label and label[1].strip():
            return label.end() if self._is_label(label[1]) else None
        if end - bracket.end > _LONGEST_LABEL or not self._is_label(text[bracket.end : end]):
            return None
        return label.end() if label else end + 1


def _behind_address(text: str, at: int) -> int | None:
    """Return the position after the `)` of a link destination and title that start here; None if malformed."""
    at = _end(_SPACE, text, at)
    if angle := _ANGLE.match(text, at):
        at = angle.end()
    elif text.startswith("<", at):
        return None
    else:
        depth = 0
        while piece := _BARE.match(text, at):
            if piece[0] == "(":
                depth += 1
                if depth > _DEEPEST_PARENTHESES:
                    return None
            elif piece[0] == ")":
                if not depth:
                    break
                depth -= 1
            at = piece.end()
        if depth:
            return None
    behind = _end(_SPACE, text, at)
    if behind > at and (title := _TITLE.match(text, behind)):
        behind = _end(_SPACE, text, title.end())
    return behind + 1 if text.startswith(")", behind) else None


def _fits(opener: _Delimiters, closer: _Delimiters) -> bool:
    """Return whether two runs form a pair (rules 9 and 10 of the specification)."""
    if opener.character != closer.character:
        return False
    if opener.character == "~":
        return opener.count == closer.count
    if not (opener.can_close or closer.can_open):
        return True
    return (opener.size + closer.size) % 3 != 0 or (opener.size % 3 == 0 and closer.size % 3 == 0)


def _is_punctuation(character: str) -> bool:
    return character in _PUNCTUATION or unicodedata.category(character)[0] in "PS"


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()
