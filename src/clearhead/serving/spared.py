"""What Python's search for cycles leaves out."""

from __future__ import annotations

import gc

__all__ = ["spare_what_is_loaded"]


def spare_what_is_loaded() -> None:
    """Leave all that there is now out of Python's search for cycles, which looks at everything from time to time.

    With a model that takes a tenth of a second, in which all threads wait.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()
