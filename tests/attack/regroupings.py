"""Attack: 500 lines in other orders, batches, files and threads; every line's printed translation stays the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from child import command, trouble_of
from harness import Attack, Campaign, Case, Outcome, Verdict
from materials import STRANGE, learn_shortlist, sentences, write_lines, write_pairs

PRECISIONS = ("fp32", "bf16x3", "bf16", "int8")
FORMS = [(precision, shortlist) for precision in PRECISIONS for shortlist in (False, True)]
FEW_FORMS = [("fp32", False), ("int8", True)]
NUM_LINES = 500
STEPS = 400
PLAIN = {"batch_tokens": 4_096, "threads": 1, "files": 1}


def run(campaign: Campaign) -> Iterator[Verdict]:
    """Translate and score the lines once in each form as they are, then in every regrouping."""
    arguments = {"directory": str(campaign.directory), "seed": campaign.seed}
    if campaign.is_small:
        forms, model = FEW_FORMS, str(campaign.stock.models / "plain")
        campaign.children.need("regroupings:prepare", {**arguments, "num_lines": 24, "model": model})
    else:
        forms = FORMS
        campaign.children.need("regroupings:prepare", {**arguments, "num_lines": NUM_LINES})

    def cases(numbers: Sequence[int]) -> Iterator[Case]:
        for number in numbers:
            choose = campaign.choose(number)
            grouping = {
                "batch_tokens": choose.choice((60, 137, 300, 1_000, 4_096, 100_000)),
                "threads": choose.choice((1, 2, 3, 4, 7)),
                "files": choose.choice((1, 2, 9)),
            }
            for precision, shortlist in forms:
                yield Case(
                    number,
                    f"{_form(precision, shortlist)}, {grouping}",
                    "regroupings:attack",
                    {
                        "work": str(campaign.directory),
                        "precision": precision,
                        "shortlist": shortlist,
                        "number": number,
                        "seed": choose.random(),
                        **(grouping if number else PLAIN),
                    },
                    seconds=300.0,
                )

    # Number 0 is the lines as they are; all others are compared with it.
    yield from (verdict for verdict in campaign.children.judge(cases([0])) if verdict.outcome.is_finding)
    yield from campaign.children.judge(cases([number or campaign.count for number in campaign.numbers()]))


def prepare(directory: str, seed: int, num_lines: int, model: str | None = None) -> None:
    """Copy a model, or train one and learn its shortlist; write lines to translate and to score; runs in a child."""
    root = Path(directory)
    if model is None:
        _learn(root)
    else:
        shutil.copytree(model, root / "model")
    lines = [*STRANGE, *sentences(num_lines - len(STRANGE), seed, longest=12)]
    write_lines(root / "lines.txt", lines)
    write_lines(root / "targets.txt", [" ".join(reversed(line.split())) for line in lines])


def _learn(root: Path) -> None:
    text = write_pairs(root, count=2_000)
    code, _, errors = command(
        *("train", "--out", root / "run", "--pairs", text["pairs"], "--preset", "tiny", "--device", "cpu"),
        *("--max-steps", STEPS, "--set", "model.d_model=64", "model.d_ff=128", "model.num_heads=4"),
        *("model.num_encoder_layers=2", "model.num_decoder_layers=2", "tokenizer.vocab_size=300"),
        *("train.batch_tokens=1024", "train.warmup_steps=50", "train.learning_rate=3e-3", "train.precision='fp32'"),
        *("train.validate_every=10_000", "train.checkpoint_every=10_000", "train.validate_sentences=5"),
    )
    assert code == 0, errors
    (root / "run" / "model").rename(root / "model")
    learn_shortlist(root / "model", text)


def attack(
    work: str,
    precision: str,
    shortlist: bool,
    number: int,
    seed: float,
    batch_tokens: int,
    threads: int,
    files: int,
) -> dict[str, str]:
    """Translate and score the lines in one grouping and compare what is printed with number 0; runs in a child."""
    import torch

    root = Path(work)
    lines, targets = ((root / name).read_text("utf-8").split("\n")[:-1] for name in ("lines.txt", "targets.txt"))
    order = list(range(len(lines)))
    if number:
        Random(seed).shuffle(order)
    directory = root / f"{number}-{precision}-{shortlist}"
    directory.mkdir()
    texts = _divided(directory, "source", [lines[place] for place in order], files)
    form = ["--precision", precision, *(["--shortlist"] if shortlist else [])]
    grouping = ["--batch-tokens", batch_tokens]
    code, output, errors = command(
        *("translate", root / "model", *texts, *form, *grouping, "--threads", threads),
        *("--format", "jsonl", "--beam", 3, "--nbest", 2),
    )
    if code == 1 and "precision" in errors:
        return {"outcome": Outcome.lacking, "detail": errors.strip()}
    if trouble := trouble_of(code, errors, allowed=(0,)):
        return {"outcome": Outcome.untyped, "detail": trouble}
    found = {"translation": output.split("\n")[:-1]}
    if (precision, shortlist) == FORMS[0]:
        torch.set_num_threads(threads)
        write_lines(directory / "target.txt", [targets[place] for place in order])
        write_lines(directory / "all.txt", [lines[place] for place in order])
        code, output, errors = command(
            *("score", root / "model", "--source", directory / "all.txt", "--target", directory / "target.txt"),
            *grouping,
        )
        if trouble := trouble_of(code, errors, allowed=(0,)):
            return {"outcome": Outcome.untyped, "detail": trouble}
        found["score"] = output.split("\n")[:-1]
    return _compared(root / f"expected-{precision}-{shortlist}.json", found, order)


def _compared(expected: Path, found: dict[str, list[str]], order: list[int]) -> dict[str, str]:
    for name, printed in found.items():
        if len(printed) != len(order):
            return {"outcome": Outcome.wrong, "detail": f"{len(printed)} printed for {len(order)} lines"}
        found[name] = [line for _, line in sorted(zip(order, printed, strict=True))]
    if not expected.exists():
        expected.write_text(json.dumps(found), encoding="utf-8")
    wanted: dict[str, Any] = json.loads(expected.read_text(encoding="utf-8"))
    for name in found:
        other = [place for place, line in enumerate(found[name]) if line != wanted[name][place]]
        if other:
            texts = sum(_text(found[name][place]) != _text(wanted[name][place]) for place in other)
            example = f"{_brief(wanted[name][other[0]])} became {_brief(found[name][other[0]])}"
            detail = f"{name}: {len(other)} of {len(order)} lines printed otherwise, {texts} texts: {example}"
            return {"outcome": Outcome.wrong, "detail": detail}
    return {"outcome": Outcome.works, "detail": f"{len(order)} lines"}


def _brief(printed: str) -> str:
    if not printed.startswith("{"):
        return printed
    line = json.loads(printed)
    return f"{line['text'][:40]!r} {line['score']} {[other['score'] for other in line['alternatives']]}"


def _text(printed: str) -> str:
    return json.loads(printed)["text"] if printed.startswith("{") else ""


def _divided(directory: Path, name: str, lines: Sequence[str], files: int) -> list[str]:
    """Write lines into several files, one after the other."""
    size = -(-len(lines) // files)
    return [
        write_lines(directory / f"{name}-{place}.txt", lines[start : start + size])
        for place, start in enumerate(range(0, len(lines), size))
    ]


def _form(precision: str, shortlist: bool) -> str:
    return f"{precision}{' with a shortlist' if shortlist else ''}"


ATTACK = Attack("regroupings", "regroupings", full=20, few=1, run=run)
