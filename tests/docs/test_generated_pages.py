"""The generated pages say what the code says, and every page's relative links lead somewhere."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import api_page
import pytest

import clearhead

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["api.md", "commands.md", "errata.md", "exercises.md", "settings.md"])
def test_generated_page_is_fresh(name, generate):
    page = generate.PAGES[name]()
    assert (ROOT / "docs" / name).read_text(encoding="utf-8") == page, "run: python docs/generate.py"


def test_the_example_of_the_python_page_prints_what_it_says():
    session = doctest.DocTestParser().get_doctest(api_page.HEAD.replace("```", ""), {}, "api.md", None, 0)
    assert len(session.examples) == 5
    assert doctest.DocTestRunner().run(session).failed == 0


def test_the_python_page_has_every_public_name_and_every_setting_has_its_own():
    page = api_page.api_page()
    assert re.findall(r"^## (\w+)$", page, re.MULTILINE) == clearhead.__all__
    assert "\n### Translator.translate\n" in page
    assert "\n| `ConfigError` | " in page
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
