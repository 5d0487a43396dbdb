"""Run the benchmarks that need no data and no model, as many as fit into a time, and write figures and a page of them.

    make benchmarks
    python bench/run_all.py --minutes 10 --out build

`benchmarks/results.json` has every window that was measured, with the machine, the versions and the commands;
`benchmarks.md` and a picture for each table show them. All are written after each benchmark. A library that is not
installed is left out, and so is a benchmark for which too little time is left or that fails; the page says which.
`--page RESULTS` writes the page of earlier results; with `--out docs`, that of the documentation.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import clearhead
from clearhead.runtime.device import device_name

BENCH = Path(__file__).parent
FLAGS = (
    "avx avx2 fma f16c avx_vnni avx512f avx512bw avx512_vnni avx512_bf16 amx_tile amx_int8 amx_bf16 asimddp bf16 i8mm"
)
"""Instructions that decide how fast products of matrices are, as Linux names them."""
LIBRARIES = ("torch", "numpy", "tokenizers", "transformers", "ctranslate2", "OpenNMT-py", "eole", "pymarian", "slimt")

Table = dict[str, Any]
"""`title`, `unit`, and `rows`: name to the figures of the windows, of which more is better."""


@dataclass(frozen=True)
class Job:
    """A benchmark to run."""

    name: str
    command: str
    """Without `python bench/`."""
    quick: str
    """The same on a toy, to see whether it runs."""
    minutes: float
    """What it takes, about; with less left it is not started."""
    tables: Callable[[Mapping[str, Any]], list[Table]]


def training_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return a table for each case of bench/train.py."""
    return [
        {
            "title": f"Training, {case['name']}: {case['about']}",
            "unit": "target tokens/s",
            "rows": {name: one["windows"] for name, one in case["candidates"].items()},
        }
        for case in found["cases"]
    ]


def translation_tables(found: Mapping[str, Any]) -> list[Table]:
    """Return a table for each case, number of beams and size of batches of bench/translate.py."""
    return [
        {
            "title": f"Translation, {case['name']}, beam {beam['beam']}, {run['batch']} at a time: {case['about']}",
            "unit": "output tokens/s",
            "rows": {name: one["windows"] for name, one in run["engines"].items()},
        }
        for case in found["cases"]
        for beam in case["beams"]
        for run in beam["runs"]
    ]


JOBS = (
    Job(
        "Training",
        "train.py --json --cases tiny --steps 4",
        "train.py --json --cases toy --synthetic --candidates clearhead torch.nn --steps 1 --matrix 256 --threads 1",
        4,
        training_tables,
    ),
    Job(
        "Greedy translation by a small student model",
        "translate.py --json --cases student --beams 1",
        "translate.py --json --cases toy --engines clearhead ctranslate2 --beams 1 --threads 1",
        5,
        translation_tables,
    ),
    Job("The same with beam search", "translate.py --json --cases student --beams 5", "", 10, translation_tables),
    Job("Training of a larger model", "train.py --json --cases yardstick --steps 4", "", 10, training_tables),
    Job("Translation by the paper's base model", "translate.py --json --cases paper-base", "", 20, translation_tables),
)
"""In the order in which they run."""


def run_job(job: Job, command: str, seconds: float) -> dict[str, Any]:
    """Run a benchmark, and return its tables, or why it was left out."""
    words = shlex.split(command)
    began = time.monotonic()
    call = [sys.executable, str(BENCH / words[0]), *words[1:]]
    try:
        done = subprocess.run(call, check=False, stdout=subprocess.PIPE, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        return left_out(job, command, f"it had not ended after {seconds / 60:.1f} minutes")
    if done.returncode:
        return left_out(job, command, f"it ended with status {done.returncode}")
    found = json.loads(done.stdout)
    missing = {name: text.removeprefix("skipped: ") for name, text in found.get("missing", {}).items()}
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    took = {"seconds": round(time.monotonic() - began), "load": load}
    named = {"name": job.name, "command": f"python bench/{command}"}
    return named | took | {"missing": missing, "tables": job.tables(found)}


def run_all(minutes: float, *, quick: bool) -> Iterator[dict[str, Any]]:
    """Run the benchmarks that fit into a time; yield the contents of `results.json` after each."""
    began = time.monotonic()
    about = {"machine": machine(), "minutes": minutes, "quick": quick}
    jobs = [(job, command) for job in JOBS if (command := job.quick if quick else job.command)]
    results = [left_out(job, command, "the run was stopped before it") for job, command in jobs]
    for place, (job, command) in enumerate(jobs):
        left = max(minutes * 60 - (time.monotonic() - began), 0)
        if not quick and left < job.minutes * 60:
            reason = f"it takes about {job.minutes:.0f} minutes, and {left / 60:.0f} were left"
            results[place] = left_out(job, command, reason)
        else:
            print(f"{job.name}: python bench/{command}", file=sys.stderr)
            results[place] = run_job(job, command, left)
        yield about | {"benchmarks": results}


def left_out(job: Job, command: str, reason: str) -> dict[str, Any]:
    """Return the result of a benchmark without figures."""
    return {"name": job.name, "command": f"python bench/{command}", "left_out": reason}


def machine() -> dict[str, Any]:
    """Return what the figures depend on: the processor, the system, the versions, and the commit."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else ""
    flags = {flag for line in re.findall(r"^(?:flags|Features)\s*:(.*)", told, re.MULTILINE) for flag in line.split()}
    described = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    commit = ""
    if shutil.which("git"):
        commit = subprocess.run(described, cwd=BENCH, check=False, capture_output=True, text=True).stdout.strip()
    versions = {"clearhead": clearhead.__version__, "Python": platform.python_version()}
    for library in LIBRARIES:
        try:
            versions[library] = version(library)
        except PackageNotFoundError:
            continue
    return {
        "date": date.today().isoformat(),
        "processor": device_name("cpu"),
        "instructions": [flag for flag in FLAGS.split() if flag in flags],
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "versions": versions,
        "commit": commit,
    }


HEAD = """# Benchmarks of one machine

What `make benchmarks` measured: training and translation beside other libraries, in turn. Run it to have this page of
your own machine, `build/benchmarks.md`, and every figure, in `build/benchmarks/results.json`. For example, for ten
minutes instead of an hour:

```
python bench/run_all.py --minutes 10 --out build
```

[performance.md]({docs}performance.md) explains such figures, and has those of other machines. Compare ratios: the
speed of a machine changes with its load.

"""


def page(results: Mapping[str, Any], *, docs: str = "") -> str:
    """Return the page of results in Markdown.

    Args:
        results: Contents of `results.json`.
        docs: Path from the page to the other pages.
    """
    about = results["machine"]
    commit = f"`{about['commit'].removesuffix('-dirty')}`" if about["commit"] else "unknown"
    changed = " with changes" if about["commit"].endswith("-dirty") else ""
    lines = [
        HEAD.format(docs=docs),
        *(["**These are of `--quick`: toys, whose speed means nothing.**\n"] if results["quick"] else []),
        "| | |\n| --- | --- |",
        f"| processor | {about['processor']}, {about['cores']} cores, {about['system']} |",
        f"| instructions | {', '.join(about['instructions']) or 'unknown'} |",
        f"| versions | {', '.join(f'{name} {one}' for name, one in about['versions'].items())} |",
        f"| when | {about['date']}, commit {commit}{changed}, at most {results['minutes']:g} minutes |",
        "",
    ]
    for number, one in enumerate(results["benchmarks"]):
        lines += [f"## {one['name']}\n", f"```\n{one['command']}\n```\n"]
        if "left_out" in one:
            lines.append(f"Left out: {one['left_out']}.\n")
            continue
        is_busy = one["load"] is not None and one["load"] > 1.5 * about["cores"]
        busy = f" **The machine was busy**: {one['load']:.0f} processes shared its cores." if is_busy else ""
        lines.append(f"It took {one['seconds']:,} seconds.{busy}\n")
        for place, table in enumerate(one["tables"]):
            picture = f"![{table['title'].partition(':')[0]}](benchmarks/{number}-{place}.svg)"
            lines += [f"**{table['title']}**\n", *_rows(table), f"\n{picture}\n"]
        lines += [f"- Left out: {reason}" for reason in one["missing"].values()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _rows(table: Table) -> Iterator[str]:
    """Yield the lines of a table, the fastest first: the median, the windows, and its share of the first row's."""
    medians = {name: statistics.median(values) for name, values in table["rows"].items()}
    fastest = max(medians.values())
    yield f"| | {table['unit']} | least to most | by the fastest |"
    yield "| --- | ---: | ---: | ---: |"
    for name in sorted(medians, key=medians.__getitem__, reverse=True):
        values = table["rows"][name]
        spread = f"{min(values):,.0f} to {max(values):,.0f}"
        yield f"| {name} | {medians[name]:,.0f} | {spread} | {medians[name] / fastest:.2f} |"


def pictures(results: Mapping[str, Any]) -> dict[str, str]:
    """Return a picture for each table as SVG, by the name of its file."""
    return {
        f"{number}-{place}.svg": _bars(table)
        for number, one in enumerate(results["benchmarks"])
        for place, table in enumerate(one.get("tables", []))
    }


def _bars(table: Table) -> str:
    """Return a bar for the median of each row, with a line from its least to its largest window."""
    rows = sorted(table["rows"].items(), key=lambda row: statistics.median(row[1]), reverse=True)
    left, width, step = 190, 440, 22
    most = max(max(values) for _, values in rows)
    height = step * len(rows) + 34
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {left + width + 70} {height}" '
        'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="#fff"/>'
    ]
    for number, (name, values) in enumerate(rows):
        y, median = 8 + step * number, statistics.median(values)
        start, end = (left + width * edge(values) / most for edge in (min, max))
        drawn += [
            f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{escape(name)}</text>',
            f'<rect x="{left}" y="{y}" width="{width * median / most:.1f}" height="16" '
            f'fill="{"#4051b5" if name.startswith("clearhead") else "#9aa4b2"}"/>',
            f'<path d="M{start:.1f} {y + 8}H{end:.1f}" stroke="#111" stroke-width="2"/>',
            f'<text x="{end + 6:.1f}" y="{y + 13}">{median:,.0f}</text>',
        ]
    drawn.append(
        f'<text x="{left}" y="{height - 8}">{escape(table["unit"])}: median, and a line from least to most</text>'
    )
    return "\n".join([*drawn, "</svg>"]) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the arguments ask for."""
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60, help="time for all benchmarks (default: 60)")
    parser.add_argument("--out", type=Path, default=Path("build"), help="directory to write to")
    parser.add_argument("--quick", action="store_true", help="run them on toys, to see whether they run")
    parser.add_argument(
        "--page", type=results_of, metavar="RESULTS", help="write the page of these results, and run nothing"
    )
    options = parser.parse_args(arguments)
    measured = options.out / "benchmarks" / "results.json"
    try:
        measured.parent.mkdir(parents=True, exist_ok=True)
        for written in (measured, options.out / "benchmarks.md"):
            written.open("a").close()  # an error now, not after an hour
    except OSError as problem:
        parser.error(f"cannot write there: {problem}; name another directory by --out")
    for results in [options.page] if options.page else run_all(options.minutes, quick=options.quick):
        measured.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        write(results, options.out)
    print(options.out / "benchmarks.md")


def results_of(name: str) -> dict[str, Any]:
    """Return the results in a file."""
    try:
        results: dict[str, Any] = json.loads(Path(name).read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise argparse.ArgumentTypeError(f"{name} is no file of results: {problem}") from problem
    return results


def write(results: Mapping[str, Any], out: Path) -> None:
    """Write the page of results and its pictures into a directory."""
    docs = os.path.relpath(BENCH.parent / "docs", out.resolve())
    (out / "benchmarks.md").write_text(page(results, docs="" if docs == "." else f"{docs}/"), encoding="utf-8")
    for earlier in (out / "benchmarks").glob("*.svg"):
        earlier.unlink()
    for name, picture in pictures(results).items():
        (out / "benchmarks" / name).write_text(picture, encoding="utf-8")


if __name__ == "__main__":
    main()
