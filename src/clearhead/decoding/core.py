"""The compiled core: loads what `csrc/core.c` became and mirrors its structures, field by field.

Where it was not compiled, was compiled from other sources than these, or is damaged, and where the processor is not an
x86-64 with AVX-512, `library` returns None and PyTorch does all work.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import struct
import warnings
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from clearhead.config import DecodePrecision
from clearhead.errors import CompiledCoreWarning

__all__ = [
    "LaneStruct",
    "LayerStruct",
    "NormStruct",
    "ProductStruct",
    "StackStruct",
    "StepStruct",
    "TeamStruct",
    "TokensStruct",
    "can_multiply",
    "describe",
    "has_amx",
    "library",
]

VERSION = 4
"""CORE_VERSION in csrc/types.h."""


class ProductStruct(ctypes.Structure):
    """Product in csrc/types.h."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("form", c_int64),
        ("is_on_amx", c_int64),
        ("panels", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
    )


class NormStruct(ctypes.Structure):
    """Norm in csrc/types.h."""

    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("eps", c_double), ("is_rms", c_int64))


class LayerStruct(ctypes.Structure):
    """Layer in csrc/types.h."""

    _fields_ = (
        ("self_norm", NormStruct),
        ("qkv", ProductStruct),
        ("self_out", ProductStruct),
        ("cross_norm", NormStruct),
        ("query", ProductStruct),
        ("cross_out", ProductStruct),
        ("ff_norm", NormStruct),
        ("up", ProductStruct),
        ("gate", ProductStruct),
        ("down", ProductStruct),
    )


class StackStruct(ctypes.Structure):
    """Stack in csrc/types.h."""

    _fields_ = (
        ("d_model", c_int64),
        ("num_heads", c_int64),
        ("d_k", c_int64),
        ("d_v", c_int64),
        ("d_ff", c_int64),
        ("num_layers", c_int64),
        ("is_pre", c_int64),
        ("activation", c_int64),
        ("layers", POINTER(LayerStruct)),
        ("final_norm", NormStruct),
        ("output", ProductStruct),
    )


class LaneStruct(ctypes.Structure):
    """Lane in csrc/types.h."""

    _fields_ = (
        ("past", c_void_p),
        ("parents", c_void_p),
        ("newest", c_void_p),
        ("memory", c_void_p),
        ("source_length", c_int64),
        ("own", ProductStruct),
        ("own_ids", c_void_p),
        ("num_own", c_int64),
    )


class TokensStruct(ctypes.Structure):
    """Tokens in csrc/types.h."""

    kept: list[Tensor]
    """What the pointers point to."""

    def point(self, name: str, tensor: Tensor) -> None:
        """Point to a tensor, and keep it."""
        self.kept.append(tensor)
        setattr(self, name, tensor.data_ptr())

    _fields_ = (
        ("embedding", c_void_p),
        ("positions", c_void_p),
        ("segment", c_void_p),
        ("cos", c_void_p),
        ("sin", c_void_p),
        ("embedding_norm", NormStruct),
        ("ids", c_void_p),
        ("num_ids", c_int64),
        ("eos_id", c_int32),
        ("pad_id", c_int32),
        ("bos_id", c_int32),
        ("embedding_scale", c_float),
    )


class TeamStruct(ctypes.Structure):
    """Team in csrc/types.h, whose fields are the core's own; zeros are a team that has nothing to do."""

    _fields_ = (
        ("state", c_int64),
        ("inside", c_int64),
        ("next", c_int64),
        ("product", c_void_p),
        ("x", c_void_p),
        ("rows", c_int64),
        ("first", c_int64),
        ("last", c_int64),
        ("y", c_void_p),
        ("stride", c_int64),
        ("scratch", c_void_p),
        ("delays", c_int64),
    )

    @property
    def is_dismissed(self) -> bool:
        """Whether it was dismissed, so that nobody helps any more."""
        return bool(self.state == 2)  # TO_LEAVE


class StepStruct(ctypes.Structure):
    """Step in csrc/types.h."""

    _fields_ = (
        ("num_rows", c_int64),
        ("num_lanes", c_int64),
        ("beam_size", c_int64),
        ("longest", c_int64),
        ("count", c_int64),
        ("num_ways", c_int64),
        ("lanes", POINTER(LaneStruct)),
        ("lane", c_void_p),
        ("beam", c_void_p),
        ("parent", c_void_p),
        ("position", c_void_p),
        ("token", c_void_p),
        ("is_last", c_void_p),
        ("score", c_void_p),
        ("way_score", c_void_p),
        ("way_beam", c_void_p),
        ("way_token", c_void_p),
        ("scratch", c_void_p),
        ("team", POINTER(TeamStruct)),
        ("spent", c_void_p),
    )


STRUCTS: tuple[type[ctypes.Structure], ...] = (
    ProductStruct,
    NormStruct,
    LayerStruct,
    StackStruct,
    LaneStruct,
    TokensStruct,
    TeamStruct,
    StepStruct,
)
"""In the order of `core_layout` in csrc/layout.h."""


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled core, or None where there is none, it cannot be used, or the processor cannot run it.

    Warns:
        CompiledCoreWarning: Once a process, if there is one that cannot be used.
    """
    core, fault = _load()
    if fault is not None:
        warnings.warn(fault, CompiledCoreWarning, stacklevel=2)
    return core


def _load() -> tuple[ctypes.CDLL | None, str | None]:
    """Return the compiled core if it can be used, and what is wrong with it if it is there and cannot."""
    path = _path()
    if path is None or not _has_processor():
        return None, None
    try:
        _check_file(path)
        core = ctypes.CDLL(str(path))
    except (OSError, ValueError) as error:
        return None, _not_in_use(f"{path} is damaged ({error})")
    try:
        _declare(core)
        fits = core.core_version() == VERSION and core.core_layout() == layout()
    except AttributeError:  # a function that there is not
        fits = False
    return (core, None) if fits else (None, _not_in_use(f"{path} was built from the sources of another version"))


def _not_in_use(reason: str) -> str:
    return (
        f"the compiled core is not in use: {reason}; install clearhead again (`pip install .`, in a checkout "
        f"`make setup` or `pip install -e .`); until then PyTorch does its work, more slowly"
    )


def _path() -> Path | None:
    """Return where the compiled core is, or None if it was not compiled."""
    paths = [Path(__file__).with_name("_core" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    return next((path for path in paths if path.is_file()), None)


def _has_processor() -> bool:
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _check_file(path: Path) -> None:
    """See that all parts of a shared library are there; the system maps one that was cut short, and then crashes.

    Raises:
        OSError: If it cannot be read.
        ValueError: If it is not a whole ELF file for 64 bits.
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


def _declare(core: ctypes.CDLL) -> None:
    """Say what the functions take and return.

    Raises:
        AttributeError: If the core lacks one.
    """
    core.core_version.restype, core.core_version.argtypes = c_int64, []
    core.core_layout.restype, core.core_layout.argtypes = c_uint64, []
    core.scratch_size.restype = c_int64
    core.scratch_size.argtypes = [POINTER(StackStruct), c_int64, c_int64, c_int64, ctypes.c_int]
    core.encode.restype = None
    core.encode.argtypes = [
        POINTER(StackStruct),
        POINTER(TokensStruct),
        c_int64,
        c_int64,
        *[c_void_p] * 6,
        POINTER(TeamStruct),
    ]
    core.gather_panels.restype = None
    core.gather_panels.argtypes = [c_void_p, c_void_p, c_int64, c_int64, c_void_p]
    core.request_amx.restype, core.request_amx.argtypes = ctypes.c_int, []
    core.assist.restype = core.end_team.restype = None
    core.assist.argtypes = [POINTER(TeamStruct)]
    core.end_team.argtypes = [POINTER(TeamStruct)]
    core.take_step.restype = None
    core.take_step.argtypes = [POINTER(StackStruct), POINTER(TokensStruct), POINTER(StepStruct)]
    core.score.restype = None
    core.score.argtypes = [
        POINTER(StackStruct),
        POINTER(TokensStruct),
        *[c_int64] * 3,
        POINTER(LaneStruct),
        *[c_void_p] * 9,
    ]


def layout() -> int:
    """Return what `core_layout` in csrc/layout.h returns if the core's structures are these."""
    value = 14695981039346656037

    def mix(number: int) -> None:
        nonlocal value
        value = (value ^ number) * 1099511628211 % 2**64

    for kind in STRUCTS:
        mix(ctypes.sizeof(kind))
        for name, *_ in kind._fields_:
            for letter in name.encode():
                mix(letter)
            field = getattr(kind, name)
            mix(field.offset)
            mix(field.size)
    return value


@cache
def has_amx() -> bool:
    """Tell whether the core can multiply in bfloat16 and in 8 bits on AMX."""
    core = library()
    return core is not None and torch.cpu._is_amx_tile_supported() and core.request_amx() == 0


def can_multiply(precision: DecodePrecision) -> bool:
    """Tell whether the core and the processor can multiply in that precision."""
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
    """Say in a line whether the core is in use, and why not."""
    core, fault = _load()
    if core is not None:
        return f"clearhead's compiled core is in use, {'with' if has_amx() else 'without'} AMX"
    if fault is not None:
        return fault
    if not _has_processor():
        return "clearhead's compiled core is not in use: this processor has no AVX-512; PyTorch does its work"
    return "clearhead's compiled core is not in use: no C compiler could build it; PyTorch does its work"
