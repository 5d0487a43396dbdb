"""What the tests of pages share: a page as another parser reads it."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "input"}


class Outline(HTMLParser):
    """Checks that every element ends, and gathers what a page holds."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.ids, self.links, self.text = [], set(), [], [], ""

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.tags.add(tag)
        self.ids += [attributes["id"]] if "id" in attributes else []
        self.links += [value for name, value in attrs if name in ("href", "src")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def outline(page):
    """Return what a page holds, all of whose elements end."""
    parser = Outline()
    parser.feed(page)
    parser.close()
    assert parser.open == []
    return parser
