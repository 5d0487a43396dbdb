"""The exercises as text for the terminal, as a file to fill in, and as the page `docs/exercises.md`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from clearhead.paper.exercises.catalogue import EXERCISES
from clearhead.paper.exercises.checking import Verdict, check
from clearhead.paper.exercises.exercise import HEADER, Exercise
from clearhead.paper.parts import aligned

_INTRODUCTION = """\
# Exercises

Use this page to find out what you know of the paper: {count} of its functions, in its order, each with one expression
left out. Fill it in, and have it checked against a reference that is computed in another way; a known mistake is named.

```
clearhead paper exercises -o .
```

writes all of them to `exercises.py`. Replace the `...` in as many as you like; then

```
$ clearhead paper exercises exercises.py
{example}
```

checks the whole file, here with `1.0` in exercise 5 and nothing else filled in. `clearhead paper exercises 5
exercises.py` checks a single one, and `clearhead paper exercises 5` shows it. The exit status is 0 unless an answer is
wrong, or the one that was asked for is open; `--json` prints the same as JSON. In Python and in notebooks:

```
>>> from clearhead.paper.exercises import check, solution
>>> check(27, lambda n, d: True)
{shown}
>>> print(solution(27))
```

Any function that computes the right result is right, however it is written. The hints are for known mistakes, the wrong
versions and near misses of the [errata](errata.md) among them; for any other, the message says what was found. Masks
are True where a position may be seen. Shapes are in brackets: B for batch, T and S for lengths, D for d_model, K for
the width of a head, H for heads, V for the vocabulary. [The glossary](glossary.md) has the words.

Run only files that you trust: an answer is a program, and is run as one. If it does not end, Ctrl-C stops it and names
its line; what it prints goes to stderr. This page is generated from
`src/clearhead/paper/exercises/`.
"""


_SECTIONS = {
    "3.1": "Encoder and decoder stacks",
    "3.2.1": "Scaled dot-product attention",
    "3.2.2": "Multi-head attention",
    "3.2.3": "Applications of attention",
    "3.3": "Feed-forward networks",
    "3.4": "Embeddings and softmax",
    "3.5": "Positional encoding",
    "4": "Why self-attention",
    "5.3": "Optimizer",
    "5.4": "Regularization",
    "6.1": "Machine translation",
    "6.2": "Model variations",
    "6.3": "English constituency parsing",
}
"""Section of the paper -> its heading."""


def exercise_list() -> str:
    """Return the numbers, sections and names of all exercises, and how to go on from there."""
    rows = [(str(one.number), one.section, one.name, _task(one)) for one in EXERCISES]
    return "\n".join(
        [
            *aligned(("no", "section", "function", "task"), rows, left=4),
            "",
            "clearhead paper exercises -o DIR writes all to exercises.py; fill in what is `...`.",
            "clearhead paper exercises DIR/exercises.py checks it; with a number before the file, one exercise.",
            "",
        ]
    )


def _task(exercise: Exercise) -> str:
    """Return the first line of the task."""
    return (exercise.solution.__doc__ or "").split("\n")[0]


def skeleton(exercise: Exercise) -> str:
    """Return an exercise as code to fill in, without imports."""
    return f"# Exercise {exercise.number}, section {exercise.section}\n{exercise.source('...')}"


def workbook(exercises: Sequence[Exercise] = EXERCISES) -> str:
    """Return a file with exercises to fill in."""
    return "\n\n".join([HEADER, *map(skeleton, exercises)])


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the answers that are not right, and how many there are of each kind.

    >>> print(summary([Verdict(27, "attention_is_cheaper", "open")]))
    0 right, 0 not right, 1 open; next: 27, attention_is_cheaper
    """
    states = [verdict.state for verdict in verdicts]
    counts = f"{states.count('right')} right, {states.count('wrong')} not right, {states.count('open')} open"
    following = [f"; next: {one.number}, {one.name}" for one in verdicts if one.state == "open"][:1]
    return "\n".join([*(str(one) for one in verdicts if one.state == "wrong"), counts + "".join(following)])


def exercises_page() -> str:
    """Return the text of `docs/exercises.md`."""
    filled = {one.number: one.filled("1.0" if one.number == 5 else "...") for one in EXERCISES}
    example = summary([check(number, answer) for number, answer in filled.items()])
    lines = [_INTRODUCTION.format(count=len(EXERCISES), example=example, shown=check(27, lambda n, d: True))]
    for section, exercises in groupby(EXERCISES, lambda one: one.section):
        lines += [f"## {section} {_SECTIONS[section]}", ""]
        for one in exercises:
            lines += [f"### {one.number}. `{one.name}`", "", "```python", one.source("...").rstrip("\n"), "```", ""]
            lines += ["<details markdown><summary>Solution</summary>", "", "```python", one.blank, "```", ""]
            lines += ["</details>", ""]
    return "\n".join(lines).rstrip("\n") + "\n"
