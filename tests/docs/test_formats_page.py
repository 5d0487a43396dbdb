"""docs/formats.md and docs/data-doctor.md: their commands, on small files."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

from clearhead.formats import READERS, SentencePair, write_pairs
from clearhead.formats.subtitles.pairs import SUBTITLES
from commands import clearhead
from small_runs import QUICK, numbers, tiny_settings, train_flags, write_sides

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
DOCTOR = (Path(__file__).parents[2] / "docs" / "data-doctor.md").read_text(encoding="utf-8")
INDENTED = re.compile(r"^    (clearhead .*)$", re.MULTILINE)
SECTION = PAGE.partition("## Catalogues, JSON, Parquet, subtitles\n")[2].partition("\n## ")[0]
COMMANDS = [
    line for block in re.findall(r"^```\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL) for line in block.splitlines()
]

PAIRS = [SentencePair(english, german, "x:1") for german, english in numbers()]
SHORT = {"train": {**QUICK, "max_steps": 1, "validate_sentences": 2}, "decode": {"beam_size": 1, "extra_length": 1}}
FLAGS = train_flags(tiny_settings(Path(), SHORT))
"""Added to each command, so that it learns hardly anything in a second."""
READ = {
    "po": ("gettext catalogue; from msgid (en) to msgstr (de)", 200),
    "mo": ("compiled gettext catalogue; from msgid to msgstr (de)", 200),  # Babel keeps no header that it does not know
    "jsonl": ("JSON lines, under 'translation'; from 'source' to 'target'", 200),
    "parquet": ("Parquet; from 'en' to 'de'", 200),
    "arrow": ("Arrow; from 'en' to 'de'", 400),
    "subtitles": (None, 200),
    "all": ("gettext catalogue; from msgid (en) to msgstr (de)", 400),
}
"""What the files of each command are taken for, and how many pairs are in them, by the name of its run."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write every file that the commands name into a directory, and go there."""
    monkeypatch.chdir(tmp_path)
    for folder in ("locale/de", "held-out/de"):
        Path(folder).mkdir(parents=True)
    for name in ("messages.po", "corpus.parquet", "corpus.arrow", "corpus.feather", "more.tsv", "locale/de/a.po"):
        write_pairs(name, PAIRS, ("en", "de"))
    write_pairs("held-out/de/b.po", PAIRS[:5], ("en", "de"))
    write_pairs("corpus.jsonl", PAIRS, ("source", "target"))
    with open("messages.po", "rb") as source, open("messages.mo", "wb") as target:
        write_mo(target, read_po(source))
    for name, mark, side in (("film.de.srt", "", 1), ("film.en.vtt", "WEBVTT\n\n", 0)):
        times = [f"00:{n // 60:02}:{n % 60:02}.000 --> 00:{n // 60:02}:{n % 60:02}.900" for n in range(len(PAIRS))]
        texts = [(pair.source, pair.target)[side] for pair in PAIRS]
        cues = "".join(f"{time}\n{text}\n\n" for time, text in zip(times, texts, strict=True))
        Path(name).write_text(mark + cues, encoding="utf-8")
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_of_the_page_reads_its_files(command, files):
    assert clearhead(*shlex.split(command)[1:], *FLAGS) == 0
    name = Path(shlex.split(command)[-1])
    report = json.loads((name / "data" / "report.json").read_text(encoding="utf-8"))
    read_as, count = READ[name.name]
    assert report["train"]["read"] == count
    assert read_as in {file["read_as"] for file in report["files"]}


def test_every_command_and_every_format_is_on_the_page():
    assert {Path(shlex.split(command)[-1]).name for command in COMMANDS} == READ.keys()
    assert [extension for extension in (*READERS, *SUBTITLES) if f"`{extension}`" not in PAGE] == []


def test_the_commands_for_translators_files_lead_to_a_judged_model(files, capsys):
    write_pairs("memory.tmx", PAIRS, ("en", "de"))
    write_pairs("project.xlf", PAIRS, ("en", "fr"))
    write_pairs("project.xliff.gz", PAIRS[:5], ("en", "fr"))
    commands = INDENTED.findall(PAGE)
    assert len(commands) == 3
    for command in commands:
        words = shlex.split(command)[1:]
        assert clearhead(*words, *(FLAGS if words[0] == "train" else [])) == 0
    assert re.search(r"^sentences +5$", capsys.readouterr().out, re.MULTILINE)


def test_the_commands_of_the_data_doctor_run(files, capsys):
    for name, count in (("train", len(PAIRS)), ("val", 3)):
        write_sides(files / name, numbers()[:count])
    Path("deu.txt").write_text("".join(f"{pair.source}\t{pair.target}\tCC-BY\n" for pair in PAIRS), encoding="utf-8")
    write_pairs("memory.csv", PAIRS[:7], ("en", "de"))
    write_pairs("messy.tsv", [*PAIRS, *PAIRS[:2]], ("en", "de"))
    commands = INDENTED.findall(DOCTOR)
    assert {shlex.split(command)[2] for command in commands} == {"stats", "check", "clean", "convert"}
    for command in commands:
        assert clearhead(*shlex.split(command)[1:]) == 0
    said = capsys.readouterr().out
    assert "200 rows read" in said  # by stats
    assert "3 pairs" in said  # that stand in the validation text as well
    assert Path("report.html").stat().st_size > 5_000
    assert len(Path("clean.tsv").read_text(encoding="utf-8").splitlines()) == len(PAIRS)
    assert len(Path("pairs.tsv").read_text(encoding="utf-8").splitlines()) == 7 + len(PAIRS)


def test_the_doctor_prints_the_finding_that_its_page_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shown = re.findall(r"^```text\n(moderate: .*?)^```", DOCTOR, re.MULTILINE | re.DOTALL)
    german, english = shown[0].splitlines()[-2:]
    pairs = [("Ein Hund rennt.", "A dog runs."), ("Zwei Hunde.", "Two dogs."), (german.strip(), english.strip())]
    write_sides(tmp_path / "train", [*pairs, ("Eine Katze schläft.", "A cat is sleeping.")])
    assert clearhead("corpus", "check", "--source", "train.de", "--target", "train.en") == 0
    assert f"\n{shown[0]}\n" in capsys.readouterr().out
