"""Load the compiled core (`csrc`) if it is intact and current, in the form for this processor.

`library` returns None, and PyTorch does all work, if the core was not compiled, was compiled from other sources, or is
damaged. The environment variable `CLEARHEAD_ISA` holds the core to one form, for tests and benchmarks: `plain`, `avx2`,
`avx-vnni`, `avx512`, `avx512-vnni`, `avx512-bf16`, `amx`, `neon`, `neon-dot` or `neon-i8mm`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import warnings
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path

from clearhead.errors import CompiledCoreWarning, DeviceError
from clearhead.kernels.structs import STRUCTS
from clearhead.runtime.installation import pip_install
from clearhead.runtime.pytorch import has_pytorch

ISA_VARIABLE = "CLEARHEAD_ISA"
"""Environment variable that holds the core to one form."""
_QUICK = {"packed_size", "scratch_size"}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled core, or None if it is missing or unusable.

    Raises:
        DeviceError: If `CLEARHEAD_ISA` names no form that this processor can run.

    Warns:
        CompiledCoreWarning: Once per process, if the core exists but is unusable and PyTorch takes its place, or if it
            is slow on this processor.
    """
    core, fault = _load()
    if fault is not None and has_pytorch():  # otherwise what needs the core is an error, with the same reason
        message = f"{fault}; until then PyTorch does its work, more slowly"
        warnings.warn(message, CompiledCoreWarning, stacklevel=2)
    elif core is not None and form() == "plain" and not os.environ.get(ISA_VARIABLE):
        warnings.warn(
            f"this processor ({platform.machine()}) has none of the instructions that the compiled core is fast with: "
            f"it computes in plain C, which is many times slower",
            CompiledCoreWarning,
            stacklevel=2,
        )
    return core


@cache
def form() -> str | None:
    """Return the name of the core's form in use; None without the core.

    Raises:
        DeviceError: If `CLEARHEAD_ISA` names no form that this processor can run.
    """
    core, _ = _load()
    if core is None:
        return None
    wanted = os.environ.get(ISA_VARIABLE)
    chosen = core.use_form(os.fsencode(wanted) if wanted else None)
    if chosen is None:
        best = core.use_form(None).decode()
        raise DeviceError(
            f"{ISA_VARIABLE}={wanted}: the compiled core has no such form, or this processor or its system does not "
            f"offer it; leave the variable unset for the best one here ({best}), or set it to plain"
        )
    return str(chosen.decode())


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the compiled core if it is usable, and a message if it exists but is not."""
    path = record = _record()
    if not record.is_file():
        return None, None
    try:
        digest, name = record.read_text("utf-8").split()
        path = record.with_name(name)
        # Loading a library that was cut short may crash the process.
        if sha256(path.read_bytes()).hexdigest() != digest:
            raise ValueError(f"its SHA-256 is not the one in {record.name}")
    except (OSError, ValueError) as error:
        return None, _not_in_use(f"{path} is damaged ({error})")
    try:
        core, quick = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
    except OSError as error:
        return None, _not_in_use(f"{path} was built for another processor or system ({error})")
    try:
        _declare(core, quick)
        fits = core.core_sources() == _sources()
    except (AttributeError, OSError):  # a missing function or source file
        fits = False
    return (core, None) if fits else (None, _not_in_use(f"{path} was built from the sources of another version"))


def _not_in_use(reason: str) -> str:
    again = pip_install(options="--force-reinstall --no-deps")
    return f"the compiled core is not in use: {reason}; install clearhead again: {again}"


def _record() -> Path:
    """Return the path of the file that holds the core's SHA-256 and name, as setup.py wrote them."""
    return Path(__file__).with_name("_core.sha256")


def _sources() -> int:
    """Return the hash of the core's sources, which setup.py also compiles into the core."""
    names, digest = ["core.c", "form.c"], sha256()
    for name in names:  # extended in the loop
        text = Path(__file__).with_name("csrc").joinpath(name).read_bytes()
        names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
        digest.update(text)
    return int(digest.hexdigest()[:16], 16)


def _declare(core: ctypes.CDLL, quick: ctypes.PyDLL) -> None:
    """Declare argument and result types of the core's functions.

    Args:
        core: The library on which functions are called.
        quick: The same library without release of the GIL, for functions faster than a thread switch.

    Raises:
        AttributeError: If the core lacks a function.
    """
    stack, tokens, team = (POINTER(STRUCTS[name]) for name in ("Stack", "Tokens", "Team"))
    for name, result, *arguments in (
        ("core_sources", c_uint64),
        ("use_form", c_char_p, c_char_p),
        ("packed_size", c_int64, c_int64, c_int64, c_int64),
        ("pack", None, POINTER(STRUCTS["Product"]), c_void_p, c_void_p, c_int64, c_void_p, c_void_p),
        ("scratch_size", c_int64, stack, c_int64, c_int64, c_int64, c_int),
        ("encode", None, stack, tokens, POINTER(STRUCTS["Sources"])),
        ("take_step", None, stack, tokens, POINTER(STRUCTS["Step"])),
        ("advance", c_int, stack, tokens, POINTER(STRUCTS["Search"])),
        ("score", None, stack, tokens, POINTER(STRUCTS["Targets"])),
        ("assist", None, team),
        ("dismiss", None, team),
    ):
        function = getattr(quick if name in _QUICK else core, name)
        function.restype, function.argtypes = result, arguments
        setattr(core, name, function)


def has_amx() -> bool:
    """Return whether the core uses AMX for bfloat16 and 8-bit products."""
    return form() == "amx"


def describe() -> str:
    """Return a line that says whether the core is in use, in which form, and if not, why."""
    core, fault = _load()
    if core is not None:
        return f"clearhead's compiled core is in use, in its form for {form()}"
    return fault or (
        "clearhead's compiled core is not in use: this installation was built for no particular platform, or without a "
        "C compiler"
    )
