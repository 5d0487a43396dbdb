"""The version of clearhead: a number, and between releases the commit.

The package's metadata are not asked: that takes 50 ms, and those of an editable installation name the commit that was
installed, not the one that is checked out.
"""

from __future__ import annotations

import os
from functools import cache

NUMBER = "0.1.0"
"""The number of this release, or between releases of the next one; no tag is needed to know it."""

VERSION_FILE = os.path.join(os.path.dirname(__file__), "version.txt")
"""The version of a wheel or an sdist, which setup.py writes; a checkout has none."""


@cache
def full_version() -> str:
    """Return `0.1.0` for a release, else such as `0.1.0.dev0+g1fd1523b7`, ending with `.dirty` if files were changed.

    A checkout is a release if it is unchanged and has the tag `v0.1.0`. Sources without git are `0.1.0.dev0`.
    """
    from pathlib import Path

    if os.path.isfile(VERSION_FILE):
        return Path(VERSION_FILE).read_text(encoding="utf-8").strip()
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / ".git").exists():  # of another project, perhaps, that the package is installed in
        return f"{NUMBER}.dev0"
    if _described(checkout, "--tags", "--exact-match", f"--match=v{NUMBER}", "--dirty") == f"v{NUMBER}":
        return NUMBER
    commit = _described(checkout, "--always", "--exclude=*", "--abbrev=9", "--dirty=.dirty")
    return f"{NUMBER}.dev0+g{commit}" if commit else f"{NUMBER}.dev0"


def _described(checkout: os.PathLike[str], *options: str) -> str:
    """Return what `git describe` says of a checkout; empty if git is missing or fails."""
    import subprocess  # 10 ms, which a command that prints no version need not take

    command = ["git", "-C", str(checkout), "describe", *options]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # writes nothing into the checkout
    try:
        described = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False, env=quiet)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return described.stdout.strip()
