"""Summary of a model, a run or the installation for `clearhead info`, and values formatted for reading."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MOST_NAMED = 12
"""Maximum items shown of a list, such as the languages of a multilingual model; `--all` shows all."""


def summary(facts: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield names and readable values of the main facts.

    Args:
        facts: Nested values. Facts about training may be missing or malformed; such values are skipped.
    """
    model, made, run = ("model",), ("made",), ("run",)
    depths = [_at(facts, *model, f"num_{side}_layers") for side in ("encoder", "decoder")]
    lines: dict[str, list[str | None]] = {
        "model": [
            _said(facts, "{}", *model, "directory"),
            _said(facts, "{} parameters", *model, "parameters"),
            f"{plain(depths[0])}+{plain(depths[1])} layers" if None not in depths else None,
            _said(facts, "d_model {}", *model, "d_model"),
            _said(facts, "{} heads", *model, "num_heads"),
            _said(facts, "preset {}", *made, "preset"),
            _said(facts, "weights in {}", *model, "stored_in"),
        ],
        "vocabulary": [
            _said(facts, "{} pieces", "tokenizer", "vocab_size"),
            _said(facts, "{}", "tokenizer", "kind"),
        ],
        "languages": [
            _said(facts, "from {}", "languages", "source"),
            _said(facts, "into {}", "languages", "target"),
        ],
        "data": [
            _said(facts, "{} training pairs", *made, "data", "train", "kept"),
            _said(facts, "{} general pairs", *made, "data", "general", "kept"),
            _said(facts, "99.9 % of at most {} tokens", *made, "data", "line_statistics", "source_tokens", "p999"),
            *(f"{role} {plain(files)}" for role in ("source", "target", "pairs") if (files := _files(facts, role))),
        ],
        "imported": [
            _said(facts, "from {}", *made, "imported_from", "name"),
            _said(facts, "a {} model", *made, "imported_from", "kind"),
            _said(facts, "of {}", *made, "imported_from", "library"),
            _said(facts, "{}", *made, "imported", "date"),
        ],
        "quality": [
            _said(facts, "validation BLEU {}", *made, "metrics", "valid_bleu"),
            _said(facts, "chrF {}", *made, "metrics", "valid_chrf"),
            _said(facts, "on general text chrF {}", *made, "metrics", "general_chrf"),
            _said(facts, "perplexity a piece {}", *made, "metrics", "valid_ppl"),
        ],
        "made": [
            _said(facts, "{}", *made, "training", "date"),
            _said(facts, "{}", *made, "weights"),
            _said(facts, "started from {}", *made, "started_from", "name"),
            _said(facts, "{} steps", *made, "training", "steps"),
            _said(facts, "{} minutes", *made, "training", "minutes"),
            _said(facts, "on {}", *made, "training", "device"),
            _said(facts, "clearhead {}", *model, "clearhead_version"),
        ],
        "translates": [
            _said(facts, "by {}", "translated_by", "engine"),
            _said(facts, "on {}", "translated_by", "device"),
            _said(facts, "beam {}", "decode", "beam_size"),
            _said(facts, "into {} unless told otherwise", "decode", "target_lang"),
        ],
        "run": [
            _said(facts, "{}", *run, "directory"),
            _said(facts, "{}", *run, "state"),
            _said(facts, "newest checkpoint {}", *run, "newest_checkpoint"),
        ],
        **{name: [plain(value)] for name, value in facts.get("installation", {}).items()},
    }
    for name, phrases in lines.items():
        if found := [phrase for phrase in phrases if phrase is not None]:
            yield name, ", ".join(found)


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


def _at(values: Any, *names: str) -> Any:
    """Return the nested value at a path; None if it does not exist."""
    for name in names:
        if not isinstance(values, Mapping):
            return None
        values = values.get(name)
    return values


def _said(facts: Mapping[str, Any], phrase: str, *names: str) -> str | None:
    """Return a phrase with a value; None if the value is missing or empty."""
    value = _at(facts, *names)
    if value is None or isinstance(value, Mapping) or value in ("", [], ()):
        return None
    if isinstance(value, list | tuple) and len(value) > _MOST_NAMED:
        return phrase.format(f"{plain(value[:_MOST_NAMED])} and {len(value) - _MOST_NAMED:,} more")
    return phrase.format(plain(value))


def _files(facts: Mapping[str, Any], role: str) -> Sequence[Any]:
    files = _at(facts, "made", "data", "roles", role)
    return files if isinstance(files, list | tuple) else ()
