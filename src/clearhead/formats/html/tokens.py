"""HTML tokenizer: tags and texts with their positions, split as browsers do (WHATWG HTML, section 13.2.5).

Every part of the text is examined only a few times, whatever the text is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

VOID_ELEMENTS = frozenset("area base br col embed frame hr img input link meta param source track wbr".split())  # noqa: SIM905
"""Elements without content and end tag."""

_CLOSED = VOID_ELEMENTS | {"math", "svg"}
"""Elements that a `/` in the start tag may close in HTML as well."""

# Elements that contain only text, up to their own end tag.
_RAW = frozenset({"iframe", "noembed", "noframes", "script", "style", "textarea", "title", "xmp"})

RUBY = re.compile(
    r"<ruby(?:\s[^<>]*+)?>\s*+(?P<base>[^<]++)"
    r"(?P<reading>(?:<(r[pt])(?:\s[^<>]*+)?>[^<]*+</\3\s*+>\s*+)++</ruby\s*+>)",
    re.IGNORECASE,
)
"""A base with its reading, in East Asian texts; the reading belongs to the end of the element, and so to its base."""

_XHTML = re.compile(r"\s*+<\?xml\b|.{0,1000}?<html\s[^>]{0,2000}\bxmlns=", re.IGNORECASE | re.DOTALL)
"""The beginning of a page in XML."""
_SPACE = r"[ \t\n\r\f]"
_MARKUP = re.compile(r"<(?=[a-zA-Z/!?]|%(?:[^%<]|%(?!>)|<(?!%))*+%>)")
_CODE = re.compile(r"<%(?:[^%<]|%(?!>)|<(?!%))*+%>|<\?(?:php\b|=)(?:[^?<]|\?(?!>)|<(?!\?))*+\?>")
_NAME = re.compile(r"[^ \t\n\r\f/>]+")
_ATTRIBUTE = re.compile(
    rf"""[ \t\n\r\f/]*([^ \t\n\r\f/>][^ \t\n\r\f/>=]*)"""
    rf"""(?:{_SPACE}*+={_SPACE}*+("[^"]*+(?:"|\Z)|'[^']*+(?:'|\Z)|(?!["'])[^ \t\n\r\f>]*+))?"""
)
_TAG_END = re.compile(r"[ \t\n\r\f/]*>")
_COMMENT_END = re.compile(r"--!?>")
_SCRIPT_MARK = re.compile(r"<!--(?:-?>)?|-->|</?script(?=[ \t\n\r\f/>])", re.IGNORECASE)


class Attribute(NamedTuple):
    """An attribute of a tag, with the position of its value without quotation marks."""

    name: str
    """Lower-case name."""
    start: int
    end: int
    quote: str
    """Quotation mark around the value, `"` or `'`; empty if there is none."""


class HtmlToken(NamedTuple):
    """A token of an HTML file; the tokens cover the file without gaps."""

    form: str
    """`text`; `raw`, the text of the preceding element, in which nothing is markup; `start`; `end`; or `other`, such as
    a comment; `code` for a server, as `<%= x %>` and `<?php x ?>`."""
    start: int
    end: int
    name: str = ""
    """Lower-case name of a tag."""
    attributes: tuple[Attribute, ...] = ()

    def shifted(self, by: int) -> HtmlToken:
        """Return the token with its positions moved by a number of characters."""
        moved = (item._replace(start=item.start + by, end=item.end + by) for item in self.attributes)
        return self._replace(start=self.start + by, end=self.end + by, attributes=tuple(moved))


def html_tokens(text: str) -> Iterator[HtmlToken]:
    """Split an HTML text into tokens, in order and without gaps.

    In XHTML, an element that is closed in its start tag (`<a id="x"/>`) is empty, and has an end tag without text.
    """
    at, is_xml = 0, _XHTML.match(text) is not None
    while (markup := _MARKUP.search(text, at)) is not None:
        start = markup.start()
        if start > at:
            yield HtmlToken("text", at, start)
        token = _markup(text, start)
        yield token
        at = token.end
        if is_xml and token.form == "start" and text[at - 2] == "/" and token.name not in _CLOSED:
            yield HtmlToken("end", at, at, token.name)
            continue
        if token.form == "start" and token.name == "plaintext":
            yield HtmlToken("raw", at, len(text), token.name)
            return
        if token.form == "start" and token.name in _RAW:
            end = _raw_end(text, token)
            if end > at:
                yield HtmlToken("raw", at, end, token.name)
            at = end
    if at < len(text):
        yield HtmlToken("text", at, len(text))


def _markup(text: str, start: int) -> HtmlToken:
    if text.startswith("<!--", start):
        for empty in ("<!-->", "<!--->"):
            if text.startswith(empty, start):
                return HtmlToken("other", start, start + len(empty))
        end = _COMMENT_END.search(text, start + 4)
        return HtmlToken("other", start, end.end() if end else len(text))
    if code := _CODE.match(text, start):
        return HtmlToken("code", start, code.end())
    is_end = text.startswith("</", start)
    first = start + 1 + is_end
    if not text[first : first + 1].isascii() or not text[first : first + 1].isalpha():
        if text.startswith("</", start) and first == len(text):
            return HtmlToken("text", start, first)
        found_at = text.find(">", first)
        return HtmlToken("other", start, found_at + 1 if found_at >= 0 else len(text))
    name = _NAME.match(text, first)
    assert name is not None
    at = name.end()
    attributes: dict[str, Attribute] = {}
    while (closing := _TAG_END.match(text, at)) is None:
        attribute = _ATTRIBUTE.match(text, at)
        if attribute is None or attribute.end() == len(text):
            return HtmlToken("other", start, len(text))  # an unfinished tag at the end of the file; browsers ignore it
        at = attribute.end()
        value = attribute[2] or ""
        is_quoted = value[:1] in ('"', "'") and value != ""
        where = (attribute.start(2) + is_quoted, attribute.end(2) - is_quoted) if attribute[2] is not None else (at, at)
        key = attribute[1].lower()
        attributes.setdefault(key, Attribute(key, *where, value[0] if is_quoted else ""))
    form = "end" if is_end else "start"
    return HtmlToken(form, start, closing.end(), name[0].lower(), () if is_end else tuple(attributes.values()))


def _raw_end(text: str, tag: HtmlToken) -> int:
    """Return the end of the text in an element that contains no markup."""
    if tag.name == "script":
        return _script_end(text, tag.end)
    end = re.compile(rf"</{tag.name}(?=[ \t\n\r\f/>])", re.IGNORECASE).search(text, tag.end)
    return end.start() if end else len(text)


def _script_end(text: str, start: int) -> int:
    """Return the end of a script: in a comment, an end tag after another script start tag does not end it."""
    state = "plain"
    for mark in _SCRIPT_MARK.finditer(text, start):
        match mark[0].lower():
            case "</script" if state != "double":
                return mark.start()
            case "</script":
                state = "comment"
            case "<script" if state == "comment":
                state = "double"
            case "-->":
                state = "plain"
            case "<!--" if state == "plain":
                state = "comment"
    return len(text)
