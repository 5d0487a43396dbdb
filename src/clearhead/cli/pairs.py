"""Input pairs of `score`, `evaluate` and `explain`: two line-aligned files, or one file that contains both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from clearhead.cli.console import notice
from clearhead.cli.options import PairFormat

if TYPE_CHECKING:
    from clearhead.formats import PairFile, SentencePair


@dataclass(frozen=True)
class GivenPairs:
    """Pairs to score or to evaluate on: all in the file except entries that the file marks as unusable."""

    pairs: list[SentencePair]
    name: str
    """Name shown with line numbers in messages."""
    languages: tuple[str | None, str | None] = (None, None)
    """Languages of source and target, if the file, or the names of two files, say them."""

    @property
    def sources(self) -> list[str]:
        """Source sides of the pairs."""
        return [pair.source for pair in self.pairs]

    @property
    def targets(self) -> list[str]:
        """Target sides of the pairs."""
        return [pair.target for pair in self.pairs]


class PairOptions(PairFormat):
    """A file of pairs, in place of two line-aligned files."""

    pairs: str | None = typer.Option(
        None,
        metavar="FILE",
        help="File that contains both sides, such as .tmx, .po, .tsv or .csv (docs/formats.md); - is TSV from "
        "standard input. A row that is not a pair is an error.",
    )

    def read(self, source: str | None, target: str | None) -> GivenPairs:
        """Read all pairs, and report on stderr the detected format and the number of omitted entries.

        Args:
            source: File of source text, one segment per line; None if `pairs` is given.
            target: File of translations, aligned line by line.

        Raises:
            ConfigError: If there are not two columns, or the file lacks them.
            DataError: If a file cannot be read, or a row is not a pair: omitting it would shift all later results.
        """
        from clearhead.files import display_name
        from clearhead.formats import SKIPS, language_in_name, read_pairs, read_parallel

        languages: tuple[str | None, str | None] = (None, None)

        def tell(files: Sequence[PairFile]) -> None:
            nonlocal languages
            languages = files[0].languages if files else languages
            _tell_formats(files)

        if self.pairs is None:
            read = list(read_parallel([source or ""], [target or ""], swap=self.swap, notice=notice))
            sides = (target or "", source or "") if self.swap else (source or "", target or "")
            name, languages = display_name(sides[0]), (language_in_name(sides[0]), language_in_name(sides[1]))
        else:
            read = list(read_pairs([self.pairs], self.wanted, swap=self.swap, on_open=tell))
            name = display_name(self.pairs)
        pairs = [pair for pair in read if pair.skipped is None]
        for reason, count in Counter(pair.skipped for pair in read if pair.skipped is not None).items():
            notice(f"{count:,} of {len(read):,} entries are left out: {SKIPS[reason]}")
        is_line_by_line = all(pair.line == number for number, pair in enumerate(pairs, start=1))
        return GivenPairs(pairs, name if is_line_by_line else f"the pairs of {name}", languages)


def _tell_formats(files: Sequence[PairFile]) -> None:
    """Report on stderr the detected formats of files; there are none yet of a pipe."""
    from clearhead.formats import described

    for line in described(files):
        notice(line)
