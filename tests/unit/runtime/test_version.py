"""The version says the commit between releases."""

from __future__ import annotations

import subprocess

import pytest

from clearhead.runtime import version


def git(directory, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    return subprocess.run(
        ["git", "-C", str(directory), *identity, *arguments], capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """Return a directory of sources that the module seems to lie in."""
    monkeypatch.setattr(version, "__file__", str(tmp_path / "src/clearhead/runtime/version.py"))
    monkeypatch.setattr(version, "COMMIT_FILE", tmp_path / "commit.txt")
    git(tmp_path, "init", "-q")
    tmp_path.joinpath("a").write_text("a")
    git(tmp_path, "add", "a")
    git(tmp_path, "commit", "-qm", "a")
    return tmp_path


def said():
    version.commit.cache_clear()
    return version.full_version()


@pytest.fixture(autouse=True)
def as_before():
    yield
    version.commit.cache_clear()


def test_the_version_of_a_checkout_has_its_commit(checkout):
    commit = git(checkout, "rev-parse", "--short=9", "HEAD")
    assert said() == f"{version.__version__} ({commit})"
    checkout.joinpath("a").write_text("b")
    assert said() == f"{version.__version__} ({commit}-dirty)"


def test_the_version_of_a_release_is_its_number(checkout):
    git(checkout, "tag", f"v{version.__version__}")
    assert said() == version.__version__
    git(checkout, "commit", "--allow-empty", "-qm", "b")
    commit = git(checkout, "rev-parse", "--short=9", "HEAD")
    assert said() == f"{version.__version__} (v{version.__version__}-1-g{commit})"


def test_a_wheel_says_its_commit_without_git(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert said() == version.__version__
    version.COMMIT_FILE.write_text("1fd1523b7\n")
    assert said() == f"{version.__version__} (1fd1523b7)"
    version.COMMIT_FILE.write_text("")  # of a release
    assert said() == version.__version__
