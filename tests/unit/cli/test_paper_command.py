from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

from clearhead.cli.paper import paper
from clearhead.errors import ClearheadError, ConfigError
from clearhead.inspection.plots import HeatMap
from clearhead.paper import contents
from clearhead.paper.parts import Check, ModelPart
from commands import clearhead


@pytest.fixture
def fake_parts(monkeypatch):
    """Replace the parts by fast ones; return the list of the computed parts."""
    computed = []

    def make(name, holds):
        def part():
            computed.append(name)
            figure = HeatMap("map", [[1.0, 2.0]], "x", "y", "value")
            check = Check(f"claim of {name}", holds, "1 against 2")
            return ModelPart(f"Title of {name}", f"text of {name}: √2\n", {f"{name}-map": figure}, {"n": 1}, (check,))

        return part

    fakes = {name: make(name, name != "table2") for name in contents.PARTS}
    monkeypatch.setattr(contents, "PARTS", fakes)
    return computed


def test_a_real_part_is_printed_with_its_checks(run_command):
    result = run_command(paper, "schedule")
    assert result.exit_code == 0
    assert result.stdout.startswith("Equation 3: the learning rate\n=============================\n")
    for figure in ("6.988e-04", "4.941e-04"):
        assert figure in result.stdout
    assert "FAILED" not in result.stdout


def test_json_is_one_object_with_data_and_checks(run_command):
    found = json.loads(run_command(paper, "table3", "--json").stdout)
    assert list(found) == ["table3"]
    rows = {row["preset"]: row for row in found["table3"]["data"]["rows"]}
    assert rows["paper-base"]["parameters"]["37000"] == 63_045_632
    assert all(check["holds"] for check in found["table3"]["checks"])


def test_without_a_name_all_parts_follow_one_another(run_command, fake_parts):
    with pytest.raises(ClearheadError):  # table2 does not hold; the others are shown all the same
        run_command(paper)
    figures = ["figure1", "figure2"]
    others = ["formulas", "table1", "table2", "table3", "table4", "schedule", "positions", "errata", "walk"]
    assert fake_parts == [*figures, *others]


def test_a_named_part_alone_is_computed(run_command, fake_parts):
    result = run_command(paper, "positions")
    assert fake_parts == ["positions"]
    assert result.stdout == "Title of positions\n==================\ntext of positions: √2\n\n"


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_check_that_fails_ends_with_status_1_after_what_was_computed(fake_parts, form, capsys):
    assert clearhead("paper", "table2", *form) == 1
    shown = capsys.readouterr()
    assert "Title of table2" in shown.out
    assert shown.err == "clearhead: 1 of the paper's checks failed:\n  table2: claim of table2: 1 against 2\n"


def test_an_unknown_part_is_a_usage_error(run_command):
    result = run_command(paper, "table5")
    assert result.exit_code == 2
    assert "table5" in result.stderr
    assert "table3" in result.stderr


def test_a_usage_error_names_no_python_exception(capsys):
    assert clearhead("paper", "table5") == 2
    told = capsys.readouterr().err
    assert "'table5' is not one of" in told
    assert "Value error" not in told


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a place that is always full")
@pytest.mark.slow  # test_main.py has a full disk for what takes no time
@pytest.mark.parametrize("arguments", [["--version"], ["paper", "schedule", "--json"]])
def test_full_disk_on_standard_output_is_one_line_error(arguments):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", "from clearhead.cli.main import run; run()", *arguments]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "clearhead: cannot write standard output: No space left on device\n")


def test_texts_and_figures_go_into_a_directory(run_command, fake_parts, tmp_path):
    directory = tmp_path / "new" / "paper"
    for _ in range(2):  # the second time over the first
        result = run_command(paper, "errata", "-o", directory)
    assert sorted(path.name for path in directory.iterdir()) == ["errata-map.png", "errata.txt"]
    assert (directory / "errata.txt").read_text(encoding="utf-8") == "Title of errata\n\ntext of errata: √2\n"
    assert (directory / "errata-map.png").read_bytes().startswith(b"\x89PNG")
    assert result.stdout.startswith("Title of errata")
    assert f"wrote {directory / 'errata-map.png'}" in result.stderr


def test_a_place_that_cannot_be_written_is_named_before_anything_is_computed(run_command, fake_parts, tmp_path):
    file = tmp_path / "file"
    file.write_text("kept", encoding="utf-8")
    with pytest.raises(ClearheadError, match=r"cannot write to .*file: it is a file; name a directory"):
        run_command(paper, "errata", "-o", file)
    with pytest.raises(ClearheadError, match=r"cannot make the directory .*below: Not a directory"):
        run_command(paper, "errata", "-o", file / "below")
    assert fake_parts == []
    assert file.read_text(encoding="utf-8") == "kept"


def test_a_file_that_cannot_be_written_is_named(run_command, fake_parts, tmp_path):
    (tmp_path / "errata.txt").mkdir()
    with pytest.raises(ClearheadError, match=r"cannot write .*errata\.txt: it is a directory"):
        run_command(paper, "errata", "-o", tmp_path)


def test_figures_without_matplotlib_are_refused_before_anything_is_computed(
    run_command, fake_parts, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ClearheadError, match=r"pip install .*\[plots\]"):
        run_command(paper, "errata", "-o", tmp_path / "out")
    assert fake_parts == []
    assert run_command(paper, "errata").exit_code == 0  # text needs none


@pytest.mark.parametrize("part", ["figure1", "figure2"])
def test_a_figure_of_a_preset_or_a_model_is_drawn_without_matplotlib(
    run_command, make_model_dir, tmp_path, monkeypatch, part
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    directory = tmp_path / "of mine" / "#1"
    for name, width in (("tiny", 128), (make_model_dir(d_model=22), 22)):
        printed = run_command(paper, part, name, "-o", directory).stdout
        assert f"T, {width})" in printed
    assert sorted(path.name for path in directory.iterdir()) == [f"{part}.svg", f"{part}.txt"]
    drawn = (directory / f"{part}.svg").read_text(encoding="utf-8")
    links = re.findall(r'href="([^"#]+)#L\d+"', drawn)
    assert len(links) > 10
    assert all((directory / unquote(link)).is_file() for link in links)


def test_unknown_model_of_a_figure_suggests_the_nearest_preset(run_command):
    with pytest.raises(
        ConfigError, match="'paper-bas' is neither a preset nor a model directory; did you mean 'paper-base'"
    ):
        run_command(paper, "figure1", "paper-bas")


def test_concepts_are_listed_with_the_words_for_them(run_command):
    printed = run_command(paper, "concepts").stdout
    assert "soft-dictionary         soft dictionary; " in printed
    assert "WordPiece" in printed


@pytest.mark.parametrize("name", ["soft-dictionary", "Soft Dictionary", "apple, banana, chair"])
def test_a_concept_is_found_by_its_words_and_shown_with_its_program(run_command, name):
    printed = run_command(paper, "concepts", name).stdout
    assert printed.startswith("Attention as a soft dictionary\n==============================\n")
    assert 'DICTIONARY = {"apple": 10.0, "banana": 5.0, "chair": 2.0}' in printed
    assert "fruit is 0.6 x 10 + 0.4 x 5 + 0.0 x 2 = 8" in printed


def test_a_concept_is_one_object_of_json_and_a_picture(run_command, tmp_path):
    found = json.loads(run_command(paper, "concepts", "masks", "--json", "-o", str(tmp_path)).stdout)
    assert found["masks"]["data"]["words"][0] == "PAD"
    assert found["masks"]["checks"] == [
        {"name": "what the program asserts", "holds": True, "evidence": "all of it holds"}
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["masks.png", "masks.txt"]


def test_a_walk_takes_a_sentence_and_writes_a_page_without_matplotlib(run_command, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    printed = run_command(paper, "walk", "the mouse runs", "-o", tmp_path).stdout
    assert "writes: la souris court </s>" in printed
    assert sorted(path.name for path in tmp_path.iterdir()) == ["walk.html", "walk.txt"]
    assert (tmp_path / "walk.html").read_text(encoding="utf-8").count('<section class="stage"') == 13


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["concepts", "soft dictonary"], "there is no concept 'soft dictonary'; did you mean soft-dictionary"),
        (["masks"], "is not one of"),
        (["walk", "the dog sleeps"], "the sentence has unknown words: 'dog'; the model knows the, cat, sleeps"),
        (
            ["table1", "masks"],
            "table1 takes no name ('masks'); concepts, exercises, figure1, figure2 and walk do",
        ),
    ],
)
def test_paper_rejects_unknown_names_with_suggestions(arguments, message, capsys):
    clearhead("paper", *arguments)
    assert message in " ".join(capsys.readouterr().err.split())


def test_exercises_are_listed_shown_written_and_checked(run_command, tmp_path):
    assert "variance_of_a_score" in run_command(paper, "exercises").stdout
    assert len(json.loads(run_command(paper, "exercises", "--json").stdout)) == 40
    assert "return ...\n" in run_command(paper, "exercises", "27").stdout
    told = run_command(paper, "exercises", "27", "-o", tmp_path)
    file = tmp_path / "exercises.py"
    assert f"wrote {file}" in told.stderr
    done = run_command(paper, "exercises", "27", file)
    assert (done.exit_code, done.stdout[:33]) == (1, "Exercise 27, attention_is_cheaper")
    assert "is not filled in" in done.stdout
    file.write_text(file.read_text(encoding="utf-8").replace("...", "n < d"), encoding="utf-8")
    with pytest.raises(ClearheadError, match=r"exercises\.py exists, and may have answers in it"):
        run_command(paper, "exercises", "-o", tmp_path)
    done = run_command(paper, "exercises", "27", file)
    assert (done.exit_code, done.stdout) == (0, "Exercise 27, attention_is_cheaper: right\n")
    done = run_command(paper, "exercises", file)
    assert (done.exit_code, done.stdout) == (0, "1 right, 0 not right, 0 open\n")
    file.write_text("print(1)\n\n\ndef attention_is_cheaper(n, d):\n    print(n)\n    return True\n", encoding="utf-8")
    done = run_command(paper, "exercises", file, "--json")
    [verdict] = json.loads(done.stdout)
    assert (done.exit_code, verdict["number"], verdict["state"]) == (1, 27, "wrong")
    assert verdict["hint"].startswith("this is erratum 40, ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["exercises", "41"], "there is no exercise 41; they are numbered from 1 to 40"),
        (["exercises", "nothing"], "'nothing' is neither the number of an exercise (1 to 40) nor a file"),
        (["exercises", "five", "mine.py"], "'five' is neither the number of an exercise (1 to 40) nor a file"),
        (["exercises", "5", "mine.py", "-o", "out"], "-o writes exercises to fill in"),
        (["walk", "the", "cat"], "walk takes one name; write it in quotes: 'the cat'"),
    ],
)
def test_paper_rejects_invalid_arguments_of_exercises_and_walk(arguments, message, capsys):
    clearhead("paper", *arguments)
    assert message in " ".join(capsys.readouterr().err.split())
