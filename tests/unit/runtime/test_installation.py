from __future__ import annotations

import importlib.metadata
import json
from pathlib import Path
from types import SimpleNamespace

import pytest

import clearhead
from clearhead.runtime.installation import pip_install, with_program

CHECKOUT = "file:///home/ada/clearhead"
COMMIT = "7ab5d1e0c3f24c1b9d8e6f0a1b2c3d4e5f607182"


@pytest.mark.parametrize(
    ("direct_url", "command"),
    [
        (None, "pip install 'clearhead[train]'"),
        ({"url": CHECKOUT, "dir_info": {}}, "pip install '.[train]' in the checkout of clearhead"),
        ({"url": CHECKOUT, "dir_info": {"editable": True}}, "pip install -e '.[train]' in the checkout of clearhead"),
        (
            {"url": "https://example.org/clearhead.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}},
            f"pip install 'clearhead[train] @ git+https://example.org/clearhead.git@{COMMIT}'",
        ),
        (
            {"url": "file:///tmp/clearhead-0.1.0-py3-none-any.whl", "archive_info": {}},
            "pip install 'clearhead[train] @ file:///tmp/clearhead-0.1.0-py3-none-any.whl'",
        ),
    ],
    ids=["index", "checkout", "editable", "repository", "wheel"],
)
def test_pip_install_names_the_source_that_clearhead_was_installed_from(direct_url, command, monkeypatch):
    noted = direct_url and json.dumps(direct_url)
    found = SimpleNamespace(read_text={"direct_url.json": noted}.get)
    monkeypatch.setattr(importlib.metadata, "distribution", {"clearhead": found}.__getitem__)
    assert pip_install("train") == command
    options = "--force-reinstall --no-deps"
    expected = command.replace("pip install", f"pip install {options}").replace("[train]", "")
    assert pip_install(options=options).replace("'", "") == expected.replace("'", "")


def test_sources_that_are_not_installed_are_installed_from_their_checkout(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert pip_install("serve") == "pip install '.[serve]' in the checkout of clearhead"


def test_messages_name_extras_only_by_this_function():
    package = Path(clearhead.__file__).parent
    sources = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in package.rglob("*.py")}
    assert [name for name, text in sources.items() if "clearhead[" in text] == ["runtime/installation.py"]


@pytest.mark.parametrize(
    ("called", "path", "typed"),
    [
        ("my env/bin/clearhead", "{here}/my env/bin", "'my env/bin/clearhead'"),
        ("{here}/my env/bin/clearhead", "{here}/my env/bin", "clearhead"),
        ("{here}/clearhead/__main__.py", "", "clearhead"),
    ],
)
def test_advised_commands_begin_with_the_program_as_it_was_called(called, path, typed, tmp_path, monkeypatch):
    program = tmp_path / "my env/bin/clearhead"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    monkeypatch.setattr("sys.argv", [called.format(here=tmp_path)])
    monkeypatch.setenv("PATH", path.format(here=tmp_path))
    said = "clearhead 0.1 reads it; go on with: clearhead train runs/x; `clearhead info` shows it"
    assert with_program(said) == f"clearhead 0.1 reads it; go on with: {typed} train runs/x; `{typed} info` shows it"
