"""Load the compiled core (`csrc`) if it is intact and current, in the form for this processor.

`library` returns None, and PyTorch does all work, if the core was not compiled, was compiled from other sources, or is
damaged. The environment variable `CLEARHEAD_ISA` holds the core to one form, for tests and benchmarks: `plain`, `avx2`,
`avx-vnni`, `avx512`, `avx512-vnni`, `avx512-bf16`, `amx`, `neon` or `neon-dot`.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import os
import platform
import re
import struct
import warnings
from ctypes import POINTER, c_char_p, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path

from clearhead.errors import CompiledCoreWarning, DeviceError
from clearhead.kernels.structs import STRUCTS

ISA_VARIABLE = "CLEARHEAD_ISA"
"""Environment variable that holds the core to one form."""
_QUICK = {"packed_size", "scratch_size"}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled core, or None if it is missing or unusable.

    Raises:
        DeviceError: If `CLEARHEAD_ISA` names no form that this processor can run.

    Warns:
        CompiledCoreWarning: Once per process, if the core exists but is unusable, or slow on this processor.
    """
    core, fault = _load()
    if fault is not None:
        warnings.warn(fault, CompiledCoreWarning, stacklevel=2)
    elif core is not None and form() == "plain" and ISA_VARIABLE not in os.environ:
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
    found = core.use_form(wanted.encode() if wanted else None)
    if found is None:
        best = core.use_form(None).decode()
        raise DeviceError(
            f"{ISA_VARIABLE}={wanted}: the compiled core has no such form, or this processor or its system does not "
            f"offer it; leave the variable unset for the best one here ({best}), or set it to plain"
        )
    return str(found.decode())


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the compiled core if it is usable, and a message if it exists but is not."""
    path = _path()
    if path is None:
        return None, None
    try:
        _check_file(path)
        core, quick = ctypes.CDLL(str(path)), ctypes.PyDLL(str(path))
    except (OSError, ValueError) as error:
        return None, _not_in_use(f"{path} is damaged ({error})")
    try:
        _declare(core, quick)
        fits = core.core_sources() == _sources()
    except (AttributeError, OSError):  # a missing function or source file
        fits = False
    return (core, None) if fits else (None, _not_in_use(f"{path} was built from the sources of another version"))


def _not_in_use(reason: str) -> str:
    return (
        f"the compiled core is not in use: {reason}; install clearhead again (`pip install .`, in a checkout "
        f"`make setup` or `pip install -e .`); until then PyTorch does its work, more slowly"
    )


def _path() -> Path | None:
    """Return the path of the compiled core, or None if it was not compiled."""
    paths = [Path(__file__).with_name("_core" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return next((path for path in paths if path.is_file()), None)


def _sources() -> int:
    """Return the hash of the core's sources, which setup.py also compiles into the core."""
    names, digest = ["core.c", "form.c"], sha256()
    for name in names:  # extended in the loop
        text = Path(__file__).with_name("csrc").joinpath(name).read_bytes()
        names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
        digest.update(text)
    return int(digest.hexdigest()[:16], 16)


def _check_file(path: Path) -> None:
    """Check that a shared library is complete, because loading a truncated one crashes the process.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a complete 64-bit ELF file.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise ValueError("it is not a shared library for this system")
        segments, sections = struct.unpack_from("<QQ", header, 32)
        segment_size, num_segments, section_size, num_sections = struct.unpack_from("<HHHH", header, 54)
        ends = [segments + segment_size * num_segments, sections + section_size * num_sections]
        if max(ends) <= size:
            file.seek(segments)
            for _ in range(num_segments):
                offset, _, _, in_file = struct.unpack_from("<QQQQ", file.read(segment_size).ljust(56, b"\0"), 8)
                ends.append(offset + in_file)
    if max(ends) > size:
        raise ValueError(f"it has {size:,} bytes and should have {max(ends):,}")


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
    return fault or "clearhead's compiled core is not in use: no C compiler could build it; PyTorch does its work"
