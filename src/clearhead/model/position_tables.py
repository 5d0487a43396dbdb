"""Tables of positions by NumPy, for the modules and for the compiled core: both compute with the same bits.

Shapes: T length, D d_model, half: pairs of components, N rows, E edges between them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config.choices import SinusoidLayout
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from jaxtyping import Float, Int


def sinusoid_table(
    length: int, d_model: int, layout: SinusoidLayout = "sinusoidal", *, first: int = 0
) -> Float[np.ndarray, "T D"]:
    """Return the sinusoidal encodings of positions in float32; see `sinusoidal_positions`.

    Raises:
        ConfigError: If the width is odd.
    """
    if d_model % 2:
        raise ConfigError(
            f"d_model ({d_model}) must be even: sinusoidal positions come in pairs of sine and cosine (section 3.5)"
        )
    # float64: the angle at position 5000 would lose three digits in float32.
    position = np.arange(first, first + length, dtype=np.float64)[:, None]  # (T, 1)
    angle = position * wave_frequencies(d_model, layout)  # (T, D/2)
    waves = np.sin(angle).astype(np.float32), np.cos(angle).astype(np.float32)
    if layout == "sinusoidal":
        return np.stack(waves, axis=-1).reshape(length, d_model)
    return np.concatenate(waves, axis=-1)


def wave_frequencies(d_model: int, layout: SinusoidLayout = "sinusoidal") -> Float[np.ndarray, " half"]:
    """Return the angle in radians by which each wave advances from one position to the next, in float64.

    Args:
        d_model: Model width; a wave is a sine and a cosine.
        layout: Layout as for `sinusoidal_positions`.
    """
    num_waves = d_model // 2
    longest = num_waves - 1 if layout == "sinusoidal_t2t" else num_waves
    # A width of 2 has a single wave, of frequency 1.
    step = -math.log(10_000.0) / max(longest, 1)
    return np.exp(np.arange(num_waves, dtype=np.float64) * step)


def require_positions(length: int, max_positions: int) -> None:
    """Require that a sequence fits a model with learned positions.

    Raises:
        ConfigError: If the model has fewer positions.
    """
    if length > max_positions:
        raise ConfigError(
            f"a sequence of {length} tokens does not fit this model, whose learned positions end after "
            f"model.max_positions = {max_positions}; cut the text into shorter segments"
        )


def rotary_table(length: int, head_dim: int) -> Float[np.ndarray, "2 T half"]:
    """Return cosine and sine of the angles of rotary positions in float32 (Su et al. 2021)."""
    frequency = 10_000.0 ** (-np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    # float64, and cosines in the table instead of angles: rounded to bfloat16, an angle of 300 would be off by 1.
    angle = np.arange(length, dtype=np.float64)[:, None] * frequency
    return np.stack([np.cos(angle), np.sin(angle)]).astype(np.float32)


def relative_rows(
    num_buckets: int, max_distance: int, *, is_causal: bool
) -> tuple[Int[np.ndarray, " E"], Int[np.ndarray, " N"]]:
    """Return the rows of a table of relative positions in the order of distances, and where each but the first begins.

    The row of a distance (the position of the key minus that of the query) is `rows[searchsorted(edges, distance,
    "right")]`. Half of the rows hold one distance each. The others share the larger distances, in ranges of growing
    width; the last row includes everything beyond `max_distance` (Raffel et al. 2020, section 2.1).

    Args:
        num_buckets: Number of rows of the table.
        max_distance: Distance from which on all share the last row.
        is_causal: Keys never follow their query. Otherwise keys after the query use the second half of the table.

    Returns:
        The edges and the rows.
    """
    num_rows = num_buckets if is_causal else num_buckets // 2
    first = _first_distances(num_rows, max_distance)
    before = 1 - first[:0:-1], np.arange(num_rows - 1, -1, -1)  # from the farthest key to the query itself
    after = first[1:], np.arange(num_rows + 1, 2 * num_rows)
    return before if is_causal else (np.concatenate([before[0], after[0]]), np.concatenate([before[1], after[1]]))


def _first_distances(num_rows: int, max_distance: int) -> Int[np.ndarray, " N"]:
    """Return the smallest distance of each row of one direction, found by bisection."""
    single = num_rows // 2
    shared = np.arange(single, num_rows)
    low, high = np.full_like(shared, single), np.full_like(shared, max_distance)
    while (low < high).any():
        middle = (low + high) // 2
        # In float32 and in this order, as in T5's training: otherwise a distance could cross a boundary between rows.
        log = np.log((middle.astype(np.float32) / np.float32(single)).astype(np.float64)).astype(np.float32)
        log /= np.float32(math.log(max_distance / single))  # 0 at `single`, 1 at `max_distance`
        reaches = single + (log * np.float32(num_rows - single)).astype(np.int64) >= shared
        low, high = np.where(reaches, low, middle + 1), np.where(reaches, middle, high)
    return np.concatenate([np.arange(single), high])
