"""Translation speed of clearhead beside its peers: the same weights, subwords and search, in turn, in one run.

    make bench-translate

Peers: `generate` of Hugging Face transformers, CTranslate2 in float32 and int8, Marian and slimt in int8; one that is
not installed is skipped, and the run says how to have it. Each engine has a process of its own, for each beam size: its
peak memory is the process's, and its start-up the time from starting Python to the first sentence translated. The clock
of a window runs from ids to ids (CTranslate2: from pieces to pieces; Marian and slimt: from numbers in text to such
text). Sentences are decoded 64 at a time, sorted by length, and some of them one at a time.

The search is the same for all: the best log-probability / length ** alpha, the end token counted. With alpha 0 (the
default here) every engine stops when nothing open can win, and the outputs of float32 engines are equal. With
--length-penalty above 0 clearhead and Hugging Face (early_stopping="never") still do; CTranslate2 stops at the first
beam-size hypotheses to end, whatever might come, so it takes fewer steps, and now and then returns a worse output.
What differs always: at the length limit (source + 50 tokens) clearhead's outputs end and pay for it, the peers' do not,
so they are given one token less; random weights, which never end, show a few differing lines for this at beams above 1.
The peers have one limit for a batch (CTranslate2: for all sentences), clearhead one for each sentence. And clearhead
never writes the padding or the start token; the peers are left free to, as a trained model gives them next to nothing.

"CTranslate2's best" is the fastest of its configurations in the same table: for int8, of those in int8 if there are
any, else of those in float32. "of limit" is the share of what this machine can do at most, measured beside each table:
of the peak of products for batches, of the bandwidth at which it reads the weights for one at a time (limits.py counts
the work). A shortlist leaves out a part of that work, so it has no share; clearhead's greedy search in float32 computes
the product with the vocabulary in 8 bits, all but a few tokens, so its share is of more work than it does.

Engines whose name has "-gpu" run on a GPU, if --engines names them (bench/gpu.sh does). Their peak memory is the GPU's,
their limits are those of PyTorch's product of large matrices and of a large copy, and their ratios are to engines on
the GPU.

Marian (pymarian) translates random weights alone: they are the same, but its positions are not, so its outputs differ,
in the same number of tokens. The output matrix is a copy of the embedding, for Marian leaves a tied one in float32.
slimt has a model of the same sizes whose decoder has a recurrence for self-attention (slimt_files.py), is greedy, and
cannot be held to AVX2.

The case "student" is the work of SPEC CPU 2026's 772.marian_r (marian-decoder on one thread, in 8 bits, greedy, 32
sentences at a time, sorted by length, 500 lines of news): --cases student --beams 1 --batch 32 --threads 1. SPEC's own
model and lines are under its licence, so the weights are random, and the shape is that of Marian's small students with
the decoder's recurrence (SSRU) replaced by self-attention, which costs more.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from clearhead.config import ModelConfig
from clearhead.errors import ClearheadError
from clearhead.runtime.device import device_name, resolve_device
from conversion import write_clearhead, write_ctranslate2, write_huggingface, write_marian
from engines import ENGINES, ISAS, ON_GPU, Ended, EngineProcess, Search, Window, why_missing
from limits import PRECISIONS, GpuLimits, Limits, Weights, operations, weights_read
from slimt_files import write_slimt
from translation_work import CASES, Work, random_work, trained_work

REFERENCES = ("ctranslate2", "ctranslate2-best", "huggingface")
"""Whose speed the ratios divide by; `ctranslate2-best` is the fastest of its configurations on the same device."""
HEADING = (
    ("", "sentences", "output", "of", "of", "of CTrans-", "of Hugging", "outputs", ""),
    ("", "/s", "tokens/s", "limit", "CTranslate2", "late2's best", "Face", "differ", "windows"),
)
OTHER_MODELS = ("marian-int8", "slimt-int8")
"""Engines of models that are not quite ours, so that outputs do not agree; they translate random weights alone."""
STDOUT = "-"
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
    with tempfile.TemporaryDirectory() as directory:
        limits: dict[str, Limits | GpuLimits] = {"cuda": GpuLimits()}
        try:
            limits["cpu"] = Limits(Path(directory), options.isa, options.threads)
        except RuntimeError as error:
            missing["limits"] = str(error)
        try:
            cases = [_measure(work, names, limits, missing, options) for work in works]
        except Ended as problem:
            sys.exit(str(problem))
    result = {"machine": _machine(options), "alpha": options.length_penalty, "missing": missing, "cases": cases}
    text = json.dumps(result)
    if options.json == STDOUT:
        print(text)
        return
    if options.json:
        Path(options.json).write_text(text + "\n", encoding="utf-8")
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
        "--engines", nargs="+", choices=ENGINES, default=[name for name in ENGINES if name not in ON_GPU],
        metavar="NAME", help=f"who translates, of {', '.join(ENGINES)} (default: all that need no GPU)",
    )  # fmt: skip
    parser.add_argument("--beams", nargs="+", type=_at_least(1), default=[1, 5], metavar="K", help="default: 1 5")
    parser.add_argument("--batch", type=_at_least(2), default=64, help="sentences decoded at once (default: 64)")
    parser.add_argument("--length-penalty", type=float, default=0.0, metavar="ALPHA", help="default: 0, see below")
    parser.add_argument("--sentences", type=_at_least(1), help="translate the first N only")
    parser.add_argument("--rounds", type=_at_least(1), default=3, help="measured windows of each engine, in turn")
    parser.add_argument("--threads", type=_at_least(1), default=2, help="threads of each engine (default: 2)")
    parser.add_argument("--isa", choices=ISAS, help="hold every engine to these instructions (default: all there are)")
    parser.add_argument("--shown", type=_at_least(0), default=3, help="differing outputs to show (default: 3)")
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE",
        help="print one JSON object instead of tables, or write it to a file beside them",
    )  # fmt: skip
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
    libraries = [
        f"{name} {version(name)}" for name in ("torch", "transformers", "ctranslate2", "pymarian") if find_spec(name)
    ]
    held = f", held to {options.isa}" if options.isa else ""
    return (
        f"{device_name(resolve_device('cpu'))}, {options.threads} threads each{held}; {', '.join(libraries)}, "
        f"Python {platform.python_version()}"
    )


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(
    work: Work,
    names: Sequence[str],
    limits: Mapping[str, Limits | GpuLimits],
    missing: dict[str, str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    sources = work.sources[: options.sentences]
    if work.shortlist is None and "clearhead-shortlist" in names:
        _notice(
            f"{work.name}: clearhead-shortlist is left out; to have it: clearhead optimize {work.name} --source ..."
        )
        names = [name for name in names if name != "clearhead-shortlist"]
    config = work.config
    fits_marian = config.d_model % 64 == config.d_ff % 64 == config.vocab_size % 8 == 0
    others = [name for name in names if name in OTHER_MODELS]
    if others and not (work.has_random_weights and fits_marian):
        _notice(
            f"{work.name}: left out: {', '.join(others)}, which need random weights, d_model and d_ff in multiples of "
            f"64 and a vocabulary in multiples of 8"
        )
        names = [name for name in names if name not in others]
    if options.isa and "slimt-int8" in names:
        _notice(f"{work.name}: slimt-int8 is left out: it cannot be held to {options.isa}")
        names = [name for name in names if name != "slimt-int8"]
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(temporary)
        _notice(f"{work.name}: writing the weights in every engine's form")
        _write_forms(directory, work, names)
        beams = [
            _measure_beam(beam, directory, work, sources, names, limits, missing, options)
            for beam in options.beams
            if names
        ]
    return {"name": work.name, "about": work.about, "beams": beams}


def _write_forms(directory: Path, work: Work, names: Sequence[str]) -> None:
    write_clearhead(directory / "clearhead", work.config, work.tensors)
    if work.shortlist is not None:
        work.shortlist.save(directory / "clearhead" / "shortlist.safetensors", {})
    write_huggingface(directory / "huggingface", work.config, work.tensors)
    for precision in {ENGINES[name].precision for name in names if name.startswith("ctranslate2")}:
        target = directory / f"ctranslate2-{precision}"
        write_ctranslate2(target, directory / "huggingface", work.config, precision=precision)
    if "marian-int8" in names:
        write_marian(directory / "marian", work.config, work.tensors)
    if "slimt-int8" in names:
        write_slimt(directory / "slimt", work.config)


def _measure_beam(
    beam: int,
    directory: Path,
    work: Work,
    sources: list[list[int]],
    names: Sequence[str],
    limits: Mapping[str, Limits | GpuLimits],
    missing: dict[str, str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    if beam > 1:
        names = [name for name in names if name != "slimt-int8"]  # which is greedy
    typical = sorted(sources, key=len)[len(sources) // 2]
    single, batch = (
        Search(beam, options.length_penalty, work.extra_length, size, end_loops=not work.has_random_weights)
        for size in (1, options.batch)
    )
    with ExitStack() as stack:
        engines = []
        for name in names:
            if name not in missing:
                try:
                    engine = EngineProcess(name, directory, options.threads, typical, single, options.isa)
                except Ended as problem:
                    if name.startswith("clearhead"):
                        raise
                    missing[name] = f"skipped: {problem}"
                    continue
                engines.append(stack.enter_context(engine))
        names = [engine.name for engine in engines]
        start_up = {engine.name: engine.start_up_seconds for engine in engines}
        runs = []
        for search, texts in ((single, work.singles()), (batch, sources)):  # the larger memory last
            windows = _run_rounds(f"{work.name}, beam {beam}", engines, texts, search, options.rounds)
            most = _most(limits, search, work, names)
            rows = _rows(windows, work, most, texts, search, options)
            runs.append({"batch": search.batch_size, "sentences": len(texts), "limits": most, "engines": rows})
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
        turn = number % max(1, len(engines))  # so that no engine always runs after the same other one
        for engine in [*engines[turn:], *engines[:turn]]:
            time.sleep(PAUSE)
            window = engine.translate(sources, search)
            windows[engine.name].append(window)
            _notice(
                f"{label}, {search.batch_size} at a time, round {number + 1} of {rounds}: {engine.name} "
                f"{len(sources) / window.seconds:,.1f} sentences/s"
            )
    return windows


def _most(
    limits: Mapping[str, Limits | GpuLimits], search: Search, work: Work, names: Sequence[str]
) -> dict[str, float]:
    """Measure the machine's limit for each precision: weights read a second for one at a time, else operations."""
    most = {}
    for name, device in sorted({(ENGINES[name].limit, ENGINES[name].device) for name in names}):
        if device in limits:
            precision, limit = PRECISIONS[name], limits[device]
            if search.batch_size == 1:
                most[name] = limit.bandwidth(Weights.of(work.config).step * precision.bytes) / precision.bytes
            else:
                most[name] = limit.peak(precision.peak) / precision.products
    return most


def _share(window: Window, sources: list[list[int]], search: Search, config: ModelConfig, most: float) -> float:
    """Return the share of the machine's limit that an engine reached."""
    pairs = [(len(source), len(output)) for source, output in zip(sources, window.outputs, strict=True)]
    if search.batch_size == 1:
        done = sum(weights_read(config, target) for _, target in pairs)
    else:
        done = sum(operations(config, source, target, search.beam_size) for source, target in pairs)
    return done / window.seconds / most


def _best_peer(library: str, speeds: Mapping[str, Sequence[float]], name: str) -> str | None:
    """Return a library's fastest configuration on the same device: for int8, of those in int8 if there are any."""
    theirs = [one for one in speeds if one.startswith(library) and ENGINES[one].device == ENGINES[name].device]
    in_int8 = [one for one in theirs if ENGINES[one].precision == "int8"]
    others = [one for one in theirs if one not in in_int8]
    able = (ENGINES[name].precision == "int8" and in_int8) or others
    return max(able, key=lambda one: statistics.median(speeds[one]), default=None)


def _rows(
    windows: dict[str, list[Window]],
    work: Work,
    most: Mapping[str, float],
    sources: list[list[int]],
    search: Search,
    options: argparse.Namespace,
) -> dict[str, dict[str, Any]]:
    """Return the figures of every engine; speeds are medians over the windows, ratios are taken round by round.

    Args:
        windows: By engine.
        work: What was translated.
        most: The machine's limits, by precision; see `_most`.
        sources: Its sentences in this run.
        search: How.
        options: Of the command line.
    """
    speeds = {
        name: [sum(map(len, window.outputs)) / window.seconds for window in values] for name, values in windows.items()
    }

    def shares(name: str) -> list[float] | None:
        limit = most.get(ENGINES[name].limit)
        if not limit or name in ("clearhead-shortlist", "slimt-int8"):  # whose work is another
            return None
        return [_share(window, sources, search, work.config, limit) for window in windows[name]]

    def references(name: str) -> dict[str, list[float]]:
        named = {
            "ctranslate2": "ctranslate2" if ENGINES[name].device == "cpu" else None,
            "ctranslate2-best": _best_peer("ctranslate2", speeds, name),
            "huggingface": _best_peer("huggingface", speeds, name),
        }
        return {reference: speeds[one] for reference, one in named.items() if one in speeds}

    return {
        name: {
            "sentences_per_second": statistics.median(len(window.outputs) / window.seconds for window in values),
            "output_tokens_per_second": statistics.median(speeds[name]),
            "windows": speeds[name],
            "output_tokens": sum(map(len, values[-1].outputs)),
            "ratios": {
                reference: [own / other for own, other in zip(speeds[name], theirs, strict=True)]
                for reference, theirs in references(name).items()
            },
            "limit_shares": shares(name),
            "differing": _differences(windows, name, work, options.shown),
        }
        for name, values in windows.items()
    }


def _differences(windows: dict[str, list[Window]], name: str, work: Work, shown: int) -> dict[str, Any] | None:
    """Return how many outputs of any window are not clearhead's, and the first of them."""
    if name in ("clearhead", *OTHER_MODELS) or "clearhead" not in windows:
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
            if run["limits"]:
                print(f"  limits: {_limits_text(run)}")
            for line in HEADING:
                print("  {:24} {:>9} {:>9} {:>6} {:>11} {:>12} {:>11} {:>8}   {}".format(*line))
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


def _limits_text(run: dict[str, Any]) -> str:
    if run["batch"] == 1:
        return ", ".join(
            f"{most * PRECISIONS[name].bytes / 1e9:,.1f} GB/s of weights in {name}"
            for name, most in run["limits"].items()
        )
    return ", ".join(
        f"{most / 1e9:,.0f} G operations/s in {name}" if most else f"no products in {name}"
        for name, most in run["limits"].items()
    )


def _print_row(name: str, row: dict[str, Any]) -> None:
    ratios = [
        f"{statistics.median(row['ratios'][reference]):.2f}" if reference in row["ratios"] else "-"
        for reference in REFERENCES
    ]
    differing = "-" if row["differing"] is None else f"{row['differing']['number']:,}"
    share = "-" if row["limit_shares"] is None else f"{statistics.median(row['limit_shares']):.0%}"
    windows = "  ".join(f"{speed:,.0f}" for speed in row["windows"])
    print(
        f"  {name:24} {row['sentences_per_second']:9,.1f} {row['output_tokens_per_second']:9,.0f} {share:>6} "
        f"{ratios[0]:>11} {ratios[1]:>12} {ratios[2]:>11} {differing:>8}   {windows}"
    )


def _print_differences(name: str, differing: dict[str, Any] | None) -> None:
    for pair in (differing or {"first": []})["first"]:
        print(f"    line {pair['line']}: clearhead: {pair['clearhead']}\n    {name}: {pair[name]}")


if __name__ == "__main__":
    main()
