"""The pairs that `score` and `evaluate` read: what a file says is none is left out, and said."""

from __future__ import annotations

import pytest

from clearhead.cli.pairs import PairOptions


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
