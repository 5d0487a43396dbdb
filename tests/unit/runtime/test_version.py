"""The version: a number for a release, and the commit besides between releases."""

from __future__ import annotations

import subprocess

import pytest

import clearhead
from clearhead.runtime import version
from clearhead.runtime.version import NUMBER


def git(directory, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Return a directory of sources that the module seems to lie in."""
    monkeypatch.setattr(version, "__file__", str(tmp_path / "src/clearhead/runtime/version.py"))
    monkeypatch.setattr(version, "VERSION_FILE", tmp_path / "version.txt")
    return tmp_path


@pytest.fixture
def checkout(sources):
    git(sources, "init", "-q")
    sources.joinpath("a").write_text("a")
    git(sources, "add", "a")
    git(sources, "commit", "-qm", "a")
    return sources


def said():
    version.full_version.cache_clear()
    return clearhead.__version__


@pytest.fixture(autouse=True)
def as_before():
    yield
    version.full_version.cache_clear()


def test_the_version_of_a_checkout_has_its_commit(checkout):
    commit = git(checkout, "rev-parse", "--short=9", "HEAD")
    assert said() == f"{NUMBER}.dev0+g{commit}"
    checkout.joinpath("a").write_text("b")
    assert said() == f"{NUMBER}.dev0+g{commit}.dirty"


def test_the_version_of_a_release_is_its_number(checkout):
    git(checkout, "tag", "v0.0.9")
    assert said() != NUMBER
    git(checkout, "tag", f"v{NUMBER}")
    assert said() == NUMBER
    checkout.joinpath("a").write_text("b")
    assert said() == f"{NUMBER}.dev0+g{git(checkout, 'rev-parse', '--short=9', 'HEAD')}.dirty"
    git(checkout, "commit", "-qam", "b")
    assert said() == f"{NUMBER}.dev0+g{git(checkout, 'rev-parse', '--short=9', 'HEAD')}"


def test_the_version_of_a_package_is_read_from_its_file_without_git(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert said() == f"{NUMBER}.dev0"
    version.VERSION_FILE.write_text("0.1.0.dev0+g1fd1523b7\n")
    assert said() == "0.1.0.dev0+g1fd1523b7"


def test_the_version_of_sources_without_git_has_no_commit(sources):
    assert said() == f"{NUMBER}.dev0"
