"""Summary of a model, a run or the installation for `clearhead info`, and values formatted for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_NAMED = 12
"""Maximum items shown of a list, such as the languages of a multilingual model; `--all` shows all."""


_PHRASES: Mapping[str, Sequence[tuple[str, str]]] = {
    "model": (
        ("{}", "model.directory"),
        ("{} parameters", "model.parameters"),
        ("{}+{} layers", "model.num_encoder_layers model.num_decoder_layers"),
        ("d_model {}", "model.d_model"),
        ("{} heads", "model.num_heads"),
        ("preset {}", "made.preset"),
        ("weights in {}", "model.stored_in"),
    ),
    "vocabulary": (("{} pieces", "tokenizer.vocab_size"), ("{}", "tokenizer.kind")),
    "languages": (("from {}", "languages.source"), ("into {}", "languages.target")),
    "data": (
        ("{} training pairs", "made.data.train.kept"),
        ("{} general pairs", "made.data.general.kept"),
        ("99.9 % of at most {} tokens", "made.data.line_statistics.source_tokens.p999"),
    ),
    "imported": (
        ("from {}", "made.imported_from.name"),
        ("a {} model", "made.imported_from.kind"),
        ("of {}", "made.imported_from.library"),
        ("{}", "made.imported.date"),
    ),
    "quality": (
        ("validation BLEU {}", "made.metrics.valid_bleu"),
        ("chrF {}", "made.metrics.valid_chrf"),
        ("on general text chrF {}", "made.metrics.general_chrf"),
        ("perplexity a piece {}", "made.metrics.valid_ppl"),
    ),
    "made": (
        ("{}", "made.training.date"),
        ("{}", "made.weights"),
        ("started from {}", "made.started_from.name"),
        ("{} steps", "made.training.steps"),
        ("{} minutes", "made.training.minutes"),
        ("on {}", "made.training.device"),
        ("clearhead {}", "model.clearhead_version"),
    ),
    "translates": (
        ("by {}", "translated_by.engine"),
        ("on {}", "translated_by.device"),
        ("beam {}", "decode.beam_size"),
        ("into {} unless told otherwise", "decode.target_lang"),
    ),
    "run": (("{}", "run.directory"), ("{}", "run.state"), ("newest checkpoint {}", "run.newest_checkpoint")),
}
"""Line to its phrases: text, and where the values are."""


def summary(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and readable values of the main facts.

    Args:
        facts: Nested values. Facts about training may be missing or malformed; such values are skipped.
    """
    for name, phrases in _PHRASES.items():
        values = [said for phrase, paths in phrases if (said := _said(facts, phrase, paths)) is not None]
        if name == "data":
            files = {role: _at(facts, f"made.data.roles.{role}") for role in ("source", "target", "pairs")}
            values += [f"{role} {plain(named)}" for role, named in files.items() if named and isinstance(named, list)]
        if values:
            yield name, ", ".join(values)
    for name, value in facts.get("installation", {}).items():
        yield name, plain(value)


def plain(value: Any) -> str:
    """Format a value for reading, on one line."""
    match value:
        case None:
            return "-"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:g}" if abs(value) < 1 else f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
        case Mapping():
            return ", ".join(f"{name} {plain(inner)}" for name, inner in value.items()) or "-"
        case list() | tuple():
            return ", ".join(map(plain, value)) or "none"
        case _:
            return " ".join(str(value).split("\n"))


def _at(values: Any, path: str) -> Any:
    """Return the nested value at a path; None if it does not exist."""
    for name in path.split("."):
        if not isinstance(values, Mapping):
            return None
        values = values.get(name)
    return values


def _said(facts: Mapping[str, Any], phrase: str, paths: str) -> str | None:
    """Return a phrase with its values; None if one is missing or empty."""
    values = [_at(facts, path) for path in paths.split()]
    if any(value is None or isinstance(value, Mapping) or value in ("", [], ()) for value in values):
        return None
    return phrase.format(*map(_shown, values))


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple) and len(value) > _MOST_NAMED:
        return f"{plain(value[:_MOST_NAMED])} and {len(value) - _MOST_NAMED:,} more"
    return plain(value)
