"""`[data]` and `[tokenizer]`: settings of the parallel text and of the subword vocabulary."""

from __future__ import annotations

import csv
import re
from typing import Any, Literal, Self

from pydantic import ValidationInfo, field_validator, model_validator

from clearhead.config.choices import AlignmentWords, DropKind, FixKind, HoldOut, TokenizerKind
from clearhead.config.decode import require_language
from clearhead.config.settings import Items, Pieces, Probability, Rate, Settings, Temperature, Times, Tokens
from clearhead.text.languages import LANGUAGE

MOST_COLUMNS = 10_000
"""Largest number of a column."""


class DataConfig(Settings):
    """`[data]`: files of parallel text, and the filtering of their pairs."""

    source: tuple[str, ...] = ()
    """Source text, one segment per line; `.gz`, `.xz` and `.zst` are decompressed, `-` is standard input."""
    target: tuple[str, ...] = ()
    """Translations of the source text, aligned line by line."""
    alignments: tuple[str, ...] = ()
    """Word alignments of source and target text, line by line. A link such as `0-0` joins a source word and a target
    word; a line has several, such as `0-0 1-2`. One attention head is trained to follow them (docs/alignment.md).

    They apply only to `source` and `target`."""
    alignment_base: Literal[0, 1] = 0
    """Number of the first word of a line in `alignments`, 0 or 1."""
    alignment_words: AlignmentWords = "spaced"
    """What counts as a word in `alignments`. `spaced`: text between white space. `characters`: in scripts without
    spaces each character is a word of its own, as in the alignments that clearhead writes; elsewhere as `spaced`."""
    pairs: tuple[str, ...] = ()
    """Files that contain both sides, such as `.tsv`, `.po` or `.parquet` (docs/formats.md). Directories stand for all
    such files in them; patterns such as `locale/**/*.po` are expanded."""
    weights: tuple[Times, ...] = ()
    """How many times an epoch contains the pairs of each file, directory or pattern of `pairs`, in the same order; once
    if not set.

    Such as `[3, 1]`. With `[0.5, 1]` an epoch contains half of the pairs of the first one, and the next epoch the
    other half. The pairs of `source` and `target` are always used once."""
    temperature: Temperature = 1.0
    """Temperature of the mixture of the files, directories and patterns of `pairs`, such as one for each language: of n
    pairs, n^(1/T) shares of an epoch (Arivazhagan et al. 2019: 5). 1 leaves each its size; above it, small ones are
    repeated, and an epoch has a part of large ones.

    An epoch has as many pairs as the text. `weights` multiply what each gets; `source` and `target` are one file.
    Languages told apart by tags within a file are not tempered: write a file for each, such as
    `grep '^<2fr> ' all.tsv > fr.tsv`."""
    columns: tuple[int | str, int | str] | None = None
    """Columns of source and target in files of pairs: numbers counted from 1, or names from the header line.

    Such as `[2, 1]` or `["english", "german"]`. Names apply to the files that have them. If not set, each file
    determines its columns (docs/formats.md)."""
    from_lang: str | None = None
    """Source language to read from files of pairs with named languages, such as `en` or `de-AT`."""
    to_lang: str | None = None
    """Target language to read from files of pairs with named languages."""
    swap: bool = False
    """Exchange source and target in all text, as for the opposite direction."""
    valid_source: tuple[str, ...] = ()
    """Validation source text, one segment per line.

    If there is no validation text, `valid_size` pairs of the training text are held out."""
    valid_target: tuple[str, ...] = ()
    """Translations of the validation source text, aligned line by line."""
    valid_pairs: tuple[str, ...] = ()
    """Validation files that contain both sides, in the same formats as `pairs`."""
    general_source: tuple[str, ...] = ()
    """General source text, one segment per line: text on which a model that is fine-tuned (`--from`) must not get
    worse. Part of it is held out to watch this, part is mixed into the training text (`data.general_share`).

    It is held out for `train.general_margin`, in `valid_size` pairs."""
    general_target: tuple[str, ...] = ()
    """Translations of the general source text, aligned line by line."""
    general_pairs: tuple[str, ...] = ()
    """Files of general text that contain both sides, in the same formats as `pairs`."""
    general_share: Probability = 0.5
    """Share of the training pairs, not counting augmented copies, that is drawn from the rest of the general text; less
    if there is not enough of it. 0 mixes in none."""
    corrections: tuple[str, ...] = ()
    """Files of corrected translations, in the same formats as `pairs`: what a model that is fine-tuned (`--from`)
    learns. All other training text is then general text; without any it is the text that the run of this model was
    trained on. General pairs with a source that was corrected are left out.

    Corrections and general text each make up half of an epoch (`data.general_share`)."""
    exclude: tuple[str, ...] = ()
    """Files such as test sets, with one segment per line or in the same formats as `pairs`. Training pairs with a side
    that occurs in them are dropped, to prevent leakage."""
    valid_size: Items = 1_000
    """Pairs held out for validation if no validation text is given; at most a tenth of the corpus."""
    hold_out: HoldOut | None = None
    """How pairs are held out if no validation text is given. `file`: whole files. `passage`: blocks of neighbouring
    lines, spread over the text. `line`: lines at random. If not set: files, if whole ones make up about `valid_size`
    pairs, else passages.

    Lines of a document resemble their neighbours, so that lines at random score as if they were known."""
    max_characters: Items = 3_000
    """Maximum characters of either side; longer pairs are dropped before all other processing."""
    max_length: Tokens = 256
    """Maximum tokens of either side; longer pairs are dropped."""
    max_ratio: Rate = 6.0
    """Maximum ratio of the lengths of the two sides, in characters; pairs above it are dropped. A side of fewer than 20
    characters counts as 20, so short segments are kept."""
    drop_duplicates: bool = True
    """Drop exact duplicates of earlier pairs."""
    fix: tuple[FixKind, ...] = ()
    """Findings of the data doctor to mend before all other cleaning, of `mojibake`, `entities`, `swapped` and
    `shifted`; pairs where it cannot are dropped (docs/data-doctor.md).

    Validation text is left as it is."""
    drop: tuple[DropKind, ...] = ()
    """Findings of the data doctor whose pairs are dropped, such as `wrong_language` and `other_language`
    (docs/data-doctor.md names them all)."""
    augment: bool = True
    """Add altered copies of a few training sentences that resemble users' input: several sentences joined, without end
    punctuation, or with another number. The presets of the paper switch it off."""

    @model_validator(mode="after")
    def _a_weight_for_every_file(self) -> Self:
        if self.weights and len(self.weights) != len(self.pairs):
            raise ValueError(
                f"data.weights has {len(self.weights)} numbers, and data.pairs names {len(self.pairs)}; give one for "
                f"each"
            )
        return self

    @model_validator(mode="after")
    def _corrections_are_the_training_text(self) -> Self:
        for name in ("weights", "temperature", "alignments"):
            if self.corrections and getattr(self, name) not in ((), 1.0):
                raise ValueError(
                    f"data.{name} applies to training text, but beside data.corrections all other text is general "
                    f"text; leave one of the two out"
                )
        return self

    @model_validator(mode="after")
    def _a_temperature_has_texts_to_mix(self) -> Self:
        if self.temperature != 1.0 and len(self.pairs) + bool(self.source) == 1:
            raise ValueError(
                "data.temperature mixes several files or directories, and the training text is only one; write "
                "languages told apart by tags into a file for each, such as grep '^<2fr> ' all.tsv > fr.tsv"
            )
        return self

    @property
    def by_use(self) -> Self:
        """These settings with corrections, if there are any, as the training text, and the rest as general text."""
        if not self.corrections:
            return self
        general = {
            f"general_{name}": getattr(self, name) + getattr(self, f"general_{name}")
            for name in ("source", "target", "pairs")
        }
        return self.model_copy(
            update={**general, "source": (), "target": (), "pairs": self.corrections, "corrections": ()}
        )

    @property
    def has_equal_epochs(self) -> bool:
        """Whether all epochs contain the same pairs, apart from general text."""
        return self.temperature == 1.0 and all(weight % 1 == 0 for weight in self.weights)

    @field_validator("from_lang", "to_lang")
    @classmethod
    def _is_language(cls, language: str | None, info: ValidationInfo) -> str | None:
        if language is not None:
            require_language(f"data.{info.field_name}", language.partition("@")[0])  # sr@latin is one of gettext's
        return language

    @field_validator("weights", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        """Parse `N,N` from the command line."""
        if not isinstance(value, str):
            return value
        numbers = [number.strip() for number in value.split(",")]
        if not all(re.fullmatch(r"\d+(\.\d+)?", number) for number in numbers):
            raise ValueError(f"weights {value!r}: give a number above 0 for each file of pairs, such as 3,1 or 0.5,1")
        return tuple(map(float, numbers))

    @field_validator("fix", "drop", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Parse `KIND,KIND` from the command line."""
        return tuple(name.strip() for name in value.split(",")) if isinstance(value, str) else value

    @field_validator("columns", mode="before")
    @classmethod
    def _two_columns(cls, value: Any) -> Any:
        """Parse `A,B` from the command line: digits are a column number, quotes enclose a name with a comma."""
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
    """Type of subword vocabulary. `bpe`: byte-pair encoding (paper section 5.1, EN-DE). `wordpiece`: word-piece
    (EN-FR). `unigram`: differs slightly each time it is learned, so the same command gives another model. `imported`:
    the vocabulary of an imported model; a run takes it over with `--from`, and cannot learn one."""
    vocab_size: Pieces | None = None
    """Pieces in the vocabulary, special tokens included (paper: about 37,000 for EN-DE, 32,000 for EN-FR); chosen from
    the corpus size if not set."""
    split_digits: bool = True
    """Make every digit a piece of its own, so that the model learns to copy numbers instead of memorising them."""
    language_tags: tuple[str, ...] = ()
    """Target languages of the model. A tag such as `<2de>` at the start of a source line selects one of them."""

    placeholders: bool | None = None
    """Add tokens for placeholders, markup and addresses, which are then copied instead of being split into pieces
    (docs/placeholders.md). If not set, they are added if at least one in a hundred training pairs has the same ones on
    both sides."""

    @model_validator(mode="after")
    def _tags_can_be_told_apart(self) -> Self:
        for language in self.language_tags:
            if not re.fullmatch(LANGUAGE, language) or self.language_tags.count(language) > 1:
                raise ValueError(
                    f"tokenizer.language_tags: {language!r} must be there once, not empty, without spaces, "
                    f"'<' and '>'; for example ['de', 'fr']"
                )
        return self
