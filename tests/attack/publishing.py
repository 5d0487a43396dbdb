"""Attack: models are loaded while a trainer replaces them; every load gives one whole model, and changes nothing."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from random import Random

from child import FAILED, refused_or
from harness import Attack, Campaign, Case, Outcome, judged
from materials import make_bundle, save, tree_digest

LOADS = 100
"""Loads of one case, each with one model published at a random moment of it."""
SECONDS = 300.0


def cases(campaign: Campaign) -> Iterator[Case]:
    """Load 100 times in every case."""
    for_each = min(LOADS, campaign.count)
    for number in campaign.numbers(for_each):
        arguments = {"work": str(campaign.directory / f"case-{number}"), "loads": for_each, "seed": number}
        yield Case(number, f"{for_each} loads", "publishing:attack", arguments, seconds=SECONDS)


def attack(work: str, loads: int, seed: int) -> list[dict[str, str]]:
    """Publish while another process loads, in a directory of their own; runs in a child."""
    root, choose = Path(work), Random(seed)
    root.mkdir()
    directory, failures = root / "model", root / "failures.txt"
    # What is mixed shows: weights, vocabulary and settings of the two are all different.
    bundles = [make_bundle(kind, 2 * seed + place) for place, kind in enumerate(("plain", "tagged"))]
    save(directory, bundles[0])
    wanted = {bundle.info["which"]: (bundle.tokenizer.sha256, bundle.model.config.tying) for bundle in bundles}
    began = time.monotonic()
    load_bundle_whole(directory, wanted)
    one_load = time.monotonic() - began
    reading, writing = os.pipe()
    reader = _forked(_read, directory, loads, wanted, writing)
    os.close(writing)
    published, problem = 0, None
    while problem is None and os.read(reading, 1):  # the reader begins a load
        time.sleep(choose.uniform(0.0, one_load))
        published += 1
        problem, _ = refused_or(partial(save, directory, bundles[published % 2]))
    os.waitpid(reader, 0)
    said = failures.read_text("utf-8").splitlines() if failures.exists() else []
    results = [{"outcome": Outcome.wrong, "detail": line[:300]} for line in said]
    if problem is not None:
        results.append({"outcome": Outcome.wrong, "detail": f"publishing failed: {problem}"})
    if left := sorted(name for name in tree_digest(root) if not name.startswith(("model", failures.name))):
        results.append({"outcome": Outcome.wrong, "detail": f"publishing left {', '.join(left)}"})
    return [{"outcome": Outcome.works, "detail": ""}] * max(0, loads - len(said)) + results


def load_bundle_whole(directory: Path, wanted: Mapping[int, tuple[str, str]]) -> str | None:
    """Load a model once; return what is wrong with it, or why it cannot be loaded, or None."""
    from clearhead.bundle import load_bundle

    try:
        refusal, bundle = refused_or(lambda: load_bundle(directory))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if refusal is None and (bundle.tokenizer.sha256, bundle.model.config.tying) != wanted[bundle.info["which"]]:
        return "a mixed model"
    return refusal


def _read(directory: Path, loads: int, wanted: Mapping[int, tuple[str, str]], writing: int) -> None:
    """Load a model again and again; append a line to failures.txt for each load that fails or is mixed."""
    for _ in range(loads):
        os.write(writing, b"x")
        if problem := load_bundle_whole(directory, wanted):
            with open(directory.with_name("failures.txt"), "a", encoding="utf-8") as file:
                file.write(" ".join(problem.split()) + "\n")


def _forked(function: Callable[..., None], *arguments: object) -> int:
    """Call a function in a forked process and return its id."""
    pid = os.fork()
    if pid:
        return pid
    code = FAILED
    try:
        function(*arguments)
        code = 0
    finally:
        os._exit(code)


ATTACK = Attack("publishing", "loads", full=2_000, few=3, run=judged(cases))
