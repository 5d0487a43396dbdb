"""The files for contributors are well-formed, agree with each other, and name what is there."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import yaml

from clearhead.runtime.version import NUMBER

ROOT = Path(__file__).parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
MARKS = {line.partition(":")[0] for line in PYPROJECT["tool"]["pytest"]["ini_options"]["markers"]}
OF_A_MODEL = {"config.json", "config.toml", "golden.jsonl", "model.safetensors"}
"""Files of models and runs, which the pages speak of and the repository does not have."""


def read(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_the_workflow_runs_the_tests_on_every_python_that_is_promised():
    job = read(".github/workflows/test.yml")["jobs"]["test"]
    matrix = job["strategy"]["matrix"]
    classifiers = [re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line) for line in PROJECT["classifiers"]]
    assert matrix["python"] == [match[1] for match in classifiers if match]
    assert PROJECT["requires-python"] == f">={matrix['python'][0]}"
    assert job["runs-on"] == "${{ matrix.os }}"
    assert [re.sub(r"-[\d.]+", "", system) for system in matrix["os"]] == ["ubuntu", "ubuntu-arm", "macos"]
    assert "make test" in [step.get("run") for step in job["steps"]]


def test_each_action_of_the_workflows_is_pinned_by_one_commit():
    workflows = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob(".github/workflows/*.yml"))
    used = re.findall(r"\buses: (?!\./)(\S+?)@(.*)", workflows)
    assert [pin for _, pin in used if not re.fullmatch(r"[0-9a-f]{40} # v\d+\.\d+\.\d+", pin)] == []
    assert len(dict(used)) == len(set(used)) > 5


def test_the_wheels_are_installed_on_each_system_and_processor():
    install = read(".github/workflows/wheels.yml")["jobs"]["install"]
    assert [re.sub(r"-[\d.]+", "", system["os"]) for system in install["strategy"]["matrix"]["include"]] == [
        *("ubuntu", "ubuntu-arm", "macos", "macos-intel", "windows", "windows-arm")
    ]
    assert {"clearhead info", "clearhead verify model"} <= {step.get("run") for step in install["steps"]}


def test_a_release_is_built_installed_and_attested_before_it_is_published():
    jobs = read(".github/workflows/release.yml")["jobs"]
    assert (jobs["attest"]["needs"], jobs["publish"]["needs"]) == ("wheels", "attest")
    shared = jobs["wheels"]["uses"]
    assert shared == read(".github/workflows/test.yml")["jobs"]["wheels"]["uses"]
    build = str(read(shared)["jobs"]["build"]["steps"])
    assert "make wheels" in build
    assert "install --constraint constraints.txt dist/clearhead-*.tar.gz" in build
    attested = [step["with"] for step in jobs["attest"]["steps"] if "actions/attest@" in step["uses"]]
    assert {step["subject-checksums"] for step in attested} == {"dist/SHA256SUMS"}
    assert [Path(step["sbom-path"]).name in build for step in attested if "sbom-path" in step] == [True]
    assert "sha256sum *.tar.gz *.whl > SHA256SUMS" in (ROOT / "Makefile").read_text(encoding="utf-8")
    for job in (*jobs.values(), *read(shared)["jobs"].values()):  # trusted publishing: no job is given a password
        assert "secrets." not in str(job)


def test_the_site_of_a_version_is_published_beside_the_others():
    workflow = read(".github/workflows/site.yml")
    assert workflow[True] == read(".github/workflows/release.yml")[True] == {"push": {"tags": ["v*"]}}  # YAML's `on`
    [job] = workflow["jobs"].values()
    assert (workflow["permissions"], job["permissions"]) == ({"contents": "read"}, {"contents": "write"})
    commands = [step.get("run") for step in job["steps"]]
    assert commands.index("make demo") < commands.index("make site")
    assert "secrets." not in str(job)


def test_the_citation_and_the_changelog_name_this_version():
    [newest, *_] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert newest == NUMBER
    citation = read("CITATION.cff")
    assert citation["version"] == NUMBER
    assert citation["license"] == PROJECT["license"]
    assert citation["abstract"].replace('"', "'") == PROJECT["description"]
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()


def test_packages_whose_private_parts_are_used_are_bounded_above():
    packages = [*PROJECT["dependencies"], *chain(*PROJECT["optional-dependencies"].values())]
    ranges = dict(re.match(r"([\w.-]+)(?:\[.*\])?([^;]*)", package).groups() for package in packages)
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src").rglob("*.py"))
    private = ranges.keys() & re.findall(r"\b([a-z]\w*)(?:\.\w+)*\._[a-z]", sources)
    assert "torch" in private
    assert [name for name in {*private, "uvicorn"} if "<" not in ranges[name]] == []


def test_commits_are_checked_by_the_linter_that_make_uses():
    ruff = read(".pre-commit-config.yaml")["repos"][0]
    assert f"ruff=={ruff['rev'].removeprefix('v')}" in (ROOT / "constraints.txt").read_text().split()


def wrong_paths(page: str) -> Iterator[str]:
    for path in re.findall(r"`([\w./-]+)`", page):
        is_path = "/" in path or re.search(r"\.(py|md|toml|yaml|jsonl?|safetensors)$", path)
        if is_path and path not in OF_A_MODEL and not (ROOT / path).exists():
            yield f"no file {path}"
    for names, path in re.findall(r"((?:`\w+`(?:\s+and\s+)?)+)\s+(?:\(|of\s+)`([\w./-]+\.py)`", page):
        text = (ROOT / path).read_text(encoding="utf-8") if (ROOT / path).is_file() else ""
        for name in re.findall(r"`(\w+)`", names):
            if not re.search(rf"^(class |def )?{name}\b", text, re.MULTILINE):
                yield f"{path} does not define {name}"


def wrong_commands(page: str) -> Iterator[str]:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    fenced = "".join(re.findall(r"^```\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    comments = re.sub(r"^[^#\n]*", "", fenced, flags=re.MULTILINE)
    for text in (fenced, *re.findall(r"`([^`\n]+)`", page)):
        for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE):
            if target not in targets:
                yield f"make has no target {target}"
    for target in re.findall(r"make ((?:bench|test|format)[\w-]*)", comments):
        if target not in targets:
            yield f"make has no target {target}"
    for line in fenced.splitlines():
        words = shlex.split(line, comments=True)
        match words:
            case [".venv/bin/pytest", *given]:
                paths = [word for word in given if word.startswith("tests/")]
                yield from (f"no file {path}" for path in paths if not (ROOT / path).exists())
                if "-m" in given and (mark := given[given.index("-m") + 1]) not in MARKS:
                    yield f"no mark {mark}"
                if "-k" in given:
                    part = given[given.index("-k") + 1]
                    if not any(re.search(rf"def test_\w*{part}", (ROOT / path).read_text("utf-8")) for path in paths):
                        yield f"no test has {part} in its name"
            case [".venv/bin/python", script, *given]:
                folder = (ROOT / script).parent
                text = "".join(path.read_text("utf-8") for path in folder.glob("*.py"))
                if not (ROOT / script).is_file():
                    yield f"no file {script}"
                for word in given:
                    wanted = rf'"{word}"' if word.startswith("--") else rf'["\s]{word}\b'
                    if word != "--help" and not word.isdigit() and not re.search(wanted, text):
                        yield f"{script} knows no {word}"
            case ["make", _] | []:
                pass
            case _:
                yield f"unchecked command: {line}"


PAGES = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("CONTRIBUTING.md", "SECURITY.md")}


@pytest.mark.parametrize("name", PAGES)
def test_paths_and_commands_on_pages_for_contributors_exist(name):
    assert [*wrong_paths(PAGES[name]), *wrong_commands(PAGES[name])] == []
    assert len(PAGES[name].splitlines()) < 90
    assert f"({name})" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("there", "instead", "complaint"),
    [
        ("`src/clearhead/formats/tables/tsv.py`", "`src/clearhead/corpora.py`", "no file src/clearhead/corpora.py"),
        ("`READERS` (", "`FORMATS` (", "src/clearhead/formats/pair_files.py does not define FORMATS"),
        ("`Slots`\n", "`Lanes`\n", "src/clearhead/decoding/engine.py does not define Lanes"),
        ("`WIDTHS` of", "`SIZES` of", "tests/unit/decoding/searches.py does not define SIZES"),
        ("make lint ", "make check ", "make has no target check"),
        ("make bench-translate", "make bench-decode", "make has no target bench-decode"),
        ("then `make docs`", "then `make pages`", "make has no target pages"),
        ("test_loss.py  ", "test_losses.py  ", "no file tests/unit/training/test_losses.py"),
        ("-k chunked", "-k sliced", "no test has sliced in its name"),
        ("-m gpu", "-m cuda", "no mark cuda"),
        ("--cases toy", "--cases doll", "bench/train.py knows no doll"),
        ("--count 20", "--number 20", "tests/attack/campaign.py knows no --number"),
    ],
)
def test_a_wrong_page_is_caught(there, instead, complaint):
    page = PAGES["CONTRIBUTING.md"]
    assert there in page
    doctored = page.replace(there, instead)
    assert complaint in [*wrong_paths(doctored), *wrong_commands(doctored)]


def test_every_extra_is_on_the_page_about_installation_alone(generate):
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page.partition("## Extras")[2], re.MULTILINE)
    assert sorted(re.findall(r"\w+", str(rows))) == sorted(PROJECT["optional-dependencies"])
    written = [path for path in (ROOT / "docs").glob("*.*") if path.suffix in (".ipynb", ".md", ".py")]
    written += [ROOT / "README.md", *(ROOT / "examples").glob("*")]
    named = [path.name for path in written if path.is_file() and "clearhead[" in path.read_text(encoding="utf-8")]
    generated = {*generate.PAGES, "concepts.md"}
    assert sorted(set(named) - generated) == ["install.md"]


def built(sources: Path, place: Path) -> dict[Path, bytes]:
    """Return the files of the package that sources build, but for the core for browsers, which not all have zig for."""
    command = [sys.executable, "setup.py", "--quiet", "build_py", "--build-lib", str(place)]
    subprocess.run(command, cwd=sources, check=True, capture_output=True)
    files = (path for path in place.rglob("*") if path.is_file() and path.suffix != ".wasm")
    return {path.relative_to(place): path.read_bytes() for path in files}


@pytest.mark.slow
def test_an_sdist_builds_the_package_that_the_checkout_builds(tmp_path):
    arguments = ["egg_info", "--egg-base", str(tmp_path), "sdist", "--dist-dir", str(tmp_path)]
    subprocess.run([sys.executable, "setup.py", "--quiet", *arguments], cwd=ROOT, check=True, capture_output=True)
    [archive] = tmp_path.glob("clearhead-*.tar.gz")
    shutil.unpack_archive(archive, tmp_path, filter="data")
    found = built(tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "from-sdist")
    assert found == built(ROOT, tmp_path / "from-checkout")
    examples = {path.name for path in found if path.parent == Path("clearhead/paper/examples")}
    assert examples == {path.name for path in (ROOT / "examples").glob("*.py")}


def test_no_entry_of_the_changelog_begins_as_another_does():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = [entry[:50] for entry in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]
    assert [entry for entry in entries if entries.count(entry) > 1] == []


def test_the_changelog_ends_with_the_promises():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert text.endswith("\nWhat you can rely on is in [docs/promises.md](docs/promises.md).\n")
