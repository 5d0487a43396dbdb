"""Build the site of these pages: `make site`, then `python -m http.server -d build/site`.

The pages are copied with their links changed to those of the site, beside pages that the code writes. Zensical makes
HTML of them, into a directory for the version; nothing in it loads anything from elsewhere.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import posixpath
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from clearhead.runtime.version import NUMBER

ROOT = Path(__file__).parents[1]
BUILD = ROOT / "build"
TOUR = BUILD / "tour.html"
"""The tour with its outputs, where `make tour` writes it."""
DEMO = ROOT / "runs" / "demo" / "model"
"""The model of `make demo`, which translates on the site."""
COMPUTED = ("formulas", "table2", "table3", "schedule", "positions", "walk")
"""Parts of `clearhead paper` on the site: those that take seconds. The errata have their own page."""

TO_LATEST = b'<!doctype html><title>clearhead</title><meta http-equiv="refresh" content="0; latest/">'
LINK = re.compile(r'(\]\(|\bhref=")([^)"#:\s]+)(?:#([^)"\s]*))?(?=[)"])')
NOT_SEARCHED = "---\nsearch:\n  exclude: true\n---\n"
"""Head of a page that the search leaves out."""

TO_TRANSLATOR = (
    (
        "index.md",
        "Begin with",
        "**[Try it here](translator.html)**: the model of `make demo`, in your browser. Type an English date, choose a "
        "language, and *Look inside*.",
    ),
    ("web.md", "## ", "**[The model of `make demo`, in your browser](translator.html)** is such a page."),
    (
        "paper.md",
        "## Symbols",
        "The same numbers for a sentence of your own, in your browser: [the model of `make demo`](translator.html), "
        "*Look inside*, *The computation, number by number*.",
    ),
    (
        "paper.md",
        "## Where well-known code",
        "Every head for a sentence of your own, in your browser: [the model of `make demo`](translator.html), *Look "
        "inside*.",
    ),
)
"""Sentences of the site alone, which has a translator: the page of each, and what it stands before."""
TO_OUTPUTS = "\n\n[This page with all outputs](tour-outputs.html) was made by running it.\n\n"
COMPUTED_HEAD = """# The paper, computed

What `clearhead paper` prints and draws, made with this version: the equations, tables and figures of the paper, each
compared with an independent reference. For example:

```
clearhead paper schedule -o figures
```

prints the section [below](#{anchor}) and draws its figure. [paper.md](paper.md) links each to its line of code;
[a page of its own](walk.html) shows every number of a small model.
"""


def site_path(path: str) -> str:
    """Return the page or file of the site for a file of the repository.

    >>> site_path("docs/paper.md"), site_path("examples/masks.py"), site_path("README.md")
    ('paper.md', 'source/examples/masks.py.md', 'index.md')
    """
    if path == "README.md":
        return "index.md"
    if path == "docs/tour.ipynb":
        return "tour.md"
    if path.startswith("docs/") and not path.endswith(".py"):
        return path.removeprefix("docs/")
    return path if path.endswith(".md") else f"source/{path}.md"


def relinked(text: str, path: str, *, suffix: str = ".md") -> tuple[str, set[str]]:
    """Return a page or picture of the repository with links of the site, and the files that it links to.

    Args:
        text: Its text.
        path: Its path in the repository.
        suffix: Ending of the links to pages: Zensical changes `.md` in pages itself.
    """
    linked = set()

    def changed(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        if not (ROOT / target).is_file():
            return link[0]
        linked.add(target)
        there = posixpath.relpath(site_path(target), posixpath.dirname(site_path(path)))
        anchor = re.sub(r"^L(\d+)$", r"__span-0-\1", link[3] or "")
        return link[1] + re.sub(r"\.md$", suffix, there) + (f"#{anchor}" if anchor else "")

    return LINK.sub(changed, text), linked


def write_pages(directory: Path) -> None:
    """Write all pages and pictures of the site, as Zensical reads them."""
    sources: set[str] = set()
    pages = [*ROOT.glob("docs/*.md"), *ROOT.glob("*.md"), ROOT / "examples" / "README.md"]
    for file in [*pages, *ROOT.glob("docs/*/*.svg"), *ROOT.glob("docs/*/*.png")]:
        path = file.relative_to(ROOT).as_posix()
        if path == "README.md":  # index.md has its doors
            continue
        if file.suffix == ".png":
            content = file.read_bytes()
        else:
            text, linked = relinked(file.read_text("utf-8"), path, suffix=".md" if file.suffix == ".md" else ".html")
            sources |= linked
            content = text.encode()
        _write(directory / site_path(path), content)
    tours = {"tour.md": _tour(ROOT / "docs" / "tour.ipynb")}
    if (run := tour_with_outputs()) is not None:
        tours = {"tour.md": tours["tour.md"].replace("\n\n", TO_OUTPUTS, 1), "tour-outputs.html": run}
    for name, tour in tours.items():
        text, linked = relinked(tour, "docs/tour.ipynb", suffix=Path(name).suffix)
        sources |= linked
        _write(directory / name, text.encode())
    if write_translator(directory / "translator.html"):
        for name, before, sentence in TO_TRANSLATOR:
            text = (directory / name).read_text("utf-8").replace(f"\n{before}", f"\n{sentence}\n\n{before}", 1)
            (directory / name).write_text(text, encoding="utf-8")
    for path in sources:
        if site_path(path).startswith("source/"):
            _write(directory / site_path(path), _source(path).encode())
    _write(directory / "site.css", (ROOT / "docs" / "site.css").read_bytes())
    _write(directory / "pictures" / "icon.svg", (ROOT / "src" / "clearhead" / "pages" / "icon.svg").read_bytes())
    shutil.copytree(_computed(), directory, dirs_exist_ok=True)


def _write(file: Path, content: bytes) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)


def write_translator(page: Path) -> bool:
    """Write the page of the demo model, or without that model a message; return whether it was written."""
    if not DEMO.is_dir():
        print("no runs/demo: the site has no translator; see `make demo`", file=sys.stderr)
        return False
    from clearhead.browser.writer import write_web
    from clearhead.bundle import load_bundle

    page.unlink(missing_ok=True)
    write_web(load_bundle(DEMO), page, "demo", "int8", single_file=True)
    return True


def _source(path: str) -> str:
    """Return a page of a file of the repository, whose lines are numbered."""
    language = {".py": "python", ".toml": "toml"}.get(Path(path).suffix, "text")
    fence = "~" * 12
    return f'{NOT_SEARCHED}# {path}\n\n{fence} {language} linenums="1"\n{(ROOT / path).read_text("utf-8")}{fence}\n'


def _tour(notebook: Path) -> str:
    """Return the notebook as a page, without outputs."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    texts = [(cell["cell_type"] == "code", "".join(cell["source"])) for cell in cells]
    return "\n\n".join(f"```python\n{text}\n```" if is_code else text for is_code, text in texts)


def tour_with_outputs() -> str | None:
    """Return the page of the tour with its outputs, or None with a message if there is none of these sources."""
    text = TOUR.read_text("utf-8") if TOUR.is_file() else ""
    if text.endswith(tour_mark()):
        return text
    print(f"no {TOUR.name} of these sources: the site has the tour without outputs; see `make tour`", file=sys.stderr)
    return None


def tour_mark() -> str:
    """Return the last line of a page of the tour, which names the sources that it was made of."""
    made_of = _digest(*(ROOT / "docs" / name for name in ("tour.ipynb", "tour.css", "build_tour.py")))
    return f"<!-- made of {made_of} -->\n"


def _digest(*files: Path) -> str:
    """Return what changes with the package or with files."""
    digest = hashlib.sha256()
    for file in sorted([*files, *(ROOT / "src").rglob("*.py")]):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _computed() -> Path:
    """Return the directory of what `clearhead paper` computes; it is kept until the package changes."""
    directory = BUILD / "computed" / _digest(Path(__file__))
    if not directory.is_dir():
        from paper_pages import anchor_of

        from clearhead.inspection.plots import draw
        from clearhead.paper.contents import PARTS

        for old in directory.parent.glob("*"):
            if old != directory:
                shutil.rmtree(old, ignore_errors=True)
        unfinished = BUILD / f"computed.{os.getpid()}"
        parts = {name: PARTS[name]() for name in COMPUTED}
        sections = []
        for part in parts.values():
            sections.append(f"## {part.title}\n\n```text\n{part.text}```\n")
            for name, figure in part.figures.items():
                _write(unfinished / "computed" / f"{name}.svg", draw(figure, "svg"))
                sections.append(f"![{part.title}](computed/{name}.svg)\n")
            for name, page in part.pages.items():
                _write(unfinished / f"{name}.html", page.encode())
        anchor = anchor_of(parts["schedule"].title)
        _write(unfinished / "computed.md", "\n".join([COMPUTED_HEAD.format(anchor=anchor), *sections]).encode())
        directory.parent.mkdir(exist_ok=True)
        with suppress(OSError):  # another build was first
            unfinished.rename(directory)
        shutil.rmtree(unfinished, ignore_errors=True)
    return directory


def build(site: Path, work: Path = BUILD / "pages") -> Path:
    """Build this version into a site, which may have others; return the directory of the version.

    Args:
        site: Directory of the site.
        work: Directory of the pages as Zensical reads them; it is made anew.

    Raises:
        SystemExit: If Zensical finds a link to a page or a heading that does not exist.
    """
    shutil.rmtree(work, ignore_errors=True)
    write_pages(work / "pages")
    config = (ROOT / "docs" / "zensical.toml").read_text("utf-8").replace("{version}", NUMBER)
    _write(work / "zensical.toml", config.encode())
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(work / "zensical.toml")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        sys.exit(re.sub(r"\x1b\[[\d;]*m", "", done.stdout + done.stderr))
    (work / "site" / "404.html").unlink()  # its links are those of a site without versions
    return add_version(work / "site", site, NUMBER)


def add_version(built: Path, site: Path, version: str) -> Path:
    """Put a built version into a site as `X.Y`, and as `latest` if no other is newer; return its directory."""
    name = ".".join(version.split(".")[:2])
    known = json.loads((site / "versions.json").read_text("utf-8")) if (site / "versions.json").is_file() else []
    entries = {entry["version"]: entry for entry in known} | {name: {"version": name, "title": version}}
    newest_first = sorted(entries, key=lambda one: [*map(int, one.split("."))], reverse=True)
    versions = [entries[one] | {"aliases": ["latest"] if one == newest_first[0] else []} for one in newest_first]
    for place in [name, "latest"] if newest_first[0] == name else [name]:
        shutil.rmtree(site / place, ignore_errors=True)
        shutil.copytree(built, site / place)
    _write(site / "versions.json", json.dumps(versions, indent=1).encode())
    _write(site / "index.html", TO_LATEST)
    return site / name


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--into", type=Path, default=BUILD / "site", help="the site; versions that it has are kept")
    print(build(parser.parse_args().into) / "index.html")
