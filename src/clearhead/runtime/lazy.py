"""Cached properties without a lock; caches that are not copied; names of a package imported when first used."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

Argument = TypeVar("Argument", bound=Hashable)
Result = TypeVar("Result")

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property as cached_property
else:

    class cached_property(functools.cached_property):
        """The `functools.cached_property` of Python 3.12, which has no lock.

        Before 3.12, all objects of a class share a lock that is held while a value is computed. So threads wait for
        each other, and a process forked meanwhile waits forever. Without the lock, two simultaneous threads may both
        compute the value.
        """

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value for an object; compute it if it has none."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value


class LruCache(Generic[Argument, Result]):
    """`functools.lru_cache` of a method; a copy of the object, or a pickled one, begins with an empty cache.

    Args:
        method: The method, of one argument.
        size: Most results that are kept.
    """

    def __init__(self, method: Callable[[Argument], Result], size: int) -> None:
        self._method, self._size = method, size
        self._cached = functools.lru_cache(size)(method)

    def __call__(self, argument: Argument) -> Result:
        """Return the method's result."""
        return self._cached(argument)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what is copied and pickled."""
        return LruCache, (self._method, self._size)


def lazy_names(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports each of its names on first use.

    Args:
        package: The package.
        homes: Name to the module of the package that defines it.
    """

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return get
