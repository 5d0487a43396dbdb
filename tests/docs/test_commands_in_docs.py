"""Every command in a block of the pages is one that the program takes, and most of them run, on small files.

Of a command that is only parsed, its words are known to be right: the options exist, and values have their types. What
other tests run is in `RUN_ELSEWHERE`, what nothing runs in `ONLY_PARSED`, with the reason.
"""

from __future__ import annotations

import gzip
import re
import shlex
import shutil
import sys
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import docx
import pytest
import typer
from markdown_it import MarkdownIt
from typer.exceptions import TyperException

from clearhead.cli.main import make_app, spread_values
from clearhead.config import Config
from clearhead.config.nested import merge, parse_override
from clearhead.errors import ConfigError
from clearhead.formats import SentencePair, write_pairs, write_tsv
from clearhead.paper.exercises.catalogue import workbook
from clearhead.translation.memory_file import write_memory
from commands import clearhead
from every_run import one_in
from small_runs import numbers

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md"]
MODEL = ROOT / "tests" / "compat" / "0.1.0" / "run"
PROGRAMS = ("awk", "cat", "clearhead", "curl", "docker", "echo", "make", "pip", "python", "srun", "torchrun")
COMMAND = re.compile(rf"^(\[?[A-Z_]+=\S+ )*(\.venv/bin/\w+|{'|'.join(PROGRAMS)})(?= )")

RUN_ELSEWHERE = {
    "concepts.md": "test_concepts_page.py",
    "data-doctor.md": "test_formats_page.py; the last block prepares a measurement",
    "explain.md": "test_explain_page.py",
    "formats.md": "test_formats_page.py",
    "more-data.md": "test_own_text.py",
    "own-text.md": "test_own_text.py",
}
"""Pages whose commands another test of this folder runs."""
ONLY_PARSED = {
    r"train ": "takes minutes; test_own_text.py and test_formats_page.py train for a second",
    r"demo": "takes minutes; tests/unit/cli/test_demo.py",
    r"review ": "runs until it is stopped; tests/unit/serving",
    r"serve ": "runs until it is stopped; tests/unit/serving",
    r"translate .* --ray ": "starts Ray for ten seconds; tests/unit/cli/test_bulk_work.py",
    r"import ": "reads models of other libraries; tests/reference imports each kind",
    r"export .* --to (hf|transformers|ctranslate2|onnx)": "takes seconds each; tests/reference",
    r"export .* --to web": "the model of these tests is too narrow for 8 bits; tests/unit/browser",
    r"(backtranslate|distill) ": "run in test_own_text.py",
    r"corpus prepare ": "needs settings with files; tests/unit/cli/test_corpus_prepare.py",
    r"plan ": "counts the memory of large steps; tests/unit/cli/test_plan_command.py",
    r"paper errata": "takes 20 seconds; tests/unit/paper",
    r"paper concepts ": "run in test_concepts_page.py",
    r"runs $": "lists the runs of the folder `runs`; tests/unit/cli/test_runs_command.py",
    r"paper figure1 runs/demo": "names the model of a demo; tests/unit/cli/test_paper_command.py",
    r"explain runs/demo .* --compare runs/post": "names two models of a demo; test_explain_page.py compares",
    r"translate .* --workers": "starts two processes, which takes seconds; tests/unit/translation/test_worker_pool.py",
    r"translate .* --shortlist": "needs what the command before it learns; tests/unit/cli/test_optimize.py",
    r"average .* --last 5": "needs a run with five checkpoints; tests/unit/cli/test_average.py",
    r"explain .* --picture cross.2.1": "needs a second layer; test_explain_page.py",
    r"evaluate .* --gold-alignments": "needs the corpus of the measurement",
    r"evaluate .* --sets": "needs a directory of test sets; tests/unit/cli/test_test_sets.py",
}
"""Patterns of commands of clearhead that are not run, and why."""
OTHER_PROGRAMS = {
    "awk": "run in test_own_text.py",
    "cat": "shows a file",
    "curl": "tests/unit/serving/test_documented_clients.py",
    "docker": "needs docker and a network; test_project_files.py",
    "grep": "shows a line of a file",
    "make": "takes minutes; its targets exist",
    "pip": "needs a network; the extras exist",
    "pytest": "test_project_files.py",
    "python": "takes minutes; each program of bench/ and examples/ has a test here, which runs it on little",
    "srun": "needs a cluster",
    "torchrun": "needs several machines; tests/unit/training",
}
"""Other programs that the pages run, and why they are not run here."""
FOR_WORDS = {
    "A": "0.6",
    "CHANGES": "",
    "DECAY": "0.1",
    "DROPOUT": "0.1",
    "N": "2",
    "STEPS": "7",
    "..": "",
    "OPTIONS": "",
}
"""What stands for a value that a page leaves open."""
OUTPUTS = ("-o", "--out", "--output", "--rejected", "--report", "--alignments", "--keys", ">")
"""Options whose value is a file that the command writes."""


def commands(text: str) -> Iterator[str]:
    """Yield the commands in the blocks of a page: lines after `$ `, or else lines that begin with a program."""
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("fence", "code_block") and token.info.strip() in ("", "sh", "text"):
            lines = token.content.replace("\\\n", " ").splitlines()
            prompts = [line[2:] for line in lines if line.startswith("$ ")]
            yield from prompts or (line for line in lines if COMMAND.match(line))


def steps(command: str) -> list[list[str]]:
    """Return the words of each program of a command, whose parts are joined by `|`.

    >>> steps("[CLEARHEAD_ISA=plain] echo 'a b' | clearhead translate M [--beam N] > out  # so")
    [['echo', 'a b'], ['clearhead', 'translate', 'M', '--beam', '2', '>', 'out']]
    """
    lexer = shlex.shlex(re.sub(r"\[((?:--|[A-Z_]+=)[^\]]*)\]", r"\1", command), posix=True, punctuation_chars="|<>")
    lexer.whitespace_split = True
    parts: list[list[str]] = [[]]
    for word in lexer:
        if word == "|":
            parts.append([])
        elif word and (parts[-1] or not re.fullmatch(r"[A-Z_]+=.*", word)):
            key, sign, value = word.rpartition("=")
            parts[-1] += [kept for kept in [key + sign + FOR_WORDS.get(value, value)] if kept]
    return parts


@cache
def parser() -> Any:
    """Return the command line of clearhead, whose commands do nothing."""

    def without_effect(command: Any) -> Any:
        for inner in getattr(command, "commands", {}).values():
            without_effect(inner)
        command.callback = lambda **_: None
        return command

    return without_effect(typer.main.get_command(make_app()))


def complaints(words: list[str]) -> Iterator[str]:
    """Yield what is wrong with the words of a program."""
    match words:
        case [("torchrun" | "srun"), *_] if "clearhead" in words:
            yield from complaints(words[words.index("clearhead") :])
        case ["clearhead", *given]:
            given = [word for at, word in enumerate(given) if not {"<", ">"} & {word, *given[max(at - 1, 0) : at]}]
            try:
                if status := parser().main(spread_values(given), prog_name="clearhead", standalone_mode=False):
                    yield f"it ends with status {status}"
                settings = [value for option, value in pairwise(spread_values(given)) if option == "--set"]
                if given[0] == "train":
                    Config.from_dict(merge({"train": {"max_steps": 7}}, *map(parse_override, settings)))
            except (ConfigError, TyperException) as error:
                yield str(error)
        case ["make", target, *_]:
            if not re.search(rf"^{target}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE):
                yield f"make has no target {target}"
        case ["pip", "install", *packages]:
            known = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
            yield from (
                f"no extra {extra}"
                for extras in re.findall(r"(?:clearhead|\.)\[([\w,]+)\]", str(packages))
                for extra in extras.split(",")
                if extra not in known
            )
        case [("python" | ".venv/bin/python"), script, *given]:
            if not (ROOT / script).is_file():
                yield f"no file {script}"
            told = "".join(path.read_text("utf-8") for path in (ROOT / script).parent.glob("*.py"))
            options = {word.partition("=")[0] for word in given if word.startswith("--")} - {"--help"}
            yield from (f"{script} knows no {option}" for option in sorted(options) if f'"{option}"' not in told)
        case ["curl", *given]:
            [path] = re.findall(r"http://localhost:5000(/\w+(?:/\w+)*)", " ".join(given))
            if not any(
                f'"{path}"' in file.read_text("utf-8") for file in (ROOT / "src/clearhead/serving").glob("*.py")
            ):
                yield f"the server knows no {path}"


PARSED = [(page.name, command) for page in PAGES for command in commands(page.read_text("utf-8"))]
RUN = [
    (page, command)
    for page, command in PARSED
    if page not in RUN_ELSEWHERE
    and "clearhead" in (programs := [words[0] for words in steps(command)])
    and {"clearhead", "echo"}.issuperset(programs)
    and not any(re.search(rf"clearhead {pattern}", command + " ") for pattern in ONLY_PARSED)
]


def test_the_words_of_every_command_are_right():
    assert len(PARSED) > 250
    found = {command: list(complaints(words)) for _, command in PARSED for words in steps(command)}
    assert {command: wrong for command, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("clearhead translate M in.txt --beams 4", "No such option: --beams"),
        ("clearhead translate M in.txt --beam four", "should be a valid integer"),
        ("clearhead corpus polish a.tsv", "No such command 'polish'"),
        ("echo a | clearhead verify M more", "it ends with status 2"),
        ("clearhead train --set train.max_stepz=1", "train.max_stepz"),
        ("make everything", "make has no target everything"),
        ("pip install 'clearhead[everything]'", "no extra everything"),
        ("pip install '.[train,everything]'", "no extra everything"),
        ("python bench/train.py --kases toy", "bench/train.py knows no --kases"),
        ("python bench/nothing.py", "no file bench/nothing.py"),
        ("curl http://localhost:5000/translated -d q=a", "the server knows no /translated"),
        ("torchrun -m clearhead train --outs x", "No such option: --outs"),
    ],
)
def test_a_wrong_command_is_found(command, complaint):
    assert complaint in str([wrong for words in steps(command) for wrong in complaints(words)])


def test_commands_not_run_here_are_listed_with_a_reason():
    for page in RUN_ELSEWHERE:
        assert any(name == page and "clearhead" in command for name, command in PARSED)
        assert (ROOT / "tests" / "docs" / RUN_ELSEWHERE[page].partition(";")[0]).is_file()
    for pattern in ONLY_PARSED:
        assert any(re.search(rf"clearhead {pattern}", command + " ") for _, command in PARSED)
    assert len(RUN) > 60
    programs = {Path(words[0]).name for _, command in PARSED for words in steps(command)}
    assert programs - {"clearhead", "echo"} == OTHER_PROGRAMS.keys()


def write(name: str) -> None:
    """Write a small file of the kind that a name has, or a model."""
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    pairs = [SentencePair(english, german, "x:1") for german, english in numbers(16)]
    side = "source" if ".en" in name else "target"
    lines = "".join(f"{getattr(pair, side)}\n" for pair in pairs)
    cue = "00:00:01.000 --> 00:00:02.000\nnull drei\n"
    match path.suffixes:
        case []:
            shutil.copytree(MODEL, path)
        case [*_, ".gz"]:
            path.write_bytes(gzip.compress(lines.encode()))
        case [".docx"]:
            document = docx.Document()
            document.add_paragraph("null drei")
            document.save(name)
        case [*_, (".tmx" | ".po" | ".xlf")]:
            write_pairs(name, pairs, ("de", "en"))
        case [".sqlite"]:
            write_memory(name, ((pair.target, pair.source, None) for pair in pairs), ("de", "en"))
        case [".tsv"]:
            write_tsv(name, [SentencePair(pair.target, pair.source, "x:1") for pair in pairs])
        case [*_, suffix]:
            texts = {
                ".csv": "id,name\n1,null drei\n",
                ".html": "<p>null <b>drei</b></p>",
                ".json": '{"label": "null drei", "message": "eins", "help": {"text": "zwei"}, "id": 7}',
                ".md": "# null\n\ndrei\n",
                ".py": workbook(),
                ".srt": f"1\n{cue}",
                ".vtt": f"WEBVTT\n\n{cue}",
            }
            path.write_text(texts.get(suffix, lines), encoding="utf-8")


@pytest.mark.parametrize("one", one_in(2, RUN), ids=[f"{page}-{command[10:50]}" for page, command in RUN])
@pytest.mark.usefixtures("fonts")
def test_the_command_runs(one, tmp_path, monkeypatch):
    _, command = one
    monkeypatch.chdir(tmp_path)
    *before, words = steps(command)
    outputs = OUTPUTS if words[1] == "api-key" else {*OUTPUTS} - {"--keys"}
    written = [word for option, word in pairwise(words) if option in outputs and word != "-"]
    for word in words[2:]:
        is_input = re.fullmatch(r"MODEL|(runs|models)/[\w-]+|[\w./-]+\.(?!\d)\w+", word)
        if is_input and word not in written and not Path(word).exists():
            write(word)
    if {"--list", "--revoke"} & {*words}:  # of a key that there is
        clearhead("api-key", "anna", "--keys", "keys.jsonl")
    with ExitStack() as opened:
        if before:
            write("stdin.txt")
        streams = {sign: words[words.index(sign) + 1] for sign in "<>" if sign in words}
        for sign, stream, mode in (("<", "stdin", "r"), (">", "stdout", "w")):
            name = streams.get(sign, "stdin.txt" if sign == "<" and before else None)
            if name:
                monkeypatch.setattr(sys, stream, opened.enter_context(open(name, mode, encoding="utf-8")))
        given = [word for word in words[1:] if word not in "<>" and word not in streams.values()]
        assert clearhead(*given) == 0
    assert [name for name in written if not Path(name).exists()] == []
