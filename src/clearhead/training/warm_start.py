"""Warm start (`clearhead train --from MODEL`): merge settings with the model's, load it, and check language tags.

The run uses that model's shape and tokenizer, so that its weights fit. Other settings may differ. A run needs the model
only until its first checkpoint, which is written before the first step.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearhead.bundle import Bundle, load_bundle
from clearhead.bundle.model_directory import model_directory
from clearhead.config import Config, DataConfig
from clearhead.config.nested import flat
from clearhead.config.presets import AUTOMATIC_PRESETS, TABLE3, recipe, small
from clearhead.data.prepare import STORES
from clearhead.data.store import PairStore
from clearhead.errors import CheckpointError, ConfigError, ModelError
from clearhead.text.languages import language_tag, split_tag
from clearhead.tokenizers import Vocabulary
from clearhead.training.layers import Layers

_NO_MATTER_OF_WEIGHTS = {"dropout", "attention_dropout", "feed_forward_dropout"}
_LINES_ASKED_FOR_A_TAG = 1_000
_TRAINING_TEXT = ("source", "target", "pairs", "general_source", "general_target", "general_pairs")
"""Settings of `[data]` with text that is general text beside corrections."""
_NO_NAME = ("",)
"""With this, `split_tag` accepts any language tag, not only those of known languages."""


def with_model(layers: Layers, saved: Config | None) -> tuple[Layers, Bundle | None]:
    """Return settings over those of the model that `from_model` names, and below what its weights fix.

    Args:
        layers: Settings of the user.
        saved: Saved settings of a resumed run, which contain what the model fixed; None for a new run.

    Returns:
        The settings and, for a new run, the loaded model.

    Raises:
        ConfigError: If a setting or the named preset contradicts the model, or `from_sha256` is that of another model.
        CheckpointError: If the resumed run started from another model.
        ModelError: If there is no model, or it cannot be read.
    """
    named, asked = layers.given["from_model"], layers.given.get("from_sha256")
    if saved is not None:
        bundle, preset, sha256 = None, saved.preset, saved.from_sha256
        if named != saved.from_model and (other := load_bundle(named).model_sha256) != sha256:
            raise CheckpointError(
                f"this run started from another model than --from {named}: the SHA-256 of the weights was "
                f"{sha256}, and there it is {other}; leave --from as it was, or use another --out, or --fresh to start "
                f"over"
            )
        shape, tokenizer, decode = saved.model, saved.tokenizer.model_dump(), saved.decode.model_dump()
    else:
        bundle = load_bundle(named)
        preset, sha256 = _preset(bundle), bundle.model_sha256
        if asked is not None and asked != sha256:
            raise ConfigError(
                f"from_sha256 = {asked!r:.200} is not the model at {named}: the SHA-256 of its weights is "
                f"{sha256}; name the other model, or leave from_sha256 out to start from this one"
            )
        # A newly trained model has no shortlist, and the new text may be in another language.
        no_longer = {"shortlist"} if bundle.tokenizer.tells_languages else {"shortlist", "source_lang"}
        if bundle.precision is not None:  # its precision was chosen for the rounded weights
            no_longer = {*no_longer, "precision"}
        shape, tokenizer = bundle.config, bundle.tokenizer.settings
        decode = bundle.decode.model_dump(exclude=no_longer)
    fixed = flat({"model": shape.model_dump(exclude=_NO_MATTER_OF_WEIGHTS), "tokenizer": tokenizer})
    _refuse_contradictions(layers.given, fixed, named)
    free = shape.model_dump(include=_NO_MATTER_OF_WEIGHTS - {"dropout"})
    defaults: dict[str, Any] = {"preset": preset, "decode": decode, "model": free}
    if shape.max_length is not None:
        longest = (saved.data if saved is not None else DataConfig()).max_length
        defaults["data.max_length"] = min(longest, shape.max_length)
    if layers.given.get("data.corrections") and not any(layers.given.get(f"data.{role}") for role in _TRAINING_TEXT):
        defaults["data.general_pairs"] = _text_of_run(named) if saved is None else saved.data.general_pairs
    return layers.with_("model", defaults).with_(
        "fixed", {**fixed, "from_sha256": sha256 if asked is None else asked}
    ), bundle


def starting_model(config: Config, bundle: Bundle | None) -> Bundle:
    """Return the initial model of a run without a checkpoint.

    Args:
        config: Settings of the run; `from_model` and `from_sha256` identify the model.
        bundle: The model, if it has been loaded already.

    Raises:
        CheckpointError: If the model no longer exists at that path or has changed.
    """
    assert config.from_model is not None, "a run that starts from random weights has no such model"
    try:
        bundle = bundle or load_bundle(config.from_model)
        trouble = None if bundle.model_sha256 == config.from_sha256 else f"another model is at {config.from_model}"
    except ModelError as error:
        trouble = str(error)
    if bundle is None or trouble:
        raise CheckpointError(
            f"this run has no checkpoint yet, so it needs the model that it starts from, and {trouble}; put back the "
            f"one whose weights have the SHA-256 {config.from_sha256}, name its new place with --from, or start over "
            f"with --fresh"
        )
    return bundle


def model_name(path: str) -> str:
    """Return the name of a model without parent directories: the name of its run, if it belongs to one.

    >>> model_name("runs/de-en/model")
    'de-en'
    """
    directory = Path(os.path.abspath(path))
    return directory.parent.name if directory.name == "model" else directory.name


def tag_trouble(pairs: PairStore, tokenizer: Vocabulary, what: str) -> str | None:
    """Return a warning if source lines lack the language tags of the tokenizer, or have tags that it lacks.

    Args:
        pairs: Training pairs, of which the first 1,000 are checked.
        tokenizer: Tokenizer with the language tags of the model.
        what: Name of the lines for the message, such as "source".
    """
    known, rows = tokenizer.language_tags, range(min(len(pairs), _LINES_ASKED_FOR_A_TAG))
    tags = [split_tag(pairs.source(row), known or _NO_NAME)[0] for row in rows]
    if known and not any(tags):
        return (
            f"the model is told by a tag ({', '.join(map(language_tag, known))}) which language to write, and the "
            f"first {len(rows):,} {what} lines have none: what is learned from them is not what a tag asks for; put "
            f"the tag before each"
        )
    if not known and all(tags):
        names = sorted({name for name in tags if name is not None})
        return (
            f"each of the first {len(rows):,} {what} lines begins with a language tag, such as "
            f"{language_tag(names[0])}, which is plain text where no languages are named; if these are all, start over "
            f"with --fresh --set 'tokenizer.language_tags={json.dumps(names, ensure_ascii=False)}'"
        )
    return None


def _text_of_run(named: str) -> tuple[str, ...]:
    """Return the file of training text of the run that a model is from; none if it is of no run."""
    store = model_directory(named).parent / "data" / STORES[0]
    return (str(store),) if store.is_file() else ()


def _refuse_contradictions(given: Mapping[str, Any], fixed: Mapping[str, Any], named: str) -> None:
    """Reject settings of the user, or of the named preset, that differ from those that the weights need."""
    preset, problems = given.get("preset"), []
    of_preset = {} if preset is None else flat(recipe(preset))
    for name, own in fixed.items():
        value, usual = given.get(name), of_preset.get(name, own)
        if value is not None and not _is_same(value, own):
            problems.append(f"{name} = {value!r:.200}, and the model has {own!r}")
        elif value is None and usual != own:
            problems.append(f"preset {preset} has {name} = {usual!r}, and the model has {own!r}")
    if problems:
        raise ConfigError(
            f"a run from {named} has the shape and the tokenizer of that model, or its weights would not fit:\n  "
            + "\n  ".join(problems)
            + "\nleave them out, or train without --from"
        )


def _is_same(given: Any, own: Any) -> bool:
    if isinstance(own, tuple):  # a tuple of languages, whose order does not matter
        return isinstance(given, list | tuple) and sorted(map(str, given)) == sorted(own)
    return bool(given == own)


def _preset(bundle: Bundle) -> str:
    """Return the preset that suits a model; never one of the paper's, which start with 4,000 warm-up steps."""
    named = bundle.info.get("preset")
    if isinstance(named, str) and named in AUTOMATIC_PRESETS and named not in TABLE3:
        return named
    return "small" if bundle.model.config.d_model >= small().d_model else "tiny"
