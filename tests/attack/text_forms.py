"""Attack: the same line in several Unicode forms has one translation, and no translation holds U+FFFD."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any
from unicodedata import normalize

from harness import Attack, Campaign, Case, Outcome, judged
from materials import STRANGE, make_bundle, pairs, sentences

MARKS = ("\u00ad", "\u200b", "\u2060", "\ufeff", "\u200e")
"""Marks that the training text lacks: soft hyphen, zero-width space, word joiner, byte order mark, direction."""
SPACES = ("\u00a0", "\u2003", "\u3000", "\t")
LETTERS = ("für", "Żółw", "ậ", "한국", "がぎ", "Å", "naïve", "ṩ")
"""Words whose letters have several forms."""
LINES = 10


def cases(campaign: Campaign) -> Iterator[Case]:
    """Translate ten lines in every case, each in all forms."""
    for_each = min(LINES, campaign.count)
    for number in campaign.numbers(for_each):
        choose = campaign.choose(number)
        beam, has_statistics = choose.choice((1, 2)), choose.random() < 0.5
        arguments = {"lines": for_each, "beam": beam, "counted": has_statistics, "seed": choose.random()}
        name = f"beam {beam}, {'with' if has_statistics else 'without'} statistics of the training text"
        yield Case(number, name, "text_forms:attack", arguments, seconds=60.0)


def attack(lines: int, beam: int, counted: bool, seed: float) -> list[dict[str, str]]:
    """Translate lines in all forms, and compare; runs in a child."""
    from clearhead.translation.translator import Translator

    choose = Random(seed)
    bundle = make_bundle("plain", choose.randrange(99))
    if counted:
        bundle.info["data"] = {"line_statistics": _statistics().model_dump()}
    translator = Translator(bundle)
    results = []
    for _ in range(lines):
        words = [*choose.choice(sentences(9, choose.randrange(2**30))).split(), *choose.sample(LETTERS, 2)]
        choose.shuffle(words)
        line = normalize("NFC", " ".join(words))
        forms = {name: form(line, choose) for name, form in FORMS.items() if counted or name in CANONICAL}
        given = [line, *forms.values(), choose.choice(STRANGE)]
        found = translator.translate(given, beam_size=beam)
        # A line of which the model makes nothing is not translated, and keeps its bytes.
        texts = [None if one.score is None else one.text for one in found]
        other = [name for name, text in zip(forms, texts[1:], strict=False) if text != texts[0]]
        trouble = f"{line!r}: {', '.join(other)} translated otherwise" if other else ""
        if changed := [text for text, one in zip(given, found, strict=True) if one.score is None and one.text != text]:
            trouble = f"{changed[0]!r} is not translated, and changed"
        if wrong := [text for text in texts if text is not None and "\ufffd" in text]:
            trouble = f"U+FFFD in {wrong[0]!r}"
        results.append({"outcome": Outcome.wrong if trouble else Outcome.works, "detail": trouble})
    return results


def _statistics() -> Any:
    """Return what is known of a training text in NFC with these words and without marks."""
    from clearhead.text.line_statistics import LineCounter

    counter = LineCounter()
    for number, (source, target) in enumerate(pairs(400, seed=5)):
        counter.add(f"{source} {LETTERS[number % len(LETTERS)]}", target, 9, 9)
    return counter.statistics()


def _with_marks(line: str, choose: Random, marks: Sequence[str] = MARKS) -> str:
    places = sorted(choose.sample(range(1, len(line)), min(3, len(line) - 1)), reverse=True)
    for place in places:
        line = line[:place] + choose.choice(marks) + line[place:]
    return line


def _mixed(line: str, choose: Random) -> str:
    """Return a line whose letters are composed or not, one by one."""
    return "".join(normalize(choose.choice(("NFC", "NFD")), letter) for letter in line)


FORMS: dict[str, Callable[[str, Random], str]] = {
    "NFD": lambda line, choose: normalize("NFD", line),
    "mixed": _mixed,
    "marks": _with_marks,
    "NFD with marks": lambda line, choose: normalize("NFD", _with_marks(line, choose)),
    "byte order mark": lambda line, choose: "\ufeff" + line,
    "spaces": lambda line, choose: "".join(choose.choice(SPACES) if one == " " else one for one in line),
}
"""The same line in other forms."""
CANONICAL = ("NFD", "mixed")
"""Forms that are the same text by Unicode itself, whatever the training text had."""

ATTACK = Attack("text forms", "lines", full=500, few=5, run=judged(cases))
