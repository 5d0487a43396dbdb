"""Concepts of notes on the paper: the words people use for each, a short program, its picture, and related errata.

They are in `concepts.toml`. The programs are the files of `examples/`; a wheel has them beside this module.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch

from clearhead.errors import ClearheadError
from clearhead.paper.growth import one_thread
from clearhead.paper.parts import Check, ModelPart, wrapped
from clearhead.paper.places import read_table
from clearhead.runtime.installation import pip_install

_HERE = Path(__file__).parent
EXAMPLES = _HERE / "examples" if (_HERE / "examples").is_dir() else _HERE.parents[2] / "examples"
"""The directory of the programs: in the package where it is installed, otherwise in the repository."""


@dataclass(frozen=True, kw_only=True)
class Concept:
    """A concept, with what it is called and where it is."""

    name: str
    """Its name in `clearhead paper concepts NAME`, and with underscores that of its program."""
    title: str
    words: Sequence[str]
    """What people call it, and what belongs to it."""
    about: str
    """What it is, and what to see in the picture."""
    place: str
    """Name of the place of the paper that computes it."""
    errata: Sequence[int] = ()
    """Numbers of the errata about it."""

    @property
    def program(self) -> Path:
        """File of the program."""
        return EXAMPLES / f"{self.name.replace('-', '_')}.py"


def _concept(name: str, *, about: str, words: Sequence[str], errata: Sequence[int] = (), **fields: Any) -> Concept:
    about = " ".join(about.split())
    return Concept(name=name, about=about, words=tuple(words), errata=tuple(errata), **fields)


CONCEPTS = tuple(_concept(name, **fields) for name, fields in read_table("concepts.toml").items())
"""The concepts, in an order in which they build on each other."""


def find(words: str) -> Concept:
    """Return the concept of a name, or of words that people use for it; case, spaces and signs do not count.

    Raises:
        ClearheadError: If there is none; the message names the nearest.
    """
    known = {_plain(word): concept for concept in CONCEPTS for word in (concept.name, concept.title, *concept.words)}
    if concept := known.get(_plain(words)):
        return concept
    near = [f"; did you mean {known[word].name}?" for word in get_close_matches(_plain(words), known, n=1, cutoff=0.7)]
    raise ClearheadError(
        f"there is no concept {words!r}{''.join(near)}\nThe concepts: {', '.join(concept.name for concept in CONCEPTS)}"
    )


def _plain(words: str) -> str:
    """Return words as their letters and digits alone, with `and` for an ampersand; `[MASK]` is not a mask."""
    return re.sub(r"[^\w\[\]]|_", "", words.casefold().replace("&", " and ").replace("×", "x"))


def concept_part(concept: Concept) -> ModelPart:
    """Run the program of a concept; return its text, what it prints, and its picture.

    Raises:
        ClearheadError: If a package that the program needs is not installed.
    """
    text = concept.program.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": concept.name}
    printed, figures, check = io.StringIO(), {}, Check("what the program asserts", True, "all of it holds")
    # One thread: its products are too small for more.
    with torch.random.fork_rng(devices=[]), redirect_stdout(printed), one_thread():
        try:
            exec(compile(text, concept.program, "exec"), names)
            figures = {concept.name: names["main"]()}
        except ImportError as error:
            raise ClearheadError(f"the concept {concept.name} needs {error.name}: {pip_install('interop')}") from None
        except AssertionError as error:
            check = Check(check.name, False, str(error) or "an assertion of the program failed")
    related = f"Errata about it: {', '.join(map(str, concept.errata))}\n" if concept.errata else ""
    related = f"\n{related}The picture: clearhead paper concepts {concept.name} -o DIR\n"
    return ModelPart(
        title=concept.title,
        text="\n".join([*wrapped(concept.about), "", text, "# It prints:", "", printed.getvalue() + related]),
        figures=figures,
        data={"words": concept.words, "program": text, "printed": printed.getvalue(), "errata": concept.errata},
        checks=(check,),
    )


def concept_list() -> str:
    """Return the names of all concepts, each with the words people use for it."""
    lines = [f"{concept.name:<24}{'; '.join(concept.words)}" for concept in CONCEPTS]
    return "\n".join(
        [*lines, "", "clearhead paper concepts NAME shows a program and runs it; NAME may be any of the words.", ""]
    )
