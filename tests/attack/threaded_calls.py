"""Attack: calls from several threads, on one model and on several, with forks in between; as if one after the other."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

from harness import Attack, Campaign, Case, Outcome, judged
from materials import KINDS, sentences

Translators = Mapping[str, Any]
"""Loaded models, by kind."""
Call = Callable[[Translators], Any]

CALLS = 50
"""Calls of one case, all threads together."""
PRECISIONS = ("fp32", "bf16x3", "bf16", "int8")
SECONDS = 120.0
"""More than a call takes, but a fork that hangs never ends."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Make 50 calls in every case."""
    models = campaign.stock.models
    for number in campaign.numbers(CALLS):
        choose = campaign.choose(number)
        threads, torch_threads = choose.choice((2, 3, 8)), choose.choice((1, 2, 4))
        when = choose.choice(("before", "after"))
        yield Case(
            number,
            f"{CALLS} calls on {threads} threads, {torch_threads} of PyTorch, alone {when}",
            "threaded_calls:attack",
            {
                "models": str(models),
                "num_threads": threads,
                "torch_threads": torch_threads,
                "alone_first": when == "before",
                "num_calls": min(CALLS, campaign.count),
                "seed": choose.random(),
            },
            seconds=SECONDS,
        )


def attack(
    models: str, num_threads: int, torch_threads: int, alone_first: bool, num_calls: int, seed: float
) -> list[dict[str, str]]:
    """Make calls one after the other and from threads, and compare; runs in a child."""
    import torch

    torch.set_num_threads(torch_threads)
    choose = Random(seed)
    root = Path(models)
    calls = [_call(choose, root) for _ in range(num_calls)]
    state = _process_wide_state()
    alone = _alone(calls, root) if alone_first else None
    together = _from_threads(calls, root, num_threads)
    alone = alone or _alone(calls, root)
    results = [
        {"outcome": Outcome.works, "detail": name}
        if _same(found, wanted)
        else {"outcome": Outcome.wrong, "detail": f"{name}: {str(wanted)[:200]} became {str(found)[:200]}"}
        for (name, _), found, wanted in zip(calls, together, alone, strict=True)
    ]
    if (now := _process_wide_state()) != state:
        results.append({"outcome": Outcome.wrong, "detail": f"PyTorch's settings were {state}, and are {now}"})
    results.append(_in_a_fork(calls[:5], alone[:5], root))
    return results


def _call(choose: Random, models: Path) -> tuple[str, Call]:
    """Return what a call is in words, and the call."""
    kind = choose.choice(KINDS)
    precision = choose.choice(PRECISIONS)
    beam = choose.choice((1, 2, 3))
    shortlist = kind == "plain" and choose.random() < 0.3
    lines = sentences(choose.choice((1, 2, 7)), seed=choose.randrange(2**30))
    settings = {"precision": precision, "beam_size": beam, "shortlist": shortlist}

    def translated(translator: Any) -> Any:
        return [(one.text, one.score) for one in translator.translate(lines, **settings)]

    def translate(translators: Translators) -> Any:
        return translated(translators[kind])

    def load(translators: Translators) -> Any:
        from clearhead.translation.translator import Translator

        return translated(Translator.load(models / kind))

    def score(translators: Translators) -> Any:
        return translators[kind].score(lines, lines)

    call = choose.choice((translate, translate, translate, load, score))
    return f"{call.__name__} {kind} {settings}", _with_error(call)


def _with_error(call: Call) -> Call:
    """Let a call return its error where it has one; a precision that this machine lacks is always refused."""

    def safe(translators: Translators) -> Any:
        from clearhead.errors import ClearheadError

        try:
            return call(translators)
        except ClearheadError as error:
            return f"refused: {error}"
        except Exception as error:
            return f"{type(error).__name__}: {error}"

    return safe


def _loaded(models: Path) -> Translators:
    from clearhead.translation.translator import Translator

    return {kind: Translator.load(models / kind) for kind in KINDS}


def _alone(calls: Sequence[tuple[str, Call]], models: Path) -> list[Any]:
    """Make the calls one after the other, on models of their own."""
    translators = _loaded(models)
    return [call(translators) for _, call in calls]


def _from_threads(calls: Sequence[tuple[str, Call]], models: Path, num_threads: int) -> list[Any]:
    """Make the calls from several threads on models that all of them share and none has used before."""
    results: list[Any] = [None] * len(calls)
    translators = _loaded(models)
    start = threading.Barrier(num_threads)

    def work(first: int) -> None:
        start.wait()
        for place in range(first, len(calls), num_threads):
            results[place] = calls[place][1](translators)

    threads = [threading.Thread(target=work, args=(first,)) for first in range(num_threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def _in_a_fork(calls: Sequence[tuple[str, Call]], wanted: list[Any], models: Path) -> dict[str, str]:
    """Make calls in a forked process, as a server of several processes does; the watchdog reports a hang."""
    pid = os.fork()
    if pid == 0:
        os._exit(0 if _same(_alone(calls, models), wanted) else 3)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code:
        return {"outcome": Outcome.crashed if code < 0 else Outcome.wrong, "detail": f"a forked child ends with {code}"}
    return {"outcome": Outcome.works, "detail": "a forked child"}


def _same(found: Any, wanted: Any) -> bool:
    """Return whether results are equal; numbers may differ in the last bits of a float32, as sums of it may."""
    if isinstance(found, list | tuple) and isinstance(wanted, list | tuple):
        return len(found) == len(wanted) and all(map(_same, found, wanted))
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isclose(found, wanted, rel_tol=2e-6)
    return bool(found == wanted)


def _process_wide_state() -> dict[str, Any]:
    """Return what PyTorch keeps for the whole process and a call must leave as it is."""
    import torch

    state: dict[str, Any] = {"threads": torch.get_num_threads(), "default_dtype": str(torch.get_default_dtype())}
    try:
        state["matmul_precision"] = torch.get_float32_matmul_precision()
        if hasattr(torch.backends.mkldnn, "matmul"):  # newer PyTorch
            state["mkldnn"] = torch.backends.mkldnn.matmul.fp32_precision
    except RuntimeError as error:  # PyTorch refuses to say, once two interfaces to the same switch were used
        state["matmul_precision"] = str(error)[:150]
    return state


ATTACK = Attack("threaded calls", "calls", full=2_000, few=3, run=judged(cases))
