"""Settings of a run: merged from several layers, checked, and compared with those of a run to resume.

Each layer overrides those above it:

| layer | from |
| --- | --- |
| defaults | `config/` |
| preset | `config/presets.py`; the plan chooses one if none is named |
| plan | `plan.py`: by corpus, time limit and machine; a resumed run keeps its plan |
| initial model | the model of `--from`: its decoding settings |
| saved settings | `config.toml` of the run `--out`, if the command names no input files |
| file | `CONFIG.toml` of the command |
| `--set` | |
| options | such as `--max-steps` |
| fixed | shape of the initial model, and what the tokenizer determines; other values are rejected |

The plan needs the prepared data, and preparing them needs settings. Therefore `requested` merges and checks all other
layers before any data is read; `plan.make_plan` or `plan.resume` then returns the complete `Config`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clearhead.bundle import Bundle
from clearhead.config import Config, ModelConfig, TrainConfig
from clearhead.config.model import OF_THE_TOKENIZER
from clearhead.config.nested import flat, merge
from clearhead.config.presets import AUTOMATIC_PRESETS, PRESETS, recipe
from clearhead.data.inputs import ROLES, source_language
from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import is_utf8
from clearhead.training.checkpoints import TrainingState
from clearhead.training.guided_alignment import guided_layer
from clearhead.training.optimizer import weights_to_train
from clearhead.training.schedule import noam_rate, peak_rate
from clearhead.training.warm_start import over_model

PLANNED = {
    "data": ("augment",),
    "model": ("dropout",),
    "train": (
        *("optimizer", "batch_tokens", "learning_rate", "weight_decay", "warmup_steps"),
        *("validate_every", "checkpoint_every"),
    ),
    "decode": ("length_penalty",),
}
"""Settings that a plan chooses, unless they are given."""

_VOCAB_SIZE_UNKNOWN = 1_000  # placeholder until the tokenizer is trained

_MAY_CHANGE = {
    *("out", "golden", "device"),
    *(f"data.{role}" for role in ROLES),  # paths may change; the content is compared by checksum
    *("train.max_steps", "train.max_minutes", "train.patience", "train.micro_batch_tokens", "train.compile"),
    "train.accumulate",
    "train.shard",
    *("train.validate_every", "train.validate_sentences", "train.checkpoint_every", "train.checkpoint_minutes"),
    *("train.keep_checkpoints", "train.average_last", "train.general_margin"),
}
"""Settings that a resumed run may change, besides all of the section `decode`."""


@dataclass(frozen=True, slots=True)
class Request:
    """Settings that a command asks of a run, merged and checked before any data is read."""

    values: Mapping[str, Any]
    """Nested settings of all layers above the plan."""
    early: Config
    """The same, as far as they are known; `out`, `device`, `data`, `tokenizer` and `train.seed` are final."""
    start_model: Bundle | None
    """Initial model of a new run; None if it starts from random weights, and for a resumed run."""


def over_file(file: Mapping[str, Any], command: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the command line's settings over those of a file.

    Raises:
        ConfigError: If the command line sets what the tokenizer determines. A file may contain it, because a run may
            have written the file.
    """
    if command.get("from_model"):
        file = {name: value for name, value in file.items() if name != "from_sha256"}  # of the file's model
    settings = merge(file, command)
    _refuse_misshapen(settings)
    _refuse_what_the_tokenizer_decides({**settings, "model": command.get("model", {})})
    return settings


def over_saved(values: Mapping[str, Any], *, fresh: bool) -> Mapping[str, Any]:
    """Merge a command's settings over the saved ones of the run `out`, if the command names no input files.

    Left out are settings that the plan chose, because a resumed run gets them from its plan and a new one is planned
    again, and those of the model that the tokenizer determines. With `fresh` a peak rate chosen by `resolved` is left
    out too, because another width needs another, and the run starts from the current content of `from_model`.

    Args:
        values: Nested settings of the command.
        fresh: Whether the run starts over.

    Raises:
        ConfigError: If the saved settings cannot be read, or if `fresh` is combined with another preset: the saved
            settings already have a value for everything that a preset sets.
    """
    _refuse_misshapen(values)
    path, data, preset = Path(values["out"], "config.toml"), values.get("data", {}), values.get("preset")
    if any(data.get(name) for name in ("source", "target", "pairs")) or not path.is_file():
        return values
    saved = Config.load(path)
    left_out = {
        section: {name for name in names if f"{section}.{name}" in saved.train.planned}
        for section, names in PLANNED.items()
    }
    left_out["model"] |= OF_THE_TOKENIZER
    settings = saved.model_dump(exclude=left_out)
    if fresh:
        if preset is not None and preset != saved.preset:
            raise ConfigError(
                f"--preset {preset} would change nothing: without input files --fresh takes the settings in {path}, "
                f"all those of preset {saved.preset} among them; name the input files too"
            )
        warmup = saved.train.warmup_steps
        if saved.train.learning_rate == noam_rate(warmup, d_model=saved.model.d_model, warmup_steps=warmup):
            settings["train"]["learning_rate"] = None
        settings["from_sha256"] = None
    limits = dict.fromkeys(("max_steps", "max_minutes"))
    if any(values.get("train", {}).get(limit) is not None for limit in limits):
        settings["train"] |= limits  # a new limit replaces both saved ones
    return merge(settings, values)


def requested(values: Mapping[str, Any], *, fresh: bool = False) -> Request:
    """Merge the settings of a command over those of the saved run and of the initial model, and check them.

    Args:
        values: Nested settings of the command.
        fresh: Whether an existing run in `out` will be renamed and started over.

    Raises:
        ConfigError: If no run directory is named, or a setting is invalid or contradicts the initial model.
        CheckpointError: If the resumed run started from another model.
        ModelError: If there is no initial model, or it cannot be read.
    """
    if not values.get("out"):
        raise ConfigError("name the run directory: --out RUN, or out = 'RUN' in the configuration")
    values, start_model = over_saved(values, fresh=fresh), None
    if values.get("from_model") is not None:
        path = Path(values["out"], "config.toml")
        saved = Config.load(path) if path.exists() and not fresh else None
        if saved is None or saved.from_model is not None:  # otherwise `check_resumable` rejects the change
            values, start_model = over_model(values, saved)
    early = _draft(values)
    if start_model is not None:
        weights_to_train(start_model.model, early.train)  # reject invalid settings before anything is written
        if source_language(early) is None:
            values = merge({"decode": {"source_lang": start_model.decode.source_lang}}, values)
            early = _draft(values)
    return Request(values, early, start_model)


def _draft(values: Mapping[str, Any]) -> Config:
    """Check merged settings before any data is read, and return them as far as they are known.

    The preset may depend on the corpus. So without a named preset it is enough if the settings fit some preset.
    """
    _refuse_other_than_utf8(values)
    _refuse_what_the_tokenizer_decides(values)
    problems = []
    for preset in [values["preset"]] if values.get("preset") else AUTOMATIC_PRESETS:
        try:
            config = complete(values, preset, {"vocab_size": _VOCAB_SIZE_UNKNOWN}, {})
            _refuse_what_training_cannot_have(config)
            return config
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def complete(values: Mapping[str, Any], preset: str, model: Mapping[str, int], planned: Mapping[str, Any]) -> Config:
    """Merge all layers; what depends on the number of steps in an epoch stays open, see `resolved`.

    Args:
        values: Nested settings of the layers above the plan.
        preset: Name of the preset.
        model: Model settings that the tokenizer determines, its `model_settings`.
        planned: Nested settings of the plan. Only these set `train.planned`.
    """
    settings = merge(recipe(preset), planned, values, {"preset": preset, "model": model})
    train = settings["train"]
    train["planned"] = planned.get("train", {}).get("planned", ())  # a file may be a copy of another run's
    if train.get("max_steps") is not None or train.get("max_minutes") is not None:
        return Config.from_dict(settings, origin="settings")
    # Some schedules require an end, and `resolved` will set one.
    config = Config.from_dict(merge(settings, {"train": {"max_steps": 1}}), origin="settings")
    return config.model_copy(update={"train": config.train.model_copy(update={"max_steps": None})})


def default_steps(batches_per_epoch: int) -> int:
    """Return the length of a run without a limit: 30 passes over the corpus, at most 100,000 steps.

    The paper's base model was trained for 100,000 steps (section 5.2).
    """
    return min(100_000, 30 * batches_per_epoch)


def resolved(config: Config, batches_per_epoch: int) -> Config:
    """Return complete settings: choose the vocabulary size, the peak rate and the number of steps where left open.

    The language of the sources is set too, if the file names show it. `device` and `train.precision` stay `auto`,
    because a run may resume on another device. Every checkpoint records their actual values.

    Args:
        config: Settings from `complete`, or saved by an earlier clearhead, which left more open.
        batches_per_epoch: Optimiser steps of one pass over the corpus.
    """
    train, model = config.train, config.model
    is_open = train.max_steps is None and train.max_minutes is None
    chosen = {
        "decode": {"source_lang": source_language(config)},
        "tokenizer": {
            "vocab_size": config.tokenizer.vocab_size or model.vocab_size,
            "placeholders": model.num_placeholders > 0,
        },
        "train": {
            "learning_rate": peak_rate(train, d_model=model.d_model),
            "max_steps": default_steps(batches_per_epoch) if is_open else train.max_steps,
        },
    }
    return Config.from_dict(merge(config.model_dump(), chosen))


def check_resumable(saved: Config, now: Config, made: TrainingState) -> list[str]:
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


def _refuse_misshapen(values: Mapping[str, Any]) -> None:
    """Check that every section is a mapping and every top-level setting is text."""
    for name, field in Config.model_fields.items():
        value = values.get(name)
        is_section = isinstance(field.default, BaseModel)
        if is_section and name in values and not isinstance(value, Mapping):
            hint = f"; did you mean preset = {value!r}?" if isinstance(value, str) and value in PRESETS else ""
            raise ConfigError(f"{name} = {value!r:.200}: this is a section, set {name}.KEY = VALUE{hint}")
        if not is_section and value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} = {value!r:.200}: must be text in quotes")


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


def _refuse_other_than_utf8(values: Mapping[str, Any]) -> None:
    """Reject text, mostly file names, that config.toml cannot store."""
    for name, value in flat(values).items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and not is_utf8(text):
                raise ConfigError(f"{name} = {text!r:.200}: it is not UTF-8, and config.toml cannot hold it; rename it")


def _refuse_what_the_tokenizer_decides(values: Mapping[str, Any]) -> None:
    """Reject special-token ids or a vocabulary size that differ from those of the tokenizer to be trained.

    A resolved configuration contains both and is accepted. The ids are the same for every tokenizer; the vocabulary
    size belongs to its corpus, and another corpus determines its own.
    """
    model, tokenizer = values.get("model", {}), values.get("tokenizer", {})
    for name in ("pad_id", "bos_id", "eos_id"):
        given, own = model.get(name), ModelConfig.model_fields[name].default
        if given is not None and given != own:
            raise ConfigError(
                f"model.{name} = {given!r} cannot be set for training: the tokenizer decides the ids of its special "
                f"tokens; leave it out"
            )
    rows = model.get("vocab_size")
    if rows is not None and rows != tokenizer.get("vocab_size") and "pad_id" not in model:
        raise ConfigError(
            f"model.vocab_size = {rows!r} cannot be set for training: the model has a row for each piece of the "
            f"tokenizer; set tokenizer.vocab_size = {rows!r}"
        )


def _refuse_what_training_cannot_have(config: Config) -> None:
    model, decode, known = config.model, config.decode, config.tokenizer.language_tags
    if decode.target_lang is not None and decode.target_lang not in known:
        raise ConfigError(
            f"decode.target_lang = {decode.target_lang!r} is not in tokenizer.language_tags = {list(known)}; "
            f"add it there"
        )
    if decode.shortlist:
        raise ConfigError(
            "decode.shortlist cannot be set for training: a model has none before `clearhead optimize` made it; "
            "leave it out, and ask for it with `clearhead translate --shortlist`"
        )
    if not model.is_encoder_decoder:
        raise ConfigError(
            f"training on pairs of text needs an encoder and a decoder; model.num_encoder_layers is "
            f"{model.num_encoder_layers} and model.num_decoder_layers {model.num_decoder_layers} (a model of one side "
            f"is for Python: clearhead.Transformer)"
        )
    guided_layer(config.train, model)  # raises if there is no such layer
    if config.from_model is not None:
        return  # the initial model brings its own vocabularies and segments
    if model.source_vocab_size is not None:
        raise ConfigError(
            "training from text makes one joint vocabulary, so model.source_vocab_size cannot be set "
            "(a model with two vocabularies is for Python: clearhead.Transformer)"
        )
    if model.num_segments:
        raise ConfigError("training on pairs of text has no segments; model.num_segments must be 0")
