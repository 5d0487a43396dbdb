"""Attack: commands with closed and odd streams and with odd arguments, and Python calls with values of wrong types."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

from child import command_in_child, refused_or, trouble_of
from harness import Attack, Campaign, Case, Outcome, judged

CLEARHEAD = [sys.executable, "-c", "from clearhead.cli.main import run; run()"]
SECONDS = 120.0
"""For a whole command, on a machine that is busy with something else."""
_DEMO_SECONDS = 600.0

COMMANDS: Mapping[str, Sequence[str]] = {
    "nothing": [],
    "help": ["--help"],
    "help of a command": ["translate", "--help"],
    "version": ["--version"],
    "unknown command": ["nonsense"],
    "unknown option": ["info", "--nonsense"],
    "translate": ["translate", "{plain}", "{text}"],
    "translate standard input": ["translate", "{plain}"],
    "translate to a file": ["translate", "{plain}", "{text}", "-o", "{work}/out.txt"],
    "translate to JSON": ["translate", "{plain}", "{text}", "--format", "jsonl", "--beam", "2", "--nbest", "2"],
    "translate, no model": ["translate", "{work}/nothing", "{text}"],
    "translate, no text": ["translate", "{plain}", "{work}/nothing"],
    "score": ["score", "{plain}", "--source", "{text}", "--target", "{text}"],
    "evaluate": ["evaluate", "{plain}", "--source", "{text}", "--reference", "{text}"],
    "optimize": ["optimize", "{work}/plain", "--source", "{text}", "--target", "{text}"],
    "average": ["average", "{run}", "-o", "{work}/average", "--last", "2"],
    "info": ["info", "{plain}"],
    "info of a run": ["info", "{run}", "--json"],
    "info of nothing": ["info", "{work}/nothing"],
    "verify": ["verify", "{plain}"],
    "paper": ["paper", "table1"],
    "train": ["train", "--pairs", "{pairs}", "--out", "{work}/run", "--preset", "tiny", "--max-steps", "2"],
    "train on standard input": ["train", "--pairs", "-", "--out", "{work}/run", "--preset", "tiny", "--max-steps", "2"],
    "demo": ["demo", "--out", "{work}/demo", "--minutes", "0.1"],
}
RESULT_ON_OUTPUT = ("translate", "translate standard input", "translate to JSON", "score", "evaluate", "info", "paper")
"""Whose standard output is what they are for: it is not lost in silence."""

INPUTS = ("text", "closed", "directory")
OUTPUTS = ("kept", "closed", "full", "gone")
ERRORS = ("kept", "closed", "full")
TRAINING = ["model.d_model=16", "model.num_heads=2", "tokenizer.vocab_size=290", "data.valid_size=5"]

HUGE = "9" * 30
ARGUMENTS: tuple[Sequence[str], ...] = (
    ["info", "\udcff\udcfe"],
    ["info", "x" * 5_000],
    ["info", "x/" * 5_000],
    ["info", ""],
    ["info", "{work}/new\nline"],
    ["verify", "\udcff"],
    ["verify", "{text}"],
    ["translate", "{plain}", "\udcff"],
    ["translate", "{plain}", "x" * 5_000],
    ["translate", "{plain}", "{work}"],
    ["translate", "{plain}", ""],
    ["translate", "{plain}", "{text}", "-o", "\udcff/x"],
    ["translate", "{plain}", "{text}", "-o", "{work}/\udcff"],
    ["translate", "{plain}", "{text}", "-o", "{work}/" + "x" * 300],
    ["translate", "{plain}", "{text}", "-o", "{work}/" + "x" * 250],
    ["translate", "{plain}", "{text}", "-o", ""],
    ["translate", "{plain}", "{text}", "-o", "{work}"],
    ["translate", "{plain}", "{text}", "-o", "{text}"],
    ["translate", "{plain}", "{text}", "-o", "/dev/full"],
    ["translate", "{plain}", "{text}", "-o", "/proc/x"],
    *(
        ["translate", "{plain}", "{text}", option, value]
        for option, value in (
            *product(("--beam", "--nbest", "--batch-tokens"), ("0", "-1", "100000", str(2**31), HUGE, "x")),
            *product(("--threads",), ("0", "-1", "100000", str(2**31), HUGE, "x")),
            *product(("--length-penalty",), ("nan", "inf", "-inf", "-1", "1e308", "1e-308")),
            *product(("--target-lang",), ("", "de", "\udcff", "x" * 100_000)),
            *product(("--device",), ("", "cuda:99", "cuda:-1", "tpu", "meta", "x" * 1_000)),
            ("--precision", "fp8"),
            ("--seed", "1"),
        )
    ),
    *(
        ["translate", "{plain}", "{text}", "--sample", option, value]
        for option, value in (
            *product(("--seed", "--top-k"), ("-1", str(2**64), HUGE)),
            *product(("--temperature", "--top-p"), ("nan", "inf", "0", "-1", "1e-45", "1e308", "1e-300")),
        )
    ),
    ["translate", "{tagged}", "{text}", "--target-lang", "xx"],
    ["translate", "{tagged}", "{text}", "--shortlist"],
    ["score", "{plain}", "--source", "{text}", "--target", "{pairs}"],
    ["score", "{plain}", "--source", "-", "--target", "-"],
    ["evaluate", "{plain}", "--source", "{text}", "--reference", "\udcff"],
    ["average", "{plain}", "-o", "{work}/x"],
    ["average", "{run}", "-o", "{work}/x", "--last", HUGE],
    ["average", "{run}", "-o", "{text}"],
    ["optimize", "{work}/plain", "--source", "{text}", "--target", "{text}", "--common", HUGE],
    ["optimize", "{work}/plain", "--source", "{text}", "--target", "{text}", "--per-token", str(2**31)],
    ["paper", "nonsense"],
    ["paper", "\udcff"],
    ["train"],
    ["train", "{work}/nothing.toml"],
    ["train", "\udcff.toml"],
    ["train", "--pairs", "\udcff.tsv", "--out", "{work}/run"],
    ["train", "--pairs", "{pairs}", "--out", "\udcff" * 300],
    ["train", "--pairs", "{pairs}", "--out", "{text}"],
    ["train", "--pairs", "{pairs}", "--out", "/proc/x"],
    *(
        ["train", "--pairs", "{pairs}", "--out", "{work}/run", "--preset", "tiny", "--max-steps", "2", "--set", setting]
        for setting in (
            *("x", "=", "x=1", "train.seed=-1", f"train.seed={HUGE}", "train.seed=nan", "model.d_model=" + HUGE),
            *("train.batch_tokens=" + HUGE, "train.learning_rate=nan", "train.learning_rate=inf", "model.pad_id=5"),
            *("model.eos_id=7", "tokenizer.vocab_size=1", "tokenizer.vocab_size=" + HUGE, "data.valid_size=" + HUGE),
            *("decode.beam_size=" + HUGE, "model.num_heads=0", "a.b.c.d=1", "model=" + "[" * 5_000),
            *(
                "model.d_model=" + "9" * 5_000,
                "train.max_minutes=1e308",
                "data.max_ratio=1e-308",
                "train.seed='\udcff'",
            ),
        )
    ),
)

CALLS: tuple[str, ...] = (
    *(f"translator.translate({lines})" for lines in ("[None]", "[1]", "[b'x']", "'text'", "[['a']]", "['\\ud800']")),
    *(f"translator.translate({lines})" for lines in ("None", "3", "['a', None]", "[float('nan')]")),
    *(
        f"translator.translate(['a'], {setting})"
        for setting in (
            *("beam_size='x'", "beam_size=10**9", "beam_size=1.5", "length_penalty=float('nan')", "length_penalty=[]"),
            *("batch_tokens=0", "batch_tokens=10**30", "num_best='1'", "num_best=1.5", "target_lang=5", "sampling=3"),
            *("shortlist='perhaps'", "precision=b'fp32'", "extra_length=-1", "extra_length=10**18", "x=1"),
            *("max_input_tokens=0", "max_input_tokens=10**30", "beam_size=True and 10**20"),
        )
    ),
    *(
        f"translator.score({arguments})"
        for arguments in ("[None], [None]", "['a'], [3]", "'a', 'b'", "['a'], []", "None, None", "['\\ud800'], ['a']")
    ),
    *(f"Translator.load({path})" for path in ("''", "'a\\0b'", "'x' * 5_000", "'\\udcff'")),
    "Translator.load(path, device='cuda:99')",
)


def all_cases() -> list[tuple[str, str, Any]]:
    """Return the kind, the name and the arguments of every case, three quick ones before each of a whole process."""
    closed = [
        (name, *streams)
        for name, streams in product(COMMANDS, product(("text", "closed"), ("kept", "closed"), ("kept", "closed")))
        if name != "demo"
    ]
    odd = [
        (name, *streams)
        for name, streams in product(COMMANDS, product(INPUTS, OUTPUTS, ERRORS))
        if not {"full", "gone", "directory"}.isdisjoint(streams) and name != "demo"
    ]
    choose = Random(1)
    demos = [("demo", "closed", "closed", "closed"), ("demo", "text", "full", "kept")]
    processes = [*closed, *choose.sample(odd, 120), *demos]
    choose.shuffle(processes)
    quick: list[tuple[str, str, Any]] = [("arguments", " ".join(words), list(words)) for words in ARGUMENTS]
    quick += [("call", call, call) for call in CALLS]
    choose.shuffle(quick)
    whole = [("streams", f"{name}: input {i}, output {o}, errors {e}", [name, i, o, e]) for name, i, o, e in processes]
    found = []
    while quick or whole:
        found += quick[:3] + whole[:1]
        del quick[:3], whole[:1]
    return found


def cases(campaign: Campaign) -> Iterator[Case]:
    """Run one command or make one call in every case."""
    stock = str(campaign.stock.scenarios)
    known = all_cases()
    for number in campaign.numbers():
        kind, name, arguments = known[number % len(known)]
        shown = ascii(name) if len(name) < 200 else f"{name[:150]!a} .. {len(name)} characters"
        work = str(campaign.directory / f"case-{number}")
        more = {"stock": stock, "work": work, "kind": kind, "arguments": arguments}
        seconds = 2 * _seconds_of(arguments[0]) if kind == "streams" else None
        yield Case(number, shown, "command_line:attack", more, seconds)


def attack(stock: str, work: str, kind: str, arguments: Any) -> dict[str, str]:
    """Run one command or make one call; runs in a child."""
    root, directory = Path(stock), Path(work)
    directory.mkdir()
    places = {"plain": root / "models" / "plain", "tagged": root / "models" / "tagged", "run": root / "run"}
    places |= {"text": root / "few.txt", "pairs": root / "pairs.tsv", "work": directory}
    shutil.copytree(places["plain"], directory / "plain")  # for the commands that write into a model
    try:
        match kind:
            case "streams":
                outcome, detail = _streams(arguments, places)
            case "arguments":
                outcome, detail = _arguments(_filled(arguments, places))
            case _:
                outcome, detail = _call(arguments, places["plain"])
        return {"outcome": outcome, "detail": detail}
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _seconds_of(name: str) -> float:
    return _DEMO_SECONDS if name == "demo" else SECONDS


def _arguments(words: Sequence[str]) -> tuple[Outcome, str]:
    ending = command_in_child(words, SECONDS)
    if ending["hung"]:
        return Outcome.hung, f"no end after {SECONDS:.0f} s"
    if ending["code"] < 0:
        return Outcome.crashed, f"signal {-ending['code']}"
    if trouble := trouble_of(ending["code"], ending["errors"]):
        return Outcome.untyped, trouble
    return (Outcome.refused if ending["code"] else Outcome.works), ending["errors"].strip()[:200]


def _call(call: str, model: Path) -> tuple[Outcome, str]:
    from clearhead.translation.translator import Translator

    names = {"Translator": Translator, "translator": Translator.load(model), "path": model}
    try:
        refusal, found = refused_or(lambda: eval(call, names))
    except Exception as error:
        return Outcome.untyped, f"{type(error).__name__}: {error}"
    return (Outcome.works, str(found)[:200]) if refusal is None else (Outcome.refused, refusal[:200])


def _streams(arguments: Sequence[str], places: Mapping[str, Path]) -> tuple[Outcome, str]:
    """Run a command in an interpreter of its own, which finds its streams as a shell would leave them."""
    name, source, target, errors = arguments
    work, words = places["work"], _filled(COMMANDS[name], places)
    if name.startswith("train"):
        words += ["--device", "cpu", "--set", *TRAINING]
    kept_output, kept_errors = work / "output", work / "errors"
    opened = {
        0: {"text": places["text"], "directory": work}.get(source),
        1: {"kept": kept_output, "full": Path("/dev/full")}.get(target),
        2: {"kept": kept_errors, "full": Path("/dev/full")}.get(errors),
    }

    def arrange() -> None:
        for descriptor, path in opened.items():
            if path is not None:
                found = os.open(path, os.O_RDONLY if descriptor == 0 else os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(found, descriptor)
                os.close(found)
        if target == "gone":
            reading, writing = os.pipe()
            os.close(reading)
            os.dup2(writing, 1)
        for descriptor, kind in enumerate((source, target, errors)):
            if kind == "closed":
                os.close(descriptor)

    process = subprocess.Popen([*CLEARHEAD, *words], preexec_fn=arrange, cwd=work)
    try:
        code = process.wait(_seconds_of(name))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return Outcome.hung, f"no end after {_seconds_of(name):.0f} s"
    said = kept_errors.read_text("utf-8", "replace") if kept_errors.exists() else ""
    if code < 0:
        return Outcome.crashed, f"signal {-code}: {said[-300:]}"
    if source == "directory" and "is a directory, cannot continue" in said:
        return Outcome.refused, "the interpreter itself refuses a directory as standard input"
    trouble = trouble_of(code, said) if errors == "kept" else None if code in (0, 1, 2) else f"exit code {code}"
    if source == "directory" and errors != "kept":
        trouble = None  # the interpreter refuses it without a message
    if trouble:
        return Outcome.untyped, trouble
    if code == 0 and "-o" in words and words[0] == "translate":
        # With a stream closed, the file may have got its number: what is said to the stream must not land in it.
        count = (work / "out.txt").read_bytes().count(b"\n")
        if count != places["text"].read_bytes().count(b"\n"):
            return Outcome.wrong, f"the file has {count} lines"
    if code == 0 and target in ("closed", "full") and name in RESULT_ON_OUTPUT:
        return Outcome.wrong, "what it is for is lost, and its exit code is 0"
    return (Outcome.refused if code else Outcome.works), said.strip()[:200]


def _filled(words: Sequence[str], places: Mapping[str, Path]) -> list[str]:
    found = list(words)
    for name, path in places.items():
        found = [word.replace("{" + name + "}", str(path)) for word in found]
    return found


ATTACK = Attack("command line", "cases", full=len(all_cases()), few=2, run=judged(cases))
