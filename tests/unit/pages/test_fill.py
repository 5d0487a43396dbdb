from __future__ import annotations

import json
import re
import tomllib
from importlib.resources import files
from itertools import pairwise
from pathlib import Path

import pytest

from clearhead import pages
from clearhead.inspection.page import TEXT_RULES, text_rules_module
from clearhead.pages import Html, data_block, fill, joined, script, style


def test_values_are_escaped_and_html_is_not():
    assert fill("report_parts.html#item", text="<b> & \"'") == "<li>&lt;b&gt; &amp; &quot;&#x27;</li>\n"
    inner = fill("report_parts.html#item", text=Html("<b>"))
    assert joined([inner, inner]) == "<li><b></li>\n" * 2
    assert isinstance(joined([]), Html)


def test_fill_without_a_value_for_a_name_raises_key_error():
    with pytest.raises(KeyError, match="text"):
        fill("report_parts.html#item")


def test_a_value_is_not_looked_through_for_names():
    assert fill("report_parts.html#item", text="$text $$ ${other}") == "<li>$text $$ ${other}</li>\n"


def test_colours_are_given_for_light_and_dark_and_the_shades_of_a_scale_follow_in_even_steps():
    colours = dict(re.findall(r"(--[\w-]+): light-dark\((.*)\);", style()))
    assert len(colours) == len(re.findall(r"^  --", style(), re.MULTILINE))
    for theme in (0, 1):
        heat = [lightness(colours[f"--heat-{shade}"].split(", ")[theme]) for shade in range(7)]
        steps = [other - one for one, other in pairwise(heat)]
        assert all(step > 0 for step in steps) or all(step < 0 for step in steps)
        assert max(map(abs, steps)) < 3.5 * min(map(abs, steps))


def lightness(colour: str) -> float:
    """Return L* of a colour such as #1c1e21 (CIE 1976), from 0, black, to 100, white."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    luminance = sum(share * value for share, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
    return 116 * luminance ** (1 / 3) - 16


@pytest.mark.parametrize(
    "name", ["explain/main.js", "compare/main.js", "translate/main.js", "translate/inside.js", "review/main.js"]
)
def test_modules_become_one_each_once_and_behind_what_it_imports(name):
    text = script(name, made={TEXT_RULES: text_rules_module()})
    assert not re.search(r"^(import|export) ", text, re.MULTILINE)
    root, first = Path(str(files(pages))), {}
    first[root / TEXT_RULES] = -1

    def check(module: Path) -> int:
        content = module.read_text(encoding="utf-8")
        [heading, *_] = content.splitlines()
        assert text.count(heading) == 1
        first[module] = text.index(heading)
        for other in re.findall(r'^import .* from "([^"]+)"', content, re.MULTILINE):
            imported = (module.parent / other).resolve()
            assert (first[imported] if imported in first else check(imported)) < first[module]
        return first[module]

    check((root / name).resolve())
    names = re.findall(r"^(?:async )?(?:function\*?|const|let|class) (\w+)", text, re.MULTILINE)
    assert len(names) == len(set(names))  # they share one scope


def test_data_cannot_end_its_element_nor_be_no_json():
    assert json.loads(data_block({"a": "</script><!--"})) == {"a": "</script><!--"}
    assert "<" not in data_block({"a": "</script><!--"})
    with pytest.raises(ValueError, match="JSON"):
        data_block(float("nan"))


def test_no_page_asks_for_anything_from_elsewhere():
    # They ask the server that they come from.
    served = {"translate.html", "inside.html", "web_parts.html"}
    served |= {"server.js", "opening.js", "service_worker.js", "progress.js", "request.js", "review.html"}
    for file in Path(str(files(pages))).rglob("*"):
        if file.suffix in (".html", ".css", ".js"):
            text = file.read_text(encoding="utf-8")
            assert not re.search(r"https?:|@import|url\(", text), file.name
            assert file.name in served or not re.search(r"src=|fetch\(", text), file.name
            own = re.findall(r'"((?:page/|\./|/|data:|manifest\.)[^"]*)"', text)
            assert set(re.findall(r'(?:src|href)="([^#"]*)"', text)) <= {*own}


def test_every_file_is_part_of_the_package():
    # What is not named in pyproject.toml would be missing in an installation.
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["clearhead"]
    root = Path(str(files(pages))).parent
    packed = {file for pattern in patterns for file in root.glob(pattern)}
    for file in (root / "pages").rglob("*"):
        assert file.is_dir() or file.suffix in (".py", ".pyc") or file in packed, file
