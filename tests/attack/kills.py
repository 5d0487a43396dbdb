"""Attack: commands killed at file operations and at random moments; the same command again ends as if undisturbed."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from errno import EIO
from pathlib import Path
from typing import Any

from child import exit_as_command, run_in_child
from harness import Attack, Campaign, Case, Outcome, judged
from materials import differing, tree_digest
from scenarios import SCENARIOS, SECONDS, Scenario, finish, inputs, outputs, what_a_reader_finds

FILE_OPERATIONS = {
    *("open", "os.rename", "os.mkdir", "os.remove", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod"),
    *("os.listdir", "os.scandir", "shutil.rmtree", "tempfile.mkstemp", "tempfile.mkdtemp", "fcntl.flock"),
}
"""Audit events of Python at which a command may be killed; it does not go on to the operation itself."""

ERROR = "an error"
"""A file operation that fails once, as on a damaged disk, in place of a signal."""
ENDINGS = {"SIGKILL": (-signal.SIGKILL,), "SIGTERM": (-signal.SIGTERM, 143), ERROR: (1,)}
"""Exit codes of a command that does not end well."""

LEFTOVERS = ("partial", ".tmp", "tmp.", ".old", "~")
"""What the name of a temporary file or directory holds."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Interrupt one command for every case."""
    stock = campaign.stock.scenarios
    for number in campaign.numbers():
        choose = campaign.choose(number)
        name = list(SCENARIOS)[number % len(SCENARIOS)]
        kind = choose.choice(("SIGKILL", "SIGKILL", "SIGTERM", ERROR))
        undisturbed = campaign.stock.undisturbed(name)
        count, seconds = undisturbed["count"], undisturbed["seconds"]
        arguments: dict[str, Any] = {"kind": kind, "at": choose.randint(1, count), "after": None}
        if choose.random() < 0.3 and kind != ERROR:
            arguments |= {"at": None, "after": choose.uniform(0.0, seconds)}
        older = choose.random() < 0.5
        when = f"operation {arguments['at']} of {count}" if arguments["at"] else f"{arguments['after']:.3f} s"
        yield Case(
            number,
            f"{name}, {kind} at {when}{', over older output' if older else ''}",
            "kills:attack",
            {
                "stock": str(stock),
                "name": name,
                "work": str(campaign.directory / f"case-{number}"),
                "undisturbed": undisturbed["directory"],
                "older": older,
                **arguments,
            },
            seconds=4 * SECONDS,
        )


def undisturbed(stock: str, name: str, work: str) -> dict[str, Any]:
    """Run a scenario to its end, in a child.

    Returns:
        The `count` of file operations and the `seconds` it takes, and the sizes of the files that are new, in bytes.
    """
    directory, scenario = Path(work), SCENARIOS[name]
    directory.mkdir()
    scenario.prepare(Path(stock), directory, False)
    before = tree_digest(directory)
    ending = run_in_child("kills:counted", {"work": work, "name": name}, SECONDS)
    assert ending["code"] == 0, ending
    new = [directory / path for path in tree_digest(directory) if path not in before]
    sizes = [path.stat().st_size for path in new if path.is_file()]
    return {"count": ending["result"], "seconds": ending["seconds"], "sizes": sizes}


def counted(work: str, name: str) -> int:
    """Run a scenario's command and return how many file operations it took."""
    from child import command

    count = 0

    def note() -> None:
        nonlocal count
        count += 1

    _on_every_file_operation(Path(work) / "out", note)
    code, _, errors = command(*SCENARIOS[name].arguments(Path(work)))
    assert code == 0, errors
    return count


def attack(
    stock: str, name: str, work: str, undisturbed: str, older: bool, kind: str, at: int | None, after: float | None
) -> dict[str, str]:
    """Interrupt a command, look at what is left, and run it again; runs in a child."""
    directory, scenario = Path(work), SCENARIOS[name]
    directory.mkdir()
    try:
        scenario.prepare(Path(stock), directory, older)
        outcome, detail = _interrupted(directory, name, scenario, Path(undisturbed), kind, at, after)
        return {"outcome": outcome, "detail": detail}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _interrupted(
    directory: Path, name: str, scenario: Scenario, undisturbed: Path, kind: str, at: int | None, after: float | None
) -> tuple[Outcome, str]:
    read, before = inputs(directory, scenario), tree_digest(directory)
    old_model = what_a_reader_finds(directory, scenario) if scenario.model else ""
    arguments = {"work": str(directory), "name": name, "kind": kind, "at": at, "after": after}
    ending = run_in_child("kills:interrupted", arguments, SECONDS)
    if ending["hung"]:
        return Outcome.hung, f"no end of the command after {kind}"
    if ending["code"] not in (0, *ENDINGS[kind]):
        return Outcome.wrong, f"exit code {ending['code']} after {kind}: {ending['errors'][-300:]}"
    if "Traceback" in ending["errors"]:
        return Outcome.untyped, ending["errors"][-300:]
    if changed := differing(read, inputs(directory, scenario)):
        return Outcome.wrong, f"the inputs {', '.join(changed)} were changed"
    kept = [] if scenario.aside is None else [f"out/{scenario.aside[1]}"]
    left = [] if kind == "SIGKILL" else _leftovers({*before, *kept}, directory)
    # An old directory that an error keeps from being removed is named, and the new one is in its place.
    if left and not (kind == ERROR and ending["code"] == 0 and all(Path(one).name in ending["errors"] for one in left)):
        return Outcome.wrong, f"{kind} (exit code {ending['code']}) left {', '.join(left)}"
    expected = outputs(undisturbed, scenario)
    if scenario.model:
        new_model = what_a_reader_finds(undisturbed, scenario)
        seen, found = tree_digest(directory), what_a_reader_finds(directory, scenario)
        is_whole = not found.startswith(("refused", "a reader"))
        if found not in (old_model, new_model) and not (scenario.publishes_often and is_whole):
            return Outcome.wrong, f"a reader finds neither the old model, {old_model}, nor the new one: {found}"
        if changed := differing(seen, tree_digest(directory)):
            return Outcome.wrong, f"reading changed {', '.join(changed)}"
    if problem := finish(directory, scenario):
        return Outcome.wrong, problem
    again = outputs(directory, scenario)
    if changed := sorted(file for file in expected.keys() | again.keys() if expected.get(file) != again.get(file)):
        return Outcome.wrong, f"the same command again gives other bytes in {', '.join(changed)}"
    if changed := differing(read, inputs(directory, scenario)):
        return Outcome.wrong, f"the inputs {', '.join(changed)} were changed by the second command"
    return Outcome.works, f"ended with {ending['code']}"


def interrupted(work: str, name: str, kind: str, at: int | None, after: float | None) -> None:
    """Run a scenario's command until its end, the signal or the error; runs in a child."""
    count = 0

    def strike() -> None:
        if kind == ERROR:
            raise OSError(EIO, os.strerror(EIO))  # out of the operation
        os.kill(os.getpid(), getattr(signal, kind))

    def maybe_strike() -> None:
        nonlocal count
        count += 1
        if count == at:
            strike()

    if at is not None:
        _on_every_file_operation(Path(work) / "out", maybe_strike)
    else:
        timer = threading.Timer(after or 0.0, strike)
        timer.daemon = True
        timer.start()
    exit_as_command(SCENARIOS[name].arguments(Path(work)))


def _on_every_file_operation(root: Path, action: Callable[[], None]) -> None:
    """Call `action` before every file operation of Python's below a directory."""
    prefix, me = str(root), os.getpid()

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILE_OPERATIONS and os.getpid() == me and any(_is_below(value, prefix) for value in arguments):
            action()

    sys.addaudithook(hook)


def _is_below(value: Any, prefix: str) -> bool:
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, bytes):
        value = os.fsdecode(value)
    return isinstance(value, str) and value.startswith(prefix)


def _leftovers(before: set[str], directory: Path) -> list[str]:
    """Return what looks temporary and was not there before."""
    new = set(tree_digest(directory)) - before
    return sorted(name for name in new if any(sign in Path(name).name for sign in LEFTOVERS))


ATTACK = Attack("kills", "kills", full=100, few=1, run=judged(cases))
