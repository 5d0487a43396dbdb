from __future__ import annotations

import re
from importlib.resources import files

import pytest

from clearhead import pages
from clearhead.pages import Html, fill, joined, style


def test_values_are_escaped_and_html_is_not():
    assert fill("data_doctor_parts.html#item", text="<b> & \"'") == "<li>&lt;b&gt; &amp; &quot;&#x27;</li>\n"
    inner = fill("data_doctor_parts.html#item", text=Html("<b>"))
    assert joined([inner, inner]) == "<li><b></li>\n" * 2
    assert isinstance(joined([]), Html)


def test_a_name_without_a_value_is_a_mistake():
    with pytest.raises(KeyError, match="text"):
        fill("data_doctor_parts.html#item")


def test_a_value_is_not_looked_through_for_names():
    assert fill("data_doctor_parts.html#item", text="$text $$ ${other}") == "<li>$text $$ ${other}</li>\n"


def test_colours_are_given_for_light_and_dark():
    light, dark = (re.findall(r"(--\w+): #", part) for part in style().split("@media (prefers-color-scheme: dark)")[:2])
    assert light == dark != []


def test_no_page_asks_for_anything_from_elsewhere():
    for file in files(pages).iterdir():
        if file.name.endswith((".html", ".css")):
            assert not re.search(r"https?:|//|@import|url\(|src=", file.read_text(encoding="utf-8")), file.name


def test_every_file_is_part_of_the_package():
    # What is not named in pyproject.toml would be missing in an installation.
    assert {file.name.rpartition(".")[2] for file in files(pages).iterdir() if file.is_file()} <= {"py", "html", "css"}
