"""Cached properties without a lock; names of a package that are imported when first used."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

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
