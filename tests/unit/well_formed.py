"""A reader of pages that insists on well-formed HTML."""

from __future__ import annotations

from collections import defaultdict
from html.parser import HTMLParser

VOID = {"meta", "br", "hr", "img", "input", "link", "polyline"}


class Page(HTMLParser):
    """Checks that elements close in order, and gathers elements, their attributes, and texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[str] = []
        self.attributes: list[dict[str, str | None]] = []
        self.texts: list[str] = []
        self.contents: dict[str, list[str]] = defaultdict(list)
        """Name of an element to the texts directly in such elements."""
        self.feed(page)
        self.close()
        assert self.open == []

    def values(self, *names: str) -> list[str | None]:
        """Return the values of attributes with these names."""
        return [given[name] for given in self.attributes for name in names if name in given]

    @property
    def links(self) -> list[str | None]:
        """What the page loads or leads to."""
        return self.values("src", "href", "xlink:href", "srcset", "data")

    @property
    def text(self) -> str:
        return "".join(self.texts)

    def handle_starttag(self, tag, attrs):
        self.elements.append(tag)
        self.attributes.append(dict(attrs))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open:
            self.contents[self.open[-1]].append(data)
