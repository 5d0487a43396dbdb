"""Photograph the pages of the model that `clearhead demo` trains, for docs/pictures: `python docs/screenshots.py`."""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from PIL import Image

from clearhead.bundle import load_bundle

ROOT = Path(__file__).parents[1]
sys.path.append(str(ROOT / "tests"))

from browsers import opened_browser  # noqa: E402

SENTENCE = "<2fr> Thursday, May 3, 2018"
SIZE = {"width": 1_000, "height": 640}
COLOURS = 48
"""Of a picture: pages are drawn in few, and a picture has a third of the bytes."""
FAULTS = (
    "The dog runs.\tDer Hund rennt.\nA dog runs.\tEin Hund rennt.\nShe sings well.\tSie singt gut.\n"
    "We saw %s birds.\tWir sahen Vögel.\nThe tea is hot.\tThe tea is hot.\nIt rains.\tEs regnet seit gestern abend "
    "ohne Ende, und morgen soll es weiter regnen, sagen sie.\nGood morning.\tGuten MorgenÂ\xa0!\n"
)
"""Pairs for the data doctor, some with faults."""

CATALOGUE = "".join(
    f'msgid "{source}"\nmsgstr "{target}"\n\n'
    for source, target in (
        ("", r"Content-Type: text/plain; charset=UTF-8\n"),
        ("Thursday, May 3, 2018", ""),
        ("Friday, May 4, 2018 (%s)", ""),
        ("Germany, France, and Italy", ""),
        ("in 5 days", ""),
        ("3 hours ago", "il y a 3 heures"),
    )
)
"""A catalogue to review."""
MEMORY = "Friday, May 11, 2018 (%s)\tvendredi 11 mai 2018 (%s)\n"
TERMS = "Friday\tvendredi\n"


def photograph(run: Path, out: Path) -> list[Path]:
    """Write pictures of the report, an explanation, the data doctor's report, the server's page and that of a review.

    Args:
        run: Directory of a run that `clearhead demo` made.
        out: Directory of the pictures.
    """
    written = []
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        directory = Path(name)
        for file, text in {
            "pairs.tsv": FAULTS,
            "calendar.po": CATALOGUE,
            "memory.tsv": MEMORY,
            "terms.tsv": TERMS,
        }.items():
            (directory / file).write_text(text, encoding="utf-8")
        for words in (
            ["explain", str(run), SENTENCE, "-o", "explain.html"],
            ["corpus", "check", "pairs.tsv", "-o", "doctor.html"],
        ):
            command = [sys.executable, "-m", "clearhead", *words]
            subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
        reviewing = ["review", "calendar.po", str(run)]
        reviewing += ["--memory", "memory.tsv", "--terms", "terms.tsv", "--reuse-from", "1"]
        if load_bundle(run).languages[1]:  # a test takes a smaller model, without tags
            reviewing += ["--target-lang", "fr"]
        places = {
            "report": (run / "report.html").as_uri(),
            "explain": (directory / "explain.html").as_uri(),
            "doctor": (directory / "doctor.html").as_uri(),
            "serve": stack.enter_context(_served(["serve", str(run)], directory, r'"page": "([^"]+)"')),
            "review": stack.enter_context(_served(reviewing, directory, r"review it at (\S+)")),
        }
        page = stack.enter_context(opened_browser()).new_page(viewport=SIZE)
        for name, place in places.items():
            page.goto(place)
            if name == "serve":
                page.locator("#source").fill("Thursday, May 3, 2018")
                page.locator("#translation").filter(has_text=re.compile(r"\w")).wait_for()
            if name == "review":
                page.locator("#mirror .word").last.wait_for()
                page.locator("#mirror .word").first.hover(force=True)
            file = out / f"page-{name}.png"
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
            written.append(file)
    return written


@contextmanager
def _served(words: Sequence[str], directory: Path, ready: str) -> Iterator[str]:
    """Run a command that serves a page for the block, and yield the address.

    Args:
        words: The command, without the port.
        directory: Where it runs.
        ready: Pattern of the message on stderr that it is ready; its group is the address.
    """
    command = [sys.executable, "-m", "clearhead", *words, "--port", "0"]
    with subprocess.Popen(command, cwd=directory, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            yield next(found[1] for line in server.stderr if (found := re.search(ready, line)))
        finally:
            server.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, default=ROOT / "runs" / "demo")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    for picture in photograph(options.run.resolve(), options.out):
        print(picture, picture.stat().st_size)
