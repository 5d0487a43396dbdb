"""Whether a module is still what it was, and whether it computes what its configuration says.

An engine has its own code and copies of the weights, but the module belongs to its user, who may change anything in it.
So whatever holds a copy compares here: weights by their content, because writing through `.data` or NumPy leaves no
other trace, and parts by their types, attributes, hooks and methods.
"""

from __future__ import annotations

import io
import pickle
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules import module as all_modules

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.kernels.bf16_linear import Linear
from clearhead.kernels.dropout import Dropout
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.decoder import Decoder, DecoderLayer
from clearhead.model.embeddings import Embedding, OutputProjection, OutputTransform
from clearhead.model.encoder import Encoder, EncoderLayer
from clearhead.model.feed_forward import FeedForward
from clearhead.model.other_positions import LearnedPositions, RelativePositions, RotaryPositions
from clearhead.model.position_tables import relative_rows, rotary_table, sinusoid_table
from clearhead.model.positions import SinusoidalPositions
from clearhead.model.residual import Residual

_OF_TORCH = (nn.Module, nn.Identity, nn.LayerNorm, nn.RMSNorm, nn.Linear, nn.Embedding, nn.ModuleList)
_OURS = (
    *(Decoder, DecoderLayer, Encoder, EncoderLayer, MultiHeadAttention, FeedForward, Residual, Linear, Dropout),
    *(Embedding, OutputProjection, OutputTransform),
    *(LearnedPositions, RelativePositions, RotaryPositions, SinusoidalPositions),
)
_AT_FIRST: dict[type, dict[str, Any]] = {}
"""What each class of a model's parts contained when it was imported."""

_NOT_SETTINGS = {"training", "_parameters", "_buffers", "_modules", "_compiled_call_impl"}
"""Attributes of every module that say nothing of how it computes, or are compared by themselves."""

_OTHER_PICKLERS = {"cloudpickle", "dill", "joblib.externals.cloudpickle", "ray.cloudpickle"}
"""Modules that store functions of any place."""

_OF_A_CALL = ("__call__", "_wrapped_call_impl", "_call_impl", "__getattr__", "forward")
"""Methods of `nn.Module` that a call of a part runs."""

_WIDTH = 1021
"""Words of 8 bytes that are summed side by side; a prime, so that the rows of a matrix fall on different ones."""
_MOST_ROWS = 64
"""Rows of so many words that are summed at once; they fit into a cache."""
_ODD = np.uint64(0x9E3779B97F4A7C15)


def note_methods(*kinds: type) -> None:
    """Note the methods of classes, to notice later if one is replaced."""
    _AT_FIRST.update({kind: dict(vars(kind)) for kind in kinds})


note_methods(*_OF_TORCH, *_OURS)


class ModuleState:
    """The parts of a module and the content of its weights, at the time when this object is made.

    Args:
        model: The module.
    """

    def __init__(self, model: nn.Module) -> None:
        self._parts = [(part, type(part), _copied(vars(part))) for part in model.modules()]
        self._contents = self._digests()
        self._changed_methods = changed_method()

    def is_current(self) -> bool:
        """Return whether nothing has changed since."""
        is_same = all(type(part) is kind and _equal(vars(part), then) for part, kind, then in self._parts)
        return is_same and changed_method() == self._changed_methods and self._digests() == self._contents

    def _digests(self) -> list[int]:
        tensors = {id(tensor): tensor for part, *_ in self._parts for tensor in _tensors_of(part)}
        return [_digest(tensor.detach()) for tensor in tensors.values()]


def departure(model: nn.Module) -> str | None:
    """Return in which way a `Transformer` computes something else than its configuration says; None if it does not.

    Its weights may have any values.
    """
    if changed := changed_method():
        return changed
    if type(model) not in _AT_FIRST:
        return f"the model is a {type(model).__name__}"
    make: Callable[[ModelConfig], nn.Module] = type(model)
    standard = _standard(make, model.config)
    parts = dict(model.named_modules(remove_duplicate=False))
    for name, usual in standard.items():
        part = parts.pop(name, None)
        if fault := "has been removed" if part is None else _difference(part, usual, is_causal="decoder" in name):
            return f"{name or 'the model'} {fault}"
    return f"{next(iter(parts))} has been added" if parts else None


def unknown_parts(model: nn.Module) -> list[str]:
    """Return the names of the parts whose class is none of those that the engines were written for."""
    return [name for name, part in model.named_modules() if type(part) not in _AT_FIRST]


def require_picklable(model: nn.Module) -> None:
    """Require that `pickle` can store the parts of a module; its tensors are not looked at.

    Other programs that pickle, such as cloudpickle of Ray, store more; if one is in use, it finds out by itself.

    Raises:
        ModelError: If it cannot.
    """
    try:
        _WithoutTensors(io.BytesIO()).dump(model)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        if _OTHER_PICKLERS.isdisjoint(sys.modules):
            raise ModelError(
                f"the model was changed in memory by something that cannot be pickled, such as a hook or forward that "
                f"is a lambda ({error!s:.200}): define it at the top of a module, or remove it before the pickling"
            ) from error


class _WithoutTensors(pickle.Pickler):
    def persistent_id(self, value: object) -> int | None:
        """Return a stand-in for what is not to be pickled, and None for all else."""
        return 0 if isinstance(value, Tensor) else None


def has_own_forward(model: nn.Module) -> bool:
    """Return whether a call of a model does something else than `Transformer.forward`, such as running hooks."""
    return _has_hooks(model) or _has_own(model, "forward")


def has_forward_alone(model: nn.Module) -> bool:
    """Return whether a call of a model does something else than its `encode` and `decode` together."""
    return _has_hooks(model) or (_has_own(model, "forward") and not _has_own(model, "decode"))


def _has_hooks(model: nn.Module) -> bool:
    return bool(model._forward_hooks or model._forward_pre_hooks)


def _has_own(model: nn.Module, name: str) -> bool:
    [first] = [methods[name] for kind, methods in _AT_FIRST.items() if kind.__name__ == "Transformer"]
    return getattr(getattr(model, name), "__func__", None) is not first


def changed_method() -> str | None:
    """Return which method of a class, or which hook of all modules, was changed in this process; None if none was."""
    if all_modules._global_forward_hooks or all_modules._global_forward_pre_hooks:
        return "a forward hook of all modules is registered"
    for kind, before in _AT_FIRST.items():
        now = vars(kind)
        if now != before:
            # Other libraries add methods to nn.Module; one that is new matters if it hides an inherited one.
            inherited = {name for base in kind.__mro__[1:] for name in vars(base)}
            names = _OF_A_CALL if kind is nn.Module else [*before, *(now.keys() & inherited - before.keys())]
            for name in names:
                old, new = before.get(name), now.get(name)
                if old is not new and any(callable(member) or isinstance(member, property) for member in (old, new)):
                    return f"{kind.__name__}.{name} has been replaced"
    return None


@lru_cache(maxsize=8)
def _standard(make: Callable[[ModelConfig], nn.Module], config: ModelConfig) -> dict[str, nn.Module]:
    """Return the parts of a new model, whose weights have shapes and no values."""
    with torch.device("meta"):
        return dict(make(config).named_modules(remove_duplicate=False))


def _difference(part: nn.Module, usual: nn.Module, *, is_causal: bool) -> str | None:
    if type(part) is not type(usual):
        return f"is a {type(part).__name__}, not a {type(usual).__name__}"
    now, then = (
        {name: value for name, value in vars(module).items() if name not in _NOT_SETTINGS} for module in (part, usual)
    )
    names = () if _equal(now, then) else {**then, **now}  # nearly always all are equal, which is one comparison
    for name in names:
        if name not in then or name not in now or not _equal(now[name], then[name]):
            if "_hooks" in name:
                return "has hooks"
            return f"has its own {name}" if callable(now.get(name)) else f"has another {name} than its configuration"
    for kind, weights, others in (
        ("weights", part._parameters, usual._parameters),
        ("tables", part._buffers, usual._buffers),
    ):
        if [name for name, value in weights.items() if value is not None] != [
            name for name, value in others.items() if value is not None
        ]:
            return f"has other {kind} than its configuration"
    for name, weight in part._parameters.items():
        other = usual._parameters[name]
        if weight is not None and (type(weight) is not nn.Parameter or other is None or weight.shape != other.shape):
            return f"has a weight {name} of another shape or type than its configuration"
    for name, table in _tables(part, is_causal=is_causal).items():
        buffer = part._buffers[name]
        if buffer is None or not torch.equal(buffer.cpu(), torch.as_tensor(table).to(buffer.dtype)):
            return f"has another {name} than its configuration"
    return None


def _tables(part: nn.Module, *, is_causal: bool) -> Mapping[str, np.ndarray]:
    """Return the values of a part's buffers; tables of positions are as long as the longest text so far."""
    match part:
        case SinusoidalPositions():
            *_, length, width = (0, 0, *part.table.shape)
            return {"table": sinusoid_table(length, width, part.layout, first=part.first)}
        case RotaryPositions():
            *_, length, _ = (0, 0, *part.table.shape)
            return {"table": rotary_table(length, part.head_dim)}
        case RelativePositions():
            edges, rows = relative_rows(len(part.weight), part.max_distance, is_causal=is_causal)
            return {"edges": edges, "rows_between": rows}
    return {}


def _tensors_of(part: nn.Module) -> Iterator[Tensor]:
    yield from (weight for weight in part._parameters.values() if weight is not None)
    yield from (buffer for buffer in part._buffers.values() if buffer is not None)


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return attributes with copies of the containers among them, which are changed in place."""
    kinds = (dict, OrderedDict, set, list)
    return {name: value.copy() if type(value) in kinds else value for name, value in attributes.items()}


def _equal(now: Any, then: Any) -> bool:
    try:
        return bool(now == then)
    except Exception:  # another tensor or array, compared element by element
        return False


def _digest(tensor: Tensor) -> int:
    """Return a number that another content changes, in about the time of reading the memory once."""
    flat = tensor.reshape(-1).view(torch.uint8)
    if flat.device.type != "cpu":
        return _digest_on_device(flat)
    raw = flat.numpy()
    # One byte on, where the sign of a number is not the highest bit of a word: two of those cancel each other in a sum.
    rest = raw[1:]
    table = rest[: len(rest) // (8 * _WIDTH) * 8 * _WIDTH].view(np.uint64).reshape(-1, _WIDTH)
    digest = np.zeros(_WIDTH, np.uint64)
    # Two rows of a matrix whose words fall on the same columns are never in one block, and the order of blocks counts.
    rows = max(1, min(_MOST_ROWS, tensor.shape[-1] * tensor.element_size() // 8 if tensor.dim() else 1))
    for start in range(0, len(table), rows):
        digest = digest * _ODD + table[start : start + rows].sum(axis=0)
    return hash((raw[:1].tobytes(), digest.tobytes(), rest[table.nbytes :].tobytes()))


def _digest_on_device(flat: Tensor) -> int:
    """Return a digest of bytes that are not in the memory of the CPU, of which little is copied."""
    words = flat[: len(flat) // 8 * 8].view(torch.int64)
    table = words[: len(words) // _WIDTH * _WIDTH].view(-1, _WIDTH)
    factors = 2 * torch.arange(len(table), device=flat.device)[:, None] + 1  # odd, so that every bit counts
    mixed = table >> 17  # so that the sign of a number is not in the highest bit alone; see above
    mixed ^= table
    mixed *= factors
    parts = [mixed.sum(dim=0), words[table.numel() :], flat[8 * len(words) :].long()]
    return hash(torch.cat(parts).cpu().numpy().tobytes())
