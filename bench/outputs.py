"""Record what two thousand commands, calls and requests give, and compare two recordings, to hold them fixed.

    python bench/outputs.py record before.jsonl                       # of the clearhead that can be imported
    PYTHONPATH=OTHER/src python bench/outputs.py record after.jsonl   # of another checkout
    python bench/outputs.py compare before.jsonl after.jsonl [--allow "clearhead * --help"]

The calls are the lines of `bench/output_calls/*.txt`, a file a group; a line is the name of its call. `«a|b»` stands
for a line with each of the alternatives, `«@texts»` for one with each of a set in output_materials.py. Lines begin
with:

- `clearhead`: a command, in a fork of one warm process. ` ; ` joins commands in the same directory, `< FILE` is
  standard input, `NAME=value` before it sets a variable of the environment, and `SHAPE` stands for settings of a very
  small model. `$ clearhead` is a process of its own.
- `>>>`: an expression of Python, with the names of `_names` in output_processes.py, such as `ch` for clearhead.
- `GET`, `POST` and other methods: a request to the server `main`, or `GET@NAME` to another of `SERVERS` in
  output_server.py, with headers behind ` | `. `UPLOAD FILE FIELD=VALUE` sends a file and fetches the translation;
  `RAW` sends bytes.

Each call has a directory of its own, with copies of the files of output_materials.py that it names, and begins in the
same state of Python, so that no call depends on others. A recording has a JSON object a line: the call, the exit
status, both streams and the files written; the value or error of an expression; or the answers of a server. What
differs each time, such as seconds, is replaced (`VARYING`). All else is kept, of long texts the beginning and a
checksum.
"""

from __future__ import annotations

import argparse
import difflib
import fnmatch
import hashlib
import itertools
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from output_materials import NEEDS, SETS, SHAPE, make_materials
from output_processes import run_command, run_expression, warm_up
from output_server import Servers, serving

CALLS = Path(__file__).parent / "output_calls"
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "HF_HUB_OFFLINE": "1",
    "LC_ALL": "C.UTF-8",
    "TZ": "UTC",
    "COLUMNS": "100",
    "LINES": "40",
    "NO_COLOR": "1",
    "TERM": "dumb",
}
"""Variables of every process."""
LONGEST = 20_000
"""Characters of a text that are recorded whole."""
VARYING = (
    # The version with its commit, and when something was made.
    (r"\b\d+\.\d+\.\d+\.dev0\+g[0-9a-f]{7,}(?:\.dirty)?", "VERSION"),
    (r"\b20[2-9]\d-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "DATE"),
    (r"\bdone by about \d\d:\d\d", "done by about TIME"),
    # Seconds, rates and memory.
    (r"\b(in|after|took) \d[\d,.]* (s|seconds|minutes)\b", r"\1 TIME"),
    (r"\b\d[\d,.]* min(utes)?\b", "TIME"),
    (r"(\"?\b(?:elapsed|seconds|minutes|\w+_per_second)\"?: )[\d.e+-]+", r"\1RATE"),
    (r"\b(elapsed|tokens_per_second) [\d,.]*\d", r"\1 RATE"),
    (r"(?m)^(sentences|output tokens)/s +[\d,.]+$", r"\1/s RATE"),
    (r"(?s)(<figcaption>Target tokens per second</figcaption>)<svg.*?</svg>", r"\1PICTURE"),
    # Where the code is: the checkout, and the numbers of lines.
    (r"[\w./-]*/src/clearhead/", "src/clearhead/"),
    (r"(\.py(?:#L|:))\d+", r"\1LINE"),
    (r'("file": "[\w/]+\.py",\s+"number": )\d+', r"\1LINE"),
    # Figures of a server's /metrics, whose names and help are kept.
    (r"(?m)^(?:clearhead|process|python)_\w+(?:\{.*\})? \S+\n", ""),
    # Names that are drawn at random, checksums of what varies, addresses in memory.
    (r'("state.json": \{\s+"bytes": )\d+(,\s+"sha256": )"\w+"', r"\1BYTES\2SHA256"),
    (r'("config.json": )"[0-9a-f]{64}"', r"\1SHA256"),
    (r"(?m)^[\w-]{43}$", "KEY"),
    (r'(^|\n)(\{"name": "\w+", "sha256": )"\w+"', r"\1\2SHA256"),
    (r"(download_file|file_report)/[\w%-]+", r"\1/NAME"),
    (r"\.[0-9a-f]{16}\.partial\b", ".NAME.partial"),
    (r"http://(127\.0\.0\.1|localhost):\d+", r"http://\1:PORT"),
    (r'("port": )\d+', r"\1PORT"),
    (r" at 0x[0-9a-f]+", " at ADDRESS"),
    (r"/tmp/[\w.-]+", "/tmp/NAME"),
    (r"events\.out\.tfevents\.[\w.-]+", "events.out.tfevents.NAME"),
)
"""Patterns of what differs each time, and what is recorded in their place, in this order."""
MATERIAL = re.compile(r"\b(?:texts|documents|broken|terms|pairs|runs|models|foreign)/[\w.-]*|keys\.jsonl|train\.toml")


def calls(groups: Sequence[str]) -> dict[str, str]:
    """Return the groups of all calls, by the line of each."""
    found: dict[str, str] = {}
    files = {path.stem: path for path in sorted(CALLS.glob("*.txt"))}
    if unknown := [*{*groups} - files.keys()]:
        raise SystemExit(f"there is no group {unknown[0]!r}; there are {', '.join(files)}")
    for group in groups or files:
        for line in files[group].read_text(encoding="utf-8").splitlines():
            if not line or line.startswith("#"):
                continue
            for one in alternatives(line):
                if one in found:
                    raise SystemExit(f"{files[group]}: a second time: {one}")
                found[one] = group
    return found


def alternatives(line: str) -> Iterator[str]:
    """Yield a line with each of its alternatives.

    >>> list(alternatives("a «b|c» «d|e»"))
    ['a b d', 'a b e', 'a c d', 'a c e']
    """
    parts = re.split("«(.*?)»", line)
    choices = (SETS[part[1:]] if part.startswith("@") else part.split("|") for part in parts[1::2])
    for chosen in itertools.product(*choices):
        yield "".join(map("".join, itertools.zip_longest(parts[::2], chosen, fillvalue="")))


class Recorder:
    """Runs calls, and returns what they gave."""

    def __init__(self, work: Path, materials: Path, servers: Servers) -> None:
        self.work = work
        self.materials = materials
        self.servers = servers

    def record(self, call: str) -> dict[str, Any]:
        """Run a call, and return its record."""
        directory = self.work / "directory"
        directory.mkdir()
        try:
            return self._record(call, directory)
        finally:
            shutil.rmtree(directory)

    def _record(self, call: str, directory: Path) -> dict[str, Any]:
        if call.startswith(("GET", "POST", "PUT", "DELETE", "OPTIONS", "HEAD", "UPLOAD", "RAW")):
            return {"answers": [self.shown(answer) for answer in self.servers.ask(call)]}
        names = {*MATERIAL.findall(call)}
        for name in sorted(names | {NEEDS[name] for name in names & NEEDS.keys()}):
            self._copy(name, directory)
        before = self.files(directory)
        if call.startswith(">>> "):
            value, printed = run_expression(call.removeprefix(">>> "), directory, self.work)
            results, record = [printed], {"value": self.text(json.dumps(value, ensure_ascii=False, indent=1))}
        else:
            results, record = run_command(call.replace("SHAPE", SHAPE), directory, self.work), {}
        for number, result in enumerate(results, start=1):
            which = f" {number}" if len(results) > 1 else ""
            record |= {f"status{which}": result.status}
            record |= {f"stdout{which}": self.text(result.stdout), f"stderr{which}": self.text(result.stderr)}
        after = self.files(directory)
        written = {name: after[name] for name in after if after[name] != before.get(name)}
        return record | {"files": written, "removed": sorted(before.keys() - after.keys())}

    def _copy(self, name: str, directory: Path) -> None:
        source, target = self.materials / name, directory / name
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)

    def files(self, directory: Path) -> dict[str, Any]:
        """Return all files below a directory."""
        paths = sorted(path for path in directory.rglob("*") if not path.is_dir())
        found = {self.fixed(str(path.relative_to(directory))): self.text(path.read_bytes()) for path in paths}
        return found | dict.fromkeys(fnmatch.filter(found, "*/events.out.tfevents.NAME"), "times and figures")

    def shown(self, value: Any) -> Any:
        """Return an answer of a server with its body as text."""
        if isinstance(value, dict):
            return {name: self.shown(one) for name, one in value.items()}
        return self.text(value) if isinstance(value, str | bytes) else value

    def text(self, content: str | bytes) -> str:
        """Return text without what varies; of long texts and of other bytes a checksum."""
        if isinstance(content, bytes):
            try:
                content = content.decode()
            except UnicodeDecodeError:
                return f"{len(content)} bytes, SHA-256 {hashlib.sha256(content).hexdigest()}"
        content = self.fixed(content)
        if len(content) <= LONGEST:
            return content
        return f"{content[:2000]}... {len(content)} characters, SHA-256 {hashlib.sha256(content.encode()).hexdigest()}"

    def fixed(self, text: str) -> str:
        """Return a text without what varies."""
        text = text.replace(str(self.work / "directory"), "DIRECTORY").replace(str(self.materials), "MATERIALS")
        for pattern, instead in VARYING:
            text = re.sub(pattern, instead, text)
        return text


def record(output: Path, groups: Sequence[str], materials: Path | None) -> None:
    """Run the calls of groups, or all, and write their records."""
    chosen = calls(groups)
    warm_up()
    with tempfile.TemporaryDirectory(prefix="outputs") as name:
        work = Path(name).resolve()
        kept = (materials or work / "materials").resolve()
        if not kept.exists():
            began = time.monotonic()
            make_materials(kept, lambda line: _made(line, kept, work))
            print(f"{time.monotonic() - began:6.0f} s  materials", file=sys.stderr)
        with serving(kept) as servers, output.open("w", encoding="utf-8") as out:
            recorder = Recorder(work, kept, servers)
            for group, members in itertools.groupby(chosen, key=chosen.__getitem__):
                began, count = time.monotonic(), 0
                for call in members:
                    found = {"call": call, "group": group, **recorder.record(call)}
                    out.write(json.dumps(found, ensure_ascii=False) + "\n")
                    out.flush()
                    count += 1
                print(f"{time.monotonic() - began:6.0f} s  {group}: {count} calls", file=sys.stderr)
    print(f"{output}: {len(chosen)} calls")


def _made(line: str, materials: Path, work: Path) -> str:
    """Run a command that makes a part of the materials, and return its output."""
    [result] = run_command(f"clearhead {line}", materials, work)
    if result.status:
        raise SystemExit(f"clearhead {line}: status {result.status}\n{result.stderr.decode()}")
    return result.stdout.decode()


def compare(before: Path, after: Path, allowed: Sequence[str]) -> int:
    """Print the calls whose records differ, and return how many do that may not."""
    first, second = read(before), read(after)
    differing = expected = 0
    for call in {**first, **second}:
        if first.get(call) == second.get(call):
            continue
        if any(fnmatch.fnmatchcase(call, pattern) for pattern in allowed):
            expected += 1
            continue
        differing += 1
        print(call)
        if call not in first or call not in second:
            print(f"  only in {after if call in second else before}\n")
            continue
        print(*(f"  {line}" for line in difference(first[call], second[call])), "", sep="\n")
    print(f"{len(first)} and {len(second)} calls: {differing} differ, and {expected} as allowed")
    return differing


def difference(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Return the lines that differ of two records, at most forty."""
    old, new = (list(_lines(record)) for record in (one, other))
    lines = [line[:300] for line in difflib.unified_diff(old, new, n=1, lineterm="")][2:]
    return lines if len(lines) <= 40 else [*lines[:40], f"... {len(lines) - 40} more lines"]


def _lines(value: Any, name: str = "") -> Iterator[str]:
    if isinstance(value, dict | list):
        members = value.items() if isinstance(value, dict) else enumerate(value)
        for key, one in members:
            yield from _lines(one, f"{name}.{key}" if name else str(key))
    else:
        for line in str(value).splitlines() or [""]:
            yield f"{name}: {line}"


def read(path: Path) -> dict[str, dict[str, Any]]:
    """Return the records of a file by their calls."""
    with path.open(encoding="utf-8") as lines:  # not `splitlines`, for texts have other line ends, too
        return {record["call"]: record for record in map(json.loads, lines)}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the arguments ask for."""
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="run the calls, and write what they gave")
    recording.add_argument("output", type=Path, metavar="FILE")
    recording.add_argument("--only", nargs="+", default=[], metavar="GROUP", help="groups of calls (default: all)")
    recording.add_argument(
        "--materials", type=Path, metavar="DIR", help="keep models and files there, or use those that are there"
    )
    comparing = commands.add_parser("compare", help="print what differs in two recordings; status 1 if anything does")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument(
        "--allow", nargs="+", default=[], metavar="GLOB", help="calls that may differ, such as 'clearhead * --help'"
    )
    options = parser.parse_args(arguments)
    if options.command == "compare":
        sys.exit(compare(options.before, options.after, options.allow) > 0)
    # Of the processes that are started, each is in a directory of its own.
    paths = [os.path.abspath(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join(paths)}
    if any(os.environ.get(name) != value for name, value in environment.items()):  # some must be set from the start
        os.execve(sys.executable, [sys.executable, *sys.argv], os.environ | environment)
    record(options.output, options.only, options.materials)


if __name__ == "__main__":
    main()
