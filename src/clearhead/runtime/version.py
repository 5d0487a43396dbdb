"""The version of the installed package; it is defined only in `pyproject.toml`."""

from __future__ import annotations

from importlib import metadata

__version__ = metadata.version("clearhead")
