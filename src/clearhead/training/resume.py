"""Settings of a command with those of the run that it resumes, and of the model that a run starts from.

A resumed run keeps its plan, and may change only what does not make it another run.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle import Bundle
from clearhead.config import Config, TrainConfig
from clearhead.config.model import OF_THE_TOKENIZER
from clearhead.config.nested import flat
from clearhead.config.presets import choose_preset
from clearhead.data.batches import BatchOrder
from clearhead.data.inputs import ROLES, source_language
from clearhead.data.prepare import Prepared
from clearhead.errors import CheckpointError, ConfigError
from clearhead.training.checkpoints import TrainingState
from clearhead.training.intervals import INTERVALS, intervals
from clearhead.training.layers import PLANNED, Layers, changed, completed
from clearhead.training.memory import within_budget
from clearhead.training.optimizer import weights_to_train
from clearhead.training.schedule import noam_rate
from clearhead.training.warm_start import with_model

_MAY_CHANGE = {
    *("out", "golden", "device"),
    *(f"data.{role}" for role in ROLES),  # paths may change; the content is compared by checksum
    *("train.max_steps", "train.max_minutes", "train.patience", "train.micro_batch_tokens", "train.compile"),
    "train.max_memory",
    *("train.accumulate", "train.deterministic"),
    *("train.shard", "train.track"),
    *("train.validate_every", "train.validate_sentences", "train.checkpoint_every", "train.checkpoint_minutes"),
    *("train.keep_checkpoints", "train.average_last", "train.general_margin"),
}
"""Settings that a resumed run may change, besides all of the section `decode`."""


def gather(layers: Layers, *, fresh: bool = False) -> tuple[Layers, Bundle | None]:
    """Add the settings of the saved run and of the initial model to those of a command, and check them.

    Args:
        layers: Settings of the command.
        fresh: Whether an existing run in `out` will be renamed and started over.

    Returns:
        All layers but the plan, of whose `config` the settings `out`, `device`, `data`, `tokenizer` and `train.seed`
        are final; and the initial model of a new run.

    Raises:
        ConfigError: If no run directory is named, or a setting is invalid or contradicts the initial model.
        CheckpointError: If the resumed run started from another model.
        ModelError: If there is no initial model, or it cannot be read.
    """
    if not layers.given.get("out"):
        raise ConfigError("name the run directory: --out RUN, or out = 'RUN' in the configuration")
    layers, saved = with_saved(layers, fresh=fresh)
    start_model = None
    if layers.given.get("from_model") is not None and (saved is None or saved.from_model is not None):
        layers, start_model = with_model(layers, saved)  # otherwise `resume` rejects the change
    early = layers.config
    if start_model is not None:
        weights_to_train(start_model.model, early.train)  # reject invalid settings before anything is written
        language = start_model.decode.source_lang
        if language is not None and source_language(early) is None:
            layers = layers.with_("model", {"decode.source_lang": language})
    return layers, start_model


def with_saved(layers: Layers, *, fresh: bool) -> tuple[Layers, Config | None]:
    """Return a command's settings over the saved ones of the run `out`, if the command names no input files.

    The saved settings of a run that will be resumed are returned too.

    Left out are settings that the plan chose, because a resumed run gets them from its plan and a new one is planned
    again, and those of the model that the tokenizer determines. With `fresh` a peak rate chosen by `completed` is left
    out too, because another width needs another, and the run starts from the current content of `from_model`.

    Args:
        layers: Settings of the command.
        fresh: Whether the run starts over.

    Raises:
        ConfigError: If the saved settings cannot be read, or if `fresh` is combined with another preset: the saved
            settings already have a value for everything that a preset sets.
    """
    given = layers.given
    path, preset = Path(given.get("out") or "", "config.toml"), given.get("preset")
    names_inputs = any(given.get(f"data.{role}") for role in ("source", "target", "pairs", "corrections"))
    if not given.get("out") or not path.is_file() or (names_inputs and fresh):
        return layers, None
    saved = Config.load(path)
    if names_inputs:
        return layers, saved
    left_out = {*PLANNED}.intersection(saved.train.planned) | {f"model.{name}" for name in OF_THE_TOKENIZER}
    values = {name: value for name, value in flat(saved.model_dump()).items() if name not in left_out}
    if fresh:
        if preset not in (None, saved.preset):
            raise ConfigError(
                f"--preset {preset} would change nothing: without input files --fresh takes the settings in {path}, "
                f"all those of preset {saved.preset} among them; name the input files too"
            )
        del values["from_sha256"]
        warmup = saved.train.warmup_steps
        if saved.train.learning_rate == noam_rate(warmup, d_model=saved.model.d_model, warmup_steps=warmup):
            values["train.learning_rate"] = None
    limits = dict.fromkeys(("train.max_steps", "train.max_minutes"))
    if any(given.get(limit) is not None for limit in limits):
        values |= limits  # a new limit replaces both saved ones
    return layers.with_("saved", values), None if fresh else saved


def resume(
    layers: Layers, saved: Config, data: Prepared, made: TrainingState, device: torch.device, num_workers: int
) -> tuple[Config, BatchOrder, list[str]]:
    """Return complete settings of a resumed run, its batches, and the allowed changes of settings as lines to print.

    Args:
        layers: Settings of the command, from `gather`.
        saved: Settings that the run was last trained with.
        data: Prepared data of the run.
        made: State of the run.
        device: Device for training.
        num_workers: Number of workers that share every step.

    Raises:
        CheckpointError: If the changes would make it another run; see `allowed_changes`.
        ConfigError: If the settings are invalid.
    """
    layers = layers.with_preset(layers.preset or saved.preset or choose_preset(len(data.train)))
    layers = layers.with_("plan", planned_before(saved)).with_("fixed", {"model": data.tokenizer.model_settings})
    order = data.order(layers.config.train)
    now = completed(layers.config, order.batches_per_epoch)
    now = with_intervals(saved, now, made, layers.given, data, device)
    if now.train.max_memory != saved.train.max_memory:
        now = within_budget(now, order, device, num_workers)
    elif now.train.max_memory is not None:  # the parts of before, whatever this process takes
        fewer = min(now.train.micro_batch_tokens, saved.train.micro_batch_tokens)
        now = changed(now, {"train.micro_batch_tokens": fewer})
    return now, order, allowed_changes(saved, now, made)


def planned_before(saved: Config) -> dict[str, Any]:
    """Return the settings that a resumed run already has for everything a plan would choose, by dotted name."""
    before = flat(saved.model_dump())
    return {name: before[name] for name in (*PLANNED, "train.planned")}


def with_intervals(
    saved: Config, now: Config, made: TrainingState, given: Collection[str], data: Prepared, device: torch.device
) -> Config:
    """Return the settings of a resumed run, with intervals that suit a new limit where the user left them open.

    With the intervals of a short run, a long one would spend half of its time on validations, and `train.patience`
    would end it early.

    Args:
        saved: Settings that the run was last trained with.
        now: Settings that are requested now, merged with the planned ones.
        made: State of the run: its steps and the time they took.
        given: Dotted names of the settings that the user gives now.
        data: Prepared data of the run.
        device: Device for training.
    """
    old, new = saved.train, now.train
    planned = tuple(name for name in new.planned if name not in INTERVALS or name not in given)
    chosen: dict[str, Any] = {"train.planned": planned}
    ends = [new.max_steps] if new.max_steps is not None else []
    if new.max_minutes is not None and made.step and made.elapsed:
        ends.append(int(made.step * 60 * new.max_minutes / made.elapsed))
    if ends and (old.max_steps, old.max_minutes) != (new.max_steps, new.max_minutes):
        suitable = intervals(min(ends), now, data, device)
        chosen |= {name: suitable[name] for name in INTERVALS if name in planned}
    return changed(now, chosen)


def allowed_changes(saved: Config, now: Config, made: TrainingState) -> list[str]:
    """Compare a run's saved settings with those with which it is to resume.

    Args:
        saved: Settings that the run was last trained with.
        now: Settings requested now.
        made: State of the run.

    Returns:
        The allowed changes, one line each, to be printed.

    Raises:
        CheckpointError: With a list of the changes that would make it another run; or if the new limit is below the
            steps or minutes already made, so that the run would end silently.
        ConfigError: If the run's vocabulary lacks the tokens that a setting needs.
    """
    _refuse_less_than_made(saved.train, now.train, made)
    if now.decode.protect_numbers and not now.model.num_placeholders:
        raise ConfigError(
            "decode.protect_numbers needs a vocabulary with tokens for placeholders, and that of this run has none"
        )
    old, new = (
        flat(config.model_dump(mode="json", exclude={"train": {"planned"}}))  # which follows from the other changes
        for config in (saved, now)
    )
    lines = {name: f"{name}: {old[name]!r} -> {new[name]!r}" for name in sorted(old) if old[name] != new[name]}
    may_change = {name for name in lines if name in _MAY_CHANGE or name.startswith("decode.")}
    if saved.from_model is not None and now.from_model is not None:  # it was moved; `from_sha256` identifies it
        may_change.add("from_model")
    refused = [line for name, line in lines.items() if name not in may_change]
    if refused:
        raise CheckpointError(
            "this run was started with other settings, and going on would silently make it another run:\n  "
            + "\n  ".join(refused)
            + "\nuse the settings it was started with, another --out, or --fresh to start over"
        )
    return [line for name, line in lines.items() if name != "out"]


def _refuse_less_than_made(saved: TrainConfig, now: TrainConfig, made: TrainingState) -> None:
    counts = {
        "steps": (saved.max_steps, now.max_steps, made.step),
        "minutes": (saved.max_minutes, now.max_minutes, made.elapsed / 60),
    }
    for unit, (before, asked, done) in counts.items():
        if asked is not None and asked != before and asked < done:
            or_end = f", --max-steps {made.step} ends the run here" if made.step else ""
            raise CheckpointError(
                f"this run has made {round(done, 2):,.10g} {unit}, and --max-{unit} {asked:.10g} counts them too; "
                f"--max-{unit} {math.ceil(100 * (done + asked)) / 100:.10g} makes so many more{or_end}"
            )
