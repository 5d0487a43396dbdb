"""All parts of the paper are there, under the names of the command line."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from clearhead.cli.paper import PartName
from clearhead.paper.contents import PARTS
from every_run import slow


def test_the_command_line_names_every_part_in_order():
    assert [*PARTS, "concepts", "exercises"] == [*get_args(PartName)]


# The first is measured by its own test, in small; the others are computed by theirs, in every run.
@pytest.mark.parametrize(
    "name", [slow(name) if name in ("table3", "errata") else name for name in PARTS if name != "table1"]
)
def test_every_part_has_text_plain_data_and_checks_that_hold(name):
    part = PARTS[name]()
    assert part.failures == []
    assert part.checks
    assert part.title
    assert part.text.endswith("\n")
    assert all(line == line.rstrip() for line in part.text.splitlines())
    json.dumps(part.data)
