"""The served models: loading, verification, selection by languages or name, and reloading after replacement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from clearhead.bundle.model_directory import model_directory
from clearhead.config import DecodeConfig
from clearhead.errors import ClearheadError, ConfigError, ModelError
from clearhead.serving.file_changes import FileState, file_state
from clearhead.serving.http_errors import bad_request
from clearhead.serving.languages import languages_of, matching
from clearhead.text.lines import first_few
from clearhead.translation.golden import check_golden
from clearhead.translation.translator import Translator

MAX_PAIRS = 10
"""Language pairs named in a message."""


@dataclass(frozen=True, slots=True)
class ModelSource:
    """Name and path of a model to serve."""

    name: str
    path: Path

    def state(self) -> FileState | None:
        """Return a fingerprint that changes when the model is replaced; None if there is no model."""
        try:
            return file_state(model_directory(self.path))
        except ClearheadError:
            return None


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A loaded and verified model."""

    name: str
    translator: Translator
    sources: tuple[str, ...]
    """Its source languages; empty if unknown."""
    targets: tuple[str, ...]
    state: FileState | None
    """Fingerprint of the directory it was read from."""
    default_search: DecodeConfig
    """Its default search options."""

    @property
    def is_tagged(self) -> bool:
        """Whether it needs a target-language tag."""
        return bool(self.translator.bundle.tokenizer.language_tags)

    def pairs(self) -> list[tuple[str, str]]:
        """Return the language pairs it translates; a language with itself only if there are no other pairs."""
        both = [(source, target) for source in self.sources for target in self.targets]
        return [pair for pair in both if pair[0] != pair[1]] or both


def model_sources(models: Sequence[str]) -> list[ModelSource]:
    """Parse the models on the command line, each a path or `NAME=PATH`.

    Without a name, the model is named after its directory, or after the parent of a directory called `model`.

    Raises:
        ConfigError: If two models have the same name, or a name or a path is empty.
    """
    sources: dict[str, ModelSource] = {}
    for model in models:
        name, is_named, path = model.partition("=")
        if not is_named or Path(model).exists():
            resolved = Path(model).resolve()
            name, path = resolved.parent.name if resolved.name == "model" else resolved.name, model
        if not name or not path:
            raise ConfigError(f"{model!r} names no model; write PATH, or NAME=PATH such as de-en=runs/de-en")
        if name in sources:
            raise ConfigError(f"two models are called {name!r}; give one another name: NAME={path}")
        sources[name] = ModelSource(name, Path(path))
    return list(sources.values())


def load_model(
    source: ModelSource, *, device: str, as_served: Callable[[Translator], Translator] = lambda translator: translator
) -> ServedModel:
    """Load a model and verify it on its golden sentences, as `clearhead verify` does.

    Args:
        source: Name and path of the model.
        device: Device name, passed to `Translator.load`.
        as_served: Wraps the translator as requests will use it; the wrapped translator is verified.

    Raises:
        ModelError: If the model is missing or damaged, or its golden translations have changed.
        DeviceError: If the device is not available.
    """
    state = source.state()
    translator = Translator.load(source.path, device=device)
    served = as_served(translator)
    if problems := check_golden(served, translator.bundle.golden):
        raise ModelError(
            f"{source.path} does not translate as it did when it was made ({len(problems)} golden sentences; "
            f"`clearhead verify` shows them): {problems[0]}"
        )
    # Build what is otherwise built on first use.
    language = next(iter(translator.bundle.tokenizer.language_tags), None)
    served.translate(["."], scores=False, raw=True, target_lang=language)
    served.translate([], quality=True)
    translator.term_encoder.prepare()
    sources, targets = languages_of(translator.bundle, source.name)
    default_search = translator.decode_config({})
    return ServedModel(source.name, translator, tuple(sources), tuple(targets), state, default_search)


class Models:
    """The served models, in the order of the command line; a reload replaces the whole set at once."""

    def __init__(self, served: Mapping[str, ServedModel] | None = None) -> None:
        self.served = dict(served or {})
        self.sources = tuple(dict.fromkeys(source for model in self.served.values() for source, _ in model.pairs()))
        """Every source language, in the order of the models."""

    def languages(self) -> dict[str, list[str]]:
        """Return the target languages of each source language, both in the order of their codes."""
        targets: dict[str, set[str]] = {}
        for model in self.served.values():
            for source, target in model.pairs():
                targets.setdefault(source, set()).add(target)
        return {source: sorted(targets[source]) for source in sorted(targets)}

    @property
    def unknown_languages(self) -> str:
        """What to do if no model states its languages."""
        return f"no model here states its languages; name one: {', '.join(self.served)}"

    def all_languages(self) -> list[str]:
        """Return every source or target language, sorted."""
        pairs = self.languages()
        return sorted({*pairs, *(target for targets in pairs.values() for target in targets)})

    def named(self, name: str) -> ServedModel:
        """Return the model with a name.

        Raises:
            HTTPError: If there is none.
        """
        if name not in self.served:
            raise bad_request(f"no model has this name; there are: {', '.join(self.served)}")
        return self.served[name]

    def choose(self, source: str, target: str) -> tuple[ServedModel, str, str]:
        """Return the first model for a language pair, and the model's own codes of the two languages.

        Raises:
            HTTPError: If there is none.
        """
        if (match := self.find(source, target)) is not None:
            return match
        source, target = source[:40], target[:40]
        pairs = [pair for model in self.served.values() for pair in model.pairs()]
        # Those that share a language with the pair asked for come first.
        pairs.sort(key=lambda pair: not (matching(source, pair[:1]) or matching(target, pair[1:])))
        known = list(dict.fromkeys(f"{own[0]} to {own[1]}" for own in pairs))
        there = f"this server has {first_few(known, MAX_PAIRS)}" if known else self.unknown_languages
        raise bad_request(f"no model translates {source} to {target}; {there}")

    def leaves_unchanged(self, source: str, target: str) -> bool:
        """Return whether a text is returned as it is: same language, and no model translates it into itself."""
        known = self.all_languages()
        own = matching(source, known)
        return own is not None and own == matching(target, known) and self.find(source, target) is None

    def find(self, source: str, target: str) -> tuple[ServedModel, str, str] | None:
        """Return the first model for a language pair with its own codes of the languages, as `choose`; None without."""
        for model in self.served.values():
            for own in model.pairs():
                if matching(source, own[:1]) and matching(target, own[1:]):
                    return model, *own
        return None
