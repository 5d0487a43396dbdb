"""A little of every attack in the ordinary suite, so that the campaign keeps working, and all of it in the slow one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from campaign import PARTS, SEED, attack_of, new_directory, table, verdicts
from harness import Children, Stock

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the attacks need Linux")

PATIENCE = 120.0
"""Seconds: the ordinary suite may run on a machine that is busy with something else."""


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


@pytest.mark.parametrize("part", PARTS)
def test_a_few_cases_of_every_attack_find_nothing(part, children, stock):
    check(part, attack_of(part).few, children, stock)


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_the_whole_campaign_finds_nothing(part, children, stock):
    check(part, attack_of(part).full, children, stock)
