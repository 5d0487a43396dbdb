"""Served terms and translation memories, for a model, a language pair or by name; reloaded when they change.

The name of a file gives its scope: `de-en=terms.tsv` applies to requests from German to English, or to the model
`de-en`. A file without a name applies to all requests, if there is only one language pair. A list of terms with any
other name is used when a request asks for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from clearhead.errors import ConfigError
from clearhead.serving.file_changes import FileState, file_state
from clearhead.serving.http_errors import bad_request
from clearhead.serving.models import Models, ServedModel
from clearhead.serving.suggestions import SuggestionFile
from clearhead.translation.memory_file import Memory, load_memory
from clearhead.translation.terminology import Terms

T = TypeVar("T")

ALL_REQUESTS = ""
"""Name of the file that applies to all requests."""


class Resources:
    """The loaded terms and translation memories of a server.

    Args:
        terms: Term files by name, from `named_files`.
        memories: Translation memory files by name, from `named_files`.
        suggestions: Files by name into which users suggest translations, from `named_files`.
        max_suggestions: Maximum number of suggestions in one of these.
    """

    def __init__(
        self,
        terms: Mapping[str, str] | None = None,
        memories: Mapping[str, str] | None = None,
        suggestions: Mapping[str, str] | None = None,
        *,
        max_suggestions: int = 0,
    ) -> None:
        self._paths = {"terms": dict(terms or {}), "memory": dict(memories or {})}
        self._suggestion_paths, self._max_suggestions = dict(suggestions or {}), max_suggestions
        self._suggestions: dict[str, SuggestionFile] = {}
        self._terms: dict[str, Terms] = {}
        self._memories: dict[str, Memory] = {}
        self._states: dict[str, list[FileState | None]] = {}
        self._seen: dict[str, list[FileState | None]] = {}

    def load(self, models: Models) -> None:
        """Load all files, and check that they fit the models.

        Raises:
            ConfigError: If a file's name matches no served model or language pair, or a model does not support terms.
            DataError: If a file cannot be read.
        """
        for option, paths in {**self._paths, "suggestions": self._suggestion_paths}.items():
            for name, path in paths.items():
                meant = list(_scopes(name, models))
                if name == ALL_REQUESTS and len(meant) > 1:
                    raise ConfigError(
                        f"--{option} {path}: there are {len(meant)} pairs of languages; say which it is for, such as "
                        f"--{option} {_pair_name(*meant[0])}={path}"
                    )
                if option != "terms" and not meant:
                    raise ConfigError(
                        f"--{option} {name}={path}: neither a model nor a pair of languages that is served is called "
                        f"so; there are: {', '.join(models.served)}"
                    )
        for name in self.names:
            self.read(name, models)
        for name, path in self._suggestion_paths.items():
            _, source, target = next(_scopes(name, models))
            if source is None or target is None:
                raise ConfigError(
                    f"--suggestions {path}: the languages of the model are not known; serve it as de-en=MODEL, say"
                )
            self._suggestions[name] = SuggestionFile(Path(path), (source, target), self._max_suggestions)

    def read(self, name: str, models: Models) -> None:
        """Reload the files of a name; if one cannot be read, terms and memory stay as they were.

        Args:
            name: Name of terms, of a memory, or of both.
            models: The served models.

        Raises:
            ConfigError: If a model does not support terms, or it is not clear what a file of several languages holds.
            DataError: If a file cannot be read.
        """
        terms, memory = self._paths["terms"].get(name), self._paths["memory"].get(name)
        self._states[name] = self._state(name)
        loaded, remembered = None, None
        meant = [*_scopes(name, models)]
        pairs = meant or [*_scopes(ALL_REQUESTS, models)]
        # Terms that requests name are for the only pair there is. A new model may have other languages.
        source, target = pairs[0][1:] if meant or len(pairs) == 1 else (None, None)
        if terms is not None:
            loaded = Terms.load(terms, from_lang=source, to_lang=target)
            for model, _, own in meant:
                target_lang = own or next(iter(model.targets), None) if model.is_tagged else None
                model.translator.translate([], terms=loaded, target_lang=target_lang)
        if memory is not None:
            remembered = load_memory([memory], from_lang=source, to_lang=target)
        if loaded is not None:
            self._terms[name] = loaded
        if remembered is not None:
            self._memories[name] = remembered

    @property
    def names(self) -> list[str]:
        """The names of the files, each once."""
        return list(dict.fromkeys(name for paths in self._paths.values() for name in paths))

    def changed(self) -> list[str]:
        """Return the names whose files changed since the last attempt to load them and are no longer being written."""
        before, self._seen = self._seen, {name: self._state(name) for name in self.names}
        return [name for name, state in self._seen.items() if before.get(name) == state != self._states.get(name)]

    def _state(self, name: str) -> list[FileState | None]:
        return [file_state(Path(paths[name])) for paths in self._paths.values() if name in paths]

    def sizes(self) -> dict[str, int]:
        """Return the number of terms of each list that requests can name."""
        return {name: len(terms) for name, terms in self._terms.items() if name != ALL_REQUESTS}

    def default_terms(self, models: Models) -> list[dict[str, str | int | None]]:
        """Return what is known of the lists that apply without being named, where several apply the one in use first.

        Each has `name` (empty if the list has none), `size`, `model`, `source` and `target`; null means every language.
        """
        scopes = [(name, *meant) for name in self._terms for meant in _scopes(name, models)]
        scopes.sort(key=lambda scope: _precedence(scope[1], *scope[2:]).index(scope[0]))
        return [
            {"name": name, "size": len(self._terms[name]), "model": model.name, "source": source, "target": target}
            for name, model, source, target in scopes
        ]

    def terms(self, model: ServedModel, source: str | None, target: str | None) -> Terms | None:
        """Return the default terms for a model and its languages, if any."""
        return _first_applicable(self._terms, model, source, target)

    def named_terms(self, name: str) -> Terms:
        """Return the list of terms with a name.

        Raises:
            HTTPError: If there is none of that name.
        """
        terms = self._terms.get(name) if name != ALL_REQUESTS else None
        if terms is None:
            known = ", ".join(self.sizes()) or "none"
            raise bad_request(f"no list of terms has this name; there are: {known}")
        return terms

    def memory(self, model: ServedModel, source: str | None, target: str | None) -> Memory | None:
        """Return the translation memory for a model and its languages, if any."""
        return _first_applicable(self._memories, model, source, target)

    def suggestions(self, model: ServedModel, source: str | None, target: str | None) -> SuggestionFile | None:
        """Return the file for suggestions of a model and its languages, if any."""
        return _first_applicable(self._suggestions, model, source, target)

    @property
    def takes_suggestions(self) -> bool:
        """Whether users may suggest translations, for some languages at least."""
        return bool(self._suggestion_paths)


def named_files(given: Sequence[str], option: str) -> dict[str, str]:
    """Parse the files given to an option, each a path or `NAME=PATH`.

    Raises:
        ConfigError: If two files have the same name, or one has no path.
    """
    paths: dict[str, str] = {}
    for argument in given:
        name, is_named, path = argument.partition("=")
        if not is_named or Path(argument).exists():
            name, path = ALL_REQUESTS, argument
        if not path:
            raise ConfigError(f"{option} {argument}: write FILE, or NAME=FILE such as de-en=terms.tsv")
        if name in paths:
            whose = f"called {name!r}" if name else "for all requests"
            raise ConfigError(f"{option}: two files are {whose}; give one another name: NAME={path}")
        paths[name] = path
    return paths


def _scopes(name: str, models: Models) -> Iterator[tuple[ServedModel, str | None, str | None]]:
    """Yield the models and language pairs that a name applies to."""
    for model in models.served.values():
        pairs: list[tuple[str | None, str | None]] = [*model.pairs()] or [(None, None)]
        if name == model.name:
            yield (model, *pairs[0]) if len(pairs) == 1 else (model, None, None)
        else:
            yield from ((model, *pair) for pair in pairs if name in (ALL_REQUESTS, _pair_name(model, *pair)))


def _pair_name(model: ServedModel, source: str | None, target: str | None) -> str:
    return model.name if source is None or target is None else f"{source}-{target}"


def _first_applicable(read: Mapping[str, T], model: ServedModel, source: str | None, target: str | None) -> T | None:
    return next((read[name] for name in _precedence(model, source, target) if name in read), None)


def _precedence(model: ServedModel, source: str | None, target: str | None) -> tuple[str, ...]:
    return model.name, _pair_name(model, source, target), ALL_REQUESTS
