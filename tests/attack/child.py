"""Functions of the attacks, each in a forked child of its own that may crash, hang or eat memory.

`python child.py --preload` imports what clearhead needs once, then reads jobs from standard input, one JSON object a
line, and answers each with one line that says how its child ended. Nothing is computed before the fork, so that a child
finds the libraries as a fresh process does: loaded, with no threads of their own.
"""

from __future__ import annotations

import ctypes
import importlib
import io
import json
import os
import re
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import IO, Any

MOST_ADDRESS_SPACE = 8 * 2**30
"""Bytes a child may map beyond what it has after the fork: keeps one case from taking all memory."""

MOST_OUTPUT = 200_000
"""Characters of what a child printed that are kept, from the end."""

DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux."""

LONGEST_MESSAGE = 4_000
"""Characters; a message that repeats a whole file or argument is not clear."""

MOST_WAITED = 20
"""Times the seconds of a case that waiting for a processor can add to them."""

FAILED = 70
"""Exit code of a child whose function raised."""

PRELOADED = (
    "clearhead.cli.main",
    "clearhead.training.run",
    "clearhead.translation.translator",
    "clearhead.evaluation",
    "clearhead.formats.document_files",
    "clearhead.data.doctor.page",
    "tensorboardX",
    "torch._dynamo",
)


def run_in_child(function: str, arguments: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """Call `module:function` in a forked process group of its own and return how that ended.

    Args:
        function: Module and name; it returns plain JSON values.
        arguments: Its keywords, plain JSON values.
        seconds: The whole group is killed after this long; time in which it waited for a processor does not count.

    Returns:
        `code` (negative: the signal), `hung`, `seconds`, `processor_seconds`, `grown` (bytes of resident memory beyond
        those at birth), `result`, `output` and `errors`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with tempfile.TemporaryFile() as result, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        born_with, began = _resident_bytes(), time.monotonic()
        pid = os.fork()
        if pid == 0:
            _live(function, arguments, result, output, errors)
        hung = not _ends_within(pid, seconds)
        if hung:
            _kill_group(pid)
        _, status, usage = os.wait4(pid, 0)
        lived = time.monotonic() - began
        _kill_group(pid)  # what the child left running
        said = _text(result)
        return {
            "code": os.waitstatus_to_exitcode(status),
            "hung": hung,
            "seconds": lived,
            "processor_seconds": usage.ru_utime + usage.ru_stime,
            "grown": max(0, usage.ru_maxrss * 1024 - born_with),
            "result": json.loads(said) if said else None,
            "output": _text(output)[-MOST_OUTPUT:],
            "errors": _text(errors)[-MOST_OUTPUT:],
        }


def command(*arguments: object) -> tuple[int, str, str]:
    """Run `clearhead ARGUMENTS..` in this process; return its exit code, standard output and standard error.

    Whatever else than the end of the command comes out of it is raised as it is.
    """
    from clearhead.cli.main import run

    with _captured() as (output, errors):
        code: object = 0
        try:
            run([str(argument) for argument in arguments])
        except SystemExit as ended:
            code = ended.code or 0
    assert isinstance(code, int), code
    return code, _captured_text(output), _captured_text(errors)


def command_in_child(arguments: Sequence[str], seconds: float) -> dict[str, Any]:
    """Run `clearhead ARGUMENTS..` in a child; `code` is then the command's own."""
    return run_in_child("child:exit_as_command", {"arguments": list(arguments)}, seconds)


def exit_as_command(arguments: Sequence[str]) -> None:
    """Run `clearhead ARGUMENTS..` on this process's own streams and end as it does."""
    from clearhead.cli.main import run

    run([str(argument) for argument in arguments])


def trouble_of(code: int, errors: str, allowed: Sequence[int] = (0, 1, 2)) -> str | None:
    """Return what is wrong with how a command ended: its exit code, or more on standard error than a clear message."""
    for sign in ("Traceback (most recent call last)", "Exception ignored", "Fatal Python error", "panicked at"):
        if sign in errors:
            return f"{sign} on standard error: {error_in(errors)}"
    if code not in allowed:
        return f"exit code {code}: {error_in(errors)}"
    if len(errors) > LONGEST_MESSAGE:
        return f"a message of {len(errors):,} characters: {errors[:100]}"
    if code == 1 and not any(line.startswith("clearhead: ") for line in errors.splitlines()):
        return f"exit code 1 and no message: {errors.strip()[-300:]!r}"
    return None


def error_in(errors: str) -> str:
    """Return the line of standard error that names what went wrong: the last exception, or else the last line."""
    lines = errors.strip().splitlines() or ["nothing on standard error"]
    named = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (named or lines)[-1][:300]


def die_with_parent() -> None:
    """Let this process be killed when its parent ends."""
    ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def refused_or(function: Callable[[], Any]) -> tuple[str | None, Any]:
    """Call a function; return the message of its `ClearheadError`, or None and what it returned."""
    from clearhead.errors import ClearheadError

    try:
        return None, function()
    except ClearheadError as error:
        return str(error), None


def main() -> None:
    """Answer jobs until standard input ends."""
    answers = os.fdopen(os.dup(1), "w")  # what a job prints by mistake must not come between
    os.dup2(2, 1)
    for name in PRELOADED if "--preload" in sys.argv else ():
        importlib.import_module(name)
    for line in sys.stdin:
        job = json.loads(line)
        answers.write(json.dumps(run_in_child(job["function"], job["arguments"], job["seconds"])) + "\n")
        answers.flush()


def _live(function: str, arguments: Mapping[str, Any], result: IO[bytes], output: IO[bytes], errors: IO[bytes]) -> None:
    """Be the child: call the function, say what it returned, and end without the exit work of an interpreter."""
    code = 0
    try:
        os.setsid()
        die_with_parent()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(output.fileno(), 1)
        os.dup2(errors.fileno(), 2)
        sys.stdin, sys.stdout, sys.stderr = open(0, closefd=False), _stream(1, "strict"), _stream(2, "backslashreplace")  # noqa: SIM115
        if resource.getrlimit(resource.RLIMIT_AS)[1] == resource.RLIM_INFINITY:  # a child's child keeps its limit
            most = _mapped_bytes() + MOST_ADDRESS_SPACE
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        module, _, name = function.partition(":")
        said = getattr(importlib.import_module(module), name)(**arguments)
        result.write(json.dumps(said).encode())
        result.flush()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        code = FAILED
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _ends_within(pid: int, seconds: float) -> bool:
    began, waited = time.monotonic(), 0.0
    descriptor = os.pidfd_open(pid)
    try:
        while (left := began + seconds + waited - time.monotonic()) > 0:
            if select.select([descriptor], [], [], left)[0]:
                return True
            waited = min(MOST_WAITED * seconds, _seconds_waited(pid))
        return False
    finally:
        os.close(descriptor)


def _seconds_waited(session: int) -> float:
    """Return how long the threads of a session were ready to run while others had the processors."""
    waited = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it has ended meanwhile
            if os.getsid(int(process.name)) == session:
                for thread in process.glob("task/*/schedstat"):
                    waited += int(thread.read_text().split()[1])
    return waited / 1e9


def _kill_group(pid: int) -> None:
    for kill in (os.killpg, os.kill):  # the child may be too young to have a group
        with suppress(ProcessLookupError, PermissionError):
            kill(pid, signal.SIGKILL)
            return


def _resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _mapped_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


def _stream(descriptor: int, errors: str) -> io.TextIOWrapper:
    return open(descriptor, "w", encoding="utf-8", errors=errors, closefd=False)


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8", errors="replace")


@contextmanager
def _captured():
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    with redirect_stdout(output), redirect_stderr(errors):
        yield output, errors


def _captured_text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    return stream.buffer.getvalue().decode("utf-8", errors="replace")


if __name__ == "__main__":
    sys.modules["child"] = sys.modules["__main__"]
    main()
