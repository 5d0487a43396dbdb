"""Attack: the disk is full somewhere in a command; one clear line, nothing damaged, and it resumes with free space."""

from __future__ import annotations

import ctypes
import resource
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from child import exit_as_command, run_in_child, trouble_of
from harness import Attack, Campaign, Case, Outcome, judged
from materials import differing, tree_digest
from scenarios import SCENARIOS, SECONDS, Scenario, finish, inputs, outputs, what_a_reader_finds

NEW_MOUNT_NAMESPACE = 0x00020000
ENOUGH = "size=256m"
MESSAGE = 1_000
"""Bytes; where files are limited, so is the one that standard error goes to."""
CLEAR = ("full", "No space", "space left", "too large", "quota")
"""What a message about a full disk says."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Fill the disk of one command for every case."""
    stock = campaign.stock.scenarios
    for number in campaign.numbers():
        choose = campaign.choose(number)
        name = list(SCENARIOS)[number % len(SCENARIOS)]
        way, share = choose.choice(("disk", "disk", "file")), choose.uniform(0.02, 0.98)
        undisturbed = campaign.stock.undisturbed(name)
        room = int(share * (sum if way == "disk" else max)(undisturbed["sizes"]))
        yield Case(
            number,
            f"{name}, {way} full after {room} bytes, {share:.0%} of what it needs",
            "full_disks:attack",
            {
                "stock": str(stock),
                "name": name,
                "work": str(campaign.directory / f"case-{number}"),
                "undisturbed": undisturbed["directory"],
                "way": way,
                "room": max(room, MESSAGE) if way == "file" else room,
                "older": choose.random() < 0.5,
            },
            seconds=4 * SECONDS,
        )


def attack(stock: str, name: str, work: str, undisturbed: str, way: str, room: int, older: bool) -> dict[str, str]:
    """Run a command with too little room, look at what is left, and run it with room; runs in a child."""
    directory, scenario, done = Path(work), SCENARIOS[name], Path(undisturbed)
    (directory / "out").mkdir(parents=True)
    try:
        disk = directory / "out" if way == "disk" and _mount(directory / "out") else None
        scenario.prepare(Path(stock), directory, older)
        outcome, detail = _filled(directory, name, scenario, done, disk, room)
        return {"outcome": outcome, "detail": detail}
    finally:
        subprocess.run(["umount", "-l", str(directory / "out")], capture_output=True)
        shutil.rmtree(directory, ignore_errors=True)


def _filled(
    directory: Path, name: str, scenario: Scenario, undisturbed: Path, disk: Path | None, room: int
) -> tuple[Outcome, str]:
    read, before = inputs(directory, scenario), tree_digest(directory / "out")
    old_model = what_a_reader_finds(directory, scenario) if scenario.model else ""
    if disk:
        _remount(disk, f"size={shutil.disk_usage(disk).used + room}")
    confinement = {"work": str(directory), "name": name, "limit": None if disk else room}
    ending = run_in_child("full_disks:confined", confinement, SECONDS)
    if disk:
        _remount(disk, ENOUGH)
    if ending["hung"]:
        return Outcome.hung, "no end of the command"
    if trouble := trouble_of(ending["code"], ending["errors"], allowed=(0, 1)):
        return Outcome.untyped, trouble
    message = ending["errors"].strip().splitlines()[-1] if ending["errors"].strip() else ""
    if ending["code"] == 1 and not any(sign in message for sign in CLEAR):
        return Outcome.wrong, f"the message does not name a full disk: {message[:300]}"
    if changed := differing(read, inputs(directory, scenario)):
        return Outcome.wrong, f"the inputs {', '.join(changed)} were changed"
    if ending["code"] == 1:
        after = tree_digest(directory / "out")
        if scenario.aside is not None and scenario.aside[1] in after:
            older, aside = scenario.aside
            after = {older + path.removeprefix(aside): value for path, value in after.items() if path.startswith(aside)}
        if changed := sorted(path for path in before if before[path] != after.get(path)):
            return Outcome.wrong, f"older output was damaged: {', '.join(changed)}"
        if scenario.model and not scenario.publishes_often and what_a_reader_finds(directory, scenario) != old_model:
            return Outcome.wrong, "a reader no longer finds the older model"
    if problem := finish(directory, scenario):
        return Outcome.wrong, f"with room, {problem}"
    expected, again = outputs(undisturbed, scenario), outputs(directory, scenario)
    if changed := sorted(file for file in expected.keys() | again.keys() if expected.get(file) != again.get(file)):
        return Outcome.wrong, f"with room, the same command gives other bytes in {', '.join(changed)}"
    if ending["code"] == 0:
        return Outcome.works, "there was room enough"
    return Outcome.refused, message[:200]


def confined(work: str, name: str, limit: int | None) -> None:
    """Run a scenario's command, with files of at most `limit` bytes if that is given; runs in a child."""
    if limit is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    exit_as_command(SCENARIOS[name].arguments(Path(work)))


def _mount(directory: Path) -> bool:
    """Mount a separate disk on a directory, visible only to this process; return whether that is permitted."""
    if ctypes.CDLL(None, use_errno=True).unshare(NEW_MOUNT_NAMESPACE) != 0:
        return False
    for arguments in (["--make-rprivate", "/"], ["-t", "tmpfs", "-o", ENOUGH, "tmpfs", str(directory)]):
        if subprocess.run(["mount", *arguments], capture_output=True).returncode:
            return False
    return True


def _remount(disk: Path, size: str) -> None:
    subprocess.run(["mount", "-o", f"remount,{size}", str(disk)], check=True, capture_output=True)


ATTACK = Attack("full disks", "disks", full=20, few=1, run=judged(cases))
