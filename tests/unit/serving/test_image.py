"""The Dockerfile: what it names exists, and its steps make a server without PyTorch (here without Docker)."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import tomllib
import venv
from collections.abc import Iterator
from fnmatch import fnmatch
from importlib import metadata
from itertools import chain
from pathlib import Path

import httpx
import pytest
from packaging.requirements import Requirement

from processes import SECONDS

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PIP = """#!/bin/sh
command=$1; shift
exec {python} -m pip --python {stage}/bin/python $command --no-deps --no-index --no-build-isolation "$@"
"""
"""In place of pip: it finds what clearhead depends on already there."""


def instructions() -> Iterator[tuple[str, str]]:
    """Return the instructions of the Dockerfile with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    for line in text.replace("\\\n", "").splitlines():
        if line:
            word, _, arguments = line.partition(" ")
            yield word, arguments.strip()


def is_sent(name: str) -> bool:
    """Return whether Docker is sent a file or folder of the top level, by .dockerignore: the last line that fits."""
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    fitting = [line for line in lines if not line.startswith("#") and fnmatch(name, line.removeprefix("!"))]
    return bool(fitting) and fitting[-1].startswith("!")


def needed(*required: str) -> set[str]:
    """Return the names of all distributions that some require, by the metadata of those installed here."""
    found, waiting = set(), [*map(Requirement, required)]
    while waiting:
        requirement = waiting.pop()
        extras = requirement.extras or {""}
        if (requirement.name, *extras) not in found:
            found.add((requirement.name, *extras))
            brought = map(Requirement, metadata.requires(requirement.name) or [])
            waiting += [
                one for one in brought if not one.marker or any(one.marker.evaluate({"extra": name}) for name in extras)
            ]
    return {name for name, *_ in found}


def requirements(extras: str) -> list[str]:
    """Return what clearhead requires with extras, such as `serve,train`."""
    return [*PROJECT["dependencies"], *chain(*map(PROJECT["optional-dependencies"].get, extras.split(",")))]


def make_stage(place: Path, *required: str) -> None:
    """Make a virtual environment in which nothing can be imported but what is required."""
    venv.create(place, with_pip=False)
    [packages] = place.glob("lib/python*/site-packages")
    for name in needed(*required):
        distribution = metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or []} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(distribution.locate_file(top))
    (place / "bin/pip").write_text(PIP.format(python=sys.executable, stage=place))
    for name in ("apt-get", "useradd"):
        (place / "bin" / name).write_text("#!/bin/sh\n")
    for name in ("pip", "apt-get", "useradd"):
        (place / "bin" / name).chmod(0o755)


def copy_context(place: Path) -> None:
    """Copy what Docker is sent."""
    for path in filter(lambda path: is_sent(path.name), ROOT.iterdir()):
        if path.is_dir():
            shutil.copytree(path, place / path.name, ignore=shutil.ignore_patterns("__pycache__", "_core.*", "*.wasm"))
        else:
            place.mkdir(exist_ok=True)
            shutil.copy(path, place)


def run_steps(place: Path, **given: str) -> tuple[Path, dict[str, list[str]]]:
    """Run the steps of the Dockerfile in a folder; return the last stage, and the commands of its instructions."""
    commands, stage, extras = {}, place, ""
    for word, arguments in instructions():
        match word:
            case "ARG":
                name, _, default = arguments.partition("=")
                given.setdefault(name, default.strip('"'))
                extras = given["EXTRAS"]
            case "FROM":
                stage = place / (arguments.partition(" AS ")[2] or "last")
                make_stage(stage, *requirements(extras), *(["setuptools"] if stage.name == "build" else []))
            case "COPY":
                assert arguments == ". /source"
                copy_context(place / "source")
            case "RUN":
                step = re.sub(r"--mount=\S+", "", arguments)
                step = re.sub(r"/(source|wheels)\b", rf"{place}/\1", step)
                environment = {**os.environ, **given, "PATH": f"{stage}/bin{os.pathsep}{os.environ['PATH']}"}
                done = subprocess.run(["sh", "-c", step], env=environment, capture_output=True, text=True, check=False)
                assert done.returncode == 0, done.stdout + done.stderr
            case "CMD" | "ENTRYPOINT":
                commands[word] = json.loads(arguments)
            case "HEALTHCHECK":
                commands[word] = json.loads(arguments.partition("CMD ")[2])
            case "USER":
                assert int(arguments) > 0
            case _:
                assert word in ("EXPOSE", "STOPSIGNAL", "WORKDIR")
    return stage, commands


def test_the_image_is_sent_every_file_of_the_package_build():
    assert dict(instructions())["COPY"] == ". /source"
    named = {"constraints.txt", PROJECT["readme"], *PROJECT["license-files"], "MANIFEST.in", "pyproject.toml"}
    read = re.findall(r"""Path\("([\w.]+)["/]""", (ROOT / "setup.py").read_text(encoding="utf-8"))
    named |= {"setup.py", *(name for name in read if (ROOT / name).exists())}
    assert {"examples", "src"} <= named
    assert [name for name in sorted(named) if not is_sent(name)] == []


def test_the_image_needs_no_pytorch():
    [extras] = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG" and rest.startswith("EXTRAS=")]
    assert "uvicorn" in needed(*requirements(extras))
    assert "torch" not in needed(*requirements(extras))


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_server_without_pytorch(make_model_dir, tmp_path):
    stage, commands = run_steps(tmp_path, VERSION="0.1.0")
    python = [str(stage / "bin/python"), "-c"]
    assert subprocess.run([*python, "import torch"], capture_output=True, check=False).returncode == 1
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    program, *arguments = commands["ENTRYPOINT"]
    program = str(stage / "bin" / program)
    assert subprocess.check_output([program, "--version"], text=True) == "clearhead 0.1.0\n"
    model = make_model_dir(d_model=64, num_heads=2, d_ff=64, printable=True).rename(tmp_path / "de-en")
    assert commands["CMD"] == [f"/models/{model.name}"]
    command = [program, *arguments, str(model), "--port", str(port)]
    check = [*python, commands["HEALTHCHECK"][-1].replace(":5000", f":{port}")]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log, cwd=tmp_path) as server:
        try:
            end = time.monotonic() + SECONDS
            while subprocess.run(check, capture_output=True, check=False).returncode:
                assert server.poll() is None, (tmp_path / "log").read_text()
                assert time.monotonic() < end, (tmp_path / "log").read_text()
            answer = httpx.post(f"http://127.0.0.1:{port}/v1/translate", json={"text": "a b", "model": model.name})
            assert answer.status_code == 200, answer.text
        finally:
            server.terminate()
    assert server.returncode == 0
