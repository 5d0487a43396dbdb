"""What a run came to, in words: whether to go on, and with what."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearhead.config import TrainConfig
from clearhead.training.checkpoints import TrainingState
from clearhead.training.run_directory import OLDER_MODEL
from clearhead.training.validation import Validation

__all__ = ["verdict"]

_RISE = 0.03
"""Nats a token by which the validation loss must rise to speak of over-fitting; less is chance."""
_GAIN = 0.01
"""Share of its chrF that a model must still win in the last quarter of a run to speak of improving."""
_LOSS = 0.1
"""Share of its best chrF that a model must have lost to speak of getting worse."""
_MORE = "a larger model or more text would"
_USELESS_BLEU = 5.0
_FEW_PAIRS = 20_000
_FEW_EPOCHS = 3.0


def verdict(
    run: Path,
    train: TrainConfig,
    state: TrainingState,
    records: Sequence[Mapping[str, Any]],
    *,
    num_pairs: int,
    epochs: float,
    validation: Validation,
    general_margin: float,
    is_unchanged: bool,
    ended_by: str,
) -> list[str]:
    """Return sentences for the user, the most important first.

    Args:
        run: Run directory, for the command that goes on.
        train: The run's settings.
        state: How far it came.
        records: Of `metrics.jsonl`.
        num_pairs: Training pairs.
        epochs: Passes over them.
        validation: Of the published model.
        general_margin: Points of chrF that it may have lost on general text.
        is_unchanged: It is the one that the run started from, for nothing was better.
        ended_by: As of `TrainingState.ended_by`.
    """
    valid = [record for record in records if record.get("split") == "valid" and "chrf" in record]
    losses = [record["nll"] for record in records if record.get("split") == "train"]
    go_on = f"go on with: clearhead train {shlex.quote(str(run))} {_longer(train, state, ended_by)}"
    sentences = []
    if valid and valid[0]["step"] == 0:
        sentences.append(_beside_start(valid, validation, is_unchanged))
        if validation.general is not None and not is_unchanged:
            sentences.append(_unlearned(run, valid[0]["general_chrf"], validation.general.chrf, general_margin))
    elif state.step <= train.warmup_steps:
        sentences.append(
            f"still in warm-up: {state.step:,} of {train.warmup_steps:,} steps of it were made, and the model knows "
            f"little yet; {go_on}"
        )
    if len(valid) > 1 and state.step > train.warmup_steps and not is_unchanged:
        sentences.append(_course(train, valid, losses, go_on))
    if validation.bleu < _USELESS_BLEU:
        why = "the two sides may be misaligned: see that each line of one is the translation of that line of the other"
        if epochs < _FEW_EPOCHS:
            why = f"too little time: the text was passed {epochs:.1f} times; {go_on}"
        elif num_pairs < _FEW_PAIRS:
            why = f"too little data: {num_pairs:,} pairs, and new sentences take tens of thousands; or {why}"
        sentences.append(f"BLEU is below {_USELESS_BLEU:g}, so the translations are of no use; {why}")
    return sentences


def _beside_start(valid: Sequence[Mapping[str, Any]], validation: Validation, is_unchanged: bool) -> str:
    """Compare with the model that the run started from, whose validation is the first."""
    before = valid[0]["chrf"]
    if not is_unchanged:
        return f"the model it started from has chrF {before:.1f} on the validation text, this one {validation.chrf:.1f}"
    found = max((record["chrf"] for record in valid[1:]), default=0.0)
    return (
        f"no better than the model it started from, which is published as it was: chrF {before:.1f}, and at most "
        f"{found:.1f} after training; more text helps, or a lower rate (--fresh --set train.learning_rate=..)"
    )


def _unlearned(run: Path, before: float, now: float, margin: float) -> str:
    """Say what became of general text."""
    if now >= before - margin:
        return f"general text has chrF {now:.1f}, and had {before:.1f} before"
    return (
        f"general text got worse: chrF {before:.1f} before and {now:.1f} now, which is more than the margin of "
        f"{margin:g} (train.general_margin); the model as it was stands at {run / OLDER_MODEL}; more general text "
        f"mixed in helps (data.general_share), a lower rate, or fewer steps"
    )


def _course(train: TrainConfig, valid: Sequence[Mapping[str, Any]], losses: Sequence[float], go_on: str) -> str:
    likeliest = min(valid, key=lambda record: record["nll"])
    last = valid[-1]
    before = [record for record in valid if record["step"] <= 0.75 * last["step"]] or valid[:1]
    best_before = max(record["chrf"] for record in before)
    since = f"after step {before[-1]['step']:,}"
    if last["chrf"] > best_before * (1 + _GAIN):
        return f"still improving: chrF rose from {best_before:.1f} to {last['chrf']:.1f} {since}; {go_on}"
    if last["nll"] > likeliest["nll"] + _RISE:
        learned = f" while that of training fell to {losses[-1]:.2f}" if losses else ""
        return (
            f"over-fitted: after step {likeliest['step']:,} the validation loss rose from {likeliest['nll']:.2f} to "
            f"{last['nll']:.2f}{learned}; more text helps, or dropout (--fresh --set model.dropout=..), "
            f"but not more time"
        )
    least_before = min(record["nll"] for record in before)
    if last["nll"] < least_before - _RISE:
        return (
            f"still improving: the validation loss fell from {least_before:.2f} to {last['nll']:.2f} {since}; {go_on}"
        )
    best = max(valid, key=lambda record: record["chrf"])
    if last["chrf"] < best["chrf"] * (1 - _LOSS):
        return (
            f"got worse: chrF fell from {best['chrf']:.1f} at step {best['step']:,} to {last['chrf']:.1f}, and the "
            f"best is published; a lower rate helps (--fresh --set train.learning_rate=..), or more warm-up"
        )
    if best["chrf"] > best_before * (1 + _GAIN):
        return f"converged: the best, of step {best['step']:,} with chrF {best['chrf']:.1f}, is published; {_MORE} help"
    return f"converged: nothing {since} made it better; {_MORE}"


def _longer(train: TrainConfig, state: TrainingState, ended_by: str) -> str:
    match ended_by:
        case "max_steps":
            return f"--max-steps {2 * (train.max_steps or 0)}"
        case "max_minutes":
            return f"--max-minutes {2 * max(train.max_minutes or 0.0, state.elapsed / 60):.3g}"
    return f"--set train.patience={2 * train.patience}"
