"""The version of clearhead, which is defined only here: asking for the metadata of the package takes 50 ms."""

from __future__ import annotations

import os
from functools import cache

__version__ = "0.1.0"

COMMIT_FILE = os.path.join(os.path.dirname(__file__), "commit.txt")
"""The commit that a wheel was built from, written by setup.py; a checkout has none, and git is asked."""


@cache
def commit() -> str | None:
    """Return the commit of this code as git describes it, such as `1fd1523b7` or `v0.1.0-5-g1fd1523b7-dirty`.

    None for a release, or if the commit is not known.
    """
    from pathlib import Path

    if os.path.isfile(COMMIT_FILE):
        return Path(COMMIT_FILE).read_text(encoding="utf-8").strip() or None
    checkout = Path(__file__).resolve().parents[3]
    if not (checkout / ".git").exists():  # of another project, perhaps, that the package is installed in
        return None
    import subprocess  # 10 ms, which a command that prints no version need not take

    describe = ["git", "-C", str(checkout), "describe", "--tags", "--match=v*", "--always", "--dirty", "--abbrev=9"]
    quiet = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}  # writes nothing into the checkout
    try:
        found = subprocess.run(describe, capture_output=True, text=True, timeout=10, check=False, env=quiet)
    except (OSError, subprocess.TimeoutExpired):
        return None
    said = found.stdout.strip()
    return said if said not in ("", f"v{__version__}") else None


def full_version() -> str:
    """Return the version with its commit, such as `0.1.0 (1fd1523b7)`."""
    return __version__ if commit() is None else f"{__version__} ({commit()})"
