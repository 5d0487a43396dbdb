"""The compiled core: loads what `csrc/core.c` became and mirrors its structures, field by field.

Where it was not compiled, or the processor is not an x86-64 with AVX-512, `library` returns None and PyTorch does all
work.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
from ctypes import POINTER, c_double, c_float, c_int32, c_int64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

__all__ = [
    "LaneStruct",
    "LayerStruct",
    "NormStruct",
    "ProductStruct",
    "StackStruct",
    "StepStruct",
    "TeamStruct",
    "TokensStruct",
    "describe",
    "has_amx",
    "library",
]


class ProductStruct(ctypes.Structure):
    """Product in csrc/types.h."""

    _fields_ = (
        ("inputs", c_int64),
        ("outputs", c_int64),
        ("form", c_int64),
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
    """Team in csrc/types.h, whose fields are the core's own."""

    _fields_ = (("fields", c_int64 * 12),)


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


@cache
def library() -> ctypes.CDLL | None:
    """Return the compiled core, or None where there is none or the processor cannot run it."""
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return None
    paths = [Path(__file__).with_name("_core" + suffix) for suffix in importlib.machinery.EXTENSION_SUFFIXES]
    for path in paths:
        if path.is_file():
            core = ctypes.CDLL(str(path))
            core.scratch_size.restype = c_int64
            core.scratch_size.argtypes = [POINTER(StackStruct), c_int64, c_int64, c_int64]
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
            return core
    return None


@cache
def has_amx() -> bool:
    """Tell whether the core can multiply in bfloat16 and in 8 bits."""
    core = library()
    return core is not None and torch.cpu._is_amx_tile_supported() and core.request_amx() == 0


def describe() -> str:
    """Say in a line whether the core is in use, and why not."""
    if library() is not None:
        return f"clearhead's compiled core is in use, {'with' if has_amx() else 'without'} AMX"
    if torch.backends.cpu.get_cpu_capability() != "AVX512":
        return "clearhead's compiled core is not in use: this processor has no AVX-512; PyTorch does its work"
    return "clearhead's compiled core is not in use: no C compiler could build it; PyTorch does its work"
