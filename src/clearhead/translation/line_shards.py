"""Translate shards of lines: what a worker does that has the model, on this machine or another."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from clearhead.errors import ModelError
from clearhead.files.output_parts import Part, Shard
from clearhead.translation.documents import origin_of
from clearhead.translation.lines import LineWriter, TranslatedLines
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

_TRANSLATION = TypeAdapter(Translation)

OF_LINES = ("num_best", "diversity", "prefix", "alignments", "one_line")
"""Arguments of `Translator.translate` that determine its translations of lines, and not those of documents."""
ELSEWHERE = ("memory", "neighbours", "reuse_from", "name")
"""Arguments that workers are given without effect."""


def line_origin(translator: Translator, written: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return everything that determines the translations of lines, as `origin_of` does.

    Args:
        translator: The model.
        written: What is written of them: `is_jsonl` and `only_if`.
        arguments: Those of `Translator.translate`.
    """
    own = {name: value for name, value in arguments.items() if name not in OF_LINES + ELSEWHERE}
    return {**origin_of(translator, **own), "lines": {**written, **{name: arguments.get(name) for name in OF_LINES}}}


def load_line_worker(
    model: Path,
    device: str,
    ensemble: Sequence[Path],
    origin: Mapping[str, Any],
    written: Mapping[str, Any],
    arguments: Mapping[str, Any],
) -> partial[bytes]:
    """Load the model in a worker, and return the function that makes the part of a shard, given as a row.

    Args:
        model: A model directory or a run directory, which this machine has at the same place.
        device: `auto`, `cpu` or `cuda`.
        ensemble: Further models.
        origin: The `line_origin` where the command was given.
        written: As for `line_origin`.
        arguments: As for `line_origin`.

    Raises:
        ModelError: If a model is missing, or another one than where the command was given.
    """
    translator = Translator.load(model, device=device, ensemble=ensemble)
    own = line_origin(translator, written, arguments)
    if changed := [name for name in origin if own.get(name) != origin[name]]:
        raise ModelError(f"{model} differs from the model where the command was given: {', '.join(changed)}")
    return partial(_translated, translator, written, arguments)


def _translated(
    translator: Translator, written: Mapping[str, Any], arguments: Mapping[str, Any], row: Mapping[str, Any]
) -> bytes:
    shard = Shard(**row)
    translations = translator.translate(shard.lines(), first=shard.first, **arguments)
    chunk, out = TranslatedLines(shard.first, translations, written["only_if"]), io.StringIO()
    writer = LineWriter(out, is_jsonl=written["is_jsonl"], num_best=arguments["num_best"])
    writer.count = shard.first - 1
    writer.write(chunk, "")
    notable = [
        (place, _TRANSLATION.dump_python(line, mode="json"))
        for place, line in zip(chunk.places, chunk.kept, strict=True)
        if line.warnings or line.truncated or line.terms
    ]
    return Part(out.getvalue(), {"notable": notable, "left": chunk.left}).to_bytes(shard)


def notable_lines(part: Part) -> Iterator[tuple[str, Translation]]:
    """Yield the translations of a part that have flags or terms, or were cut, each with where it is."""
    for place, line in part.details["notable"]:
        yield place, _TRANSLATION.validate_python(line)
