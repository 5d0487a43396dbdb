"""The version of clearhead, which is defined only here: asking for the metadata of the package takes 50 ms."""

from __future__ import annotations

__version__ = "0.1.0"
