"""The version of the installed package; it is written in `pyproject.toml` alone."""

from __future__ import annotations

from importlib import metadata

__all__ = ["__version__"]

__version__ = metadata.version("clearhead")
