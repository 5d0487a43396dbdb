"""Translate or score lines in shards: what workers do that have the model, on this machine or another."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pydantic import TypeAdapter

from clearhead.errors import ClearheadError, ModelError
from clearhead.files.output_parts import Part, Shard
from clearhead.translation.documents import origin_of
from clearhead.translation.lines import LineWriter, TranslatedLines
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

_TRANSLATION = TypeAdapter(Translation)
_TRANSLATIONS = TypeAdapter(list[Translation])

_OF_LINES = ("num_best", "diversity", "prefix", "alignments", "one_line")
"""Arguments of `Translator.translate` that affect lines, but not documents."""
_WITHOUT_EFFECT = ("memory", "neighbours", "reuse_from")
"""Arguments of `Translator.translate` that determine no translation here."""


class Models(NamedTuple):
    """What every worker loads."""

    path: Path
    """A model directory or a run directory."""
    device: str
    """`auto`, `cpu` or `cuda`."""
    ensemble: tuple[Path, ...] = ()
    """Further models."""

    def on_every_machine(self) -> Models:
        """Return the models by their absolute paths, which are the same on all machines of a cluster."""
        return self._replace(path=self.path.absolute(), ensemble=tuple(other.absolute() for other in self.ensemble))

    def load(self, device: str | None = None) -> Translator:
        """Load the models.

        Args:
            device: In place of that of the workers.

        Raises:
            ClearheadError: As `Translator.load`.
        """
        return Translator.load(self.path, device=device or self.device, ensemble=self.ensemble)


class Work(Protocol):
    """What is done with every shard; it must be picklable."""

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the output, but for the input, as JSON values."""
        ...

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Return the part of a shard."""
        ...


def origin_on(device: str, work: Work, translator: Translator) -> dict[str, Any]:
    """Return the origin of parts that are made on a device, such as `cuda:0`: bytes are the same on one type of it."""
    return {**work.origin(translator), "device": device.partition(":")[0]}


def load_worker(models: Models, work: Work, origin: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], bytes]:
    """Load the models in a worker, and return the function that makes the part of a shard, given as a row.

    Args:
        models: The models.
        work: What is done.
        origin: The origin of its parts, as where the command was given (`origin_on`).

    Raises:
        ClearheadError: If a model is missing, or another one than where the command was given; or the version of
            clearhead or the type of device is another one.
    """
    translator = models.load()
    own = origin_on(translator.bundle.device, work, translator)
    changed = [name for name in origin if own.get(name) != origin[name]]
    if changed and {*changed} <= (needed := {"version": "clearhead", "device": "the device"}).keys():
        differences = "; ".join(f"{needed[name]} here is {own[name]}, not {origin[name]}" for name in changed)
        raise ClearheadError(f"{differences}, as where the command was given; the bytes might differ")
    if changed:
        raise ModelError(f"{models.path} differs from the model where the command was given: {', '.join(changed)}")

    def make(row: Mapping[str, Any]) -> bytes:
        return work.make(translator, shard := Shard(**row)).to_bytes(shard)

    return make


class Translating(NamedTuple):
    """Translations of lines, as text or as JSON."""

    is_jsonl: bool
    only_if: float
    arguments: Mapping[str, Any]
    """Those of `Translator.translate`."""

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the output, see `Work`."""
        own = {name: value for name, value in self.arguments.items() if name not in _OF_LINES + _WITHOUT_EFFECT}
        of_lines = {name: self.arguments.get(name) for name in _OF_LINES}
        written = {"is_jsonl": self.is_jsonl, "only_if": self.only_if, **of_lines}
        return {**origin_of(translator, **own), "lines": written}

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Translate the lines of a shard; what the notices at the end name is in the details."""
        translations = translator.translate(shard.lines(), name=shard.name, first=shard.first, **self.arguments)
        chunk, out = TranslatedLines(shard.first, translations, self.only_if), io.StringIO()
        writer = LineWriter(out, is_jsonl=self.is_jsonl, num_best=self.arguments["num_best"])
        writer.count = shard.first - 1
        writer.write(chunk, "")
        notable = [
            (place, _TRANSLATION.dump_python(line, mode="json"))
            for place, line in zip(chunk.places, chunk.kept, strict=True)
            if line.warnings or line.truncated or line.terms
        ]
        return Part(out.getvalue(), {"notable": notable, "left": chunk.left})


class TranslatingParts(NamedTuple):
    """Translations of the lines of a document's segments, as `documents.translate_document` makes them."""

    arguments: Mapping[str, Any]
    """Those of `translate_document` that are arguments of `Translator.translate`."""

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the output, see `Work`."""
        own = {name: value for name, value in self.arguments.items() if name not in _WITHOUT_EFFECT}
        return {**origin_of(translator, **own), "work": "lines of a document"}

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Translate the lines of a shard."""
        made = translator.translate(shard.lines(), one_line=True, name=shard.name, first=shard.first, **self.arguments)
        return Part("", {"translations": _TRANSLATIONS.dump_python(made, mode="json")})


class Judging(NamedTuple):
    """Translations of test sets as the model wrote them, as for `test_set.evaluate_model`."""

    settings: Mapping[str, Any]
    """Fields of `DecodeConfig`."""

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the output, see `Work`."""
        return {**origin_of(translator, scores=False, **self.settings), "work": "as written"}

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Translate the lines of a shard."""
        made = translator.translate(
            shard.lines(), scores=False, raw=True, name=shard.name, first=shard.first, **self.settings
        )
        return Part("", {"translations": _TRANSLATIONS.dump_python(made, mode="json")})


class Scoring(NamedTuple):
    """Scores of given translations, one a line."""

    plain: bool
    settings: Mapping[str, Any]
    """Fields of `DecodeConfig`, as for `Translator.score`."""

    @staticmethod
    def lines(sources: Sequence[str], targets: Sequence[str]) -> Iterator[str]:
        """Yield pairs as lines."""
        return (json.dumps(pair) for pair in zip(sources, targets, strict=True))

    def origin(self, translator: Translator) -> dict[str, Any]:
        """Return everything that determines the output, see `Work`."""
        return {**origin_of(translator, plain=self.plain, **self.settings), "work": "scores"}

    def make(self, translator: Translator, shard: Shard) -> Part:
        """Score the pairs of a shard."""
        sources, targets = zip(*map(json.loads, shard.lines()), strict=True)
        by = translator.plain if self.plain else translator
        scores = by.score(sources, targets, name=shard.name, first=shard.first, **self.settings)
        return Part("".join(map(score_line, scores)), {})


def translations_in(parts: Iterable[tuple[Shard, Part]]) -> Iterator[Translation]:
    """Yield the translations in parts of `TranslatingParts` or `Judging`."""
    for _, part in parts:
        yield from _TRANSLATIONS.validate_python(part.details["translations"])


def score_line(score: float) -> str:
    """Return a score as a line of text."""
    return f"{score:.6f}\n"


def notable_lines(part: Part) -> Iterator[tuple[str, Translation]]:
    """Yield the translations of a part that have flags or terms, or were cut, each with where it is."""
    for place, line in part.details["notable"]:
        yield place, _TRANSLATION.validate_python(line)
