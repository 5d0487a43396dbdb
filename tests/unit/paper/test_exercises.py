"""Every exercise refuses its skeleton and each known wrong answer with its own hint, and accepts right answers."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import numpy
import pytest
import torch
from exercise_answers import ALSO_RIGHT, RECOGNIZED

from clearhead.errors import ClearheadError
from clearhead.paper.errata import ERRATA
from clearhead.paper.exercises import EXERCISES, Exercise, check, exercise, solution
from clearhead.paper.exercises.catalogue import exercise_list, workbook
from clearhead.paper.exercises.checking import BLANK, check_file, summary
from clearhead.paper.exercises.exercise import HEADER, same
from clearhead.paper.places import read_table
from every_run import slow

BY_NAME = {one.name: one for one in EXERCISES}
SECTIONS = ["3.1", "3.2.1", "3.2.2", "3.2.3", "3.3", "3.4", "3.5", "4", "5.3", "5.4", "6.1", "6.2", "6.3"]


def test_there_are_forty_in_the_order_of_the_paper():
    assert [one.number for one in EXERCISES] == list(range(1, 41))
    assert list(BY_NAME) == list(read_table("exercises/exercises.toml"))
    assert len(BY_NAME) == 40
    places = [SECTIONS.index(one.section) for one in EXERCISES]
    assert places == sorted(places)
    assert set(places) == set(range(len(SECTIONS)))


# A greedy search runs a model for each answer: seconds, where the checks of all others together take two.
ONE_BY_ONE = [slow(one) if one.name == "greedy" else one for one in EXERCISES]


@pytest.mark.parametrize("one", ONE_BY_ONE, ids=lambda one: f"{one.number}-{one.name}")
class TestExercise:
    def test_the_blank_is_one_expression_of_the_solution_and_the_task_two_sentences(self, one: Exercise):
        assert inspect.getsource(one.solution).count(one.blank) == 1
        task = " ".join(inspect.getdoc(one.solution).split())
        assert len(re.findall(r"[.?](?= [A-Z`]|$)", task)) >= 2
        assert one.blank not in task
        assert one.test or one.errata

    def test_the_unfilled_skeleton_is_open(self, one: Exercise):
        verdict = check(one.number, one.filled("..."))
        assert verdict.state == "open"
        assert str(verdict) == f"Exercise {one.number}, {one.name}: {BLANK}"

    def test_the_solution_and_other_right_answers_pass(self, one: Exercise):
        for expression in (one.blank, *ALSO_RIGHT[one.name]):
            verdict = check(one.number, one.filled(expression))
            assert str(verdict) == f"Exercise {one.number}, {one.name}: right", expression

    def test_each_known_wrong_answer_is_refused_with_its_own_hint(self, one: Exercise):
        known = {**one.wrong, **RECOGNIZED.get(one.name, {})}
        hints = {expression: check(one.number, one.filled(expression)) for expression in known}
        for expression, wanted in known.items():
            verdict = hints[expression]
            assert verdict.state == "wrong", expression
            if isinstance(wanted, str):
                assert verdict.hint == wanted, expression
            else:
                assert re.match(rf"this is (like )?erratum {wanted}, ", verdict.hint), (expression, verdict.hint)
                assert wanted in one.errata
        assert len({verdict.hint for verdict in hints.values()}) == len(known) >= 3

    def test_an_odd_answer_gets_a_message(self, one: Exercise):
        wanted = {
            "the function returns None, expected ": lambda *_: None,
            "the function returns something of type str, expected ": lambda *_: "4",
            "the function raises TypeError: ": lambda: 1,
            "the function raises ZeroDivisionError: division by zero in line ": lambda *_: 1 / 0,
            "the function raises SystemExit: 3 in line ": lambda *_: exit(3),
        }
        for message, answer in wanted.items():
            verdict = check(one.number, answer)
            assert (verdict.state, verdict.hint) == ("wrong", "")
            assert verdict.found.startswith(message)

    def test_not_a_number_is_wrong(self, one: Exercise):
        def answer(*arguments):
            return filled(one.solution(*arguments))

        assert check(one.number, answer).state == "wrong"


def filled(value: object) -> object:
    """Return a result of the same kind whose numbers are NaN and whose truth values are False or the opposite."""
    match value:
        case torch.Tensor():
            return torch.full_like(value, float("nan") if value.is_floating_point() else 0)
        case bool():
            return not value
        case int() | float():
            return float("nan")
        case list() | tuple():
            return type(value)(map(filled, value))


def test_errata_that_hints_name_exist_and_those_of_a_test_are_many():
    named = {
        int(number) for one in EXERCISES for hint in one.wrong.values() for number in re.findall(r"erratum (\d+)", hint)
    }
    used = {number for one in EXERCISES for number in one.errata}
    assert named | used <= {erratum.number for erratum in ERRATA}
    assert len(used) >= 20
    assert RECOGNIZED.keys() <= ALSO_RIGHT.keys() == BY_NAME.keys()


def test_a_near_miss_of_an_erratum_is_named():
    verdict = check(5, lambda q, k: (q @ k.T / (2 * q.size(-1)) ** 0.5).softmax(dim=-1))
    assert verdict.hint == "this is like erratum 2, Dividing the scores by sqrt(512); it computes: sqrt(2 d_k)"


def test_an_unknown_mistake_is_shown_with_what_was_expected():
    verdict = check(36, lambda length, alpha: 2.0)
    assert (verdict.state, verdict.hint) == ("wrong", "")
    assert verdict.found == "2 for (1, 0.0), expected 1"
    verdict = check(23, lambda angles: torch.zeros(5, 6))
    assert re.fullmatch(r"\[0, 0\] is 0, expected -?0\.\d+; 30 of 30 numbers differ", verdict.found)


def test_a_wrong_shape_is_named_with_the_right_one():
    verdict = check(16, lambda length: torch.ones(length, dtype=torch.bool))
    assert verdict.found == (
        "the function returns a tensor of True and False, shape (1,), expected a tensor of True and False, shape (1, 1)"
    )
    assert "a tensor of numbers, shape (1, 1), expected a tensor of True" in check(16, lambda n: torch.ones(n, n)).found
    assert "returns a list of a number, expected a tensor" in check(20, lambda ids, table: [1.0, 2.0]).found
    assert "returns (a number, None), expected (a number, a number)" in check(25, lambda *_: (1.0, None)).found


def test_ids_that_do_not_exist_are_no_traceback():
    found = check(3, lambda target, bos_id: [bos_id, 99, 99, 99, 99][: len(target)]).found
    assert found == "(1, 99, 99, 99) for ([6, 9, 3, 2], 1), expected (1, 6, 9, 3)"
    assert check(34, lambda next_logits, bos_id, eos_id, max_length: [99, 99]).found.startswith(
        "what the function returns cannot be used: IndexError: "
    )


def test_an_answer_may_change_its_arguments_and_return_any_kind_of_number():
    def hide(scores, mask):
        return scores.masked_fill_(~mask, float("-inf"))

    def shifted(target, bos_id):
        target.insert(0, bos_id)
        target.pop()
        return target

    assert check(15, hide).state == check(3, shifted).state == "right"
    for kind in (lambda d_k: torch.tensor(float(d_k)), numpy.float32, numpy.int64, int):
        assert check(8, kind).state == "right"
    assert check(27, numpy.less).state == "right"


def test_a_check_leaves_threads_and_random_state_alone():
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    check(34, lambda *_: 1 / 0)
    check(16, exercise(16).solution)
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_num_threads() == threads


SETTINGS = "torch.manual_seed(1)\n    torch.set_default_dtype(torch.float64)\n    torch.set_grad_enabled(False)"


@pytest.mark.parametrize("code", [SETTINGS.replace("    ", ""), f"def f1(precision, recall):\n    {SETTINGS}"])
def test_settings_of_an_answer_do_not_decide_about_the_next(tmp_path: Path, code):
    file = tmp_path / "mine.py"
    file.write_text("\n".join([HEADER, code, *(solution(number) for number in (2, 10, 34))]), encoding="utf-8")
    before = torch.get_rng_state()
    found = check_file(file, [BY_NAME["f1"], *map(exercise, (2, 10, 34))])
    assert [one.number for one in found if one.state == "right"] == [2, 10, 34]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.get_default_dtype() == torch.float32
    assert torch.is_grad_enabled()


def test_imported_functions_are_not_answers(tmp_path: Path):
    file = tmp_path / "mine.py"
    code = "from functools import partial\nfrom torch import softmax\n\nperplexity = partial(max)\nf1 = lambda *_: 0\n"
    file.write_text(code, encoding="utf-8")
    assert [one.name for one in check_file(file, EXERCISES)] == ["perplexity", "f1"]


def test_unprintable_exception_of_an_answer_is_reported():
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError

    def answer(precision, recall):
        raise Unprintable

    assert "<exception str() failed>" in check(40, answer).found


def test_a_check_calls_the_answer_once_for_each_input():
    calls = []
    assert check(36, lambda *arguments: calls.append(arguments) or 2.0).hint == ""
    assert len(calls) == 9


def test_results_are_the_same_up_to_rounding():
    assert same([1.0, 2], (1.0 + 1e-9, 2))
    assert not same([1.0], [1.0, 2.0])
    assert not same(torch.ones(2), torch.ones(3))
    assert not same(float("nan"), float("nan"))
    assert same(torch.tensor([True, False]), [[True, False]][0])


@pytest.mark.parametrize("number", [0, 41, -1])
def test_an_unknown_number_is_an_error(number):
    for function in (lambda: exercise(number), lambda: check(number, max), lambda: solution(number)):
        with pytest.raises(ClearheadError, match=rf"no exercise {number}; they are numbered from 1 to 40"):
            function()


def test_the_solution_is_the_source_of_the_function():
    assert solution(27).splitlines()[-1] == "    return n < d"


def test_the_workbook_has_every_exercise_and_nothing_in_it_is_right_or_wrong(tmp_path: Path):
    file = tmp_path / "exercises.py"
    file.write_text(workbook(), encoding="utf-8")
    assert workbook().startswith(HEADER)
    assert workbook().count("\ndef ") == workbook().count("\n# Exercise ") == 40
    for one in EXERCISES:
        assert one.blank not in one.source("...")
    verdicts = check_file(file, EXERCISES)
    assert summary(verdicts) == "0 right, 0 not right, 40 open; next: 1, layer_norm"


def test_a_file_with_some_of_the_functions_is_checked(tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    file = Path("mine.py")
    file.write_text(
        "def attention_is_cheaper(n, d):\n    return n < d\n\n\ndef f1(precision, recall):\n    return precison\n",
        "utf-8",
    )
    assert summary(check_file(file, EXERCISES)) == (
        "Exercise 40, f1: not right\n"
        "  found the function raises NameError: name 'precison' is not defined in line 6 of mine.py\n"
        "1 right, 1 not right, 0 open"
    )


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("def f1(:\n", r"mine\.py, line 1: invalid syntax"),
        ("x = 1\n1 / 0\n", r"mine\.py raises ZeroDivisionError: division by zero in line 2 of .*mine\.py"),
        ("import sys\nsys.exit(1)\n", r"mine\.py raises SystemExit: 1 in line 2 of .*mine\.py"),
        ("x = 1\n", r"mine\.py has no function f1; `clearhead paper exercises 40` shows how it begins"),
        ("def f1():\n    ...\n\n\ndef f1():\n    ...\n", r"mine\.py has f1 in lines 1 and 5; keep one of them"),
        (
            "def f1(precision, recall):\n    raise KeyboardInterrupt\n",
            r"40, f1: it raises KeyboardInterrupt in line 2 of",
        ),
        ("raise KeyboardInterrupt\n", r"mine\.py raises KeyboardInterrupt in line 1 of"),
        ("x = '\0'\n", r"mine\.py has bytes that are no text, or is UTF-16; save it as UTF-8"),
        (None, r"cannot read .*mine\.py: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_an_error_with_its_line(tmp_path: Path, code, message):
    file = tmp_path / "mine.py"
    if code is not None:
        file.write_text(code, encoding="utf-8")
    with pytest.raises(ClearheadError, match=message):
        check_file(file, [BY_NAME["f1"]])


def test_the_list_names_every_exercise():
    text = exercise_list()
    assert all(f"  {one.number:<2}  {one.section:<7}  {one.name} " in text for one in EXERCISES)
