"""The command line: a module for each command, and the options, checks and notices that commands share."""

import gc
from typing import Any

_USUAL = gc.get_threshold()


def _collect_as_usual(phase: str, info: dict[str, Any]) -> None:
    """Put Python's own threshold back at the first collection: what runs long would keep garbage of any size."""
    gc.set_threshold(*_USUAL)
    gc.callbacks.remove(_collect_as_usual)


# New objects until garbage is collected; importing the libraries of a command makes 60,000. With 700, Python's default,
# collecting took a tenth of the time to the first translation.
gc.set_threshold(100_000)
gc.callbacks.append(_collect_as_usual)
