"""The clients of docs/serving.md do what the page says."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from clearhead.serving.schemas import TranslateRequest

PAGE = (Path(__file__).parents[3] / "docs" / "serving.md").read_text(encoding="utf-8")
URL = "http://localhost:5000"
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SHELL = [block for kind, block in BLOCKS if not kind and URL in block]
PYTHON = [block for kind, block in BLOCKS if kind == "python" and URL in block]


def objects(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Return the JSON objects that fill a line, or the data of an event, each with the event's name or ""."""
    text = re.sub(r": \.\.(?=[,}])", ": null", text).replace(", ..}", "}")  # what the page leaves out
    found = re.findall(r"^(?:event: (\w+)\ndata: )?(\{.*\})$", text, re.MULTILINE)
    return [(event, json.loads(one)) for event, one in found]


def test_the_fields_within_the_text_are_those_of_a_request():
    fields = re.findall(r"`(\"\w+\": .*?)`", PAGE.partition("### clearhead's API")[2].partition("\n## ")[0])
    assert len(fields) >= 9
    for field in fields:
        TranslateRequest.model_validate({"text": "x", **json.loads(f"{{{field}}}")})


@pytest.mark.parametrize("block", PYTHON)
def test_python_gets_what_the_command_gives(server, models, command, capsys, block):
    text = "Ein Hund rennt. Zwei Hunde sitzen." if "stream" in block else "Ein Hund rennt."
    code = block.replace(URL, server.url).rstrip().split("\n")
    if "stream" not in block:  # an expression, which is printed where it is typed
        code[-1] = f"print({code[-1]})"
    exec("\n".join(code), {})
    assert capsys.readouterr().out.rstrip("\n") == command(models["de-en"], lines=[text])[0]


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl")
def test_the_shell_gets_what_the_command_gives(server, models, command, tmp_path):
    (tmp_path / "letter.txt").write_text("Zwei Männer sitzen & Hunde.", encoding="utf-8")
    (tmp_path / "page.html").write_text("<p>Ein Hund rennt.</p>", encoding="utf-8")
    printed = []
    for block in SHELL:
        for line in block.replace("\\\n", " ").splitlines():
            if line.startswith("curl"):
                asked = line.replace(URL, server.url).replace("curl", "curl --silent", 1)
                done = subprocess.run(["sh", "-ec", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
                printed.append(done.stdout)
    first, letter = command(models["de-en"], lines=["Ein Hund rennt.", "Zwei Männer sitzen & Hunde."])
    assert json.loads(printed[0])["translatedText"] == first
    assert letter in [json.loads(one).get("translatedText") for one in printed if one.startswith("{")]
    assert any("/download_file/" in one for one in printed)
    assert [one for one in printed if '"alternatives": [{"text"' in one or '"alternatives":[{"text"' in one]
    assert [one for one in printed if one.startswith("event: translation\n") and "\nevent: done\n" in one]
    answers = [found for one in printed for found in objects(one)]
    examples = [found for kind, block in BLOCKS if kind != "python" for found in objects(block)]
    assert {event for event, _ in examples} == {"", "translation", "done"}
    for event, example in examples:
        assert any(event == name and example.keys() <= answer.keys() for name, answer in answers), example
