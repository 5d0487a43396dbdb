"""What is said of a run at its end."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

from clearhead.config import TrainConfig
from clearhead.errors import DataError
from clearhead.training.checkpoints import TrainingState
from clearhead.training.run import train_from_values
from clearhead.training.validation import Validation
from clearhead.training.verdict import verdict
from small_runs import ENGLISH, GERMAN, numbers, write_tsv

NONE_WRONG = {"examined": 400, "wrong": 0, "findings": {}}


def records(*valid, train=(2.0,)):
    """Return records of validations, (chrF, negative log-likelihood) every ten steps, and of the training."""
    return [
        *({"split": "train", "step": 10, "nll": nll} for nll in train),
        *(
            {"split": "valid", "step": 10 * number, "chrf": chrf, "nll": nll}
            for number, (chrf, nll) in enumerate(valid, start=1)
        ),
    ]


def said(
    found,
    *,
    run="runs/x",
    state=None,
    warmup=4,
    pairs=50_000,
    misaligned=None,
    wrong=NONE_WRONG,
    epochs=5.0,
    bleu=30.0,
    chrf=30.0,
    is_unchanged=False,
    ended_by="max_minutes",
    **train,
):
    return verdict(
        Path(run),
        TrainConfig(warmup_steps=warmup, **(train or {"max_minutes": 8})),
        state or TrainingState(step=80),
        found,
        num_pairs=pairs,
        misaligned=misaligned,
        wrong=wrong,
        epochs=epochs,
        validation=Validation(2.0, bleu, "", chrf, ""),
        is_unchanged=is_unchanged,
        ended_by=ended_by,
    )


RISING = [(10, 4.0), (20, 3.5), (30, 3.0), (40, 2.8), (50, 2.7), (60, 2.6), (65, 2.5), (70, 2.4)]
FLAT = [(40, 2.8), (50, 2.7), (60, 2.6), (65, 2.5), (70, 2.4), (70, 2.4), (70.3, 2.4), (70.2, 2.4)]
FALLING = [(40, 2.8), (50, 2.7), (60, 2.6), (60.5, 2.64)]


def test_run_that_ended_in_warmup_is_advised_to_continue():
    (line,) = said(records((1, 8.0), (2, 7.0)), state=TrainingState(step=490), warmup=1_000)
    assert line.startswith("still in warm-up: 490 of 1,000 steps")
    assert line.endswith("go on with: clearhead train runs/x --max-minutes 16")


def test_improving_run_is_advised_to_continue():
    (line,) = said(records(*RISING))
    assert line == (
        "still improving: chrF rose from 60.0 to 70.0 after step 60; "
        "go on with: clearhead train runs/x --max-minutes 16"
    )
    limits = {"max_steps": 80, "max_minutes": 60, "patience": 3}
    assert said(records(*RISING), **limits, ended_by="max_steps")[0].endswith("--max-steps 160")
    assert said(records(*RISING), **limits, ended_by="max_minutes")[0].endswith("--max-minutes 120")
    assert said(records(*RISING), **limits, ended_by="patience")[0].endswith("--set train.patience=6")


def test_a_model_that_no_longer_gets_better_has_converged():
    (line,) = said(records(*FLAT))
    assert line.startswith("converged: ")


def test_chrf_fallen_from_its_best_is_got_worse_not_converged():
    (line,) = said(records((40, 2.5), (60, 2.5), (30, 2.5), (20, 2.5)))
    assert line.startswith("got worse: chrF fell from 60.0 at step 20 to 20.0, and the best is published; ")


def test_late_best_step_is_named_if_chrf_fell_back():
    (line,) = said(records((30, 2.5), (38, 2.5), (40, 2.5), (44, 2.5), (43.5, 2.5)))
    assert line.startswith("still improving: chrF rose from 40.0 to 43.5")
    (line,) = said(records((30, 2.5), (38, 2.5), (40, 2.5), (44, 2.5), (40.3, 2.5)))
    assert line.startswith("converged: the best, of step 40 with chrF 44.0, is published; ")


def test_rising_loss_with_rising_chrf_is_still_improving():
    (line,) = said(records((30, 2.6), (40, 2.5), (45, 2.5), (55, 2.54)))
    assert line.startswith("still improving: chrF rose from 45.0 to 55.0")


def test_falling_loss_with_chrf_zero_is_still_improving():
    (line,) = said(records((0, 6.5), (0, 5.5), (0, 4.5), (0, 3.6)))
    assert line.startswith("still improving: the validation loss fell from 4.50 to 3.60")


def test_relative_gain_of_a_tiny_chrf_is_converged():
    (line,) = said(records((0.3, 6.5), (0.3, 6.5), (0.3, 6.5), (0.35, 6.5)))
    assert line.startswith("converged: nothing after step 30 made it better")


def test_advised_minutes_exceed_the_time_already_used():
    state = TrainingState(step=1, elapsed=600.0)
    (line,) = said([], run="my runs/x", state=state, warmup=9, max_minutes=0.5)
    assert line.endswith("go on with: clearhead train 'my runs/x' --max-minutes 20")


def test_over_fitting_is_seen_by_the_loss():
    (line,) = said(records(*FALLING, train=(2.0, 0.91)))
    assert line.startswith(
        "over-fitted: after step 30 the validation loss rose from 2.60 to 2.64 while that of training fell to 0.91"
    )


@pytest.mark.parametrize("valid", [(*RISING[:-1], (70, 2.3)), (*FLAT[:-1], (70.2, 2.3))])
def test_a_model_that_knows_its_text_by_heart_needs_more_text_and_no_more_time(valid):
    (line,) = said(records(*valid, train=(5.0, 0.3, 0.35, 0.4, 0.45, 0.5)))
    assert line == (
        "memorizing: the training loss is 0.40, the validation loss 2.30, so the model knows its text nearly by heart; "
        "more text helps, hardly more time"
    )


@pytest.mark.parametrize("loss", [0.6, 1.2])  # a quarter of the validation loss, and half of it
def test_a_model_with_more_to_learn_is_not_memorizing(loss):
    (line,) = said(records(*RISING, train=(loss,) * 5))
    assert line.startswith("still improving: ")


def test_small_gap_between_train_and_valid_loss_is_still_improving():
    (line,) = said(records(*((chrf, nll / 3) for chrf, nll in RISING), train=(0.01,) * 5))
    assert line.startswith("still improving: ")  # validation loss 0.8: a regular language, learned


@pytest.mark.parametrize(
    ("pairs", "epochs", "words"),
    [
        (300_000, 0.4, "too little time: the text was read to 40 %; go on with: clearhead train"),
        (300_000, 5 / 30_000, "too little time: the text was read to 0.017 %; go on with: clearhead train"),
        (300_000, 1.5, "too little time: the text was passed 1.5 times; go on with: clearhead train"),
        (9_000, 30.0, "too little data: 9,000 pairs, .* or the two sides may be misaligned"),
        (300_000, 30.0, "the two sides may be misaligned: see that each line"),
    ],
)
def test_a_useless_model_is_never_passed_over_in_silence(pairs, epochs, words):
    (line,) = said([], pairs=pairs, epochs=epochs, bleu=4.99)
    assert re.fullmatch(f"BLEU is below 5, so the translations are of no use; {words}.*", line)
    course, again = said(records(*RISING), pairs=pairs, epochs=epochs, bleu=4.99)
    assert course.startswith("still improving: ")
    assert again == line.partition("; go on with: ")[0]  # which is in the line before
    assert len(said(records(*FLAT), pairs=pairs, epochs=epochs, bleu=5.0)) == 1


def test_flat_loss_with_bleu_below_5_is_advised_another_learning_rate():
    (line,) = said(records(*FLAT), epochs=1.5, bleu=0.02)
    assert line == (
        "BLEU is below 5, so the translations are of no use; nothing is learned any more; another rate helps "
        "(--fresh --set train.learning_rate=..)"
    )


def test_a_useless_model_of_misaligned_sides_needs_neither_time_nor_data():
    (line,) = said(records(*RISING), misaligned="the lengths differ", bleu=4.99)
    assert line == "likely misaligned, for BLEU is below 5: the lengths differ"
    assert "misaligned" not in " ".join(said(records(*RISING), misaligned="the lengths differ", bleu=5.0))


def test_wrong_corpus_comes_first_in_the_verdict():
    wrong = {"examined": 50_000, "wrong": 14_500, "findings": {"swapped": 14_500}}
    first, second, third = said(records(*RISING), wrong=wrong)
    assert first == "about 29 % of the training pairs look wrong: 14,500 with source and target exchanged"
    assert second.endswith("--set data.fix=swapped; then start over with: clearhead train runs/x --fresh ..")
    assert third.startswith("still improving: ")
    lines = said(records(*RISING), wrong=wrong, misaligned="the lengths differ", bleu=4.99)
    assert [line.partition(" ")[0] for line in lines] == ["about", "`clearhead", "likely"]
    assert len(said(records(*RISING), wrong=wrong | {"wrong": 400})) == 1


def test_a_wrong_corpus_is_refused_and_once_it_is_forced_not_asked_about_again(settings, capsys):
    values = settings(train={"max_steps": 1})
    garbled = [(f"{source} ist grÃ¶ÃŸer", target) for source, target in numbers()[:50]]
    write_tsv(Path(*values["data"]["pairs"]), [*garbled, *numbers()[50:]])
    with pytest.raises(DataError, match=r"about 2. % of the training pairs look wrong: \d+ garbled"):
        train_from_values(values)
    assert not (Path(values["out"]) / "data").exists()
    report = train_from_values(values, force_data=True).run / "report.html"
    told = capsys.readouterr().err
    assert "% of the training pairs look wrong" in told.partition("plan: ")[0]
    assert "% of the training pairs look wrong" in told.partition("finished by")[2]
    assert report.read_text(encoding="utf-8").count("of the training pairs look wrong") == 2
    values["train"]["max_steps"] = 2
    assert train_from_values(values).step == 2


def test_uncorrelated_side_lengths_are_warned_of_before_the_first_step(settings, settle, quick_run, capsys):
    warning = "the lengths of the two sides have little to do with each other"
    values = settings(train={"max_steps": 1})
    settle(values)
    assert warning not in capsys.readouterr().err
    assert "likely misaligned" not in (quick_run / "report.html").read_text(encoding="utf-8")
    shifted = [(german, english) for (german, _), (_, english) in pairwise([*numbers(), numbers()[0]])]
    write_tsv(Path(*values["data"]["pairs"]), shifted)
    report = train_from_values({**values, "out": f"{values['out']}-shifted"}, force_data=True).run / "report.html"
    assert warning in capsys.readouterr().err.partition("plan: ")[0]
    assert "likely misaligned" in report.read_text(encoding="utf-8")


def from_a_model(*valid):
    first, *others = valid
    start = {"split": "valid", "step": 0, "chrf": first[0], "nll": first[1]}
    return [start, *records(*others)]


def test_the_course_of_a_run_from_a_model_begins_with_that_model():
    (line,) = said(from_a_model((40, 2.8), *RISING[4:]), chrf=70.04)
    assert line.startswith("still improving: chrF rose from 65.0 to 70.0 after step ")


def test_a_trained_model_knows_something_in_warm_up_already():
    assert said(from_a_model((40, 2.8), (45, 2.7)), state=TrainingState(step=3)) == []
    assert said(from_a_model((40, 2.8), (30, 2.9), (39.1, 2.9)), is_unchanged=True) == []  # that is its outcome


def test_single_validation_is_too_short_to_tell():
    (line,) = said(records((50, 2.0)))
    assert line == "too short to tell: it was validated once; go on with: clearhead train runs/x --max-minutes 16"


def test_lines_too_short_for_bleu_are_not_of_no_use_where_chrf_is_high():
    course, line = said(records(*FLAT), pairs=9_000, bleu=0.0, chrf=98.0, misaligned="the lengths differ")
    assert course.startswith("converged: ")
    assert line.startswith("BLEU is below 5, which says little here, for chrF is 98.0: ")


@pytest.mark.parametrize(
    ("valid", "course"), [(FALLING, "over-fitted: "), ([(20, 2.5), (30, 2.5), (10, 2.5), (9, 2.5)], "got worse: ")]
)
def test_over_fitted_or_worse_runs_are_not_advised_more_time(valid, course):
    lines = said(records(*valid), epochs=1.5, bleu=1.0)
    assert lines[0].startswith(course)
    assert not re.search("too little time|go on with", " ".join(lines))


def test_run_ended_in_its_planned_warmup_is_advised_to_start_over():
    (line,) = said(
        [], state=TrainingState(step=1), warmup=1, max_minutes=0.5, planned=("train.warmup_steps",), bleu=0.0
    )
    assert line.endswith("; start over with: clearhead train runs/x --fresh --max-minutes 1")


def test_bad_translations_after_fewer_than_50_steps_are_too_short_to_tell():
    short = {"found": records(*FLAT), "state": TrainingState(step=20), "ended_by": "max_steps", "bleu": 0.1}
    (line,) = said(**short, max_steps=20, planned=("train.warmup_steps",))
    assert line == (
        "too short to tell: only 20 steps were made, and the model knows little yet; "
        "start over with: clearhead train runs/x --fresh --max-steps 1000"
    )
    assert said(**short | {"bleu": 30.0})[0].startswith("converged")


def test_a_run_without_a_step_does_not_judge_what_it_did_not_learn():
    (line,) = said(from_a_model((40, 2.8)), state=TrainingState(elapsed=61.0), is_unchanged=True)
    assert line.startswith("the time was over before the first step: the model it started from is published; go on")


@pytest.mark.parametrize(
    ("minutes", "words"), [(600, "1200"), (0.003, "0.006"), (1234.5, "2469"), (5 / 12, "0.83"), (5 / 6, "1.7")]
)
def test_minutes_are_advised_as_people_write_them(minutes, words):
    assert said(records(*RISING), max_minutes=minutes)[0].endswith(f" --max-minutes {words}")


def test_a_run_a_little_longer_than_its_limit_is_advised_twice_the_limit():
    state = TrainingState(step=80, elapsed=5.03 * 60)
    assert said(records(*RISING), state=state, max_minutes=5)[0].endswith(" --max-minutes 10")


def test_the_verdict_and_the_first_pair_are_on_the_screen_and_in_the_report(settings, capsys):
    run = train_from_values(settings(train={"warmup_steps": 300, "max_steps": 5})).run
    err = capsys.readouterr().err
    line = next(line for line in err.splitlines() if line.startswith("still in warm-up: 5 of 300 steps"))
    assert f"clearhead train {run} --max-steps 3000" in line  # twice five would end in the warm-up again
    assert "still in warm-up: 5 of 300 steps" in (run / "report.html").read_text(encoding="utf-8")
    pair = re.search(r"^the first pair, from source to target: '(.*)' -> '(.*)'$", err, re.MULTILINE)
    assert pair
    assert [GERMAN.index(word) for word in pair[1].split()] == [ENGLISH.index(word) for word in pair[2].split()]


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (49.5, "general text has chrF 49.5, and had 50.0 before"),
        (48.9, "general text got worse: chrF 50.0 before and 48.9"),
    ],
)
def test_general_text_worse_than_the_margin_is_reported(now, words):
    before = {"split": "valid", "step": 0, "nll": 2.0, "bleu": 30.0, "chrf": 40.0, "general_chrf": 50.0}
    found = verdict(
        Path("runs/x"),
        TrainConfig(warmup_steps=4, max_minutes=8),
        TrainingState(step=80),
        [before, {**before, "step": 80, "chrf": 45.0}],
        num_pairs=50_000,
        misaligned=None,
        wrong=NONE_WRONG,
        epochs=5.0,
        validation=Validation(2.0, 33.0, "", 45.0, "", general=Validation(2.0, 30.0, "", now, "")),
        is_unchanged=False,
        ended_by="max_minutes",
    )
    assert found[0].startswith(words)
    assert ("runs/x/model-before" in found[0]) == (now < 49.0)
