"""The pairs that `score` and `evaluate` are given: two files, line by line, or one that holds both sides."""

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
    """Pairs to score or to evaluate on, all of those in the file but for what it says is none."""

    pairs: list[SentencePair]
    name: str
    """What messages name beside the number of a line."""

    @property
    def sources(self) -> list[str]:
        """Their first sides."""
        return [pair.source for pair in self.pairs]

    @property
    def targets(self) -> list[str]:
        """Their second sides."""
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
    """Read every pair, and say on stderr what a file of pairs was taken for, and what it says is no pair.

    Args:
        source: File with one source a line; None if `pairs` is given.
        target: File with its translations.
        pairs: File with both sides.
        columns: Which of its columns hold them, as typed.
        languages: Of source and target, in a file that names languages.
        swap: Read the other direction.

    Raises:
        ConfigError: If the columns are not two, or not in the file, or there is no file with columns or languages.
        DataError: If a file cannot be read, or a row is no pair: one that was left out would shift all later results.
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
