"""Complete settings of a run from the user's settings, and checks whether a run may resume with them.

Settings are merged in layers: a preset, then a file or an earlier run, then the command line.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clearhead.config import Config, ModelConfig, TrainConfig, parse_toml
from clearhead.config.presets import AUTOMATIC_PRESETS, PRESETS, recipe
from clearhead.data.inputs import ROLES, source_language
from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import is_utf8
from clearhead.training.checkpoints import TrainingState
from clearhead.training.guided_alignment import guided_layer
from clearhead.training.schedule import noam_rate, peak_rate

DEFAULT_EPOCHS = 30
"""Passes over the corpus if neither a number of steps nor minutes are given."""
MOST_STEPS = 100_000
"""Maximum number of steps of such a run; the paper's base model made as many (section 5.2)."""

OF_THE_TOKENIZER = {"vocab_size", "num_placeholders", "pad_id", "bos_id", "eos_id"}
"""Settings of `[model]` that the tokenizer determines."""
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


def parse_override(text: str) -> dict[str, Any]:
    """Parse `section.key=value` into nested values; the value is read as TOML, or else as plain text.

    Raises:
        ConfigError: If `=` or the key before it is missing, the key has more than one dot, or there is a line break.

    >>> parse_override("train.max_steps=500")
    {'train': {'max_steps': 500}}
    >>> parse_override("tokenizer.kind=bpe")
    {'tokenizer': {'kind': 'bpe'}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip() or "\n" in text or key.count(".") > 1:
        raise ConfigError(
            f"--set {text!r:.200} must look like section.key=value, for example --set train.max_steps=1000"
        )
    try:
        parsed = parse_toml(f"value = {value}")["value"]
    except ValueError:
        parsed = value.strip()
    nested: Any = parsed
    for name in reversed(key.strip().split(".")):
        nested = {name: nested}
    return nested


def merge(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """Merge nested mappings; for each key the last layer wins.

    >>> merge({"train": {"seed": 1, "patience": 3}}, {"train": {"seed": 2}})
    {'train': {'seed': 2, 'patience': 3}}
    """
    result: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            old = result.get(key)
            result[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


def over_file(values: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Merge the command line's settings over those of a file.

    Raises:
        ConfigError: If the command line sets what the tokenizer determines. A file may contain it, because a run may
            have written the file.
    """
    if overrides.get("from_model"):
        values = {name: value for name, value in values.items() if name != "from_sha256"}  # of the file's model
    settings = merge(values, overrides)
    refuse_misshapen(settings)
    _refuse_what_the_tokenizer_decides({**settings, "model": overrides.get("model", {})})
    return settings


def over_saved(values: Mapping[str, Any], *, fresh: bool) -> Mapping[str, Any]:
    """Merge the settings of a `clearhead train --out RUN` without input files over the saved settings of that run.

    Settings of the model that the tokenizer determines are left out, because it determines them again. With `fresh`,
    planned settings and a peak rate chosen by `resolved` are left out too: a run that starts over with other steps or
    another width needs other values. It then starts from the current content of `from_model`.

    Args:
        values: Nested settings of the command.
        fresh: Whether the run starts over.

    Raises:
        ConfigError: If the saved settings cannot be read, or if `fresh` is combined with another preset: the saved
            settings already have a value for everything that a preset sets.
    """
    out, data, preset = values["out"], values.get("data", {}), values.get("preset")
    names_files = isinstance(data, Mapping) and any(data.get(name) for name in ("source", "target", "pairs"))
    if names_files or not isinstance(out, str) or not (path := Path(out, "config.toml")).is_file():
        return values
    saved = Config.load(path)
    settings = saved.model_dump(exclude={"model": OF_THE_TOKENIZER})
    if fresh:
        if preset is not None and preset != saved.preset:
            raise ConfigError(
                f"--preset {preset} would change nothing: without input files --fresh takes the settings in {path}, "
                f"all those of preset {saved.preset} among them; name the input files too"
            )
        warmup = saved.train.warmup_steps
        if saved.train.learning_rate == noam_rate(warmup, d_model=saved.model.d_model, warmup_steps=warmup):
            settings["train"]["learning_rate"] = None
        settings = _without(settings, {"train.planned", *saved.train.planned})
        settings["from_sha256"] = None
    limits, asked = ("max_steps", "max_minutes"), values.get("train", {})
    if isinstance(asked, Mapping) and any(asked.get(limit) is not None for limit in limits):
        settings["train"].update(dict.fromkeys(limits))  # a new limit replaces both saved ones
    return merge(settings, values)


def draft(values: Mapping[str, Any]) -> Config:
    """Check the user's settings before any data is read, and return them as far as they are known.

    The preset may depend on the corpus. So without a named preset it is enough if the settings fit some preset.

    Args:
        values: Nested settings as the user gave them.

    Returns:
        The settings as far as they are known; `out`, `device`, `data`, `tokenizer` and `train.seed` are final.

    Raises:
        ConfigError: If the settings are invalid.
    """
    refuse_misshapen(values)  # `over_file` has checked commands only
    _refuse_other_than_utf8(values)
    _refuse_what_the_tokenizer_decides(values)
    problems = []
    for preset in [values["preset"]] if values.get("preset") else list(AUTOMATIC_PRESETS):
        try:
            config = complete(values, preset, {"vocab_size": _VOCAB_SIZE_UNKNOWN})
            _refuse_what_training_cannot_have(config)
            return config
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def complete(
    values: Mapping[str, Any], preset: str, model: Mapping[str, int], planned: Mapping[str, Any] | None = None
) -> Config:
    """Merge the user's settings over the preset's; what depends on the corpus stays open, see `resolved`.

    Args:
        values: Nested settings as the user gave them.
        preset: Name of the preset, whose settings have the lowest priority.
        model: Model settings that the tokenizer determines, its `model_settings`.
        planned: Nested settings between the preset's and the user's, see `plan`. Only these set `train.planned`.
    """
    settings = merge(recipe(preset), planned or {}, values, {"preset": preset, "model": model})
    train = settings["train"]
    train["planned"] = (planned or {}).get("train", {}).get("planned", ())  # a file may be a copy of another run's
    if train.get("max_steps") is not None or train.get("max_minutes") is not None:
        return Config.from_dict(settings, origin="settings")
    # Some schedules require an end, and `resolved` will set one.
    config = Config.from_dict(merge(settings, {"train": {"max_steps": MOST_STEPS}}), origin="settings")
    return config.model_copy(update={"train": config.train.model_copy(update={"max_steps": None})})


def resolved(config: Config, *, batches_per_epoch: int) -> Config:
    """Return complete settings: choose the vocabulary size, the peak rate and the number of steps where left open.

    The language of the sources is set too, if the file names show it. `device` and `train.precision` stay `auto`,
    because a run may resume on another device. Every checkpoint records their actual values.

    Args:
        config: Settings from `complete`, or saved by an earlier clearhead, which left more open.
        batches_per_epoch: Optimiser steps of one pass over the corpus. 30 passes are the default length of a run.
    """
    tokenizer, train, model = config.tokenizer, config.train, config.model
    chosen: dict[str, Any] = {"learning_rate": peak_rate(train, d_model=model.d_model)}
    if train.max_steps is None and train.max_minutes is None:
        chosen["max_steps"] = min(MOST_STEPS, DEFAULT_EPOCHS * batches_per_epoch)
    decode = config.decode.model_copy(update={"source_lang": source_language(config)})
    return config.model_copy(
        update={
            "decode": decode,
            "tokenizer": tokenizer.model_copy(
                update={
                    "vocab_size": tokenizer.vocab_size or model.vocab_size,
                    "placeholders": model.num_placeholders > 0,
                }
            ),
            "train": train.model_copy(update=chosen),
        }
    )


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
    old, new = _flat(saved.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    names = (old.keys() | new.keys()) - {"train.planned"}  # it follows from the other changes
    changed = {name: (old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)}
    lines = {name: f"{name}: {before!r} -> {after!r}" for name, (before, after) in sorted(changed.items())}
    may_change = {name for name in changed if name in _MAY_CHANGE or name.startswith("decode.")}
    if all(changed.get("from_model", ())):  # the model was moved; `from_sha256` identifies it
        may_change.add("from_model")
    refused = [line for name, line in lines.items() if name not in may_change]
    if refused:
        raise CheckpointError(
            "this run was started with other settings, and going on would silently make it another run:\n  "
            + "\n  ".join(refused)
            + "\nuse the settings it was started with, another --out, or --fresh to start over"
        )
    return [line for name, line in lines.items() if name != "out"]


def refuse_misshapen(values: Mapping[str, Any]) -> None:
    """Check that every section is a mapping and every top-level setting is text.

    Raises:
        ConfigError: If one is not.
    """
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
    for name, value in _flat(values).items():
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
    require_both_sides(model)
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


def require_both_sides(model: ModelConfig) -> None:
    """Check that a model can be trained on pairs.

    Raises:
        ConfigError: If the model has no encoder or no decoder.
    """
    if not model.is_encoder_decoder:
        raise ConfigError(
            f"training on pairs of text needs an encoder and a decoder; model.num_encoder_layers is "
            f"{model.num_encoder_layers} and model.num_decoder_layers {model.num_decoder_layers} (a model of one side "
            f"is for Python: clearhead.Transformer)"
        )


def _without(settings: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return settings without those named `section.key`."""
    return {
        section: {key: value for key, value in values.items() if f"{section}.{key}" not in names}
        if isinstance(values, Mapping)
        else values
        for section, values in settings.items()
    }


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
