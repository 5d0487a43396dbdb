"""Commands that write something lasting, for the attacks that interrupt them: what they read, write, and leave."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from child import command_in_child, run_in_child
from materials import sentences, train_arguments, tree_digest, write_lines

SECONDS = 120.0
"""For a whole command, on a machine that is busy with something else."""


@dataclass(frozen=True)
class Scenario:
    """A command on files below a directory; what it reads lies in `in/`, what it writes in `out/`."""

    prepare: Callable[[Path, Path, bool], None]
    """Takes the stock, the directory for inputs and outputs, and whether older outputs shall be there."""
    arguments: Callable[[Path], Sequence[str]]
    model: str | None
    """Model directory that a reader may load at any time, once it is there."""
    outputs: tuple[str, ...]
    """Patterns of what must come out the same, byte for byte; all else may hold clocks."""
    more_inputs: tuple[str, ...] = ()
    """What it reads in `out/`."""
    publishes_often: bool = False
    """Models between the older one and the last one stand there for a while, and are whole as well."""
    aside: tuple[str, str] | None = None
    """Directory in `out/` of an older output, and its name there once the new one is prepared."""


def stock(directory: str) -> None:
    """Make what the scenarios start from, beside the models that are there; runs in a child."""
    from child import command
    from materials import write_pairs

    root = Path(directory)
    corpus = write_pairs(root)
    write_lines(root / "text.txt", sentences(400, seed=9))
    write_lines(root / "few.txt", sentences(10, seed=10))
    for name, steps in (("run", 30), ("older", 10)):
        code, _, errors = command(*train_arguments(str(root / name), corpus["pairs"], steps=steps))
        assert code == 0, errors


def _train(stock: Path, directory: Path, with_older: bool) -> None:
    (directory / "in").mkdir()
    shutil.copy(stock / "pairs.tsv", directory / "in")


def _average(stock: Path, directory: Path, with_older: bool) -> None:
    shutil.copytree(stock / "run", directory / "in" / "run")
    (directory / "out").mkdir(exist_ok=True)
    if with_older:
        shutil.copytree(stock / "older" / "model", directory / "out" / "average")


def _translate(stock: Path, directory: Path, with_older: bool) -> None:
    (directory / "in").mkdir()
    (directory / "out").mkdir(exist_ok=True)
    shutil.copytree(stock / "models" / "plain", directory / "in" / "plain")
    # The name that a careless writer would choose for its temporary file is taken: by the input.
    shutil.copy(stock / "text.txt", directory / "out" / "text.gz.partial")
    if with_older:
        (directory / "out" / "text.gz").write_bytes(b"older")


def _optimize(stock: Path, directory: Path, with_older: bool) -> None:
    (directory / "in").mkdir()
    shutil.copytree(stock / "models" / "plain", directory / "out" / "plain", dirs_exist_ok=True)
    for name in ("source.txt", "target.txt"):
        shutil.copy(stock / name, directory / "in")
    if not with_older:
        from clearhead.bundle import load_bundle, read_card, save_bundle

        model = directory / "out" / "plain"
        bundle = load_bundle(model)
        save_bundle(model, bundle, golden=bundle.golden, card=read_card(model))  # without its shortlist


def _start_over(stock: Path, directory: Path, with_older: bool) -> None:
    _train(stock, directory, with_older)
    shutil.copytree(stock / "older", directory / "out" / "run")


def _average_arguments(directory: Path) -> list[str]:
    return ["average", f"{directory}/in/run", "-o", f"{directory}/out/average", "--last", "2", *_force()]


def _force() -> list[str]:
    """An older model is there on purpose."""
    from inspect import signature

    from clearhead.cli.average import average

    return ["--force"] if "force" in signature(average).parameters else []


MODEL_FILES = ("model.safetensors", "tokenizer.json", "generation_config.json", "golden.jsonl")

SCENARIOS = {
    "train": Scenario(
        _train,
        lambda directory: train_arguments(f"{directory}/out/run", f"{directory}/in/pairs.tsv"),
        "out/run/model",
        (
            *(f"out/run/model/{name}" for name in MODEL_FILES),
            *("out/run/tokenizer.json", "out/run/data/*.arrow", "out/run/checkpoints/*/*.safetensors"),
        ),
        publishes_often=True,
    ),
    "start over": Scenario(
        _start_over,
        lambda directory: [*train_arguments(f"{directory}/out/run", f"{directory}/in/pairs.tsv"), "--fresh"],
        None,
        (
            *(f"out/run/model/{name}" for name in MODEL_FILES),
            *("out/run/checkpoints/*/*.safetensors", "out/run.old-1/model/*", "out/run.old-1/checkpoints/*/*"),
        ),
        aside=("run", "run.old-1"),
    ),
    "average": Scenario(
        _average,
        _average_arguments,
        "out/average",
        tuple(f"out/average/{name}" for name in (*MODEL_FILES, "alignment.json")),
    ),
    "translate": Scenario(
        _translate,
        lambda directory: [
            *("translate", f"{directory}/in/plain", f"{directory}/out/text.gz.partial", "--as-text"),
            *("-o", f"{directory}/out/text.gz", "--beam", "1"),
        ],
        None,
        ("out/text.gz",),
        ("out/text.gz.partial",),
    ),
    "optimize": Scenario(
        _optimize,
        lambda directory: [
            *("optimize", f"{directory}/out/plain", "--common", "20"),
            *("--source", f"{directory}/in/source.txt", "--target", f"{directory}/in/target.txt"),
        ],
        "out/plain",
        tuple(f"out/plain/{name}" for name in (*MODEL_FILES, "config.json", "shortlist.safetensors", "alignment.json")),
    ),
}


def outputs(directory: Path, scenario: Scenario) -> dict[str, bytes]:
    """Return what must come out the same, by name."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for pattern in scenario.outputs
        for path in sorted(directory.glob(pattern))
    }


def inputs(directory: Path, scenario: Scenario) -> dict[str, str]:
    """Return what no command may change, with its hashes."""
    names = ("in", *scenario.more_inputs)
    return {name: value for name, value in tree_digest(directory).items() if name.startswith(names)}


def finish(directory: Path, scenario: Scenario) -> str | None:
    """Run a scenario's command undisturbed; return what went wrong, or None."""
    ending = command_in_child(scenario.arguments(directory), SECONDS)
    if ending["code"] == 0 and not ending["hung"]:
        return None
    return f"the same command ends with {'a hang' if ending['hung'] else ending['code']}: {ending['errors'][-300:]}"


def what_a_reader_finds(directory: Path, scenario: Scenario) -> str:
    """Return the hashes of the model that a reader loads now; the message if there is none, or a problem."""
    assert scenario.model is not None
    ending = run_in_child("scenarios:load", {"model": str(directory / scenario.model)}, SECONDS)
    return ending["result"] or f"a reader ends with {ending['code']}: {ending['errors'][-300:]}"


def load(model: str) -> str:
    """Load a model and return the hashes of its weights and side files, or why there is none; runs in a child."""
    from child import refused_or

    from clearhead.files import file_sha256
    from clearhead.translation.translator import Translator

    refusal, translator = refused_or(lambda: Translator.load(model))
    if refusal is None:
        beside = {name: file_sha256(Path(model) / name) for name in translator.bundle.side_files}
        return f"{translator.bundle.model_sha256} {beside}"
    # A run without a model yet is refused as such, and so is a directory that is not there; nothing else may be.
    return f"refused: {refusal}" if (Path(model) / "config.json").exists() else "refused: there is none"
