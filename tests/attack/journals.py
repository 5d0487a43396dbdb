"""Attack: links, pipes, other files and changed lines where the progress of a translation is kept."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from child import command, refused_or, trouble_of
from harness import Attack, Campaign, Case, Outcome, judged
from materials import differing, sentences, tree_digest, write_lines

ORIGIN = {"model": "a"}
PRECIOUS = b"precious\n"
NUM_TRANSLATIONS = 20
"""Lines of a journal that is damaged."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Use one journal in every case; in some of them by the command line."""
    model = "" if campaign.is_small else str(campaign.stock.models / "plain")
    for number in campaign.numbers():
        choose = campaign.choose(number)
        obstacle = list(OBSTACLES)[number % len(OBSTACLES)]
        is_command = bool(model) and choose.random() < 0.2
        arguments = {"work": str(campaign.directory / f"case-{number}"), "seed": choose.random()}
        arguments |= {"obstacle": obstacle, "model": model if is_command else ""}
        name = f"{obstacle}{', translate' * is_command}"
        yield Case(number, name, "journals:attack", arguments)


def attack(work: str, obstacle: str, model: str, seed: float) -> dict[str, str]:
    """Put something where the journal would be, and use it there; runs in a child."""
    from clearhead.translation.journal import journal_path

    root, choose = Path(work), Random(seed)
    root.mkdir()
    output = root / "out.html"
    path = journal_path(output)
    (root / "other").write_bytes(PRECIOUS)
    OBSTACLES[obstacle](path, choose)
    before = tree_digest(root)
    trouble, is_refused = _translated(root, output, model) if model else _used(path, choose, obstacle)
    if obstacle not in ("nothing", *DAMAGED):
        changed = [name for name in differing(before, tree_digest(root)) if name not in ("in.html", output.name)]
        trouble = trouble or ("" if is_refused else "it was used") or (f"changed {changed}" if changed else "")
    outcome = Outcome.wrong if trouble else Outcome.refused if is_refused else Outcome.works
    return {"outcome": outcome, "detail": trouble}


def _translated(root: Path, output: Path, model: str) -> tuple[str, bool]:
    """Translate a page on the command line."""
    page = write_lines(root / "in.html", ["<!DOCTYPE html>", *(f"<p>{text}</p>" for text in sentences(3, seed=2))])
    code, _, errors = command("translate", model, page, "-o", output, "--beam", 1)
    return trouble_of(code, errors, allowed=(0, 1)) or "", code == 1


def _used(path: Path, choose: Random, obstacle: str) -> tuple[str, bool]:
    """Open a journal, add to it and open it again; return what is wrong, and whether it is refused."""
    from clearhead.translation.journal import TranslationJournal

    notices: list[str] = []
    written, first = _translations(3), _translations(NUM_TRANSLATIONS)
    refusal, journal = refused_or(lambda: TranslationJournal(path, ORIGIN, notice=notices.append))
    if refusal is not None:
        return "", True
    sound = {one.source: one for one in first}
    if wrong := [one for one in journal.translations.values() if sound.get(one.source) != one]:
        return f"a changed line is used: {wrong[0]}", False
    if obstacle == "changed bytes" and not notices:
        return f"{len(journal.translations)} of {len(first)} lines are used without a notice", False
    journal.add(written)
    again = TranslationJournal(path, ORIGIN, notice=notices.append)
    if not {one.source for one in written} <= again.translations.keys():
        return "what was added is not read again", False
    again.remove()
    return ("the journal is still there" if path.exists() else ""), False


def _translations(count: int) -> list[Any]:
    from clearhead.translation.result import Translation

    return [Translation(text, text.upper(), -1.0, ()) for text in dict.fromkeys(sentences(count, seed=4))]


def _sound(path: Path) -> None:
    from clearhead.translation.journal import TranslationJournal

    TranslationJournal(path, ORIGIN, notice=print).add(_translations(NUM_TRANSLATIONS))


def _changed(path: Path, choose: Random) -> None:
    """Change bytes behind the first line; the last byte stays, so that no line is only cut off."""
    _sound(path)
    data = bytearray(path.read_bytes())
    head = data.index(b"\n") + 1
    for _ in range(choose.choice((1, 1, 5))):
        place = choose.randrange(head, len(data) - 1)
        data[place] = (data[place] + choose.randint(1, 255)) % 256
    path.write_bytes(data)


def _cut(path: Path, choose: Random) -> None:
    _sound(path)
    os.truncate(path, choose.randrange(path.stat().st_size + 1))


def _mixed(path: Path, choose: Random) -> None:
    """Repeat, exchange and remove lines, which leaves every line sound."""
    _sound(path)
    head, *lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + b"".join(choose.choices(lines, k=choose.randint(0, 40))))


def _socket(path: Path, choose: Random) -> None:
    here = os.open(path.parent, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(f"/proc/self/fd/{here}/{path.name}")  # the whole path may be too long for a socket
    os.close(here)


def _link_to_a_journal(path: Path, choose: Random) -> None:
    _sound(path.with_name("another"))
    path.symlink_to("another")


OBSTACLES: dict[str, Callable[[Path, Random], object]] = {
    "nothing": lambda path, choose: None,
    "link": lambda path, choose: path.symlink_to("other"),
    "link to a journal": _link_to_a_journal,
    "link to nothing": lambda path, choose: path.symlink_to("none"),
    "link to a device": lambda path, choose: path.symlink_to(choose.choice(("/dev/null", "/dev/zero", "/dev/full"))),
    "pipe": lambda path, choose: os.mkfifo(path),
    "directory": lambda path, choose: path.mkdir(),
    "socket": _socket,
    "other file": lambda path, choose: path.write_bytes(
        choose.choice((PRECIOUS, b"\0" * 99, b"{}\n", b"\n", choose.randbytes(200), b'{"origin": "x"}\n'))
    ),
    "changed bytes": _changed,
    "cut off": _cut,
    "lines exchanged": _mixed,
}
"""Put something at the path of a journal."""
DAMAGED = ("changed bytes", "cut off", "lines exchanged")
"""Obstacles that are journals, whose sound lines are used."""

ATTACK = Attack("journals", "journals", full=500, few=24, run=judged(cases))
