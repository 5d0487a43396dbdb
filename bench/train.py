"""Training speed of clearhead beside its peers: the same pieces, batches, shape and precision, in turn, in one run.

    make bench-train

Peers: plain `torch.nn.Transformer`, Hugging Face's `MarianMTModel`, and OpenNMT-py and eole in-process, with their own
model and loss classes; one that is not installed is skipped, and the run says how to have it. All candidates are given
the batches of clearhead's sampler, which hold next to no padding. Marian is post-norm, everybody else pre-norm.

On a GPU everything runs in bf16 and memory is the GPU's; that path has not been tried.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from candidate import Candidate
from clearhead.config import TrainConfig
from clearhead.data.batches import Batch
from clearhead.data.store import PairStore
from clearhead.device import resolve_device
from clearhead.errors import ClearheadError
from clearhead.training.step import uses_bf16
from peers import LIBRARIES, Missing, build
from profiling import GROUPS, profile_steps
from work import CASES, Case, choose_batches, count_flops, padding_share, write_store

MATRIX = 2_048
PRODUCTS = 5  # matrix products in one measurement of the peak
MEMORY_STEPS = 3


def main() -> None:
    options = _parse_options()
    torch.set_num_threads(options.threads)
    try:
        device = resolve_device(options.device)
    except ClearheadError as error:
        sys.exit(str(error))
    if options.memory_of:
        print(*_memory_in_this_process(options, device))
        return
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "pairs.arrow"
        _notice("preparing the pairs")
        data = write_store(store, synthetic=options.synthetic)
        cases = [_measure(name, store, options, device, missing) for name in options.cases]
    result = {"machine": _machine(options, device), "data": data, "missing": missing, "cases": cases}
    if options.json:
        print(json.dumps(result))
    else:
        print(f"{result['machine']}\n{data}")
        for line in missing.values():
            print(line)
        for case in cases:
            _print_case(case)


def _parse_options() -> argparse.Namespace:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=["yardstick", "yardstick-paper", "tiny"], metavar="CASE",
        help=f"what to train, of {', '.join(CASES)} (default: all but toy)",
    )  # fmt: skip
    parser.add_argument(
        "--candidates", nargs="+", choices=LIBRARIES, default=list(LIBRARIES), metavar="NAME",
        help=f"who trains, of {', '.join(LIBRARIES)} (default: all)",
    )  # fmt: skip
    parser.add_argument("--rounds", type=_at_least(3), default=3, help="measured windows of each candidate, in turn")
    parser.add_argument("--steps", type=_at_least(1), default=8, help="steps in a window, each on a batch of its own")
    parser.add_argument("--threads", type=_at_least(1), default=2, help="threads of PyTorch (default: 2)")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--synthetic", action="store_true", help="draw the pairs, even where Multi30k is at hand")
    parser.add_argument("--no-memory", action="store_true", help="leave out peak memory, which needs a process each")
    parser.add_argument("--profile", action="store_true", help="add a table of where a step's time goes")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of tables")
    parser.add_argument("--memory-of", choices=LIBRARIES, help=argparse.SUPPRESS)
    parser.add_argument("--store", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


def _at_least(smallest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {smallest} up")
        return int(text)

    return number


def _machine(options: argparse.Namespace, device: torch.device) -> str:
    names = Path("/proc/cpuinfo")
    lines = names.read_text(encoding="utf-8").splitlines() if names.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else next(iter(models), platform.processor())
    precision = "bf16" if uses_bf16(TrainConfig(), device) else "fp32"
    return (
        f"{name}, {options.threads} threads, {precision}; torch {torch.__version__}, Python {platform.python_version()}"
    )


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure(
    name: str, store: Path, options: argparse.Namespace, device: torch.device, missing: dict[str, str]
) -> dict[str, Any]:
    case = CASES[name]
    batches = choose_batches(PairStore.open(store), case.batch_tokens, options.steps)
    candidates = []
    for candidate in options.candidates:
        if candidate not in missing:
            try:
                candidates.append(build(candidate, case.config, device))
            except Missing as problem:
                missing[candidate] = f"skipped: {problem}"
    memory = {
        candidate.name: None if options.no_memory else _memory(candidate.name, name, store, options)
        for candidate in candidates
    }
    windows, losses, peaks = _run_rounds(name, candidates, batches, options.rounds, device)
    flops = count_flops(case.config, batches)
    peak = statistics.median(peaks)
    rows = {
        candidate.name: {
            "tokens_per_second": statistics.median(windows[candidate.name]),
            "windows": windows[candidate.name],
            "share_of_peak": statistics.median(windows[candidate.name]) * flops.total / (peak * 1e9),
            "losses": losses[candidate.name],
            "memory_mib": memory[candidate.name],
            "parameters": candidate.num_parameters,
            "differences": _differences(candidate, candidates),
            "profile": profile_steps(candidate, batches[:MEMORY_STEPS]) if options.profile else None,
        }
        for candidate in candidates
    }
    return {
        "name": name,
        "about": case.about,
        "batches": _describe(batches, case),
        "padding_share": padding_share(batches),
        "flops_per_target_token": flops.total,
        "formula": flops.explain(),
        "matrix_peak_gflops": peaks,
        "candidates": rows,
        "ratios": _ratios(windows),
    }


def _describe(batches: Sequence[Batch], case: Case) -> str:
    tokens, rows = (sum(values) for values in zip(*((b.num_target_tokens, len(b.rows)) for b in batches), strict=True))
    return (
        f"{len(batches)} batches of up to {case.batch_tokens:,} target tokens, {rows / len(batches):.0f} pairs each, "
        f"{tokens / rows:.1f} target tokens a pair"
    )


def _run_rounds(
    case: str, candidates: Sequence[Candidate], batches: Sequence[Batch], rounds: int, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """Return target tokens a second of every measured window, mean losses of all windows, and the matrix peaks."""
    tokens = sum(batch.num_target_tokens for batch in batches)
    windows: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    losses: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    peaks: list[float] = []
    for number in range(rounds + 1):  # the first warms up
        peaks.append(_matrix_peak(device))
        turn = number % len(candidates)  # nobody always follows the same neighbour's heat
        for candidate in [*candidates[turn:], *candidates[:turn]]:
            first = number * len(batches) + 1
            start = _now(device)
            sums = [
                candidate.step(batch, step) * batch.num_target_tokens for step, batch in enumerate(batches, start=first)
            ]
            speed = tokens / (_now(device) - start)
            losses[candidate.name].append(sum(sums) / tokens)
            windows[candidate.name].append(speed)
            _notice(f"{case}, round {number} of {rounds}: {candidate.name} {speed:,.0f} target tokens/s")
    return {name: values[1:] for name, values in windows.items()}, losses, peaks[1:]


def _now(device: torch.device) -> float:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _matrix_peak(device: torch.device) -> float:
    """Return GFLOP/s of a product of two square matrices, in the precision of the training."""
    dtype = torch.bfloat16 if uses_bf16(TrainConfig(), device) else torch.float32
    left, right = (torch.randn(MATRIX, MATRIX, device=device, dtype=dtype) for _ in range(2))
    result = left @ right
    start = _now(device)
    for _ in range(PRODUCTS):
        torch.mm(left, right, out=result)
    return PRODUCTS * 2 * MATRIX**3 / (_now(device) - start) / 1e9


def _memory(candidate: str, case: str, store: Path, options: argparse.Namespace) -> dict[str, float]:
    """Return the memory of a process of its own, in MiB: the peak, and what it was before the first step."""
    command = [sys.executable, __file__, "--memory-of", candidate, "--cases", case, "--store", str(store)]
    command += ["--steps", str(options.steps), "--threads", str(options.threads), "--device", options.device]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"the process that measures the memory of {candidate} failed:\n{done.stderr}")
    before, peak = map(float, done.stdout.split()[-2:])
    return {"peak": peak, "before": before}


def _memory_in_this_process(options: argparse.Namespace, device: torch.device) -> tuple[float, float]:
    case = CASES[options.cases[0]]
    batches = choose_batches(PairStore.open(options.store), case.batch_tokens, options.steps)
    candidate = build(options.memory_of, case.config, device)
    before = _peak_memory(device)
    largest = sorted(batches, key=lambda batch: batch.source.numel() + batch.target_out.numel())[-MEMORY_STEPS:]
    for number, batch in enumerate(largest, start=1):
        candidate.step(batch, number)
    return before, _peak_memory(device)


def _peak_memory(device: torch.device) -> float:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    status = Path("/proc/self/status")
    if status.is_file():
        # Unlike the ru_maxrss of getrusage this leaves out what the parent had used when it forked.
        values = dict(line.split(":", 1) for line in status.read_text(encoding="utf-8").splitlines())
        return int(values["VmHWM"].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def _differences(candidate: Candidate, candidates: Sequence[Candidate]) -> dict[str, int]:
    """Return why the model has more or fewer parameters than clearhead's; what nothing explains is named so."""
    ours = next((other.num_parameters for other in candidates if other.name == "clearhead"), None)
    if ours is None:
        return candidate.differences
    rest = candidate.num_parameters - ours - sum(candidate.differences.values())
    return candidate.differences | ({"unexplained": rest} if rest else {})


def _ratios(windows: dict[str, list[float]]) -> dict[str, list[float]]:
    """Return clearhead's speed by that of each peer, and of the best peer, round by round."""
    if "clearhead" not in windows or len(windows) == 1:
        return {}
    peers = {name: values for name, values in windows.items() if name != "clearhead"}
    best = max(peers, key=lambda name: statistics.median(peers[name]))
    return {
        label: [ours / theirs for ours, theirs in zip(windows["clearhead"], values, strict=True)]
        for label, values in [(f"the best peer, {best}", peers[best]), *peers.items()]
    }


def _print_case(case: dict[str, Any]) -> None:
    print(f"\n{case['name']}: {case['about']}")
    print(f"  {case['batches']}; padding {case['padding_share']:.1%} of the cells of both sides")
    print(f"  {case['formula']}")
    peaks = case["matrix_peak_gflops"]
    print(f"  matrix peak {statistics.median(peaks):,.0f} GFLOP/s at {MATRIX}^3 ({_spread(peaks, ',.0f')})")
    print(f"\n  {'':10} {'target':>9} {'of the':>8} {'MiB, peak':>14} {'loss, first':>15}")
    print(f"  {'':10} {'tokens/s':>9} {'peak':>8} {'(before steps)':>14} {'to last window':>15}   windows")
    for name, row in case["candidates"].items():
        used = row["memory_mib"]
        memory = "-" if used is None else f"{used['peak']:,.0f} ({used['before']:,.0f})"
        losses = f"{row['losses'][0]:.2f} to {row['losses'][-1]:.2f}"
        windows = "  ".join(f"{speed:,.0f}" for speed in row["windows"])
        print(
            f"  {name:10} {row['tokens_per_second']:9,.0f} {row['share_of_peak']:8.1%} {memory:>14} {losses:>15}"
            f"   {windows}"
        )
    print()
    for name, row in case["candidates"].items():
        more = "".join(f"; {number:+,} {what}" for what, number in row["differences"].items())
        print(f"  {name:10} {row['parameters']:,} parameters{more}")
    for name, values in case["ratios"].items():
        print(f"  clearhead / {name}: speed {statistics.median(values):.2f} ({_spread(values, '.2f')})", end="")
        used = [case["candidates"][which]["memory_mib"] for which in ("clearhead", name.rpartition(" ")[2])]
        print(f", peak memory {used[0]['peak'] / used[1]['peak']:.2f}" if all(used) else "")
    _print_profile({name: row["profile"] for name, row in case["candidates"].items() if row["profile"]})


def _spread(values: Sequence[float], form: str) -> str:
    return f"{min(values):{form}} to {max(values):{form}}"


def _print_profile(profiles: dict[str, dict[str, float]]) -> None:
    if not profiles:
        return
    print(f"\n  {'time of a step, by kind of work':31}" + "".join(f"{name:>11}" for name in profiles))
    for group in GROUPS:
        shares = (profile[group] / sum(profile.values()) for profile in profiles.values())
        print(f"  {group:31}" + "".join(f"{share:11.1%}" for share in shares))
    totals = (f"{sum(profile.values()):,.0f} ms" for profile in profiles.values())
    print(f"  {'the whole step':31}" + "".join(f"{total:>11}" for total in totals))


if __name__ == "__main__":
    main()
