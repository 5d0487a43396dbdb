"""The generated pages say what the code says; every page opens with an example, and its links lead somewhere."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path

import api_page
import pytest
from markdown_it import MarkdownIt

import clearhead

ROOT = Path(__file__).parents[2]


PAGES = ["api", "commands", "errata", "exercises", "explain", "glossary", "models", "paper", "settings", "statements"]


@pytest.mark.parametrize("name", [f"{name}.md" for name in PAGES])
def test_generated_page_is_fresh(name, generate):
    page = generate.PAGES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, "run: python docs/generate.py"


def test_every_generated_page_is_compared(generate):
    assert [f"{name}.md" for name in PAGES] == list(generate.PAGES)


@pytest.mark.parametrize("name", ["api.md", "architecture.md", "placeholders.md", "translation.md"])
def test_the_session_that_opens_a_page_prints_what_it_says(name):
    opening = (ROOT / "docs" / name).read_text(encoding="utf-8").partition("\n## ")[0]
    session = doctest.DocTestParser().get_doctest(opening.replace("```", ""), {}, name, None, 0)
    assert len(session.examples) > 1
    assert doctest.DocTestRunner().run(session).failed == 0


def wrong_openings(text: str) -> Iterator[str]:
    """Yield what is missing where a page opens: its title, what it is for, and an example."""
    title, _, opening = text.partition("\n## ")[0].partition("\n")
    tokens = MarkdownIt("commonmark").enable("table").parse(opening)
    if not title.startswith("# "):
        yield "no title"
    if not tokens or tokens[0].type != "paragraph_open" or tokens[1].content.startswith("Generated"):
        yield "no sentence that says what the page is for"
    if not any(token.type in ("fence", "code_block", "table_open") for token in tokens):
        yield "no example"


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_opens_with_what_it_is_for_and_an_example(page):
    assert list(wrong_openings(page.read_text(encoding="utf-8"))) == []


def test_a_wrong_opening_is_found():
    assert list(wrong_openings("# A page\n\nWhat it is for:\n\n    clearhead info\n\n## More\n")) == []
    assert list(wrong_openings("# A page\n\nGenerated from code.\n\n```\nmake\n```\n")) == [
        "no sentence that says what the page is for"
    ]
    assert list(wrong_openings("A page\n\nWhat it is for.\n\n## More\n\n```\nmake\n```\n")) == [
        "no title",
        "no example",
    ]


def test_the_python_page_has_every_public_name_and_every_setting_has_its_own():
    page = api_page.api_page()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == clearhead.__all__
    assert "\n### Translator.translate\n" in page
    assert "\n| `ConfigError` | " in page
    assert "\n| `source_words` | " in page  # computed when it is first read, and no method
    assert "`beam_size`" not in page.partition("## Translator")[0]  # settings.md has the fields of settings


def test_a_long_call_is_written_with_an_argument_in_each_line():
    call = "f(first: Callable[[int], None], second: dict[str, int] = {}, *, third: tuple[int, int] = (1, 2)) -> None"
    assert api_page._wrapped(call) == [
        "f(",
        "    first: Callable[[int], None],",
        "    second: dict[str, int] = {},",
        "    *,",
        "    third: tuple[int, int] = (1, 2),",
        ") -> None",
    ]


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
