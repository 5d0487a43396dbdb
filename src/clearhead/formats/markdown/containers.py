"""Block rules of documentation sites for markdown-it: admonitions, tabs, directives, and components of MDX.

A line that begins or ends a container becomes a token `container`. Its content is its title, if it has one, its info
the form of the title: `quoted`, `label`, `words`, `own` or `block`; or `unread` for a line that is not understood. What
is in the container is parsed as usual, with the indentation that these programs give it.
"""

from __future__ import annotations

import re
from collections import defaultdict

from markdown_it import MarkdownIt
from markdown_it.ruler import RuleOptionsType
from markdown_it.rules_block import StateBlock

from clearhead.formats.markdown.inline import HTML_TAG

_INDENTED = re.compile(
    r"""
    (?: (?:!!!|\?\?\?\+?) [ ]? [\w-]+ (?:[ ]+[\w-]+)*+ | (?:\?\?\?\+?|===[!+]{0,2}) (?=[ ]+") )
    (?: [ ]+ "(?P<quoted>.*)" )? [ ]*
    """,
    re.VERBOSE,
)
"""The first line of an admonition or a tab of MkDocs, whose content is indented by four columns."""
_ATTRIBUTES = r"(?:\{[^{}]*+\})?+"
LITERAL = "(?:code[\\w-]*|csv-table|eval-rst|math|mermaid|plantuml|raw|toctree)\\b"
"""Names of directives whose content is no Markdown."""
_OPTION = re.compile(r":[\w-]+:(?:\s.*)?")
"""An option of a directive of MyST."""
_DIRECTIVE = re.compile(
    rf"""
      (?P<literal> :::+ ) \s*+ \{{? {LITERAL} .*
    | :::+ \s*+ [\w-]++ {_ATTRIBUTES} \[(?P<label>.*)\] \s*+ {_ATTRIBUTES} \s*+
    | :::+ \s*+ [\w-]*+ (?: [ \t]++ [\w-]++ = (?:"[^"]*+"|'[^']*+'|[^\s"':]++) )*+ [ \t]*+ {_ATTRIBUTES} [ \t]*+ :*+
    | :::+ \s*+ [a-z][\w-]*+ [ \t]++ (?P<words>[^{{}}]++) {_ATTRIBUTES} \s*+
    | :::+ \s*+ \{{ (?:admonition|card|dropdown|grid-item-card|sidebar|tab-item|topic) \}} [ \t]++ (?P<own>.*)
    | :::+ \s*+ \{{ (?:figure|image|include) \}} .*
    | :::+ \s*+ (?P<unread>.*)
    | ///+ \s*+ [\w-]++ (?: [ \t]*+ \| [ \t]*+ (?P<block>.*) )?
    | ///+ \s*+
    """,
    re.VERBOSE,
)
"""A line of a directive: of Docusaurus, VitePress, MyST, Pandoc, or a block of pymdownx."""
_TAG_STARTS = re.compile(r"^[ \t]*(?=</?[a-zA-Z])", re.MULTILINE)
_ENDS = re.compile(r"[ \t]*(?:\n|\Z)")


def containers_plugin(parser: MarkdownIt) -> None:
    """Add the rules to a parser."""
    inside: RuleOptionsType = {"alt": ["paragraph", "reference", "blockquote", "list"]}
    parser.block.ruler.before("fence", "container", _container, inside)
    parser.block.ruler.before("html_block", "component", _component)


def _container(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    if state.is_code_block(first) or state.isEmpty(first):
        return False
    line = _line(state, first)
    if line[:1] in "!?=" and (header := _INDENTED.fullmatch(line)) is not None:
        if not silent:
            _push(state, first, first + 1, header)
            indentation = state.sCount[first] + 4
            behind = _behind(state, first + 1, last, indentation)
            _parse(state, first + 1, behind, indentation)
        return True
    if line[:1] in ":/" and (header := _DIRECTIVE.fullmatch(line)) is not None:
        if not silent:
            behind = first + 1
            if header["literal"]:
                while behind < last and _line(state, behind) != header["literal"]:
                    behind += 1
            while behind < last and _OPTION.fullmatch(_line(state, behind)):
                behind += 1
            _push(state, first, behind, header)
            state.line = behind
        return True
    return False


def _component(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    """Parse a tag that has its lines for itself, and what is up to its closing tag on a line of its own."""
    start = state.bMarks[first] + state.tShift[first]
    if state.is_code_block(first) or not state.src.startswith("<", start):
        return False
    tag = _tag(state.src, start)
    if tag is None or tag.end() > state.eMarks[last - 1] or not (tag[2][0].isupper() or "{" in tag[0]):
        return False
    if not silent:
        behind = first + tag[0].count("\n") + 1
        _push(state, first, behind, None)
        state.line = behind
        if "closing_lines" not in state.env:
            state.env["closing_lines"] = _closing_lines(state.src)
        closing = state.env["closing_lines"].get(first, last)
        inside = range(behind, closing if closing < last else behind)
        indentation = min((state.sCount[line] for line in inside if not state.isEmpty(line)), default=-1)
        if indentation >= state.blkIndent:
            _parse(state, behind, closing, indentation)
    return True


def _closing_lines(text: str) -> dict[int, int]:
    """Return for each line that begins an element, the line of its closing tag, if both tags have their own lines."""
    closing: dict[int, int] = {}
    begun: dict[str, list[int]] = defaultdict(list)
    line = at = 0
    for start in _TAG_STARTS.finditer(text):
        line, at = line + text.count("\n", at, start.end()), start.end()
        if (tag := _tag(text, at)) is None or tag[3]:
            continue
        if not tag[1]:
            begun[tag[2]].append(line)
        elif begun[tag[2]]:
            closing[begun[tag[2]].pop()] = line
    return closing


def _tag(text: str, start: int) -> re.Match[str] | None:
    """Return the tag that begins at a position, if nothing follows it on its line."""
    tag = HTML_TAG.match(text, start)
    return tag if tag is not None and _ENDS.match(text, tag.end()) else None


def _parse(state: StateBlock, first: int, last: int, indentation: int) -> None:
    """Parse lines as blocks with an indentation."""
    before = state.blkIndent, state.lineMax, state.parentType
    state.push("container_open", "", 1)  # markdown-it limits the nesting
    state.blkIndent, state.lineMax = indentation, last
    state.md.block.tokenize(state, first, last)
    state.blkIndent, state.lineMax, state.parentType = before
    state.push("container_close", "", -1)
    state.line = last


def _push(state: StateBlock, first: int, last: int, header: re.Match[str] | None) -> None:
    token = state.push("container", "", 0)
    token.map = [first, last]
    if header is not None and (title := header.lastgroup) is not None and title != "literal":
        token.info, token.content = title, header[title].strip()


def _behind(state: StateBlock, first: int, last: int, indentation: int) -> int:
    """Return the first line that is indented less; blank lines do not count."""
    lines = (line for line in range(first, last) if not state.isEmpty(line) and state.sCount[line] < indentation)
    return next(lines, last)


def _line(state: StateBlock, number: int) -> str:
    """Return a line without white space at its ends."""
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].strip(" \t")
