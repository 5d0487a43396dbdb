"""Preparation of the data of a new run: by `train` itself, or before it by `corpus prepare`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from clearhead.bundle import Bundle
from clearhead.config import Config
from clearhead.data.doctor.wrong_pairs import wrong_lines
from clearhead.data.inputs import ROLES, changed_inputs, is_pipe
from clearhead.data.prepare import (
    FRESH,
    Prepared,
    changed_settings,
    open_prepared,
    parts_of,
    prepare,
    refuse_forced,
)
from clearhead.errors import CheckpointError, DataError
from clearhead.files import is_leftover
from clearhead.runtime import ray_shards
from clearhead.training.finish import data_lines
from clearhead.training.layers import Layers
from clearhead.training.progress import Display
from clearhead.training.resume import gather
from clearhead.training.run_directory import from_here, lock
from clearhead.training.verdict import misalignment
from clearhead.training.warm_start import starting_model, tag_trouble


def prepare_alone(layers: Layers, *, is_forced: bool, processes: int, ray: str | None = None) -> Path:
    """Prepare the data of a run that `train` will start with the same settings, and return its directory.

    Args:
        layers: Settings of the command.
        is_forced: Whether training text of which much is wrong is taken all the same.
        processes: Processes that share the work; see `prepare`.
        ray: Address of a Ray cluster that shares it instead; see `ray_actors`.

    Raises:
        ClearheadError: If settings or data cannot be used, or the run was started already.
    """
    layers, start_model = gather(layers)
    if piped := [path for role in ROLES for path in getattr(layers.config.data, role) if is_pipe(path)]:
        raise DataError(
            f"{', '.join(piped)} can be read only once, so `train` could not tell whether these data are of the same "
            f"text; write it to a file, or let `train` prepare it"
        )
    run = Path(os.path.abspath(str(layers.config.out)))
    with lock(run), Display() as display:
        if (run / "config.toml").exists():
            raise CheckpointError(f"{run} is a run that was started, with data of its own; name another --out")
        prepare_run(layers, start_model, run, display, is_forced=is_forced, processes=processes, ray=ray)
    return run


def prepare_run(
    layers: Layers,
    start_model: Bundle | None,
    run: Path,
    display: Display,
    *,
    is_forced: bool,
    processes: int,
    ray: str | None = None,
) -> Prepared:
    """Prepare the data of a new run, unless that was done before, and say what was found."""
    started, early = time.monotonic(), layers.config
    start = None if early.from_model is None else starting_model(early, start_model)
    source, target = ([], []) if start is None else start.languages
    tokenizer, former_languages = None if start is None else start.tokenizer, (_only(source), _only(target))
    sha256 = None if tokenizer is None else tokenizer.sha256
    if (data := _prepared_before(early, run / "data", sha256, former_languages, display)) is None:
        cluster = nullcontext() if ray is None else ray_shards.ray_actors(ray, device="cpu")
        with _saying_what_is_kept(run, display), cluster as actors:
            data = prepare(
                early,
                run / "data",
                tokenizer=tokenizer,
                former_languages=former_languages,
                on_progress=display.stage,
                notice=display.say,
                is_forced=is_forced,
                processes=processes,
                actors=actors,
            )
        when = f"in {time.monotonic() - started:.0f} s"
    else:
        when = "before"
        if not is_forced:
            refuse_forced(data.report)
    _tell(data, when, display)
    return data


def _prepared_before(
    config: Config,
    directory: Path,
    tokenizer_sha256: str | None,
    former_languages: tuple[str | None, str | None],
    display: Display,
) -> Prepared | None:
    """Return the data that `prepare` would make, if it is there already."""
    if not (directory / "report.json").exists():
        return None
    try:
        data = open_prepared(directory)
    except DataError as error:
        changes = [str(error).removesuffix(f"; {FRESH}")]
    else:
        changes = changed_settings(data.report, config, tokenizer_sha256, former_languages)
        changes = changes or changed_inputs(data.report, config, config)
        if not changes:
            shutil.rmtree(parts_of(directory), ignore_errors=True)  # if killed right before their removal
            return data
    display.say(f"the data prepared before in {directory} cannot be used, and are prepared again: {'; '.join(changes)}")
    return None


@contextmanager
def _saying_what_is_kept(run: Path, display: Display) -> Iterator[None]:
    """Say which finished parts are kept if the block is ended. A run that is started over keeps none."""
    try:
        yield
    except BaseException:
        if (parts := parts_of(run / "data")).exists() and not is_leftover(run.name):
            display.say(f"finished parts are kept in {from_here(parts)}; the same text and settings continue from them")
        raise


def _only(languages: Sequence[str]) -> str | None:
    return languages[0] if len(languages) == 1 else None


def _tell(data: Prepared, when: str, display: Display) -> None:
    """Say what was found in the data."""
    kept, general = data.report["train"]["kept"], ""
    if data.general is not None:
        mixed_in = data.report["general"]["kept"]
        general = f", {mixed_in:,} general pairs to mix in and {len(data.general):,} to watch,"
    display.say(f"prepared {kept:,} training and {len(data.valid):,} validation pairs{general} {when}")
    for line in data_lines(data.report):
        display.say("  " + line)
    display.say(
        f"the first pair, from source to target: {data.train.source(0)!r:.200} -> {data.train.target(0)!r:.200}"
    )
    for line in wrong_lines(data.report["wrong"], kept):
        display.say(line)
    if (warning := misalignment(data)) is not None:
        display.say(warning)
    for what, pairs in (("source", data.train), ("general source", data.general)):
        if pairs is not None and (warning := tag_trouble(pairs, data.tokenizer, what)):
            display.say(warning)
