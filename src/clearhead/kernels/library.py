"""Load the compiled core (`csrc/core.c`) if it is intact, current and supported by the processor.

`library` returns None, and PyTorch does all work, if the core was not compiled, was compiled from other sources, or is
damaged, or if the processor is not an x86-64 with AVX-512.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import re
import struct
import warnings
from ctypes import POINTER, c_int, c_int64, c_uint64, c_void_p
from functools import cache
from hashlib import sha256
from pathlib import Path

import torch

from clearhead.config import DecodePrecision
from clearhead.errors import CompiledCoreWarning
from clearhead.kernels.structs import STRUCTS

_QUICK = {"packed_size", "scratch_size"}


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled core, or None if it is missing, unusable, or unsupported by the processor.

    Warns:
        CompiledCoreWarning: Once per process, if the core exists but is unusable.
    """
    core, fault = _load()
    if fault is not None:
        warnings.warn(fault, CompiledCoreWarning, stacklevel=2)
    return core


@cache
def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the compiled core if it is usable, and a message if it exists but is not."""
    path = _path()
    if path is None or not _has_processor():
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
    """Return the hash of core.c and its headers, which setup.py also compiles into the core."""
    names, digest = ["core.c"], sha256()
    for name in names:  # extended in the loop
        text = Path(__file__).with_name("csrc").joinpath(name).read_bytes()
        names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
        digest.update(text)
    return int(digest.hexdigest()[:16], 16)


def _has_processor() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


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
        ("request_amx", c_int),
        ("packed_size", c_int64, c_int64, c_int64, c_int64),
        ("pack", None, c_void_p, c_void_p, c_int64, c_int64, c_int64, c_void_p, c_void_p),
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


@cache
def has_amx() -> bool:
    """Return whether the core can use AMX for bfloat16 and 8-bit products."""
    core = library()
    return core is not None and torch.cpu._is_amx_tile_supported() and core.request_amx() == 0


def can_multiply(precision: DecodePrecision) -> bool:
    """Return whether the core and the processor support products in a precision."""
    if library() is None:
        return False
    match precision:
        case "fp32":
            return True
        case "int8":
            return has_amx() or torch.cpu._is_vnni_supported()
        case "bf16" | "bf16x3":
            return has_amx() or torch.cpu._is_avx512_bf16_supported()


def describe() -> str:
    """Return a line that says whether the core is in use, and if not, why."""
    core, fault = _load()
    if core is not None:
        return f"clearhead's compiled core is in use, {'with' if has_amx() else 'without'} AMX"
    if fault is not None:
        return fault
    if not _has_processor():
        return "clearhead's compiled core is not in use: this processor has no AVX-512; PyTorch does its work"
    return "clearhead's compiled core is not in use: no C compiler could build it; PyTorch does its work"
