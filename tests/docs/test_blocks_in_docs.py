"""Every block of the written pages is run, and what it shows compared, or says in the page why not.

The mark stands before the block: `<!-- not run: the reason -->`, or `<!-- tested: tests/../test_x.py -->` where another
test runs it. Blocks of commands alone are those of test_commands_in_docs.py. Outputs are compared exactly, but for
numbers below 1e-9, which are rounding: the model is a stored one, or there is none. `...` stands for anything.
"""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import test_commands_in_docs as in_commands
import torch
from markdown_it import MarkdownIt

import clearhead
import commands

ROOT = Path(__file__).parents[2]
GENERATED = {"api.md", "commands.md", "concepts.md", "errata.md", "exercises.md", "models.md", "settings.md"}
"""Pages that docs/generate.py makes of the code, whose examples the tests of that code run."""
PAGES = [page for page in in_commands.PAGES if page.name not in {*GENERATED, "CHANGELOG.md"}]
MARK = re.compile(r"<!-- (not run|tested): (.+?) -->\s*")
COMMENT = re.compile(r"\s*(#.*)?")


class Block(NamedTuple):
    """A block of a page."""

    page: str
    line: int
    info: str
    text: str
    mark: tuple[str, str] | None

    @property
    def is_session(self) -> bool:
        return self.text.startswith(">>> ")

    @property
    def has_prompts(self) -> bool:
        return self.text.startswith("$ ")

    @property
    def is_commands(self) -> bool:
        lines = self.text.replace("\\\n", " ").splitlines()
        return self.info in ("", "sh", "text") and all(
            COMMENT.fullmatch(line) or in_commands.COMMAND.match(line) for line in lines
        )


def blocks(page: str, text: str) -> Iterator[Block]:
    mark = None
    for token in MarkdownIt("commonmark").parse(text):
        if token.type in ("fence", "code_block"):
            yield Block(page, token.map[0] + 1, token.info.strip(), token.content, mark)
        found = MARK.fullmatch(token.content) if token.type == "html_block" else None
        mark = (found[1], found[2]) if found else None


BLOCKS = [block for page in PAGES for block in blocks(page.name, page.read_text(encoding="utf-8"))]
SESSIONS = [block for block in BLOCKS if block.is_session]
PROMPTS = [block for block in BLOCKS if block.has_prompts and block.mark is None]
PYTHON = [block for block in BLOCKS if block.info == "python" and not block.is_session and block.mark is None]


def name(block: Block) -> str:
    return f"{block.page}:{block.line}"


def unexplained(block: Block) -> Iterator[str]:
    """Yield what is wrong with how a block is tested."""
    is_run = block.is_session or block.has_prompts or block.is_commands or block.info == "python"
    if block.mark is None and not is_run:
        yield "neither run nor marked"
    if block.mark is not None and block.is_session:
        yield "run, yet marked"
    if block.mark is not None and block.mark[0] == "tested":
        test = ROOT / block.mark[1]
        if not test.is_file() or f'"{block.page}"' not in test.read_text(encoding="utf-8"):
            yield f"{block.mark[1]} does not read {block.page}"


def test_every_block_is_run_or_says_why_not():
    assert {name(block): wrong for block in BLOCKS if (wrong := [*unexplained(block)])} == {}
    assert len(SESSIONS) > 5
    assert len(PROMPTS) > 3
    assert len(PYTHON) > 3


@pytest.mark.parametrize(
    ("page", "complaint"),
    [
        ("```json\n{}\n```", "neither run nor marked"),
        ("```\nclearhead info\nnothing\n```", "neither run nor marked"),
        ("<!-- not run: so -->\n\n```python\n>>> 1\n1\n```", "run, yet marked"),
        ("<!-- tested: tests/docs/test_site.py -->\n\n```json\n{}\n```", "does not read page.md"),
        ("<!-- tested: tests/docs/test_sites.py -->\n\n```json\n{}\n```", "does not read page.md"),
        ("<!-- not run: so -->\n\nA paragraph.\n\n```json\n{}\n```", "neither run nor marked"),
    ],
)
def test_a_block_that_is_not_tested_is_found(page, complaint):
    [block] = blocks("page.md", page)
    [wrong] = unexplained(block)
    assert complaint in wrong


@pytest.mark.parametrize("block", SESSIONS, ids=name)
def test_a_session_prints_what_the_page_shows(block):
    session = doctest.DocTestParser().get_doctest(block.text, {}, block.page, None, block.line)
    assert doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(session).failed == 0


@pytest.mark.parametrize("block", PROMPTS, ids=name)
def test_a_command_prints_what_the_page_shows(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for shown in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = shown.partition("\n")
        [[program, *given]] = in_commands.steps(command)
        assert program == "clearhead"
        for word in given:
            if re.fullmatch(r"(runs|models)/[\w-]+", word) and not Path(word).exists():
                in_commands.write(word)
        assert commands.clearhead(*given) == 0
        printed = capsys.readouterr().out
        texts = [re.sub(r"\b\de-1\d\b", "0", text.strip()) for text in (expected, printed)]
        assert doctest.OutputChecker().check_output(*texts, doctest.ELLIPSIS), printed


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("block", PYTHON, ids=name)
def test_a_program_runs(block, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for found in re.findall(r'"((?:runs/)?[\w.-]+)"', block.text):
        if found.startswith("runs/") or Path(found).suffix in (".po", ".sqlite", ".tmx", ".tsv"):
            in_commands.write(found)
    Path("config.toml").write_text("[train]\nmax_steps = 7\n", encoding="utf-8")
    monkeypatch.setattr(clearhead, "train", lambda config: None)  # what it does is tested where it is
    q, k, v = torch.randn(3, 1, 2, 5, 7)
    translator = clearhead.Translator.load(in_commands.MODEL)
    given = {"ch": clearhead, "k": k, "lines": ["null drei"], "q": q, "translator": translator, "v": v}
    exec(compile(block.text, name(block), "exec"), given)
