"""Executed annotations: a tensor that breaks its written shape raises at the call. Other types are left to mypy."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import types
from collections.abc import Iterable
from typing import Any, Self, get_args, get_type_hints

import jaxtyping
import torch
from beartype import beartype
from beartype.door import die_if_unbearable
from torch import Tensor

_jaxtyped = jaxtyping.jaxtyped
_plain: set[type] = {bool, int, float, str, type(None)}
"""Types whose values have no shape and no elements: these, and all that were met."""


def check_shapes() -> None:
    """Check what kernels, model and decoding are called with and what they return; none is imported yet.

    What jaxtyping writes above each function looks at all arguments of every call twice: a third of the time of a
    small training. It finds the decorator below instead, which looks once at whatever has another form than before.
    """
    jaxtyping.install_import_hook(["clearhead.kernels", "clearhead.model", "clearhead.decoding"], "beartype.beartype")
    jaxtyping.jaxtyped = lambda *, typechecker: _checked


def _checked(fn: Any) -> Any:
    if inspect.isclass(fn):
        if dataclasses.is_dataclass(fn):
            fn.__init__ = _checked(fn.__init__)
        return fn
    hints = {name: _resolve(hint, fn.__globals__) for name, hint in fn.__annotations__.items()}
    if not any(map(_has_shape, hints.values())):
        return fn
    if inspect.isgeneratorfunction(fn):
        return _jaxtyped(fn, typechecker=beartype)
    plain = beartype(_with_annotations(fn, hints))
    parameters = inspect.signature(fn)
    held: dict[Any, set[Any]] = {}  # forms of arguments, each with those of results
    checked: set[Any] = set()  # forms without the sizes

    @functools.wraps(fn)
    def with_its_own_axes(*args: Any, **kwargs: Any) -> Any:
        given = (_forms(args), _form(kwargs)) if kwargs else (_forms(args),)
        found = held.get(given)
        if found is None:
            if (sizeless := _sizeless(given, {})) not in checked:
                with _jaxtyped("context"):
                    result = plain(*args, **kwargs)
                checked.update((sizeless, _sizeless((given, _form(result)), {})))
                held[given] = {_form(result)}
                return result
            held[given] = found = set()
        result = fn(*args, **kwargs)
        if (form := _form(result)) not in found:
            if (sizeless := _sizeless((given, form), {})) not in checked:
                with _jaxtyped("context"):
                    for name, value in [*parameters.bind(*args, **kwargs).arguments.items(), ("return", result)]:
                        die_if_unbearable(value, hints.get(name, Any))
                checked.add(sizeless)
            found.add(form)
        return result

    return with_its_own_axes


def _forms(values: Iterable[Any]) -> tuple[Any, ...]:
    """Return the form of each value; without a call for most of them, of which there are millions."""
    return tuple(
        [
            kind if (kind := type(value)) in _plain else (value.dtype, value.shape) if kind is Tensor else _form(value)
            for value in values
        ]
    )


def _form(value: Any) -> Any:
    """Return what decides whether a value fits its annotation: shapes and types of elements, otherwise its type."""
    kind = type(value)
    if kind in _plain:
        return kind
    if isinstance(value, Tensor):
        return value.dtype, value.shape
    if isinstance(value, (list, tuple)):
        kinds = set(map(type, value))
        if len(kinds) == 1 and kinds <= _plain:  # as most are, rows of ids and scores
            return kind, *kinds, len(value) if kind is tuple else None
        return kind, *_forms(value)
    if isinstance(value, dict):
        return *value, *_forms(value.values())
    _plain.add(kind)
    return kind


def _sizeless(form: tuple[Any, ...], axes: dict[int, str]) -> tuple[Any, ...]:
    """Return a form with a name for each size: annotations ask which sizes are equal, and for 1 and 2."""
    if type(form) is torch.Size:
        return tuple([size if size <= 2 else axes.setdefault(size, f"axis {len(axes)}") for size in form])
    return tuple([_sizeless(part, axes) if isinstance(part, tuple) else part for part in form])


def _resolve(hint: Any, names: dict[str, Any]) -> Any:
    """Return what a written annotation means; anything goes for `Self`, and for what type checkers alone import.

    Of jaxtyping, which many modules import for type checkers alone, the shapes are checked all the same.
    """
    holder = types.SimpleNamespace(__annotations__={"value": hint})
    try:
        found = get_type_hints(holder, vars(jaxtyping) | names, include_extras=True)["value"]
    except NameError:
        return Any
    return Any if found is Self else found


def _with_annotations(fn: Any, hints: dict[str, Any]) -> Any:
    copy = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    functools.update_wrapper(copy, fn)
    del copy.__wrapped__
    copy.__kwdefaults__, copy.__annotations__ = fn.__kwdefaults__, hints
    return copy


def _has_shape(hint: Any) -> bool:
    is_shape = inspect.isclass(hint) and issubclass(hint, jaxtyping.AbstractArray)
    return is_shape or any(map(_has_shape, get_args(hint)))
