"""The site of the documentation: no link of it is dead, nothing of it comes from elsewhere, and its search finds."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import build_site
import lxml.html
import pytest
import screenshots
from axe_playwright_python.sync_playwright import Axe
from lxml import etree
from playwright.sync_api import expect

from browsers import listen, serious, served
from clearhead.paper.concepts import CONCEPTS
from clearhead.runtime.version import NUMBER
from every_run import slow

ROOT = Path(__file__).parents[2]
WORDS = (
    "attribution",
    "averaging",
    "cosine",
    "data doctor",
    "entropy",
    "glossary",
    "GRU",
    "label smoothing",
    "LayerNorm",
    "length penalty",
    "logit lens",
    "padding mask",
    "placeholders",
    "self-attention",
    "soft dictionary",
    "temperature",
    "walk",
    "warm-up",
    "WordPiece",
    "scaled_dot_product_attention",
    "tokenizer.vocab_size",
    "--ensemble",
)
"""What notes on the paper call things, beside the words of the concepts, and names of this package."""
RESOURCES = {"img": ("src", "srcset"), "script": ("src",), "iframe": ("src",), "source": ("src", "srcset")}
"""Elements that load what their attributes name. Links of the head do, too."""

OURS = {"include": [[".md-header"], [".md-container"]]}
"""What axe looks at: all but the window of the search, whose buttons have no names in this version of Zensical."""

RULES = {
    "runOnly": ["wcag2a", "wcag2aa"],
    "rules": {"scrollable-region-focusable": {"enabled": False}},  # browsers let the keyboard scroll wide tables
}


@pytest.fixture(scope="module")
def site(tmp_path_factory, fonts) -> Path:
    """Return the directory of this version, built as `make site` does."""
    directory = tmp_path_factory.mktemp("site")
    tour = directory / "tour.html"  # running the real one takes a minute
    tour.write_text(f'<a href="../docs/../src/clearhead/errors.py#L7">x</a>{build_site.tour_mark()}', encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_site, "TOUR", tour)
        patch.setattr(build_site, "write_translator", lambda page: page.write_text("<p>The demo.") > 0)
        return build_site.build(directory / "site", directory / "pages")


@pytest.fixture(scope="module")
def pages(site) -> dict[str, Any]:
    """Return the documents of the site, by their path in it."""
    return {file.relative_to(site).as_posix(): lxml.html.parse(file).getroot() for file in site.rglob("*.html")}


def links(pages: dict[str, Any], site: Path) -> Iterator[tuple[str, str]]:
    """Yield every link of pages and pictures: where it is, and what it names."""
    for name, page in pages.items():
        yield from ((name, link) for _, attribute, link, _ in page.iterlinks() if attribute != "codebase")
    for file in site.rglob("*.svg"):
        drawing = etree.parse(file)
        yield from ((file.relative_to(site).as_posix(), link) for link in drawing.xpath("//@*[local-name()='href']"))


def dead(pages: dict[str, Any], site: Path) -> list[str]:
    """Return the links within a site that name no file or no place in a page."""
    places = {name: {*page.xpath("//@id"), *page.xpath("//a/@name")} for name, page in pages.items()}
    found = []
    for name, link in set(links(pages, site)):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        path = os.path.normpath(Path(name).parent / unquote(parts.path)) if parts.path else name
        path = f"{path}/index.html".removeprefix("./") if (site / path).is_dir() else path
        here = name.endswith(".svg") and not parts.path  # a part of the drawing, such as a marker
        if not (site / path).is_file():
            found.append(f"{name}: {link}: no such file")
        elif parts.fragment and path in places and unquote(parts.fragment) not in places[path] and not here:
            found.append(f"{name}: {link}: no such place")
    return sorted(found)


def from_elsewhere(pages: dict[str, Any], site: Path) -> list[str]:
    """Return what pages and style sheets load from another place than the site."""
    found = []
    for name, page in pages.items():
        loaded = [link for tag, of_tag in RESOURCES.items() for key in of_tag for link in page.xpath(f"//{tag}/@{key}")]
        loaded += page.xpath("//link[not(@rel='canonical')]/@href")
        found += [f"{name}: {link}" for link in loaded if re.match(r"(https?:)?//", link)]
        found += [f"{name}: {text}" for style in page.xpath("//style/text()") for text in _loaded_by(style)]
    for file in [*site.rglob("*.css"), *site.rglob("*.svg")]:
        found += [f"{file.name}: {text}" for text in _loaded_by(file.read_text("utf-8"))]
    return found


def _loaded_by(style: str) -> list[str]:
    return re.findall(r"""(?:url\(|@import)\s*["']?(?:https?:)?//[^)"']*""", style)


def test_no_link_is_dead(pages, site):
    assert len(set(links(pages, site))) > 3_000
    assert dead(pages, site) == []


def test_site_loads_no_external_resources(pages, site):
    assert from_elsewhere(pages, site) == []


def test_a_dead_link_and_what_is_loaded_from_elsewhere_are_found(tmp_path):
    (tmp_path / "page.html").touch()
    (tmp_path / "here.css").write_text("@import 'https://b.example/x.css'", encoding="utf-8")
    text = (
        '<link rel="stylesheet" href="//a.example/x.css"><h1 id="up">1</h1><a href="#up">2</a><a href="#down">3</a>'
        '<a href="other.html#up">4</a><a href="here.css">5</a><a href="https://c.example/">6</a>'
    )
    page = {"page.html": lxml.html.document_fromstring(text)}
    assert dead(page, tmp_path) == ["page.html: #down: no such place", "page.html: other.html#up: no such file"]
    assert from_elsewhere(page, tmp_path) == [
        "page.html: //a.example/x.css",
        "here.css: @import 'https://b.example/x.css",
    ]


def test_every_page_of_the_docs_has_a_place_among_the_others():
    def named(entries: list[Any]) -> Iterator[str]:
        for entry in entries:
            if isinstance(entry, str):
                yield entry
            else:
                for inner in entry.values():
                    yield from named(inner if isinstance(inner, list) else [inner])

    nav = tomllib.loads((ROOT / "docs" / "zensical.toml").read_text("utf-8"))["project"]["nav"]
    assert [next(iter(kind)) for kind in nav] == ["Home", "Tutorials", "How-to", "Reference", "Explanation"]
    places = list(named(nav))
    assert sorted(places) == sorted(set(places))
    pages = {build_site.site_path(file.relative_to(ROOT).as_posix()) for file in (ROOT / "docs").glob("*.md")}
    assert pages - set(places) == set()


def test_links_lead_to_the_pages_of_the_site():
    page = "[a](errata.md#b) [c](../src/clearhead/errors.py#L7) [d](../README.md) [e](../nowhere.py) [f](#g)"
    text, linked = build_site.relinked(page, "docs/paper.md")
    source = "source/src/clearhead/errors.py.md#__span-0-7"
    assert text == f"[a](errata.md#b) [c]({source}) [d](index.md) [e](../nowhere.py) [f](#g)"
    assert linked == {"docs/errata.md", "src/clearhead/errors.py", "README.md"}
    text, _ = build_site.relinked("[docs/paper.md](docs/paper.md)", "CHANGELOG.md")
    assert text == "[docs/paper.md](paper.md)"
    text, _ = build_site.relinked('<a href="../../src/clearhead/errors.py#L7">', "docs/pictures/a.svg", suffix=".html")
    assert text == '<a href="../source/src/clearhead/errors.py.html#__span-0-7">'


def test_the_tour_with_outputs_is_on_the_site_if_it_is_of_these_sources(pages, tmp_path, monkeypatch, capsys):
    assert "tour-outputs.html" in pages["tour.html"].xpath("//article//a/@href")
    assert pages["tour-outputs.html"].xpath("//a/@href") == ["source/src/clearhead/errors.py.html#__span-0-7"]
    for text in (None, "of other sources", f"{build_site.tour_mark()} cut"):
        monkeypatch.setattr(build_site, "TOUR", tmp_path / "tour.html")
        if text:
            build_site.TOUR.write_text(text, encoding="utf-8")
        assert build_site.tour_with_outputs() is None
        assert capsys.readouterr().err.startswith("no tour.html of these sources")


def test_the_demo_translates_on_the_site_if_it_was_trained(tmp_path, monkeypatch, capsys):
    page = tmp_path / "translator.html"
    monkeypatch.setattr(build_site, "DEMO", tmp_path / "none")
    assert not build_site.write_translator(page)
    assert capsys.readouterr().err.startswith("no runs/demo: the site has no translator")
    monkeypatch.setattr(build_site, "DEMO", tmp_path)
    monkeypatch.setattr("clearhead.bundle.load_bundle", lambda path: path)
    monkeypatch.setattr("clearhead.browser.writer.write_web", lambda bundle, page, *_, **__: page.touch())
    assert build_site.write_translator(page)
    assert page.exists()


def test_pages_link_to_the_translator_of_the_site(site):
    counts = Counter(name for name, *_ in build_site.TO_TRANSLATOR)
    for name, count in counts.items():
        page = lxml.html.parse(site / Path(name).with_suffix(".html")).getroot()
        assert page.xpath("//article//a/@href").count("translator.html") == count, name


def test_a_site_keeps_its_other_versions(tmp_path):
    built = tmp_path / "built"
    built.mkdir()
    for version in ("0.9.0", "0.10.0", "0.9.1"):
        (built / "index.html").write_text(version, encoding="utf-8")
        build_site.add_version(built, tmp_path / "site", version)
    versions = json.loads((tmp_path / "site" / "versions.json").read_text("utf-8"))
    assert versions == [
        {"version": "0.10", "title": "0.10.0", "aliases": ["latest"]},
        {"version": "0.9", "title": "0.9.1", "aliases": []},
    ]
    there = {name: (tmp_path / "site" / name / "index.html").read_text("utf-8") for name in ("0.9", "0.10", "latest")}
    assert there == {"0.9": "0.9.1", "0.10": "0.10.0", "latest": "0.10.0"}


def test_the_site_is_small(site):
    assert sum(file.stat().st_size for file in site.rglob("*") if file.is_file()) < 20_000_000


PICTURES = sorted((ROOT / "docs" / "pictures").glob("page-*.png"))


def test_pictures_of_pages_are_small_and_shown():
    assert [file.stem for file in PICTURES] == [
        "page-doctor",
        "page-explain",
        "page-report",
        "page-review",
        "page-serve",
    ]
    assert sum(file.stat().st_size for file in PICTURES) < 300_000
    pages = "".join(file.read_text("utf-8") for file in (ROOT / "docs").glob("*.md"))
    assert [file.name for file in PICTURES if f"](pictures/{file.name})" not in pages] == []


@pytest.mark.slow
def test_the_pictures_are_made_of_a_run(tmp_path):
    run = shutil.copytree(ROOT / "tests" / "compat" / "0.1.0" / "run", tmp_path / "run")
    (run / "report.html").write_text("<h1>Report</h1>", encoding="utf-8")
    made = screenshots.photograph(run, tmp_path)
    assert sorted(file.stem for file in made) == [file.stem for file in PICTURES]
    assert len({file.read_bytes() for file in made}) == len(made)


@pytest.fixture(scope="module")
def address(site) -> Iterator[str]:
    """Serve the site, and return the address of its version."""
    with served(site.parent) as root:
        yield root + site.name


SOME = ("paper", "index")
ALL = (*SOME, "concepts", "api", "alignment", "statements")
CODE = "tr:has(td:nth-child(4) code) td:not(:first-child) code"
NARROWEST = f"Math.min(innerWidth, ...[...document.querySelectorAll('{CODE}')].map(a => a.closest('td').clientWidth))"
"""Width of the narrowest cell with code among those of tables with four columns."""


@pytest.mark.parametrize(
    ("width", "scheme", "names"), [(390, "dark", SOME), slow(390, "dark", ALL), slow(1280, "light", ALL)]
)
def test_pages_are_shown_without_a_request_to_elsewhere(width, scheme, names, browser, address):
    asked: list[str] = []
    complaints: list[str] = []
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    page.on("request", lambda request: asked.append(request.url))
    listen(page, complaints)
    for name in names:
        page.goto(f"{address}/{name}.html")
        page.wait_for_selector(".md-version__link", state="attached")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(NARROWEST) > 150
        assert page.locator("body").get_attribute("data-md-color-scheme") == {"dark": "slate"}.get(scheme, "default")
        assert (page.locator("button[data-md-type=copy]").count() > 0) == (page.locator("pre code").count() > 0)
        if name in ("alignment", "index"):  # axe takes seconds for a long page
            assert serious(Axe().run(page, context=OURS, options=RULES)) == []
    assert page.locator(".md-version__current").inner_text() == NUMBER
    assert [url for url in asked if not url.startswith(address.rpartition("/")[0])] == []
    assert complaints == []
    context.close()


ASK = """async words => {
    const worker = new Worker(JSON.parse(document.getElementById("__config").textContent).search);
    const asked = (type, data) => new Promise((done, fail) => {
        worker.onerror = fail;
        worker.onmessage = event => done(event.data.data);
        worker.postMessage({type, data});
    });
    await asked(0, await (await fetch("search.json")).json());
    const counts = [];
    for (const input of words) counts.push((await asked(2, {input})).total);
    return counts;
}"""
"""Ask the search of the page, without drawing its window for each word; return how many pages and sections it finds."""


@pytest.mark.slow
def test_the_search_finds_the_words_of_notes(browser, address):
    page = browser.new_page()
    page.goto(f"{address}/index.html")
    words = [*WORDS, *(word for concept in CONCEPTS for word in concept.words)]
    escaped = [html.escape(word, quote=False) for word in words]  # as the window of the search passes them on
    counts = dict(zip(words, page.evaluate(ASK, escaped), strict=True))
    assert [word for word, count in counts.items() if not count] == []
    assert page.evaluate(ASK, ["hard zzzq"]) == [0]
    page.locator(".md-search__button").click()
    page.get_by_role("combobox").fill("logit lens")
    page.locator('a[href*="?h=logit+lens"]').first.wait_for()
    page.get_by_role("combobox").fill("hard zzzq")
    expect(page.get_by_role("link").filter(has_text="hard")).to_have_count(0)
    page.close()
