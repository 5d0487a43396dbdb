"""A model in a browser beside the compiled core on AVX2: speed, opening, memory and equal results.

    python bench/web.py runs/de-en --source test2016.de.gz

Both translate the same lines in 8 bits with one thread, from text to text, window by window in turn. Then all lines are
compared: tokens and scores. The page is a single file, opened from disk in the Chromium of this machine.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

os.environ.setdefault("CLEARHEAD_ISA", "avx2")  # before the core is loaded

import psutil
from playwright.sync_api import Browser, Page, sync_playwright

from clearhead.browser.writer import in_precision, write_web
from clearhead.bundle import load_bundle
from clearhead.files.streams import read_lines
from clearhead.runtime.threads import set_num_threads
from clearhead.translation.translator import Translator

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
TRANSLATE = "([lines, beam]) => clearhead.translate(lines.join('\\n'), { beam })"
FIRST = """async (line) => {
  while (!globalThis.clearhead?.ready) await new Promise((resolve) => setTimeout(resolve, 2));
  const ready = performance.now();
  await clearhead.translate(line);
  return [ready / 1e3, performance.now() / 1e3];
}"""
ONE_BY_ONE = """async ([lines, beam]) => {
  for (const line of lines) await clearhead.translate(line, { beam });
}"""
COMPARED = """async ([lines, beam]) => {
  const found = [];
  for (const line of lines) {
    const { text, score, tokens } = await clearhead.translate(line, { beam });
    found.push([text, score, tokens.length]);
  }
  return found;
}"""


def main() -> None:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, metavar="MODEL")
    parser.add_argument("--source", required=True, metavar="FILE")
    parser.add_argument("--lines", type=int, default=200, help="lines of a window (200)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compared", type=int, default=1_000, help="lines whose results are compared (1000)")
    options = parser.parse_args()
    set_num_threads(1)
    lines = [line for line in read_lines(options.source) if line.strip()]
    bundle = in_precision(load_bundle(options.model), "int8")
    translator = Translator(bundle, options.model)
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as playwright:
        file = Path(directory, "page.html")
        write_web(bundle, file, "bench", "int8", single_file=True)
        sizes = write_web(bundle, Path(directory, "folder"), "bench", "int8", single_file=False)
        print(f"{bundle.weights.num_parameters():,} parameters; file {file.stat().st_size / 1e6:.2f} MB", end="; ")
        print(f"folder {sum(sizes.values()) / 1e6:.2f} MB")
        path = next(filter(None, map(shutil.which, BROWSERS)), None)
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=arguments)
        print(f"Chromium {browser.version}")
        page = _opened(browser, file, lines[0], options.rounds)
        for beam in (1, 4):
            for name, script, at_once in (("batches", TRANSLATE, options.lines), ("one at a time", ONE_BY_ONE, 1)):
                _compare_speed(page, translator, lines[: options.lines], beam, name, script, at_once, options.rounds)
        for beam in (1, 4):
            _compare_results(page, translator, lines[: options.compared], beam)
        browser.close()


def _opened(browser: Browser, file: Path, line: str, rounds: int) -> Page:
    """Print how long opening takes, by the clock of the page, and the memory; return the last page."""
    times = []
    for _ in range(rounds):
        page = browser.new_page()
        before = _browser_bytes()
        page.goto(file.as_uri(), wait_until="commit")
        times.append(page.evaluate(FIRST, line))
        used = _browser_bytes() - before
        if len(times) < rounds:
            page.close()
    ready, first = (_spread(of, 2) for of in zip(*times, strict=True))
    print(f"golden sentences right after {ready} s, the first translation after {first} s")
    print(f"memory of the tab: {used / 1e6:.0f} MB")
    return page


def _browser_bytes() -> int:
    """Return the memory of the child processes that they share with no other."""
    children = psutil.Process().children(recursive=True)
    return sum(child.memory_full_info().uss for child in children)


def _compare_speed(
    page: Page, translator: Translator, lines: list[str], beam: int, name: str, script: str, at_once: int, rounds: int
) -> None:
    def native() -> None:
        for first in range(0, len(lines), at_once):
            translator.translate(lines[first : first + at_once], beam_size=beam)

    def here() -> None:
        page.evaluate(script, [lines, beam])

    native(), here()
    pairs = [(_seconds(native), _seconds(here)) for _ in range(rounds)]
    ratios = [of_native / of_page for of_native, of_page in pairs]
    speeds = [_spread([len(lines) / pair[side] for pair in pairs], 0) for side in (0, 1)]
    print(
        f"beam {beam}, {name}: {speeds[1]} lines/s in the page, {speeds[0]} by the core; ratio {_spread(ratios, 2)}",
        flush=True,
    )


def _seconds(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def _spread(values: Sequence[float], digits: int = 2) -> str:
    """Return the median, with the least and the most."""
    shown = f"{statistics.median(values):.{digits}f}"
    return f"{shown} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def _compare_results(page: Page, translator: Translator, lines: list[str], beam: int) -> None:
    found = page.evaluate(COMPARED, [lines, beam])
    own = translator.translate(lines, beam_size=beam)
    same = sum(one.text == text for one, (text, *_) in zip(own, found, strict=True))
    apart = [abs((one.score or 0.0) - score) for one, (_, score, _) in zip(own, found, strict=True)]
    print(f"beam {beam}: {same:,} of {len(lines):,} texts are the same; scores differ by at most {max(apart):.1e}")


if __name__ == "__main__":
    main()
