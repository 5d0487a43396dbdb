"""`[data]` and `[tokenizer]`: the parallel text, and the vocabulary that spells it."""

from __future__ import annotations

import csv
import re
from typing import Any, Literal, Self

from pydantic import field_validator, model_validator

from clearhead.config.choices import AlignmentWords, TokenizerKind
from clearhead.config.settings import Items, Pieces, Probability, Rate, Settings, Times, Tokens
from clearhead.text.language_tags import LANGUAGE

MOST_COLUMNS = 10_000
"""Largest number of a column."""


class DataConfig(Settings):
    """`[data]`: the parallel text and what is kept of it."""

    source: tuple[str, ...] = ()
    """Files with one source segment a line; `.gz`, `.xz` and `.zst` are decompressed, `-` is standard input."""
    target: tuple[str, ...] = ()
    """Files with the translations, line by line beside `source`."""
    alignments: tuple[str, ...] = ()
    """Files with links of words, line by line beside `source`, such as `0-0 1-2`: a word of the source and one of the
    target. One head learns to look along them (docs/alignment.md); other text has none."""
    alignment_base: Literal[0, 1] = 0
    """Number of the first word in them."""
    alignment_words: AlignmentWords = "spaced"
    """What counts as a word in them: what white space parts, or with `characters` also every character in scripts
    without spaces, as in the links that clearhead writes."""
    pairs: tuple[str, ...] = ()
    """Files that hold both sides, such as `.tsv`, `.po` or `.parquet` (docs/formats.md); also directories, for all such
    files in them, and patterns such as `locale/**/*.po`."""
    weights: tuple[Times, ...] = ()
    """How often an epoch has the pairs of each entry of `pairs`, in their order, such as `[3, 1]`; once if not set, and
    so are those of `source` and `target`."""
    columns: tuple[int | str, int | str] | None = None
    """Columns that hold source and target in all files of pairs: numbers counted from 1, or names from a header line,
    such as `[2, 1]` or `["english", "german"]`; told by each file if not set (docs/formats.md)."""
    from_lang: str | None = None
    """Language of the source, such as `en` or `de-AT`, in files of pairs that name languages."""
    to_lang: str | None = None
    """Language of the target in them."""
    swap: bool = False
    """The other direction: source and target change places in all text."""
    valid_source: tuple[str, ...] = ()
    """Validation source files; without any, `valid_size` pairs are held out of the training text."""
    valid_target: tuple[str, ...] = ()
    """Validation target files, line by line beside `valid_source`."""
    valid_pairs: tuple[str, ...] = ()
    """Validation files that hold both sides, named as `pairs` are."""
    general_source: tuple[str, ...] = ()
    """General text, which a run that starts from a model (`--from`) must not unlearn: files with one source segment a
    line. `valid_size` pairs of it are held out, and their translations are watched (`train.general_margin`)."""
    general_target: tuple[str, ...] = ()
    """Its translations, line by line beside `general_source`."""
    general_pairs: tuple[str, ...] = ()
    """Files of general text that hold both sides, named as `pairs` are."""
    general_share: Probability = 0.5
    """Share of the training pairs, altered copies aside, that are drawn from the rest of the general text, as far as
    that goes; 0 mixes none in."""
    exclude: tuple[str, ...] = ()
    """Files, one segment a line or of pairs (test sets, say), named as `pairs` are: training pairs with a side in them
    are dropped as leakage."""
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
    augment: bool = True
    """Add altered copies of a few training sentences, as users' text comes: several joined, without their end mark, or
    with another number. The presets of the paper have it off."""

    @model_validator(mode="after")
    def _a_weight_for_every_file(self) -> Self:
        if self.weights and len(self.weights) != len(self.pairs):
            raise ValueError(
                f"data.weights has {len(self.weights)} numbers, and data.pairs names {len(self.pairs)}; give one for "
                f"each"
            )
        return self

    @field_validator("weights", mode="before")
    @classmethod
    def _whole_numbers(cls, value: Any) -> Any:
        """Read `N,N` as it is typed."""
        if not isinstance(value, str):
            return value
        numbers = [number.strip() for number in value.split(",")]
        if not all(map(str.isdecimal, numbers)):
            raise ValueError(f"weights {value!r}: give a whole number above 0 for each file of pairs, such as 3,1")
        return tuple(map(int, numbers))

    @field_validator("columns", mode="before")
    @classmethod
    def _two_columns(cls, value: Any) -> Any:
        """Read `A,B` as it is typed, where digits are a number and quotation marks hold a name with a comma."""
        typed = value
        if isinstance(value, str):
            try:
                names = [name.strip() for name in next(csv.reader([value], skipinitialspace=True), [])]
            except csv.Error:  # a line end in a name, say
                names = []
            value = [int(name) if name.isdecimal() else name for name in names]
        if value is None or (
            isinstance(value, list | tuple)
            and len(value) == 2
            and value[0] != value[1]
            and all(isinstance(column, str) or type(column) is int for column in value)
            and all(column and (isinstance(column, str) or 0 < column <= MOST_COLUMNS) for column in value)
        ):
            return value
        raise ValueError(
            f"columns {typed!r:.200}: name two different ones, source and target, by their numbers, counted from 1, or "
            f"their names in the header, such as 2,1 or english,german"
        )


class TokenizerConfig(Settings):
    """`[tokenizer]`: the joint subword vocabulary."""

    kind: TokenizerKind = "bpe"
    """Byte-pair encoding (paper section 5.1, EN-DE), unigram, or word-piece (EN-FR). A unigram vocabulary is learned a
    little differently each time, so the same command gives another model. `imported` is the vocabulary of an imported
    model, which a run has from `--from` and cannot learn."""
    vocab_size: Pieces | None = None
    """Pieces in the vocabulary, special tokens included; chosen from the corpus size if not set (paper: 37,000)."""
    split_digits: bool = True
    """Keep every digit a piece of its own, so that numbers are copied rather than memorised."""
    language_tags: tuple[str, ...] = ()
    """Languages whose tag, such as `<2de>`, may head a source line to name the language it is translated into."""

    placeholders: bool | None = None
    """Tokens for placeholders, markup and addresses, which are then copied and never spelled (docs/placeholders.md); if
    not set, where one of a hundred training pairs has the same ones on both sides."""

    @model_validator(mode="after")
    def _tags_can_be_told_apart(self) -> Self:
        for language in self.language_tags:
            if not re.fullmatch(LANGUAGE, language) or self.language_tags.count(language) > 1:
                raise ValueError(
                    f"tokenizer.language_tags: {language!r} must be there once, not empty, without spaces, "
                    f"'<' and '>'; for example ['de', 'fr']"
                )
        return self
