"""What an object computes when first asked, and keeps."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):
        """That of Python 3.12, without a lock.

        Before, all objects of a class share one that is held while a value is computed: threads wait for each other,
        and a process forked meanwhile waits for ever. Here two threads that ask at once may both compute the value.
        """

        def __get__(self, instance: object, owner: type | None = None) -> Any:
            """Return the value of an object, computed if it has none."""
            if instance is None:
                return self
            value = instance.__dict__[self.attrname] = self.func(instance)
            return value
