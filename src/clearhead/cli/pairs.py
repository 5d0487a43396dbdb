"""Input pairs of `score` and `evaluate`: two line-aligned files, or one file that contains both sides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from clearhead.cli.console import notice
from clearhead.errors import ConfigError

if TYPE_CHECKING:
    from clearhead.formats import PairFile, SentencePair


@dataclass(frozen=True)
class GivenPairs:
    """Pairs to score or to evaluate on: all in the file except entries that the file marks as unusable."""

    pairs: list[SentencePair]
    name: str
    """Name shown with line numbers in messages."""

    @property
    def sources(self) -> list[str]:
        """Source sides of the pairs."""
        return [pair.source for pair in self.pairs]

    @property
    def targets(self) -> list[str]:
        """Target sides of the pairs."""
        return [pair.target for pair in self.pairs]


def read_given(
    source: str | None,
    target: str | None,
    pairs: str | None,
    *,
    columns: str | None,
    languages: tuple[str | None, str | None],
    swap: bool,
) -> GivenPairs:
    """Read all pairs, and report on stderr the detected format and the number of omitted entries.

    Args:
        source: File of source text, one segment per line; None if `pairs` is given.
        target: File of translations, aligned line by line.
        pairs: File that contains both sides.
        columns: Columns of source and target in it, as typed.
        languages: Source and target language, for a file with named languages.
        swap: Exchange source and target.

    Raises:
        ConfigError: If there are not two columns, the file lacks them, or no file has columns or languages.
        DataError: If a file cannot be read, or a row is not a pair: omitting it would shift all later results.
    """
    from clearhead.config import DataConfig
    from clearhead.files import display_name
    from clearhead.formats import SKIPS, Wanted, described, read_pairs, read_parallel

    wanted = DataConfig.from_dict({"columns": columns}, origin="--columns").columns
    if pairs is None:
        if wanted is not None:
            raise ConfigError(f"--columns {columns}: only a file of pairs has columns; name it with --pairs")
        for option, language in zip(("--from-lang", "--to-lang"), languages, strict=True):
            if language is not None:
                raise ConfigError(f"{option} {language}: only a file of pairs names languages; name it with --pairs")
        read = list(read_parallel([source or ""], [target or ""], swap=swap, notice=notice))
        name = display_name((target if swap else source) or "")
    else:
        asked = Wanted(wanted, *languages)

        def tell(files: Sequence[PairFile]) -> None:
            for line in described(files):  # none yet of a pipe
                notice(line)

        read = list(read_pairs([pairs], asked, swap=swap, on_open=tell))
        name = display_name(pairs)
    found = [pair for pair in read if pair.skipped is None]
    for reason, count in Counter(pair.skipped for pair in read if pair.skipped is not None).items():
        notice(f"{count:,} of {len(read):,} entries are left out: {SKIPS[reason]}")
    is_line_by_line = all(pair.line == number for number, pair in enumerate(found, start=1))
    return GivenPairs(found, name if is_line_by_line else f"the pairs of {name}")
