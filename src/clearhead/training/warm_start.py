"""Warm start: train from an existing model instead of random weights (`clearhead train --from MODEL`).

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
from clearhead.config import Config, DataConfig
from clearhead.config.presets import AUTOMATIC_PRESETS, TABLE3, recipe, small
from clearhead.data.inputs import source_language
from clearhead.data.store import PairStore
from clearhead.errors import CheckpointError, ConfigError, ModelError
from clearhead.text.language_tags import language_tag, split_tag
from clearhead.tokenizers import Vocabulary
from clearhead.training.optimizer import weights_to_train
from clearhead.training.settings import OF_THE_TOKENIZER, draft, merge, refuse_misshapen, require_both_sides

_NO_MATTER_OF_WEIGHTS = {"dropout", "attention_dropout", "feed_forward_dropout"}
_LINES_ASKED_FOR_A_TAG = 1_000
_NO_NAME = ("",)
"""With this, `split_tag` accepts any language tag, not only those of known languages."""


def over_start(values: Mapping[str, Any], *, fresh: bool) -> tuple[Mapping[str, Any], Bundle | None]:
    """Merge the user's settings over those fixed by the model that `from_model` names, if any.

    Args:
        values: Nested settings as the user gave them.
        fresh: Whether the existing run in `out` will be renamed and started over.

    Returns:
        The settings and the loaded model. The model is None if none is named, and for a resumed run, whose saved
        settings already contain what the model fixed.

    Raises:
        ConfigError: If a setting or the named preset contradicts the model, or `from_sha256` is that of another model.
        CheckpointError: If the resumed run started from another model.
        ModelError: If there is no model, or it cannot be read.
    """
    refuse_misshapen(values)
    named, path = values.get("from_model"), Path(values["out"], "config.toml")
    if named is None:
        return values, None
    saved = Config.load(path) if path.exists() and not fresh else None
    if saved is not None and saved.from_model is None:
        return values, None  # `check_resumable` rejects the change
    if saved is not None:
        if named != saved.from_model and (found := load_bundle(named).model_sha256) != saved.from_sha256:
            raise CheckpointError(
                f"this run started from another model than --from {named}: the SHA-256 of the weights was "
                f"{saved.from_sha256}, and there it is {found}; leave --from as it was, or use another --out, or "
                f"--fresh to start over"
            )
        owned = {"model": saved.model.model_dump(), "tokenizer": saved.tokenizer.model_dump()}
        decode = saved.decode.model_dump()
        settings: dict[str, Any] = {"preset": saved.preset, "decode": decode, "from_sha256": saved.from_sha256}
        settings["data"] = {"max_length": saved.data.max_length} if saved.model.max_length is not None else {}
        return _over(values, owned, settings, named), None
    bundle = load_bundle(named)
    require_both_sides(bundle.model.config)
    asked = values.get("from_sha256")
    if asked is not None and asked != bundle.model_sha256:
        raise ConfigError(
            f"from_sha256 = {asked!r:.200} is not the model at {named}: the SHA-256 of its weights is "
            f"{bundle.model_sha256}; name the other model, or leave from_sha256 out to start from this one"
        )
    owned = {"model": bundle.model.config.model_dump(), "tokenizer": bundle.tokenizer.settings}
    # A newly trained model has no shortlist, and the new text may be in another language.
    no_longer = {"shortlist"} if bundle.tokenizer.tells_languages else {"shortlist", "source_lang"}
    decode = bundle.decode.model_dump(exclude=no_longer)
    settings = {"preset": _preset(bundle), "decode": decode, "from_sha256": bundle.model_sha256}
    longest = bundle.model.config.max_length
    if longest is not None and longest < DataConfig().max_length:
        settings["data"] = {"max_length": longest}
    whole = _over(values, owned, settings, named)
    weights_to_train(bundle.model, draft(whole).train)  # reject invalid settings before anything is written
    if source_language(draft(whole)) is None:
        whole = merge({"decode": {"source_lang": bundle.decode.source_lang}}, whole)
    return whole, bundle


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
    found = [split_tag(pairs.source(row), known or _NO_NAME)[0] for row in rows]
    if known and not any(found):
        return (
            f"the model is told by a tag ({', '.join(map(language_tag, known))}) which language to write, and the "
            f"first {len(rows):,} {what} lines have none: what is learned from them is not what a tag asks for; put "
            f"the tag before each"
        )
    if not known and all(found):
        names = sorted({name for name in found if name is not None})
        return (
            f"each of the first {len(rows):,} {what} lines begins with a language tag, such as "
            f"{language_tag(names[0])}, which is plain text where no languages are named; if these are all, start over "
            f"with --fresh --set 'tokenizer.language_tags={json.dumps(names, ensure_ascii=False)}'"
        )
    return None


def _over(
    values: Mapping[str, Any], owned: Mapping[str, Mapping[str, Any]], settings: Mapping[str, Any], named: str
) -> dict[str, Any]:
    """Check the user's settings against the settings of the weights, and merge the rest over the model's.

    Args:
        values: Nested settings of the user.
        owned: Settings of the model that its weights need, in the sections `model` and `tokenizer`.
        settings: Defaults from the model for what the user does not set.
        named: Path of the model, for the message.

    Raises:
        ConfigError: If a setting contradicts the model.
    """
    preset, problems, free = values.get("preset"), [], {}
    of_preset = {} if preset is None else recipe(preset)["model"]
    for section, own in owned.items():
        asked = values.get(section, {})
        free[section] = {name: value for name, value in asked.items() if name not in own or _is_free(section, name)}
        for name, value in own.items():
            given = asked.get(name)
            if _is_free(section, name) or (given is not None and _is_same(given, value)):
                continue
            if given is not None:
                problems.append(f"{section}.{name} = {given!r:.200}, and the model has {value!r}")
            elif name in of_preset.keys() - OF_THE_TOKENIZER and section == "model" and of_preset[name] != value:
                problems.append(f"preset {preset} has model.{name} = {of_preset[name]!r}, and the model has {value!r}")
    if problems:
        raise ConfigError(
            f"a run from {named} has the shape and the tokenizer of that model, or its weights would not fit:\n  "
            + "\n  ".join(problems)
            + "\nleave them out, or train without --from"
        )
    shape = {name: value for name, value in owned["model"].items() if name not in OF_THE_TOKENIZER | {"dropout"}}
    others = {name: value for name, value in values.items() if name not in owned}
    return merge(settings, {"model": shape, "tokenizer": owned["tokenizer"]}, free, _without_none(others))


def _is_free(section: str, name: str) -> bool:
    return section == "model" and name in _NO_MATTER_OF_WEIGHTS


def _is_same(given: Any, own: Any) -> bool:
    if isinstance(own, tuple):  # a tuple of languages, whose order does not matter
        return isinstance(given, list | tuple) and sorted(map(str, given)) == sorted(own)
    return bool(given == own)


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _preset(bundle: Bundle) -> str:
    """Return the preset that suits a model; never one of the paper's, which start with 4,000 warm-up steps."""
    named = bundle.info.get("preset")
    if isinstance(named, str) and named in AUTOMATIC_PRESETS and named not in TABLE3:
        return named
    return "small" if bundle.model.config.d_model >= small().d_model else "tiny"
