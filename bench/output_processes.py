"""Commands of clearhead and expressions of Python in forks of one warm process, each in its own directory."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import importlib
import json
import math
import os
import pkgutil
import runpy
import shlex
import signal
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

SECONDS = 180
"""A call that takes longer is ended, and recorded so."""
LAZY = ("transformers.MarianMTModel", "transformers.PegasusForConditionalGeneration", "matplotlib.figure", "h11")
"""What else is imported once, so that each call need not; packages that are not installed are left out."""


class Result(NamedTuple):
    """What a process left."""

    status: int
    stdout: bytes
    stderr: bytes


def warm_up() -> None:
    """Import all of clearhead, without computing anything: threads of a pool would not survive a fork."""
    import clearhead

    for module in pkgutil.walk_packages(clearhead.__path__, "clearhead."):
        if not module.name.endswith(("__main__", "ray_serve")):
            with suppress(ImportError):  # a package that is not installed, and the compiled core, which is no module
                importlib.import_module(module.name)
    for name in LAZY:
        package, _, attribute = name.rpartition(".")
        with suppress(ImportError):
            getattr(importlib.import_module(package or name), attribute, None)
    os.fsync = lambda _: None  # no recording cuts the power
    gc.collect()
    gc.freeze()


def run_command(line: str, directory: Path, scratch: Path) -> list[Result]:
    """Run commands that are joined by `;` in a directory, one after the other."""
    return [_run_one(shlex.split(one), directory, scratch) for one in line.split(" ; ")]


def _run_one(words: list[str], directory: Path, scratch: Path) -> Result:
    is_apart = words[0] == "$"
    words = words[is_apart:]
    environment = {}
    while "=" in words[0]:
        name, _, environment[name] = words.pop(0).partition("=")
    source = os.devnull
    if "<" in words:
        at = words.index("<")
        source = str(directory / words[at + 1])
        del words[at : at + 2]
    if words[0] == "clearhead" and not is_apart:
        return _forked(lambda: _as_main(words[1:]), directory, scratch, source, environment)
    command = [sys.executable, "-m", *words] if is_apart else words
    return _forked(lambda: os.execvp(command[0], command), directory, scratch, source, environment)


def _as_main(arguments: list[str]) -> None:
    sys.argv = ["clearhead", *arguments]
    runpy.run_module("clearhead", run_name="__main__", alter_sys=True)


def run_expression(code: str, directory: Path, scratch: Path) -> tuple[Any, Result]:
    """Return the value of an expression as plain values, or its error; and what it printed."""
    answer = scratch / "value.json"
    answer.unlink(missing_ok=True)

    def evaluate() -> None:
        from clearhead import ClearheadError

        try:
            found = plain(eval(code, _names()))
        except (ClearheadError, TypeError, ValueError, KeyError, AttributeError, OSError) as error:
            found = {"error": type(error).__name__, "message": str(error)}
        answer.write_text(json.dumps(found, ensure_ascii=True), encoding="utf-8")

    result = _forked(evaluate, directory, scratch, os.devnull, {})
    return json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else None, result


def _names() -> dict[str, Any]:
    """Return the names that expressions have."""
    import torch

    import clearhead

    def lines(path: str) -> list[str]:
        return Path(path).read_text(encoding="utf-8").split("\n")[:-1]

    def numbers(*shape: int) -> Any:
        """Return different numbers between -1 and 1, always the same."""
        return torch.sin(torch.arange(math.prod(shape), dtype=torch.float32) * 1.7).reshape(shape)

    def seeded(make: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        torch.manual_seed(7)
        return make(*arguments, **named)

    load = clearhead.Translator.load
    return {"ch": clearhead, "torch": torch, "translator": load, "lines": lines, "numbers": numbers, "seeded": seeded}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; of arrays the shape, the first numbers, and a checksum of all."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else repr(value)
        case bytes():
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest(), "first": repr(value[:2000])}
        case Path():
            return str(value)
        case Mapping():
            return {str(key): plain(one) for key, one in value.items()}
        case Set():
            return sorted((plain(one) for one in value), key=repr)
        case list() | tuple():
            return [plain(one) for one in value]
    if hasattr(value, "detach"):  # a tensor, or parameter
        value = value.detach().numpy()
    if hasattr(value, "tobytes"):
        first = [plain(one) for one in value.ravel()[:20].tolist()]
        checksum = hashlib.sha256(value.tobytes()).hexdigest()
        return {"array": str(value.dtype), "shape": list(value.shape), "sha256": checksum, "first": first}
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value) if not field.name.startswith("_")]
        return {"type": type(value).__name__} | {name: plain(getattr(value, name)) for name in names}
    if hasattr(value, "__next__"):
        return [plain(one) for one in value]
    return repr(value)


def _forked(
    work: Callable[[], object], directory: Path, scratch: Path, source: str, environment: Mapping[str, str]
) -> Result:
    """Run a function in a fork of this process, with its own standard streams."""
    paths = [scratch / name for name in ("stdout", "stderr")]
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.chdir(directory)
            os.environ.update(environment)
            os.environ["PWD"] = str(directory)
            _redirect(source, *paths)
            os._exit(_status_of(work))
        finally:
            os._exit(99)  # nothing of this process may go on in the fork
    status = _waited_for(child)
    return Result(status, *(path.read_bytes() for path in paths))


def _redirect(source: str, out: Path, err: Path) -> None:
    for number, name, flags in (
        (0, source, os.O_RDONLY),
        (1, out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
        (2, err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC),
    ):
        opened = os.open(name, flags, 0o600)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        os.fdopen(0, "r", encoding="utf-8", closefd=False),
        os.fdopen(1, "w", encoding="utf-8", closefd=False),
        os.fdopen(2, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False),
    )


def _status_of(work: Callable[[], object]) -> int:
    """Return the exit status of a program that does this."""
    status = 0
    try:
        work()
    except SystemExit as ended:
        if isinstance(ended.code, str):
            print(ended.code, file=sys.stderr)
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    return status


def _waited_for(child: int) -> int:
    """Return the exit status of a process; negative after a signal. What it started ends with it."""
    until = time.monotonic() + SECONDS
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if time.monotonic() > until:
            os.killpg(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            break
        time.sleep(0.002)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(status)
