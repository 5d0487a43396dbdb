"""The pairs that commands read: what a file says is none is left out, and said; damaged rows are named."""

from __future__ import annotations

import pytest

from clearhead.cli.evaluate import evaluate
from clearhead.cli.optimize import optimize
from clearhead.cli.pairs import PairOptions
from clearhead.cli.score import score
from clearhead.errors import DataError


def given(capsys, **named):
    """Return what is read and what is said."""
    sides = {side: str(path) for side, path in named.items()}
    found = PairOptions(pairs=sides.get("pairs")).read(sides.get("source"), sides.get("target"))
    return found, capsys.readouterr().err


def test_fuzzy_and_untranslated_messages_are_left_out_and_reported(tmp_path, capsys):
    path = tmp_path / "m.po"
    path.write_text(
        '#, fuzzy\nmsgid "a"\nmsgstr "b"\n\nmsgid "c"\nmsgstr "d"\n\nmsgid "e"\nmsgstr ""\n', encoding="utf-8"
    )
    found, said = given(capsys, pairs=path)
    assert (found.sources, found.targets, found.name) == (["c"], ["d"], f"the pairs of {path}")
    assert "gettext catalogue; from msgid to msgstr" in said
    assert "1 of 3 entries are left out: the file marks its translation as not finished" in said
    assert "1 of 3 entries are left out: the file has no translation of it" in said


def test_cues_without_a_counterpart_are_left_out_and_reported(tmp_path, capsys):
    first, second = "00:01.000 --> 00:02.000\n", "00:03.000 --> 00:04.000\n"
    (tmp_path / "a.srt").write_text(f"{first}eins\n\n{second}zwei\n", encoding="utf-8")
    (tmp_path / "b.srt").write_text(f"{second}two\n", encoding="utf-8")
    found, said = given(capsys, source=tmp_path / "a.srt", target=tmp_path / "b.srt")
    assert (found.sources, found.targets) == (["zwei"], ["two"])
    assert f"{tmp_path / 'a.srt'}: subtitles, their cues paired by time" in said
    assert "1 of 2 entries are left out: nothing in the other file belongs to it" in said


@pytest.mark.parametrize("name", ["x.de", "x.txt"])
def test_lines_are_named_by_their_file(tmp_path, capsys, name):
    for path in (tmp_path / name, tmp_path / "y.en"):
        path.write_text("a\nb\n", encoding="utf-8")
    found, said = given(capsys, source=tmp_path / name, target=tmp_path / "y.en")
    assert (found.name, len(found.pairs), said) == (str(tmp_path / name), 2, "")


@pytest.mark.parametrize(("command", "other"), [(evaluate, "--reference"), (score, "--target"), (optimize, "--target")])
def test_an_unknown_language_tag_is_named_with_its_line(run_command, make_model_dir, write_lines, command, other):
    files = ["--source", write_lines("a", "<2de> x", "<2xx> y"), other, write_lines("b", "x", "y")]
    with pytest.raises(DataError, match=r"a, line 2: unknown language tag <2xx>; the model's tags are <2de>, <2fr>"):
        run_command(command, make_model_dir(language_tags=("de", "fr")), *files)


@pytest.mark.parametrize("command", [evaluate, score])
def test_a_pairs_row_without_a_tab_is_rejected_with_its_line(run_command, make_model_dir, write_lines, command):
    pairs = write_lines("p.tsv", *(f"{n}\tx" for n in range(400)), "torn")
    with pytest.raises(DataError, match=r"p\.tsv, line 401: there is no tab \(the row begins 'torn'\)"):
        run_command(command, make_model_dir(), "--pairs", pairs)
