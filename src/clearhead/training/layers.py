"""Settings of a run in layers, merged once and checked once.

Each layer overrides those above it:

| layer | from |
| --- | --- |
| (defaults) | `config/` |
| `preset` | `config/presets.py`; the plan chooses one if none is named |
| `plan` | `plan.py`: by corpus, time limit and machine; a resumed run keeps its plan |
| `model` | the model of `--from`: its decoding settings |
| `saved` | `config.toml` of the run `--out`, if the command names no input files |
| `file` | `CONFIG.toml` of the command; settings given in Python |
| `--set` | |
| `option` | such as `--max-steps` |
| `fixed` | shape and tokenizer of the initial model, what the run's tokenizer determines, parts within `max_memory` |

The plan needs the prepared data, and preparing them needs settings. Therefore `resume.gather` collects and checks all
other layers before any data is read, and `plan.make_plan` or `resume.resume` adds the plan.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from clearhead.config import MOST_STEPS, Config, ModelConfig
from clearhead.config.model import OF_THE_TOKENIZER
from clearhead.config.nested import flat, nested
from clearhead.config.presets import AUTOMATIC_PRESETS, PRESETS, RECIPES, recipe
from clearhead.data.inputs import source_language
from clearhead.errors import ConfigError
from clearhead.files import is_utf8
from clearhead.runtime.lazy import cached_property
from clearhead.training.loss import guided_layer
from clearhead.training.schedule import peak_rate

_OF_THE_USER = ("saved", "file", "--set", "option")
LAYERS = ("preset", "plan", "model", *_OF_THE_USER, "fixed")
"""Names of all layers, lowest first."""

PLANNED = (
    *("data.augment", "model.dropout", "train.optimizer", "train.batch_tokens", "train.learning_rate"),
    *("train.weight_decay", "train.warmup_steps", "train.validate_every", "train.checkpoint_every"),
    "decode.length_penalty",
)
"""Settings that a plan chooses, unless they are given."""


class Layers:
    """Settings of a run by layer, each as values by dotted name; a layer that is missing sets nothing.

    >>> layers = Layers().with_("--set", {"train": {"seed": 7}}).with_preset("tiny")
    >>> [layers.origin(key) for key in ("train.seed", "train.batch_tokens", "train.patience")]
    ['--set', 'preset tiny', 'default']
    """

    def __init__(self, layers: Mapping[str, Mapping[str, Any]] | None = None) -> None:
        self._layers = {name: (layers or {}).get(name, {}) for name in LAYERS}

    def with_(self, layer: str, values: Mapping[str, Any]) -> Layers:
        """Return these layers with more values in one of them.

        Args:
            layer: One of `LAYERS`.
            values: Values, nested or, but for a file, by dotted name.

        Raises:
            ConfigError: If a section is no mapping, or a top-level setting no text, or a name in a file has a dot.
        """
        dotted = [name for name in values if layer == "file" and "." in f"{name}"]
        if problems := [*_misshapen(values), *(f"unknown setting {name!r}: leave out the quotes" for name in dotted)]:
            raise ConfigError("\n".join(problems))
        return Layers({**self._layers, layer: {**self._layers[layer], **flat(values)}})

    def with_preset(self, name: str) -> Layers:
        """Return these layers above a preset.

        Raises:
            ConfigError: If there is no such preset, or it has no decoder.
        """
        return Layers({**self._layers, "preset": flat(recipe(name))})

    @cached_property
    def given(self) -> dict[str, Any]:
        """Settings of the user by dotted name: those of the command over those saved by earlier ones."""
        given: dict[str, Any] = {}
        command = {**self._layers["--set"], **self._layers["option"]}
        for layer in (self._layers["saved"], self._layers["file"], command):
            if layer.get("from_model"):
                given.pop("from_sha256", None)  # it is of the other model
            given |= layer
        return given

    @cached_property
    def above_plan(self) -> dict[str, Any]:
        """Settings that no plan chooses, because the user or the initial model sets them, by dotted name."""
        return {**self._layers["model"], **self.given}

    @property
    def preset(self) -> str | None:
        """Name of the preset, if one is named or follows from the initial model."""
        return self.given.get("preset") or self._layers["model"].get("preset")

    def origin(self, key: str) -> str:
        """Return which layer sets a setting, such as `train.seed`: its name, or `default`."""
        layer = next((layer for layer in reversed(LAYERS) if key in self._layers[layer]), "default")
        return f"preset {self._layers[layer]['preset']}" if layer == "preset" else layer

    @cached_property
    def config(self) -> Config:
        """The settings, merged and checked, as far as they are known; `completed` adds what depends on the data.

        If no preset is named, it is the smallest one that they fit.

        Raises:
            ConfigError: Naming every problem.
        """
        if self._layers["preset"]:
            return self._checked()
        problems = []
        for preset in [self.preset] if self.preset else AUTOMATIC_PRESETS:
            try:
                return self.with_preset(preset).config
            except ConfigError as error:
                problems.append(error)
        raise problems[0]

    def _checked(self) -> Config:
        preset, plan, fixed = (self._layers[name] for name in ("preset", "plan", "fixed"))
        values = {**preset, **plan, **self.above_plan, **fixed, "preset": preset["preset"]}
        values["train.planned"] = plan.get("train.planned", ())  # a file may be a copy of another run's
        is_open = values.get("train.max_steps") is None and values.get("train.max_minutes") is None
        if is_open:
            values["train.max_steps"] = 1  # some schedules require an end, and `completed` will set one
        problems = [*_not_utf8(self.given), *([] if fixed else self._of_another_tokenizer())]
        try:
            config = Config.from_dict(nested(values), origin="settings")
            problems += _not_for_training(config)
        except ConfigError as error:
            problems.append(str(error))
        if problems:
            raise ConfigError("\n".join(problems))
        return changed(config, {"train.max_steps": None}) if is_open else config

    def _of_another_tokenizer(self) -> Iterator[str]:
        """Yield special-token ids and a vocabulary size that differ from those of the tokenizer to be trained.

        A saved configuration contains both and is accepted. The ids are the same for every tokenizer; the vocabulary
        size belongs to its corpus, and another corpus determines its own.
        """
        for layer in map(self._layers.__getitem__, _OF_THE_USER):
            for name in ("pad_id", "bos_id", "eos_id"):
                given, own = layer.get(f"model.{name}"), ModelConfig.model_fields[name].default
                if given not in (None, own):
                    yield (
                        f"model.{name} = {given!r} cannot be set for training: the tokenizer decides the ids of its "
                        f"special tokens; leave it out"
                    )
            rows = layer.get("model.vocab_size")
            if rows not in (None, self.given.get("tokenizer.vocab_size")) and "model.pad_id" not in layer:
                yield (
                    f"model.vocab_size = {rows!r} cannot be set for training: the model has a row for each piece of "
                    f"the tokenizer; set tokenizer.vocab_size = {rows!r}"
                )


def origins(saved: Config) -> dict[str, str]:
    """Return the layer that each setting of a saved run is from, by dotted name.

    `saved` is what the run's commands gave, or else the initial model, or the run chose for its corpus; `fixed` is what
    the initial model or the run's tokenizer determines.
    """
    values, fixed = flat(saved.model_dump()), {f"model.{name}" for name in OF_THE_TOKENIZER}
    if saved.from_model is not None:
        of_model = (name for name in values if name.startswith(("model.", "tokenizer.")) and "dropout" not in name)
        fixed |= {"from_sha256", *of_model}
    planned, preset = {*PLANNED}.intersection(saved.train.planned), saved.preset or ""
    layers = Layers().with_preset(preset) if preset in RECIPES else Layers()
    layers = layers.with_("plan", {name: values[name] for name in planned})
    below = {**flat(Config().model_dump()), **layers._layers["preset"], **layers._layers["plan"]}
    layers = layers.with_("saved", {name: value for name, value in values.items() if value != below[name]})
    layers = layers.with_("fixed", {name: values[name] for name in fixed - planned})
    return {name: layers.origin(name) for name in values}


def completed(config: Config, batches_per_epoch: int) -> Config:
    """Return complete settings: choose the vocabulary size, the peak rate and the number of steps where left open.

    The language of the sources is set too, if the file names show it. `device` and `train.precision` stay `auto`,
    because a run may resume on another device. Every checkpoint records their actual values.

    Args:
        config: Settings with those of the tokenizer.
        batches_per_epoch: Optimiser steps of one pass over the corpus.
    """
    train, model = config.train, config.model
    chosen = {
        "decode.source_lang": source_language(config),
        "tokenizer.vocab_size": config.tokenizer.vocab_size or model.vocab_size,
        "tokenizer.placeholders": model.num_placeholders > 0,
        "train.learning_rate": peak_rate(train, d_model=model.d_model),
    }
    if (most := step_limit(config, batches_per_epoch)) < MOST_STEPS:
        chosen["train.max_steps"] = most
    return changed(config, chosen)


def step_limit(config: Config, batches_per_epoch: int) -> int:
    """Return the most steps of a run: `train.max_steps`, or what follows if that is open.

    10 passes over corrections, since more unlearn other text; otherwise, without a time limit, 30 passes over the
    corpus, at most 100,000 steps, as many as the paper's base model was trained for (section 5.2).

    Args:
        config: Settings of the run.
        batches_per_epoch: Optimiser steps of one pass.
    """
    train = config.train
    if train.max_steps is not None:
        return train.max_steps
    if config.data.corrections:
        return 10 * batches_per_epoch
    return MOST_STEPS if train.max_minutes is not None else min(100_000, 30 * batches_per_epoch)


def changed(config: Config, changes: Mapping[str, Any]) -> Config:
    """Return settings with other values, by dotted name, which are not checked."""
    sections = nested(changes).items()
    return config.model_copy(update={name: getattr(config, name).model_copy(update=new) for name, new in sections})


def _misshapen(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield every section that is no mapping, and every top-level setting that is no text."""
    for name, field in Config.model_fields.items():
        value = values.get(name)
        is_section = isinstance(field.default, BaseModel)
        if is_section and name in values and not isinstance(value, Mapping):
            hint = f"; did you mean preset = {value!r}?" if isinstance(value, str) and value in PRESETS else ""
            yield f"{name} = {value!r:.200}: this is a section, set {name}.KEY = VALUE{hint}"
        if not is_section and value is not None and not isinstance(value, str):
            yield f"{name} = {value!r:.200}: must be text in quotes"


def _not_utf8(values: Mapping[str, Any]) -> Iterator[str]:
    """Yield text, mostly file names, that config.toml cannot store."""
    for name, value in values.items():
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and not is_utf8(text):
                yield f"{name} = {text!r:.200}: it is not UTF-8, and config.toml cannot hold it; rename it"


def _not_for_training(config: Config) -> Iterator[str]:
    """Yield what a model may have, but not one that is trained from pairs of text."""
    model, decode, known = config.model, config.decode, config.tokenizer.language_tags
    if decode.target_lang is not None and decode.target_lang not in known:
        yield (
            f"decode.target_lang = {decode.target_lang!r} is not in tokenizer.language_tags = {list(known)}; "
            f"add it there"
        )
    if decode.shortlist:
        yield (
            "decode.shortlist cannot be set for training: a model has none before `clearhead optimize` made it; "
            "leave it out, and ask for it with `clearhead translate --shortlist`"
        )
    if not model.is_encoder_decoder:
        yield (
            f"training on pairs of text needs an encoder and a decoder; model.num_encoder_layers is "
            f"{model.num_encoder_layers} and model.num_decoder_layers {model.num_decoder_layers} (a model of one side "
            f"is for Python: clearhead.Transformer)"
        )
    else:
        guided_layer(config.train, model)  # raises if there is no such layer
    if config.from_model is not None:
        return  # the initial model brings its own vocabularies and segments
    if model.source_vocab_size is not None:
        yield (
            "training from text makes one joint vocabulary, so model.source_vocab_size cannot be set "
            "(a model with two vocabularies is for Python: clearhead.Transformer)"
        )
    if model.num_segments:
        yield "training on pairs of text has no segments; model.num_segments must be 0"
