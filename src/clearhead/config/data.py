"""`[data]`: the parallel text."""

from __future__ import annotations

from clearhead.config.settings import Items, Rate, Settings, Tokens

__all__ = ["DataConfig"]


class DataConfig(Settings):
    """`[data]`: the parallel text and what is kept of it."""

    source: tuple[str, ...] = ()
    """Files with one source segment a line; `.gz`, `.xz` and `.zst` are decompressed, `-` is standard input."""
    target: tuple[str, ...] = ()
    """Files with the translations, line by line beside `source`."""
    pairs: tuple[str, ...] = ()
    """Files that hold both sides, such as tab-separated `.tsv`."""
    valid_source: tuple[str, ...] = ()
    """Validation source files; without any, `valid_size` pairs are held out of the training text."""
    valid_target: tuple[str, ...] = ()
    """Validation target files, line by line beside `valid_source`."""
    valid_pairs: tuple[str, ...] = ()
    """Validation files that hold both sides."""
    exclude: tuple[str, ...] = ()
    """Text files, one segment a line (test sets, say): training pairs with a side in them are dropped as leakage."""
    valid_size: Items = 1_000
    """Pairs held out for validation when none are given; at most a tenth of the corpus."""
    max_characters: Items = 3_000
    """Pairs with a longer side, in characters, are dropped before anything else reads them."""
    max_length: Tokens = 256
    """Pairs with a longer side, in tokens, are dropped."""
    max_ratio: Rate = 6.0
    """Pairs whose longer side has more than this many times the characters of the shorter are dropped; sides under
    20 characters count as 20, so that short segments are not judged."""
    drop_duplicates: bool = True
    """Drop pairs that stand in the corpus already, letter for letter."""
