"""How this installation is called, and the pip command that adds an extra to it, from where it came (PEP 610)."""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from pathlib import Path

_HINTED = re.compile(r"(?:(?<=`)|(?<=with: ))clearhead(?= [a-z])")
"""The program in the commands that a message advises."""


def program() -> str:
    """Return what to type for `clearhead` in a shell: the path that was typed, unless the program is on the PATH."""
    called = sys.argv[0]
    is_path = Path(called).name == "clearhead" and shutil.which("clearhead") != called
    return shlex.quote(called) if is_path else "clearhead"


def with_program(text: str) -> str:
    """Return a message in which the commands that it advises can be typed as they are."""
    return _HINTED.sub(lambda _: program(), text)


def pip_install(extra: str = "", *, options: str = "") -> str:
    """Return the command that installs clearhead again, with an extra.

    What pip took from anywhere but a package index (a checkout, a repository, a wheel) it noted in `direct_url.json`.
    The index may have no clearhead of that name then, or somebody else's.

    Args:
        extra: Name of the extra; empty for none.
        options: Options for pip.
    """
    import json
    from importlib.metadata import PackageNotFoundError, distribution  # 50 ms, which only errors need to take

    name, place = f"clearhead[{extra}]" if extra else "clearhead", ""
    try:
        origin = json.loads(distribution("clearhead").read_text("direct_url.json") or "null")
    except PackageNotFoundError:  # PYTHONPATH names the sources
        origin = {"dir_info": {}}
    match origin:
        case {"dir_info": {**details}}:
            name, place = name.replace("clearhead", "."), " in the checkout of clearhead"
            if details.get("editable"):
                options = f"{options} -e"
        case {"url": url, "vcs_info": {"vcs": vcs, "commit_id": commit}}:
            name = f"{name} @ {vcs}+{url}@{commit}"
        case {"url": url}:
            name = f"{name} @ {url}"
    requirement = f"'{name}'" if set(name) & set("[ ") else name
    return " ".join(["pip install", *options.split(), requirement]) + place
