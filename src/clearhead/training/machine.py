"""A device of a cluster, as a TOML file describes it for estimates of time and price."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, PositiveFloat

from clearhead.config import read_toml
from clearhead.config.settings import Settings

INTERCONNECT = 12.5e9

Size = Annotated[PositiveFloat, Field(le=1e30)]


class Machine(Settings):
    """One device of a cluster, and its connection to the others, as a TOML file gives them."""

    flops: Size
    """Peak of matrix products in the precision of training, in floating-point operations per second."""
    memory: Size
    """Memory of a device, in bytes."""
    bandwidth: Size
    """Bandwidth of this memory, in bytes per second."""
    interconnect: Size = INTERCONNECT
    """Bytes per second that each device can send to the others, by default the speed of a network of 100 Gbit/s."""
    utilisation: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of `flops` that a step reaches; the paper's base model has 0.1 on an H100 (docs/scaling.md)."""
    price: Annotated[float, Field(ge=0.0, le=1e9)] | None = None
    """Price of a device an hour, in any currency."""

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a TOML file.

        Raises:
            ConfigError: If it cannot be read, is not TOML, or a value is missing or impossible.
        """
        return cls.from_dict(read_toml(path), origin=str(path))
