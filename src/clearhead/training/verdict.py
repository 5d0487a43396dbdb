"""Verdict on a run: misaligned pairs before training; afterwards, whether to train longer or what to change."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from clearhead.config import TrainConfig
from clearhead.data.doctor.wrong_pairs import wrong_lines
from clearhead.data.prepare import Prepared
from clearhead.training.checkpoints import TrainingState
from clearhead.training.run_directory import MODEL_BEFORE
from clearhead.training.validation import Validation

_RISE = 0.03
"""Minimum rise of the validation loss, in nats per token, that counts as over-fitting; less may be chance."""
_GAIN = 0.01
"""Relative gain in chrF in the last quarter of a run that counts as still improving."""
_LEAST_GAIN = 0.1
"""Minimum gain in points of chrF as well, because a fraction of a very low chrF means nothing."""
_LOSS = 0.1
"""Fraction of its best chrF that a model must have lost to count as getting worse."""
_KNOWN_SHARE, _KNOWN_GAP = 0.25, 1.0
"""Training text is known by heart if its loss is below this share of the validation loss, by so many nats or more."""
_LAST_LOSSES = 5
"""Records of the training loss, the last ones, whose mean counts."""
_WARMUPS = 10
"""Minimum steps of a run, as a multiple of its warm-up steps."""
_FEWEST_STEPS, _SOME_STEPS = 50, 1_000
"""Steps below which bad translations mean nothing, and the steps that such a run is advised to make at least."""
_MORE = "a larger model or more text may"
_USELESS_BLEU = 5.0
_USEFUL_CHRF = 40.0
"""Text with this chrF has a BLEU of 15 or more (docs/recipes.md), unless its lines have no four words in a row."""
_LEAST_CORRELATION = 0.3
"""Minimum correlation between the lengths of the two sides of training pairs.

It is 0.59 to 0.99 in corpora of six kinds, and at most 0.19 when their lines are shifted or shuffled.
"""
_FEWEST_PAIRS = 100
"""Minimum number of pairs; with fewer the correlation may be chance."""
_FEW_PAIRS = 20_000
_FEW_EPOCHS = 3.0

_Trend = Literal["improving", "likelier", "over-fitted", "memorizing", "worse", "converged"]


def verdict(
    run: Path,
    train: TrainConfig,
    state: TrainingState,
    records: Sequence[Mapping[str, Any]],
    *,
    num_pairs: int,
    misaligned: str | None,
    wrong: Mapping[str, Any],
    epochs: float,
    validation: Validation,
    is_unchanged: bool,
    ended_by: str,
) -> list[str]:
    """Return the verdict as sentences for the user, the most important first.

    Args:
        run: Run directory, named in the command to continue.
        train: Training settings of the run.
        state: Final state of the run.
        records: Records of `metrics.jsonl` that can be compared, see `log.comparable`.
        num_pairs: Number of training pairs.
        misaligned: Warning from `misalignment` about the training pairs; None if there is none.
        wrong: Result of `count_wrong` for the training pairs.
        epochs: Passes over the training pairs.
        validation: Validation result of the published model.
        is_unchanged: Whether the published model is the initial one, because no later one was better.
        ended_by: Why training ended, as `TrainingState.ended_by` returns it.
    """
    valid = [record for record in records if record["split"] == "valid"]
    losses = [record["nll"] for record in records if record["split"] == "train"]
    is_from_model = bool(valid) and valid[0]["step"] == 0
    is_useless = validation.bleu < _USELESS_BLEU and validation.chrf < _USEFUL_CHRF
    is_in_warmup = state.step <= train.warmup_steps
    is_short = is_in_warmup or (is_useless and not is_from_model and state.step < _FEWEST_STEPS)
    least_steps = max(_WARMUPS * train.warmup_steps, _SOME_STEPS) if is_short else 0
    command, longer = f"clearhead train {shlex.quote(str(run))}", _longer(train, state, ended_by, least_steps)
    go_on = f"go on with: {command} {longer}"
    if is_short and "train.warmup_steps" in train.planned:
        go_on = f"start over with: {command} --fresh {longer}"  # the plan suits only the shorter run
    about_data = wrong_lines(wrong, num_pairs)
    if about_data:
        about_data[-1] += f"; then start over with: {command} --fresh .."
    sentences = []
    if is_from_model and not state.step:
        sentences.append(f"the time was over before the first step: the model it started from is published; {go_on}")
    elif is_from_model and validation.general is not None and not is_unchanged:
        sentences.append(_unlearned(run, valid[0]["general_chrf"], validation.general.chrf, train.general_margin))
    if is_useless and misaligned is not None:
        return [*about_data, f"likely misaligned, for BLEU is below {_USELESS_BLEU:g}: {misaligned}", *sentences]
    if is_short and not is_from_model:
        done = f"{state.step:,} of {train.warmup_steps:,} steps of it were made"
        why = f"still in warm-up: {done}" if is_in_warmup else f"too short to tell: only {state.step} steps were made"
        return [*about_data, f"{why}, and the model knows little yet; {go_on}"]
    has_course = len(valid) > 1 and not is_in_warmup and not is_unchanged
    trend = _trend(valid, losses) if has_course else None
    if trend and not (is_useless and epochs < _FEW_EPOCHS and trend == "converged"):
        sentences.append(_course(trend, valid, losses, go_on))
    if is_useless:
        more_time = "" if any(go_on in sentence for sentence in sentences) else f"; {go_on}"
        why = _why_useless(trend, epochs, num_pairs, more_time)
        sentences.append(f"BLEU is below {_USELESS_BLEU:g}, so the translations are of no use; {why}")
    elif validation.bleu < _USELESS_BLEU:
        sentences.append(
            f"BLEU is below {_USELESS_BLEU:g}, which says little here, for chrF is {validation.chrf:.1f}: BLEU looks "
            f"for four words in a row, and these lines may be too short; go by chrF and by the samples in the report"
        )
    if not sentences and not is_from_model:  # whose outcome is said beside this
        sentences.append(f"too short to tell: it was validated once; {go_on}")
    return [*about_data, *sentences]


def _why_useless(trend: str | None, epochs: float, num_pairs: int, more_time: str) -> str:
    """Return the likely reason why the translations are of no use, and what helps; `more_time` says how to go on."""
    if epochs < _FEW_EPOCHS and trend == "converged":
        return "nothing is learned any more; another rate helps (--fresh --set train.learning_rate=..)"
    if epochs < _FEW_EPOCHS and trend not in ("over-fitted", "memorizing", "worse"):  # more time does not help these
        read = f"passed {epochs:.1f} times" if epochs >= 1 else f"read to {100 * epochs:.2g} %"
        return f"too little time: the text was {read}{more_time}"
    why = "the two sides may be misaligned: see that each line of one is the translation of that line of the other"
    if num_pairs < _FEW_PAIRS:
        return f"too little data: {num_pairs:,} pairs, and new sentences take tens of thousands; or {why}"
    return why


def misalignment(data: Prepared) -> str | None:
    """Return a warning if the sides of the training pairs do not look like translations of each other.

    Altered copies, which follow the pairs themselves, are ignored: in joined pairs both sides are long, which would
    raise the correlation.
    """
    kept = data.report["train"]["kept"]
    lengths = np.log([data.train.source_lengths[:kept], data.train.target_lengths[:kept]])
    if kept < _FEWEST_PAIRS or not lengths.std(axis=1).all():
        return None
    correlation = float(np.corrcoef(lengths)[0, 1])
    if correlation >= _LEAST_CORRELATION:
        return None
    return (
        f"the lengths of the two sides have little to do with each other (correlation {correlation:.2f}; of "
        f"translations 0.6 or more); see that each line of one is the translation of that line of the other, with "
        f"`clearhead corpus check`"
    )


def _unlearned(run: Path, before: float, now: float, margin: float) -> str:
    """Return a comparison of the scores on general text before and after training."""
    if now >= before - margin:
        return f"general text has chrF {now:.1f}, and had {before:.1f} before"
    return (
        f"general text got worse: chrF {before:.1f} before and {now:.1f} now, which is more than the margin of "
        f"{margin:g} (train.general_margin); the model as it was is at {run / MODEL_BEFORE}; more general text "
        f"mixed in helps (data.general_share), a lower rate, or fewer steps"
    )


def _trend(valid: Sequence[Mapping[str, Any]], losses: Sequence[float]) -> _Trend:
    """Return the trend in the last quarter of the run; `likelier` means that only the loss improved."""
    likeliest = min(record["nll"] for record in valid)
    last, before = valid[-1], _before_last_quarter(valid)
    is_gain = _is_gain(last["chrf"], max(record["chrf"] for record in before))
    if not is_gain and last["nll"] > likeliest + _RISE:
        return "over-fitted"
    if losses and _learned(losses) < min(_KNOWN_SHARE * last["nll"], last["nll"] - _KNOWN_GAP):
        return "memorizing"
    if is_gain:
        return "improving"
    if last["nll"] < min(record["nll"] for record in before) - _RISE:
        return "likelier"
    return "worse" if last["chrf"] < max(record["chrf"] for record in valid) * (1 - _LOSS) else "converged"


def _learned(losses: Sequence[float]) -> float:
    """Return the training loss at the end."""
    last = losses[-_LAST_LOSSES:]
    return sum(last) / len(last)


def _is_gain(now: float, before: float) -> bool:
    return now > before * (1 + _GAIN) and now >= before + _LEAST_GAIN


def _before_last_quarter(valid: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    return [record for record in valid if record["step"] <= 0.75 * valid[-1]["step"]] or valid[:1]


def _course(trend: _Trend, valid: Sequence[Mapping[str, Any]], losses: Sequence[float], go_on: str) -> str:
    last, before = valid[-1], _before_last_quarter(valid)
    best_before = max(record["chrf"] for record in before)
    best = max(valid, key=lambda record: record["chrf"])
    since = f"after step {before[-1]['step']:,}"
    match trend:
        case "improving":
            return f"still improving: chrF rose from {best_before:.1f} to {last['chrf']:.1f} {since}; {go_on}"
        case "likelier":
            least = min(record["nll"] for record in before)
            return f"still improving: the validation loss fell from {least:.2f} to {last['nll']:.2f} {since}; {go_on}"
        case "over-fitted":
            likeliest = min(valid, key=lambda record: record["nll"])
            learned = f" while that of training fell to {losses[-1]:.2f}" if losses else ""
            return (
                f"over-fitted: after step {likeliest['step']:,} the validation loss rose from {likeliest['nll']:.2f} "
                f"to {last['nll']:.2f}{learned}; more text helps, or dropout (--fresh --set model.dropout=..), "
                f"but not more time"
            )
        case "memorizing":
            return (
                f"memorizing: the training loss is {_learned(losses):.2f}, the validation loss {last['nll']:.2f}, so "
                f"the model knows its text nearly by heart; more text helps, hardly more time"
            )
        case "worse":
            return (
                f"got worse: chrF fell from {best['chrf']:.1f} at step {best['step']:,} to {last['chrf']:.1f}, and the "
                f"best is published; a lower rate helps (--fresh --set train.learning_rate=..), or more warm-up"
            )
    if _is_gain(best["chrf"], best_before):
        return f"converged: the best, of step {best['step']:,} with chrF {best['chrf']:.1f}, is published; {_MORE} help"
    return f"converged: nothing {since} made it better; {_MORE}"


def _longer(train: TrainConfig, state: TrainingState, ended_by: str, least_steps: int) -> str:
    match ended_by:
        case "max_steps":
            return f"--max-steps {max(2 * (train.max_steps or 0), least_steps)}"
        case "max_minutes":
            minutes = train.max_minutes or 0.0
            if state.elapsed > 1.5 * 60 * minutes:  # it was trained for longer before this limit was set
                minutes = math.ceil(state.elapsed / 60)
            longer = 2 * minutes
            return f"--max-minutes {f'{longer:.2g}' if longer < 1 else f'{round(longer, 1):.10g}'}"
    return f"--set train.patience={2 * train.patience}"
