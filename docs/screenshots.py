"""Photograph the pages of the model that `clearhead demo` trains, for docs/pictures: `python docs/screenshots.py`."""

from __future__ import annotations

import argparse
import io
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

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


def photograph(run: Path, out: Path) -> list[Path]:
    """Write a picture of the report, of an explanation, of the data doctor's report and of the server's page.

    Args:
        run: Directory of a run that `clearhead demo` made.
        out: Directory of the pictures.
    """
    written = []
    with tempfile.TemporaryDirectory() as name, opened_browser() as browser, _served(run) as address:
        directory = Path(name)
        (directory / "pairs.tsv").write_text(FAULTS, encoding="utf-8")
        for words in (
            ["explain", str(run), SENTENCE, "-o", "explain.html"],
            ["corpus", "check", "pairs.tsv", "-o", "doctor.html"],
        ):
            command = [sys.executable, "-m", "clearhead", *words]
            subprocess.run(command, check=True, cwd=directory, stdout=subprocess.DEVNULL)
        places = {
            "report": (run / "report.html").as_uri(),
            "explain": (directory / "explain.html").as_uri(),
            "doctor": (directory / "doctor.html").as_uri(),
            "serve": address,
        }
        page = browser.new_page(viewport=SIZE)
        for name, place in places.items():
            page.goto(place)
            if name == "serve":
                page.locator("#source").fill("Thursday, May 3, 2018")
                page.locator("#translation").filter(has_text=re.compile(r"\w")).wait_for()
            file = out / f"page-{name}.png"
            picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
            picture.quantize(COLOURS, dither=Image.Dither.NONE).save(file, optimize=True)
            written.append(file)
    return written


@contextmanager
def _served(run: Path) -> Iterator[str]:
    """Serve a model for the block, and yield the address of its page."""
    command = [sys.executable, "-m", "clearhead", "serve", str(run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            address = ""
            for line in server.stderr:
                event: dict[str, Any] = json.loads(line)
                address = event.get("page", address)
                if event["event"] == "ready":
                    break
            yield address
        finally:
            server.terminate()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", nargs="?", type=Path, default=ROOT / "runs" / "demo")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "pictures")
    options = parser.parse_args()
    for picture in photograph(options.run.resolve(), options.out):
        print(picture, picture.stat().st_size)
