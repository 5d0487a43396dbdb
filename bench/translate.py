"""Translation speed of clearhead beside its peers: the same weights, subwords and search, in turn, in one run.

    make bench-translate

Peers: `generate` of Hugging Face transformers, and CTranslate2 in float32 and int8; one that is not installed is
skipped, and the run says how to have it. Each engine has a process of its own, for each beam size: its peak memory is
the process's, and its start-up the time from starting Python to the first sentence translated. The clock of a window
runs from ids to ids (CTranslate2: from pieces to pieces). Sentences are decoded 64 at a time, sorted by length, and
some of them one at a time.

The search is the same for all: the best log-probability / length ** alpha, the end token counted. With alpha 0 (the
default here) every engine stops when nothing open can win, and the outputs of float32 engines are equal. With
--length-penalty above 0 clearhead and Hugging Face (early_stopping="never") still do; CTranslate2 stops at the first
beam-size hypotheses to end, whatever might come, so it takes fewer steps, and now and then returns a worse output.
What differs always: at the length limit (source + 50 tokens) clearhead's outputs end and pay for it, the peers' do not,
so they are given one token less; random weights, which never end, show a few differing lines for this at beams above 1.
The peers have one limit for a batch (CTranslate2: for all sentences), clearhead one for each sentence. And clearhead
never writes the padding or the start token; the peers are left free to, as a trained model gives them next to nothing.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearhead.errors import ClearheadError
from clearhead.runtime.device import device_name, resolve_device
from conversion import write_clearhead, write_ctranslate2, write_huggingface
from engines import ENGINES, EngineProcess, Search, Window, why_missing
from translation_work import CASES, Work, random_work, trained_work

REFERENCES = ("ctranslate2", "huggingface")
"""Whose speed the ratios divide by."""
PAUSE = 0.3  # seconds; threads of the engine before spin on for up to 0.2


def main() -> None:
    options = _parse_options()
    missing = {name: why for name in options.engines if (why := why_missing(name))}
    names = [name for name in options.engines if name not in missing]
    if not names:
        sys.exit("\n".join(missing.values()))
    try:
        works = [trained_work(path, options.source) for path in options.model]
    except ClearheadError as error:
        sys.exit(str(error))
    works += [random_work(name) for name in options.cases]
    cases = [_measure(work, names, options) for work in works]
    result = {"machine": _machine(options), "alpha": options.length_penalty, "missing": missing, "cases": cases}
    if options.json:
        print(json.dumps(result))
        return
    print(result["machine"])
    for line in missing.values():
        print(line)
    for case in cases:
        _print_case(case, options.length_penalty)


def _parse_options() -> argparse.Namespace:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="*", choices=CASES, metavar="CASE",
        help=f"models with random weights, of {', '.join(CASES)} (default: small, if no --model is given, and "
        "paper-base)",
    )  # fmt: skip
    parser.add_argument("--model", nargs="+", type=Path, default=[], metavar="DIR", help="trained models or runs")
    parser.add_argument("--source", type=Path, help="lines for them (default: Multi30k's German test of 2016)")
    parser.add_argument(
        "--engines", nargs="+", choices=ENGINES, default=list(ENGINES), metavar="NAME",
        help=f"who translates, of {', '.join(ENGINES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--beams", nargs="+", type=_at_least(1), default=[1, 5], metavar="K", help="default: 1 5")
    parser.add_argument("--batch", type=_at_least(2), default=64, help="sentences decoded at once (default: 64)")
    parser.add_argument("--length-penalty", type=float, default=0.0, metavar="ALPHA", help="default: 0, see below")
    parser.add_argument("--sentences", type=_at_least(1), help="translate the first N only")
    parser.add_argument("--rounds", type=_at_least(1), default=3, help="measured windows of each engine, in turn")
    parser.add_argument("--threads", type=_at_least(1), default=2, help="threads of each engine (default: 2)")
    parser.add_argument("--shown", type=_at_least(0), default=3, help="differing outputs to show (default: 3)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    options = parser.parse_args()
    if options.cases is None:
        options.cases = ["paper-base"] if options.model else ["small", "paper-base"]
    return options


def _at_least(smallest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {smallest} up")
        return int(text)

    return number


def _machine(options: argparse.Namespace) -> str:
    libraries = [name for name in ("torch", "transformers", "ctranslate2") if find_spec(name)]
    return (
        f"{device_name(resolve_device('cpu'))}, {options.threads} threads each; "
        f"{', '.join(f'{name} {version(name)}' for name in libraries)}, Python {platform.python_version()}"
    )


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(work: Work, names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    sources = work.sources[: options.sentences]
    if work.shortlist is None and "clearhead-shortlist" in names:
        _notice(
            f"{work.name}: clearhead-shortlist is left out; to have it: clearhead optimize {work.name} --source ..."
        )
        names = [name for name in names if name != "clearhead-shortlist"]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        _notice(f"{work.name}: writing the weights in every engine's form")
        _write_forms(directory, work, names)
        beams = [_measure_beam(beam, directory, work, sources, names, options) for beam in options.beams]
    return {"name": work.name, "about": work.about, "beams": beams}


def _write_forms(directory: Path, work: Work, names: Sequence[str]) -> None:
    write_clearhead(directory / "clearhead", work.config, work.tensors)
    if work.shortlist is not None:
        work.shortlist.save(directory / "clearhead" / "shortlist.safetensors", {})
    write_huggingface(directory / "huggingface", work.config, work.tensors)
    for precision in {ENGINES[name].precision for name in names if name.startswith("ctranslate2")}:
        target = directory / f"ctranslate2-{precision}"
        write_ctranslate2(target, directory / "huggingface", work.config, precision=precision)


def _measure_beam(
    beam: int, directory: Path, work: Work, sources: list[list[int]], names: Sequence[str], options: argparse.Namespace
) -> dict[str, Any]:
    typical = sorted(sources, key=len)[len(sources) // 2]
    single = Search(beam, options.length_penalty, work.extra_length, batch_size=1)
    batch = Search(beam, options.length_penalty, work.extra_length, batch_size=options.batch)
    with ExitStack() as stack:
        engines = [
            stack.enter_context(EngineProcess(name, directory, options.threads, typical, single)) for name in names
        ]
        start_up = {engine.name: engine.start_up_seconds for engine in engines}
        runs = []
        for search, texts in ((single, work.singles()), (batch, sources)):  # the larger memory last
            windows = _run_rounds(f"{work.name}, beam {beam}", engines, texts, search, options.rounds)
            runs.append({"batch": search.batch_size, "sentences": len(texts), "engines": _rows(windows, work, options)})
            peaks = {name: values[-1].peak_mib for name, values in windows.items()}
    processes = {
        name: {
            "start_up_seconds": start_up[name],
            "peak_mib": peaks[name],
            "computes_in": windows[name][-1].computes_in,
        }
        for name in names
    }
    return {"beam": beam, "processes": processes, "runs": runs[::-1]}


def _run_rounds(
    label: str, engines: Sequence[EngineProcess], sources: list[list[int]], search: Search, rounds: int
) -> dict[str, list[Window]]:
    windows: dict[str, list[Window]] = {engine.name: [] for engine in engines}
    for engine in engines:  # warm up on as much as one batch
        engine.translate(sources[: search.batch_size], search)
    for number in range(rounds):
        turn = number % len(engines)  # so that no engine always runs after the same other one
        for engine in [*engines[turn:], *engines[:turn]]:
            time.sleep(PAUSE)
            window = engine.translate(sources, search)
            windows[engine.name].append(window)
            _notice(
                f"{label}, {search.batch_size} at a time, round {number + 1} of {rounds}: {engine.name} "
                f"{len(sources) / window.seconds:,.1f} sentences/s"
            )
    return windows


def _rows(windows: dict[str, list[Window]], work: Work, options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Return the figures of every engine; speeds are medians over the windows, ratios are taken round by round."""
    speeds = {
        name: [sum(map(len, window.outputs)) / window.seconds for window in values] for name, values in windows.items()
    }
    return {
        name: {
            "sentences_per_second": statistics.median(len(window.outputs) / window.seconds for window in values),
            "output_tokens_per_second": statistics.median(speeds[name]),
            "windows": speeds[name],
            "output_tokens": sum(map(len, values[-1].outputs)),
            "ratios": {
                reference: [own / other for own, other in zip(speeds[name], speeds[reference], strict=True)]
                for reference in REFERENCES
                if reference in speeds
            },
            "differing": _differences(windows, name, work, options.shown),
        }
        for name, values in windows.items()
    }


def _differences(windows: dict[str, list[Window]], name: str, work: Work, shown: int) -> dict[str, Any] | None:
    """Return how many outputs of any window are not clearhead's, and the first of them."""
    if name == "clearhead" or "clearhead" not in windows:
        return None
    rows: dict[int, tuple[list[int], list[int]]] = {}
    for ours, theirs in zip(windows["clearhead"], windows[name], strict=True):
        for row, pair in enumerate(zip(ours.outputs, theirs.outputs, strict=True)):
            # Without the end token, which the peers leave out at the limit.
            left, right = ([token for token in tokens if token != work.config.eos_id] for tokens in pair)
            if left != right:
                rows.setdefault(row, (left, right))
    first = [
        {"line": row + 1, "clearhead": work.show(rows[row][0]), name: work.show(rows[row][1])}
        for row in sorted(rows)[:shown]
    ]
    return {"number": len(rows), "first": first}


def _print_case(case: dict[str, Any], alpha: float) -> None:
    print(f"\n{case['name']}: {case['about']}")
    for beam in case["beams"]:
        for run in beam["runs"]:
            penalty = f", length penalty {alpha:g}" if beam["beam"] > 1 else ""
            at_a_time = "one" if run["batch"] == 1 else run["batch"]
            print(f"\n  beam {beam['beam']}{penalty}, {run['sentences']:,} sentences, {at_a_time} at a time")
            print(f"  {'':24} {'sentences':>9} {'output':>9} {'of':>11} {'of Hugging':>11} {'outputs':>8}")
            print(f"  {'':24} {'/s':>9} {'tokens/s':>9} {'CTranslate2':>11} {'Face':>11} {'differ':>8}   windows")
            for name, row in run["engines"].items():
                _print_row(name, row)
            for name, row in run["engines"].items():
                _print_differences(name, row["differing"])
        print(f"\n  {'beam ' + str(beam['beam']):24} {'start-up, s':>11} {'peak, MiB':>11}   computes in")
        for name, process in beam["processes"].items():
            print(
                f"  {name:24} {process['start_up_seconds']:11.2f} {process['peak_mib']:11,.0f}   "
                f"{process['computes_in']}"
            )


def _print_row(name: str, row: dict[str, Any]) -> None:
    ratios = [
        f"{statistics.median(row['ratios'][reference]):.2f}" if reference in row["ratios"] else "-"
        for reference in REFERENCES
    ]
    differing = "-" if row["differing"] is None else f"{row['differing']['number']:,}"
    windows = "  ".join(f"{speed:,.0f}" for speed in row["windows"])
    print(
        f"  {name:24} {row['sentences_per_second']:9,.1f} {row['output_tokens_per_second']:9,.0f} {ratios[0]:>11} "
        f"{ratios[1]:>11} {differing:>8}   {windows}"
    )


def _print_differences(name: str, differing: dict[str, Any] | None) -> None:
    for pair in (differing or {"first": []})["first"]:
        print(f"    line {pair['line']}: clearhead: {pair['clearhead']}\n    {name}: {pair[name]}")


if __name__ == "__main__":
    main()
