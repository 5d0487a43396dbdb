"""A little of every attack, so that the campaign keeps working; `make attack` runs all of it.

The ordinary suite has the attacks that need no process of their own, in this process.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr
from typing import Any

import pytest
from campaign import PARTS, SEED, attack_of, new_directory, table, verdicts
from harness import Children, Stock

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks need Linux")

PATIENCE = 120.0
"""Seconds: the suite may run on a machine that is busy with something else."""
APART = {
    *("kept_reviews", "kills", "full_disks", "regroupings", "threaded_calls"),
    *("command_line", "publishing", "server", "connections"),
}
"""Attacks whose cases start processes, fork, or change PyTorch's threads."""


class Here(Children):
    """Calls each function in this process, which has imported already what takes seconds."""

    def __init__(self) -> None:
        super().__init__(0, PATIENCE)

    def call(self, function: str, arguments: Mapping[str, Any], seconds: float | None = None) -> dict[str, Any]:
        module, _, name = function.partition(":")
        with redirect_stderr(io.StringIO()):
            result = getattr(importlib.import_module(module), name)(**arguments)
        return {"code": 0, "hung": False, "grown": 0, "errors": "", "result": json.loads(json.dumps(result))}


@pytest.fixture(scope="module")
def here() -> Iterator[tuple[Children, Stock]]:
    with Here() as children, new_directory() as directory:
        yield children, Stock(directory, children)


@pytest.fixture(scope="module")
def children() -> Iterator[Children]:
    # One, whose imports take seconds: the workers of the suite have all cores busy already.
    with Children(1, PATIENCE) as children:
        yield children


@pytest.fixture(scope="module")
def stock(children) -> Iterator[Stock]:
    with new_directory() as directory:
        yield Stock(directory, children)


def check(part: str, count: int, children: Children, stock: Stock) -> None:
    attack = attack_of(part)
    found = list(verdicts(attack, count, SEED, children, stock))
    print(table([(attack, count, found, 0.0)], SEED))
    findings = [str(verdict) for verdict in found if verdict.outcome.is_finding]
    assert not findings, f"seed {SEED}:\n" + "\n".join(findings)
    assert found


@pytest.mark.parametrize("part", [part for part in PARTS if part not in APART])
def test_a_few_cases_of_an_attack_that_needs_no_process_find_nothing(part, here):
    check(part, attack_of(part).few, *here)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_few_cases_of_every_attack_find_nothing(part, children, stock):
    check(part, attack_of(part).few, children, stock)
