"""From what the user set to the complete settings of a run, and whether a run may go on with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from clearhead.config import Config, ModelConfig
from clearhead.data.batches import BatchOrder
from clearhead.data.store import PairStore
from clearhead.errors import CheckpointError, ConfigError
from clearhead.files import is_utf8
from clearhead.presets import AUTOMATIC_PRESETS, PRESETS, recipe
from clearhead.training.overrides import merge
from clearhead.training.schedule import peak_rate

__all__ = [
    "check_early",
    "check_resumable",
    "complete",
    "refuse_other_preset",
    "resolved",
    "steps_per_epoch",
    "with_open_rate",
]

_DEFAULT_EPOCHS = 30
_MOST_STEPS = 100_000  # the paper's base model (section 5.2)

_VOCAB_SIZE_UNKNOWN = 1_000  # stands in until the tokenizer is trained

_MAY_CHANGE = {
    "out",
    "device",
    # Where the text lies; what it says is compared by content.
    "data.source",
    "data.target",
    "data.pairs",
    "data.valid_source",
    "data.valid_target",
    "data.valid_pairs",
    "data.exclude",
    "train.max_steps",
    "train.max_minutes",
    "train.patience",
    "train.micro_batch_tokens",
    "train.compile",
    "train.validate_every",
    "train.validate_sentences",
    "train.checkpoint_every",
    "train.checkpoint_minutes",
    "train.keep_checkpoints",
    "train.average_last",
}
"""Settings that a resumed run may change; of the section `decode`, all."""


def check_early(values: Mapping[str, Any]) -> Config:
    """Check the user's settings before any data is read.

    The preset may depend on the corpus, so without a named one it is enough if the settings fit some preset.

    Args:
        values: Nested settings as the user gave them.

    Returns:
        The settings as far as they are known; `data`, `tokenizer` and `train.seed` are final.

    Raises:
        ConfigError: If they are impossible.
    """
    _refuse_misshapen(values)
    _refuse_other_than_utf8(values)
    _refuse_special_ids(values)
    _refuse_vocab_size(values)
    problems = []
    names = [values["preset"]] if values.get("preset") else AUTOMATIC_PRESETS
    for name in names:
        try:
            config = complete(values, name, vocab_size=_VOCAB_SIZE_UNKNOWN, batches_per_epoch=1)
            _refuse_unknown_language(config)
            _refuse_shortlist(config)
            _refuse_other_than_text_to_text(config)
            return config
        except ConfigError as error:
            problems.append(error)
    raise problems[0]


def steps_per_epoch(values: Mapping[str, Any], preset: str, pairs: PairStore) -> int:
    """Return the optimiser steps of one pass over the corpus."""
    train = complete(values, preset, vocab_size=_VOCAB_SIZE_UNKNOWN, batches_per_epoch=1).train
    order = BatchOrder(pairs.source_lengths, pairs.target_lengths, batch_tokens=train.batch_tokens, seed=train.seed)
    return order.batches_per_epoch


def complete(
    values: Mapping[str, Any],
    preset: str,
    *,
    vocab_size: int,
    batches_per_epoch: int,
    special_ids: Mapping[str, int] | None = None,
) -> Config:
    """Lay the user's settings over the preset's and fill in what follows from the corpus.

    Args:
        values: Nested settings as the user gave them.
        preset: Name of the preset underneath.
        vocab_size: Pieces of the tokenizer.
        batches_per_epoch: Optimiser steps of one pass over the corpus; 30 passes are the default length of a run.
        special_ids: `pad_id`, `bos_id` and `eos_id` of the tokenizer; None for one that clearhead trains.
    """
    owned = {"vocab_size": vocab_size, **(special_ids or {})}
    settings = merge(recipe(preset), values, {"preset": preset, "model": owned})
    train = settings["train"]
    if train.get("max_steps") is None and train.get("max_minutes") is None:
        settings = merge(settings, {"train": {"max_steps": min(_MOST_STEPS, _DEFAULT_EPOCHS * batches_per_epoch)}})
    return Config.from_dict(settings, origin="settings")


def resolved(config: Config) -> Config:
    """Return complete settings with what was chosen for those left open: the size of the vocabulary and the peak rate.

    `device` and `train.precision` stay `auto`, for a run may go on where another device is; what they were stands in
    every checkpoint.
    """
    tokenizer, train, model = config.tokenizer, config.train, config.model
    if tokenizer.vocab_size is None:
        tokenizer = tokenizer.model_copy(update={"vocab_size": model.vocab_size})
    if train.learning_rate is None:
        train = train.model_copy(update={"learning_rate": peak_rate(train, d_model=model.d_model)})
    return config.model_copy(update={"tokenizer": tokenizer, "train": train})


def with_open_rate(saved: Config) -> Config:
    """Return a run's saved settings with the peak rate left open if it is the one that `resolved` chose.

    A run that starts over with another width or warm-up then gets the rate of those.
    """
    is_open = saved.train.model_copy(update={"learning_rate": None})
    if saved.train.learning_rate != peak_rate(is_open, d_model=saved.model.d_model):
        return saved
    return saved.model_copy(update={"train": is_open})


def refuse_other_preset(values: Mapping[str, Any], saved: Config, run: Path) -> None:
    """Refuse another preset over the saved settings of a run, which have a number for all that a preset decides.

    Raises:
        ConfigError: If another one is asked for.
    """
    preset = values.get("preset")
    if preset is not None and preset != saved.preset:
        raise ConfigError(
            f"--preset {preset} would change nothing: without input files --fresh takes the settings in "
            f"{run / 'config.toml'}, all those of preset {saved.preset} among them; name the input files too"
        )


def check_resumable(saved: Config, now: Config) -> list[str]:
    """Compare a run's saved settings with those it is asked to go on with.

    Returns:
        The changes that are allowed, for saying so.

    Raises:
        CheckpointError: Listing the changes that would silently make it another run.
    """
    old, new = _flat(saved.model_dump(mode="json")), _flat(now.model_dump(mode="json"))
    changed = {
        name: (old.get(name), new.get(name)) for name in old.keys() | new.keys() if old.get(name) != new.get(name)
    }
    lines = {name: f"{name}: {before!r} -> {after!r}" for name, (before, after) in sorted(changed.items())}
    refused = [line for name, line in lines.items() if not (name in _MAY_CHANGE or name.startswith("decode."))]
    if refused:
        raise CheckpointError(
            "this run was started with other settings, and going on would silently make it another run:\n  "
            + "\n  ".join(refused)
            + "\nuse the settings it was started with, another --out, or --fresh to start over"
        )
    return [line for name, line in lines.items() if name != "out"]


def _refuse_misshapen(values: Mapping[str, Any]) -> None:
    for name, field in Config.model_fields.items():
        value = values.get(name)
        is_section = isinstance(field.default, BaseModel)
        if is_section and name in values and not isinstance(value, Mapping):
            hint = f"; did you mean preset = {value!r}?" if isinstance(value, str) and value in PRESETS else ""
            raise ConfigError(f"{name} = {value!r:.200}: this is a section, set {name}.KEY = VALUE{hint}")
        if not is_section and value is not None and not isinstance(value, str):
            raise ConfigError(f"{name} = {value!r:.200}: must be text in quotes")


def _refuse_other_than_utf8(values: Mapping[str, Any]) -> None:
    """Refuse text, mostly names of files, that config.toml cannot hold."""
    for name, value in _flat(values).items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and not is_utf8(text):
                raise ConfigError(f"{name} = {text!r:.200}: it is not UTF-8, and config.toml cannot hold it; rename it")


def _refuse_special_ids(values: Mapping[str, Any]) -> None:
    """Refuse special ids other than those of the tokenizer that will be trained; a resolved configuration has these."""
    for name in ("pad_id", "bos_id", "eos_id"):
        given, own = values.get("model", {}).get(name), ModelConfig.model_fields[name].default
        if given is not None and given != own:
            raise ConfigError(
                f"model.{name} = {given!r} cannot be set for training: the tokenizer decides the ids of its special "
                f"tokens; leave it out"
            )


def _refuse_vocab_size(values: Mapping[str, Any]) -> None:
    """Refuse a number of rows that the tokenizer would overrule.

    A resolved configuration has one, beside the special ids: it is that of its corpus, and another corpus brings its
    own.
    """
    model = values.get("model", {})
    rows, pieces = model.get("vocab_size"), values.get("tokenizer", {}).get("vocab_size")
    if rows is not None and rows != pieces and "pad_id" not in model:
        raise ConfigError(
            f"model.vocab_size = {rows!r} cannot be set for training: the model has a row for each piece of the "
            f"tokenizer; set tokenizer.vocab_size = {rows!r}"
        )


def _refuse_unknown_language(config: Config) -> None:
    language, known = config.decode.target_lang, config.tokenizer.language_tags
    if language is not None and language not in known:
        raise ConfigError(
            f"decode.target_lang = {language!r} is not in tokenizer.language_tags = {list(known)}; add it there"
        )


def _refuse_shortlist(config: Config) -> None:
    if config.decode.shortlist:
        raise ConfigError(
            "decode.shortlist cannot be set for training: a model has none before `clearhead optimize` made it; "
            "leave it out, and ask for it with `clearhead translate --shortlist`"
        )


def _refuse_other_than_text_to_text(config: Config) -> None:
    model = config.model
    if not (model.num_encoder_layers and model.num_decoder_layers):
        raise ConfigError(
            f"training on pairs of text needs an encoder and a decoder; model.num_encoder_layers is "
            f"{model.num_encoder_layers} and model.num_decoder_layers {model.num_decoder_layers} (a model of one side "
            f"is for Python: clearhead.Transformer)"
        )
    if model.source_vocab_size is not None:
        raise ConfigError(
            "training from text makes one joint vocabulary, so model.source_vocab_size cannot be set "
            "(a model with two vocabularies is for Python: clearhead.Transformer)"
        )
    if model.num_segments:
        raise ConfigError("training on pairs of text has no segments; model.num_segments must be 0")


def _flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[prefix + name] = value
    return flat
