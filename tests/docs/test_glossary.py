"""The glossary is in alphabetical order, and its names and links lead to what there is."""

from __future__ import annotations

import importlib
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from torch import nn

from clearhead.config import Config

DOCS = Path(__file__).parents[2] / "docs"
TERMS = dict(re.findall(r"^## (.+)\n\n((?:.+\n)+)", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE))

PAGES_OF = {
    "section": "paper.md",
    "departures": "paper.md",
    "our defaults": "paper.md",
    "the tour": "tour.ipynb",
}
"""Title of a link that is not its page's name -> page."""


def test_the_terms_are_sorted_and_unique():
    headings = re.findall(r"^## (.+)", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(TERMS)
    assert headings == sorted(headings, key=str.casefold)
    assert len({heading.casefold() for heading in headings}) == len(headings) >= 80


@pytest.mark.parametrize("term", TERMS)
def test_a_term_has_a_short_meaning_a_name_of_the_code_and_more_to_read(term: str):
    text = " ".join(TERMS[term].split())
    meaning, code, more = re.fullmatch(r"(.+) In the code: (.+)\. More: (.+)\.", text).groups()
    assert 1 <= len(re.findall(r"[.?](?= [A-Z]|$)", meaning)) <= 3
    names = re.findall(r"\[`([^`]+)`\]\(([^)]+)\)", code)
    assert ", ".join(f"[`{name}`]({target})" for name, target in names) == code
    assert [name for name, target in names if not exists(name, target)] == []
    for link in more.split(", "):
        title, page = re.fullmatch(r"\[([^]]+)\]\(([\w.-]+)(?:#[^)]+)?\)", link).groups()
        assert page == f"{title}.md" or page == PAGES_OF[re.sub(r"section [1-7.]+", "section", title)]


def exists(name: str, target: str) -> bool:
    """Return whether a module defines a name, or whether the settings have it."""
    if target.startswith("settings.md#"):
        section, field = name.split(".")
        return target == f"settings.md#{section}" and field in Config.model_fields[section].annotation.model_fields
    found: Any = importlib.import_module(target.removeprefix("../src/").removesuffix(".py").replace("/", "."))
    for part in name.split("."):
        if isinstance(found, type) and issubclass(found, nn.Module) and not hasattr(found, part):
            return f"self.{part}" in Path(importlib.import_module(found.__module__).__file__).read_text("utf-8")
        if not hasattr(found, part):
            return False
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", ["glossary", "exercises"])
def test_links_lead_to_headings(page: str, generate: ModuleType):
    @cache
    def anchors(file: Path) -> set[str]:
        headings = re.findall(r"^#+ (.+)", file.read_text(encoding="utf-8"), re.MULTILINE)
        return {generate._anchor(heading) for heading in headings}

    links = re.findall(r"\]\(([\w-]+\.md)#([^)]+)\)", (DOCS / f"{page}.md").read_text(encoding="utf-8"))
    assert [link for link in links if link[1] not in anchors(DOCS / link[0])] == []


def test_a_name_that_does_not_exist_is_found():
    assert exists("padding_mask", "../src/clearhead/model/masks.py")
    assert exists("MultiHeadAttention.q_proj", "../src/clearhead/model/attention.py")
    assert exists("model.norm", "settings.md#model")
    assert not exists("padded_mask", "../src/clearhead/model/masks.py")
    assert not exists("MultiHeadAttention.query_proj", "../src/clearhead/model/attention.py")
    assert not exists("model.norms", "settings.md#model")
    assert not exists("model.norm", "settings.md#train")


@pytest.mark.parametrize("page", ["paper.md", "concepts.md", "tour.ipynb", "exercises.md"])
def test_the_pages_about_the_paper_link_to_it(page: str):
    assert "](glossary.md" in (DOCS / page).read_text(encoding="utf-8")
