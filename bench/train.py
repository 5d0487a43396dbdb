"""Training speed of clearhead beside its peers: the same pieces, batches, shape and precision, in turn, in one run.

    make bench-train

Peers: plain `torch.nn.Transformer`, Hugging Face's `MarianMTModel`, and OpenNMT-py and eole in-process, with their own
model and loss classes; one that is not installed is skipped, and the run says how to have it. All candidates are given
the batches of clearhead's sampler, which hold little padding. Marian is post-norm, everybody else pre-norm. Each one
lives in a process of its own, and they take turns.

On a GPU memory is the GPU's, and --profile shows the kernels of a step and where it waits for the GPU. bench/gpu.sh
also asks for `torch.nn-compiled`: the same torch.nn.Transformer and its loss by torch.compile.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import platform
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from clearhead.data.batches import Batch
from clearhead.data.store import PairStore
from clearhead.errors import ClearheadError
from clearhead.runtime.device import device_name, resolve_device
from peers import COMPILED, LIBRARIES, Missing
from profiling import GROUPS
from work import CASES, choose_batches, count_flops, padding_share, write_store
from worker import Job, Worker, now

PRODUCTS = 5  # matrix products in one measurement of the peak
SHOWN_KERNELS = 12
STDOUT = "-"


def main() -> None:
    options = _parse_options()
    torch.set_num_threads(options.threads)
    try:
        device = torch.device(resolve_device(options.device))
    except ClearheadError as error:
        sys.exit(str(error))
    options.precision = options.precision or ("fp32" if device.type == "cpu" else "bf16")
    missing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "pairs.arrow"
        _notice("preparing the pairs")
        data = write_store(store, synthetic=options.synthetic)
        try:
            with _busy(options.busy):
                cases = _measure_all(store, options, device, missing)
        except Missing as problem:
            sys.exit(str(problem))
    result = {"machine": _machine(options, device), "data": data, "missing": missing, "cases": cases}
    text = json.dumps(result)
    if options.json == STDOUT:
        print(text)
    else:
        if options.json:
            Path(options.json).write_text(text + "\n", encoding="utf-8")
        print(f"{result['machine']}\n{data}")
        for line in missing.values():
            print(line)
        for case in cases:
            _print_case(case)
    if failed := [missing[key] for key in missing if key.startswith("clearhead")]:
        sys.exit("\n".join(failed))


def _parse_options() -> argparse.Namespace:
    summary, _, about = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--cases", nargs="+", choices=CASES, default=["yardstick", "yardstick-paper", "tiny"], metavar="CASE",
        help=f"what to train, of {', '.join(CASES)} (default: yardstick, yardstick-paper, tiny)",
    )  # fmt: skip
    parser.add_argument(
        "--candidates", nargs="+", choices=LIBRARIES, default=[name for name in LIBRARIES if name != COMPILED],
        metavar="NAME", help=f"who trains, of {', '.join(LIBRARIES)} (default: all but {COMPILED})",
    )  # fmt: skip
    parser.add_argument("--rounds", type=_at_least(3), default=3, help="measured windows of each candidate, in turn")
    parser.add_argument("--steps", type=_at_least(1), default=8, help="steps in a window, each on a batch of its own")
    parser.add_argument("--batch-tokens", type=_at_least(1), help="target tokens in a batch (default: the case's)")
    parser.add_argument(
        "--together", action="store_true", help="start and warm up all candidates of all cases at the same time"
    )
    parser.add_argument("--threads", type=_at_least(1), default=2, help="threads of PyTorch (default: 2)")
    parser.add_argument(
        "--busy", type=_at_least(0), default=0, help="CPUs that other programs keep busy meanwhile (default: 0)"
    )
    parser.add_argument(
        "--matrix", type=_at_least(1), default=2_048, help="rows and columns of the matrices whose product is the peak"
    )
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or cuda:N")
    parser.add_argument("--synthetic", action="store_true", help="draw the pairs, even where Multi30k is at hand")
    parser.add_argument(
        "--precision",
        choices=["fp32", "bf16"],
        help="of the products (default: fp32, on a GPU bf16; the peers' by torch.autocast)",
    )
    parser.add_argument(
        "--profile", nargs="*", choices=CASES, metavar="CASE",
        help="add a table of where a step's time goes (default: for every case)",
    )  # fmt: skip
    parser.add_argument(
        "--json", nargs="?", const=STDOUT, metavar="FILE",
        help="print one JSON object instead of tables, or write it to a file beside them",
    )  # fmt: skip
    return parser.parse_args()


@contextmanager
def _busy(count: int) -> Iterator[None]:
    """Keep so many CPUs busy with something else."""
    others = [multiprocessing.get_context("spawn").Process(target=_spin, daemon=True) for _ in range(count)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.terminate()


def _spin() -> None:
    while True:
        pass


def _at_least(smallest: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or int(text) < smallest:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {smallest} up")
        return int(text)

    return number


def _machine(options: argparse.Namespace, device: torch.device) -> str:
    return (
        f"{device_name(device)}, {options.threads} threads, {options.precision}, {options.busy} CPUs busy; "
        f"torch {torch.__version__}, Python {platform.python_version()}"
    )


def _notice(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _measure_all(
    store: Path, options: argparse.Namespace, device: torch.device, missing: dict[str, str]
) -> list[dict[str, Any]]:
    early = _start(options.cases, store, options, device, missing) if options.together else {}
    cases = []
    for name in options.cases:
        workers = early or _start([name], store, options, device, missing)
        own = {candidate: worker for (case, candidate), worker in workers.items() if case == name}
        cases.append(_measure(name, store, own, options, device))
    return cases


def _start(
    cases: Sequence[str], store: Path, options: argparse.Namespace, device: torch.device, missing: dict[str, str]
) -> dict[tuple[str, str], Worker]:
    """Return the candidates that start, by case and name, warmed up."""
    pairs = [(case, candidate) for case in cases for candidate in options.candidates if candidate not in missing]
    workers: dict[tuple[str, str], Worker] = {}
    for group in [pairs] if options.together else [[pair] for pair in pairs]:
        for case, candidate in group:
            tokens, rest = _batch_tokens(case, options), (options.threads, str(device), options.precision)
            try:
                workers[case, candidate] = Worker(Job(candidate, case, store, tokens, options.steps, *rest))
            except Missing as problem:
                missing[candidate] = f"skipped: {problem}"
        for act in (Worker.begin, Worker.end_warm_up):
            for pair in [pair for pair in group if pair in workers]:
                try:
                    act(workers[pair])
                except Missing as problem:
                    missing[pair[1]] = f"skipped: {problem}"
                    del workers[pair]
    return workers


def _batch_tokens(case: str, options: argparse.Namespace) -> int:
    return options.batch_tokens or CASES[case].batch_tokens


def _measure(
    name: str, store: Path, workers: dict[str, Worker], options: argparse.Namespace, device: torch.device
) -> dict[str, Any]:
    case, batch_tokens = CASES[name], _batch_tokens(name, options)
    batches = choose_batches(PairStore.open(store), batch_tokens, options.steps)
    windows, losses, peaks = _run_rounds(name, workers, options, device)
    flops = count_flops(case.config, batches)
    peak = statistics.median(peaks)
    is_profiled = options.profile is not None and name in (options.profile or options.cases)
    rows = {
        candidate: {
            "tokens_per_second": statistics.median(windows[candidate]),
            "windows": windows[candidate],
            "share_of_peak": statistics.median(windows[candidate]) * flops.total / (peak * 1e9),
            "losses": losses[candidate],
            "memory_mib": worker.memory(),
            "parameters": worker.facts["parameters"],
            "differences": _differences(worker, workers),
            "profile": worker.profile() if is_profiled else None,
        }
        for candidate, worker in workers.items()
    }
    for worker in workers.values():
        worker.close()
    return {
        "name": name,
        "about": case.about,
        "batches": _describe(batches, batch_tokens),
        "padding_share": padding_share(batches),
        "flops_per_target_token": flops.total,
        "formula": flops.explain(),
        "matrix_size": options.matrix,
        "matrix_peak_gflops": peaks,
        "candidates": rows,
        "ratios": _ratios(windows),
    }


def _describe(batches: Sequence[Batch], batch_tokens: int) -> str:
    tokens, rows = (sum(values) for values in zip(*((b.num_target_tokens, len(b.rows)) for b in batches), strict=True))
    return (
        f"{len(batches)} batches of up to {batch_tokens:,} target tokens, {rows / len(batches):.0f} pairs each, "
        f"{tokens / rows:.1f} target tokens a pair"
    )


def _run_rounds(
    case: str, workers: dict[str, Worker], options: argparse.Namespace, device: torch.device
) -> tuple[dict[str, list[float]], dict[str, list[float]], list[float]]:
    """Return target tokens a second of every measured window, mean losses of all windows, and the matrix peaks."""
    names = list(workers)
    windows: dict[str, list[float]] = {name: [] for name in names}
    losses = {name: [worker.first_loss] for name, worker in workers.items()}
    peaks: list[float] = []
    for number in range(1, options.rounds + 1):
        peaks.append(_matrix_peak(device, options.matrix))
        turn = number % max(1, len(names))  # so that no candidate always runs after the same other one
        for name in [*names[turn:], *names[:turn]]:
            speed, loss = workers[name].window(number)
            windows[name].append(speed)
            losses[name].append(loss)
            _notice(f"{case}, round {number} of {options.rounds}: {name} {speed:,.0f} target tokens/s")
    return windows, losses, peaks


def _matrix_peak(device: torch.device, size: int) -> float:
    """Return GFLOP/s of a product of two square float32 matrices (bfloat16 on a GPU)."""
    dtype = torch.float32 if device.type == "cpu" else torch.bfloat16
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    result = left @ right
    start = now(device)
    for _ in range(PRODUCTS):
        torch.mm(left, right, out=result)
    return PRODUCTS * 2 * size**3 / (now(device) - start) / 1e9


def _differences(worker: Worker, workers: dict[str, Worker]) -> dict[str, int]:
    """Return why the model has more or fewer parameters than clearhead's; what nothing explains is named so."""
    differences: dict[str, int] = worker.facts["differences"]
    if "clearhead" not in workers:
        return differences
    rest = worker.facts["parameters"] - workers["clearhead"].facts["parameters"] - sum(differences.values())
    return differences | ({"unexplained": rest} if rest else {})


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
    print(
        f"  matrix peak {statistics.median(peaks):,.0f} GFLOP/s at {case['matrix_size']}^3 ({_spread(peaks, ',.0f')})"
    )
    print(f"\n  {'':17} {'target':>9} {'of the':>8} {'MiB, peak':>14} {'loss, first':>15}")
    print(f"  {'':17} {'tokens/s':>9} {'peak':>8} {'(before steps)':>14} {'to last window':>15}   windows")
    for name, row in case["candidates"].items():
        used = row["memory_mib"]
        memory = f"{used['peak']:,.0f} ({used['before']:,.0f})"
        losses = f"{row['losses'][0]:.2f} to {row['losses'][-1]:.2f}"
        windows = "  ".join(f"{speed:,.0f}" for speed in row["windows"])
        print(
            f"  {name:17} {row['tokens_per_second']:9,.0f} {row['share_of_peak']:8.1%} {memory:>14} {losses:>15}"
            f"   {windows}"
        )
    print()
    for name, row in case["candidates"].items():
        more = "".join(f"; {number:+,} {what}" for what, number in row["differences"].items())
        print(f"  {name:17} {row['parameters']:,} parameters{more}")
    for name, values in case["ratios"].items():
        print(f"  clearhead / {name}: speed {statistics.median(values):.2f} ({_spread(values, '.2f')})", end="")
        used = [case["candidates"][which]["memory_mib"] for which in ("clearhead", name.rpartition(" ")[2])]
        steps = [memory["peak"] - memory["before"] for memory in used]
        print(f", peak memory {used[0]['peak'] / used[1]['peak']:.2f} (of the steps alone {steps[0] / steps[1]:.2f})")
    profiles = {name: row["profile"] for name, row in case["candidates"].items() if row["profile"]}
    of_kernels = {name: profile for name, profile in profiles.items() if "kernels" in profile}
    _print_kernels(of_kernels)
    _print_profile({name: profile for name, profile in profiles.items() if name not in of_kernels})


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


def _print_kernels(profiles: dict[str, dict[str, Any]]) -> None:
    if profiles:
        print(f"\n  {'a step':17} {'kernels':>9} {'copies':>8} {'launches':>9} {'waits':>6} {'ms':>8} {'busy, ms':>9}")
    for name, profile in profiles.items():
        print(
            f"  {name:17} {profile['kernels']:9,.0f} {profile['copies']:8,.0f} {profile['launches']:9,.0f} "
            f"{sum(profile['waits'].values()):6} {profile['step_ms']:8.2f} {profile['busy_ms']:9.2f}"
        )
    if ours := profiles.get("clearhead"):
        print(f"\n  kernels of clearhead that take longest {'a step':>45} {'ms':>9}")
        for name, number, milliseconds in ours["by_name"][:SHOWN_KERNELS]:
            print(f"  {name[:72]:72} {number:11,.1f} {milliseconds:9.3f}")
        print("  waits: " + (", ".join(f"{place} {number}x" for place, number in ours["waits"].items()) or "none"))


if __name__ == "__main__":
    main()
