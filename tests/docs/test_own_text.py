"""docs/own-text.md's way from a file to a judged model, and docs/more-data.md: their commands, on small files."""

from __future__ import annotations

import csv
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import docx
import pytest
import torch

from clearhead.data.prepare import open_prepared
from clearhead.formats import SentencePair, write_pairs
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator
from commands import clearhead
from every_run import slow
from small_runs import QUICK, numbers, tiny_settings, train_flags, write_sides

ROOT = Path(__file__).parents[2]
OWN_TEXT = (ROOT / "docs" / "own-text.md").read_text(encoding="utf-8")
MORE_DATA = (ROOT / "docs" / "more-data.md").read_text(encoding="utf-8")
SECTION = OWN_TEXT.partition("## From pairs to a model\n")[2].partition("\n## ")[0]
BLOCKS = [block for block in re.findall(r"^```\n(.*?)^```", SECTION, re.MULTILINE | re.DOTALL) if " train " in block]
MORE_DATA_BLOCKS = re.findall(r"^```\n(.*?)^```", MORE_DATA, re.MULTILINE | re.DOTALL)

NUMBERS = [(german.replace(" ", ", ", 1), english.replace(" ", ", ", 1)) for german, english in numbers()]
"""German and English: a comma in each, so that a `.csv` needs its quotation marks."""
FLAGS = train_flags(tiny_settings(Path(), {"train": QUICK, "tokenizer": {"vocab_size": 280}}))
TEST_PAIRS = {"deu.txt": 4, "corpus.csv": 5, "train.de": 5}
"""What each block trains on, and how many pairs its test set has."""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write every file that the commands name into a directory, and go there."""
    monkeypatch.chdir(tmp_path)
    credit = "CC-BY 2.0 (France) Attribution: tatoeba.org #1 (CK) & #2 (me)"
    (tmp_path / "deu.txt").write_text("".join(f"{en}\t{de}\t{credit}\n" for de, en in NUMBERS), encoding="utf-8")
    for name, pairs in (("corpus.csv", NUMBERS), ("test.csv", NUMBERS[:5])):
        with (tmp_path / name).open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([("id", "german", "english"), *((n, *pair) for n, pair in enumerate(pairs))])
    for name, pairs in (("train", NUMBERS[20:]), ("val", NUMBERS[5:20]), ("test", NUMBERS[:5])):
        write_sides(tmp_path / name, pairs)
    (tmp_path / "input.txt").write_text("eins, drei fünf\n\none, three five\n", encoding="utf-8")
    return tmp_path


def execute(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a line of a page: `clearhead` in this process, anything else in a shell."""
    words = shlex.split(command)
    if words[0] != "clearhead":
        subprocess.run(command, shell=True, check=True)
        return
    with ExitStack() as opened, monkeypatch.context() as patch:
        for sign, name, mode in (("<", "stdin", "r"), (">", "stdout", "w")):
            if sign in words:
                place = words.index(sign)
                stream = opened.enter_context(open(words[place + 1], mode, encoding="utf-8"))
                patch.setattr(sys, name, stream)
                del words[place : place + 2]
        assert clearhead(*words[1:], *(_quick(words) if words[1] == "train" else [])) == 0


def _quick(words: list[str]) -> list[str]:
    """Return the settings of a quick run, except the ones that a command sets itself."""
    own = {word.partition("=")[0] for word in words}
    return [word for word in FLAGS if word.partition("=")[0] not in own or "=" not in word]


def as_if_learned(translate: Callable[..., list[Translation]]) -> Callable[..., list[Translation]]:
    """Return a `Translator.translate` that ends its sentences, as one learned for long; here it mirrors them."""

    def translated(self: Translator, lines: Sequence[str], **settings: Any) -> list[Translation]:
        found = translate(self, lines, **settings)
        mirrored = (" ".join(reversed(line.split())) for line in lines)
        return [replace(one, text=text, output_truncated=False) for one, text in zip(found, mirrored, strict=True)]

    return translated


def test_the_section_has_a_block_for_each_kind_of_file():
    assert [block.count("clearhead ") for block in BLOCKS] == [3, 3, 3]
    assert [name for block in BLOCKS for name in TEST_PAIRS if name in block] == list(TEST_PAIRS)


@pytest.mark.skipif(os.name != "posix", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize(("block", "corpus"), list(zip(BLOCKS, TEST_PAIRS, strict=True)), ids=TEST_PAIRS)
def test_the_commands_lead_from_the_file_to_a_judged_model(block, corpus, files, monkeypatch, capsys):
    torch.set_num_threads(1)
    for command in block.splitlines():
        execute(command, monkeypatch)
    [model] = (files / "runs").iterdir()
    data = open_prepared(model / "data")
    learned = {(data.train.source(row), data.train.target(row)) for row in range(len(data.train))}
    side = 1 if model.name == "de-en" else -1
    assert learned <= {pair[::side] for pair in NUMBERS}
    test = NUMBERS[49::50] if corpus == "deu.txt" else NUMBERS[:5]
    assert learned.isdisjoint({pair[::side] for pair in test})
    assert len((files / "output.txt").read_text(encoding="utf-8").splitlines()) == 3
    table = capsys.readouterr().out
    assert re.search(r"^BLEU +\d+\.\d\d  \d+\.\d\d to \d+\.\d\d +nrefs:1", table, re.MULTILINE)
    assert re.search(rf"^sentences +{TEST_PAIRS[corpus]}$", table, re.MULTILINE)


def test_translators_files_lead_to_a_translated_document(files, monkeypatch):
    torch.set_num_threads(1)
    pairs = [SentencePair(en, de, f"x:{number}") for number, (de, en) in enumerate(NUMBERS, start=1)]
    (files / "catalogues").mkdir()
    write_pairs("memory.tmx", pairs[20:], ("en", "de"))
    write_pairs("catalogues/app.po", pairs[:20], ("en", "de"))
    letter = docx.Document()
    letter.add_paragraph("one, two three")
    letter.save("letter.docx")
    (files / "terms.tsv").write_text("one\teins\n", encoding="utf-8")
    section = OWN_TEXT.partition("## Translation memories, catalogues, documents\n")[2].partition("\n## ")[0]
    [block] = re.findall(r"^```\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    for command in block.splitlines():
        execute(command, monkeypatch)
    assert open_prepared(files / "runs" / "en-de" / "data").report["train"]["read"] == len(NUMBERS)
    assert (files / "test.tsv").read_text(encoding="utf-8").count("\n") == (len(NUMBERS) - 20) // 50
    assert [bool(paragraph.text) for paragraph in docx.Document("letter.de.docx").paragraphs] == [True]
    assert "Translation report" in (files / "check.html").read_text(encoding="utf-8")


@pytest.mark.skipif(os.name != "posix", reason="the commands are those of a POSIX shell")
@pytest.mark.parametrize("block", [slow(block) if at == 0 else block for at, block in enumerate(MORE_DATA_BLOCKS)])
def test_models_learn_from_what_models_wrote(block, files, monkeypatch):
    torch.set_num_threads(1)
    (files / "mono.en").write_text("".join(f"{en}\n" for _, en in NUMBERS), encoding="utf-8")
    for name, pairs in (("more", NUMBERS[20:]), ("mine", NUMBERS[60::2]), ("my-val", NUMBERS[1:9])):
        write_sides(files / name, pairs)
    for command in block.splitlines():
        with monkeypatch.context() as patch:
            if "-o back.tsv" in command or "-o taught.tsv" in command:
                patch.setattr(Translator, "translate", as_if_learned(Translator.translate))
            execute(command, monkeypatch)
    for name in ("back.tsv", "taught.tsv"):
        if name in block:
            assert (files / name).read_text(encoding="utf-8").count("\n") > 100  # most are not what they mirror
    for run_directory in (files / "runs").iterdir():
        assert (run_directory / "model" / "config.json").is_file()
