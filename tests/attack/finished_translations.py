"""Attack: bilingual files with finished, locked, segmented and nested targets; no word of a finished one is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple
from xml.etree import ElementTree

from child import refused_or
from harness import Attack, Campaign, Case, Outcome, judged

EXTENSIONS = (".xlf", ".sdlxliff", ".mqxliff", ".mxliff", ".xliff")
FINISHED = ("", "translated", "final", "signed-off", "reviewed", "x-own")
UNFINISHED = ("new", "needs-translation", "needs-review-translation", "initial")
LOCKS = {
    ".mqxliff": ' xmlns:mq="MQXliff" mq:locked="locked"',
    ".mxliff": ' xmlns:m="http://www.memsource.com/mxlf/2.0" m:locked="true"',
}
"""Attributes of a locked unit; Trados locks segments."""
NEW = "neu"
"""Every new translation."""


class Unit(NamedTuple):
    """A unit of a file, and what has to become of it."""

    xml: str
    kept: list[str]
    """Words that its target still has."""
    is_new: bool
    """Whether it gets a translation: it has nothing that is finished or locked, and a source that has words."""


def cases(campaign: Campaign) -> Iterator[Case]:
    """Fill one file in every case."""
    for number in campaign.numbers():
        extension = EXTENSIONS[number % len(EXTENSIONS)]
        path = str(campaign.directory / f"case-{number}{extension}")
        arguments = {"path": path, "seed": campaign.choose(number).random()}
        yield Case(number, extension, "finished_translations:attack", arguments)


def attack(path: str, seed: float) -> dict[str, str]:
    """Write a file, fill what is not finished, and read the targets with another parser; runs in a child."""
    from clearhead.formats.document import Filling
    from clearhead.formats.document_files import read_document

    file, choose = Path(path), Random(seed)
    make = _unit_of_version_2 if file.suffix == ".xliff" else _unit
    units = [make(choose, number, file.suffix) for number in range(choose.randint(1, 6))]
    file.write_text(_file(file.suffix, [unit.xml for unit in units]), encoding="utf-8")
    refusal, document = refused_or(lambda: read_document(path))
    if refusal is not None:
        return {"outcome": Outcome.wrong, "detail": f"a sound file is refused: {refusal[:200]}"}
    new = [None if one.is_finished else Filling(NEW) for one in document.segments]
    filled = ElementTree.fromstring(document.filled(new))
    elements = [one for one in filled.iter() if one.tag.endswith(("}trans-unit", "}unit"))]
    for unit, element in zip(units, elements, strict=True):
        targets = [one for one in element.iter() if one.tag.endswith("}target")]
        words = " ".join(text for one in targets for text in one.itertext()).split()
        if lost := [word for word in unit.kept if word not in words]:
            return {"outcome": Outcome.wrong, "detail": f"lost {lost}: {unit.xml}"}
        if unit.is_new and NEW not in words:
            return {"outcome": Outcome.wrong, "detail": f"not translated: {unit.xml}"}
    return {"outcome": Outcome.works, "detail": f"{len(units)} units"}


def _file(extension: str, units: list[str]) -> str:
    if extension == ".xliff":
        body = f'<file id="f">{"".join(units)}</file>'
        return f'<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en">{body}</xliff>'
    body = f"<file><body>{''.join(units)}</body></file>"
    return f'<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">{body}</xliff>'


def _unit(choose: Random, number: int, extension: str) -> Unit:
    """Return a unit of version 1.2."""
    source = _content(choose, [], f"s{number}w")
    words: list[str] = []
    target = _content(choose, words, f"t{number}w") if choose.random() < 0.8 else ""
    is_finished, is_approved = choose.random() < 0.7, choose.random() < 0.2
    state = choose.choice(FINISHED if is_finished else UNFINISHED)
    is_locked = extension in LOCKS and choose.random() < 0.3
    has_locks = extension == ".sdlxliff" and choose.random() < 0.3
    locks = f'<s:seg-defs xmlns:s="urn:sdl"><s:seg id="{choose.randrange(3)}" locked="true"/></s:seg-defs>' * has_locks
    segmented = f"<seg-source>{source}</seg-source>" if choose.random() < 0.8 else ""
    written = (
        f"<target{f' state={state!r}' if state else ''}>{target}</target>" if target or choose.random() < 0.5 else ""
    )
    said = (LOCKS[extension] if is_locked else "") + ' approved="yes"' * is_approved
    xml = f'<trans-unit id="{number}"{said}><source>eins zwei</source>{segmented}{written}{locks}</trans-unit>'
    is_kept = is_finished or is_approved or is_locked
    is_empty = not words and "<x" not in target  # code alone may be a translation
    is_new = is_empty and not (is_locked or has_locks) and (not segmented or "w" in source)
    return Unit(xml, words if is_kept else [], is_new)


def _content(choose: Random, words: list[str], stem: str, depth: int = 0) -> str:
    """Return the content of a target or a segmented source; its words are added to a list."""
    parts: list[str] = []

    def new_words() -> str:
        new = [f"{stem}{len(words) + number}" for number in range(choose.choice((1, 1, 2)))]
        words.extend(new)
        return " ".join(new)

    for _ in range(choose.randrange(4)):
        match choose.choice(("words", "code", "empty segment", "segment", "segment", "markup")):
            case "words" if choose.random() < 0.5:  # usually there are none outside of segments
                parts.append(new_words())
            case "code":
                parts.append(f'<x id="{choose.randrange(3)}"/>')
            case "empty segment":
                parts.append(f'<mrk mtype="seg" mid="{choose.randrange(3)}"/>')
            case "segment":
                inner = new_words()
                inner = f'<g id="9">{inner}</g>' if choose.random() < 0.3 else inner
                parts.append(f'<mrk mtype="seg" mid="{choose.randrange(3)}">{inner}</mrk>')
            case "markup" if depth < 2:
                parts.append(f'<g id="{choose.randrange(3)}">{_content(choose, words, stem, depth + 1)}</g>')
    return " ".join(parts)


def _unit_of_version_2(choose: Random, number: int, extension: str) -> Unit:
    """Return a unit of version 2, whose segments have their own states."""
    kept: list[str] = []
    segments, is_new = [], False
    for place in range(choose.randint(1, 3)):
        word = f"t{number}w{place}"
        state = choose.choice(("", "initial", "translated", "reviewed", "final"))
        shape = choose.choice(("<target>{}</target>", '<target><pc id="1">{}</pc></target>', "<target/>", ""))
        if "{}" in shape and state != "initial":
            kept.append(word)
        is_new = is_new or "{}" not in shape
        segments.append(
            f"<segment{f' state={state!r}' if state else ''}><source>eins</source>{shape.format(word)}</segment>"
        )
    return Unit(f'<unit id="{number}">{"".join(segments)}</unit>', kept, is_new)


ATTACK = Attack("finished translations", "files", full=1_000, few=50, run=judged(cases))
