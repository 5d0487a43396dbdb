"""The generated pages say what the code says, and every page's relative links lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["commands.md", "errata.md", "exercises.md", "settings.md"])
def test_generated_page_is_fresh(name, generate):
    page = generate.PAGES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, "run: python docs/generate.py"


def test_figures_1_and_2_are_what_the_code_draws(generate):
    for name, picture in generate.pictures().items():
        assert (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8") == picture, (
            "run: python docs/generate.py"
        )
        links = re.findall(r'href="([^"#]+)#L\d+"', picture)
        assert links
        assert all((ROOT / "docs" / "pictures" / link).is_file() for link in links)


def test_the_table_of_languages_is_fresh(generate):
    assert generate.LANGUAGE_TABLE.read_text(encoding="utf-8") == generate.language_table(), (
        "run: python docs/generate.py"
    )


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted((ROOT / "docs").glob("*.md")), ids=lambda p: p.name)
def test_relative_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
    assert not [link for link in links if not (page.parent / link).exists()]
