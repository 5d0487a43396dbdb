"""The tree of exceptions for errors that a user can correct, warnings, and suggestions of the nearest name.

Every error that a user can cause is a `ClearheadError` with one clear message.

ClearheadError
├── ConfigError       a setting is unknown, impossible or contradicts another
├── DataError         a text file, a corpus or a line of text cannot be used
├── ModelError        a model directory is damaged, mixed, or in another format
├── CheckpointError   a run directory cannot be resumed or saved
├── TrainingError     training stopped: it diverged, the device has too little memory, or a worker was lost
└── DeviceError       the requested device is not available

The command line prints the message and exits with status 1; any other exception is a bug and shows a traceback.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LONGEST_MESSAGE = 3_000
"""Maximum characters of a message; its quotations, for example from a damaged file, may be of any length."""


class ClearheadError(Exception):
    """An error that the user can correct; the message says what is wrong, where, and how to correct it."""

    def __init__(self, message: str) -> None:
        super().__init__(_shortened(message))


class ConfigError(ClearheadError):
    """A setting is unknown, impossible, or contradicts another."""


class DataError(ClearheadError):
    """A text file, a corpus or a line of text cannot be used as it is."""


class ModelError(ClearheadError):
    """A model directory is missing, damaged, mixed from two models, or in another format."""


class CheckpointError(ClearheadError):
    """A run directory cannot be resumed, or a checkpoint cannot be written."""


class TrainingError(ClearheadError):
    """Training stopped because it diverged, the device ran out of memory, or another worker was lost."""


class DeviceError(ClearheadError):
    """The requested device is not available on this machine."""


class ClearheadWarning(UserWarning):
    """Something a user should know; the command line shows it as a notice."""


class ChangedModelWarning(ClearheadWarning):
    """A model's module was changed, so that it computes itself instead of a faster engine; the message says how."""


class CompiledCoreWarning(ClearheadWarning):
    """The compiled core cannot be used, and PyTorch is used instead; the message gives the reason and a remedy."""


def nearest_name(name: str, known: Iterable[str], *, section: str = "") -> str:
    """Return "; did you mean 'x'?" for the closest known name, or the list of names if none is close.

    Args:
        name: The unknown name.
        known: Known names.
        section: What is written before them, such as `train.`.

    >>> nearest_name("warmup_step", ["warmup_steps", "seed"])
    "; did you mean 'warmup_steps'?"
    """
    names = sorted(known)
    if close := get_close_matches(name, names, n=1, cutoff=0.5):
        return f"; did you mean {section + close[0]!r}?"
    return f"; known names: {', '.join(names)}"


def _shortened(message: str) -> str:
    """Return a message with the middle of an overlong one left out."""
    if len(message) <= LONGEST_MESSAGE:
        return message
    half = LONGEST_MESSAGE // 2 - 50  # leaves room for the note in the middle
    return f"{message[:half]} [... {len(message) - 2 * half:,} characters left out ...] {message[-half:]}"
