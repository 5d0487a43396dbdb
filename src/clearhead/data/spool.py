"""Temporary JSON-lines files of pairs between two steps of preparation, to save memory."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from clearhead.data.clean import CleaningReport
from clearhead.formats import SentencePair

_FIELDS = ("source", "target", "origin", "language", "text_at", "defect", "skipped")


@dataclass(frozen=True)
class StagedPairs:
    """A file of rows, mostly cleaned pairs; it can be iterated over repeatedly."""

    path: Path
    """JSON lines: the fields of a `SentencePair`, its links last, if it has any."""
    report: CleaningReport = field(default_factory=CleaningReport)
    """Counts of the pairs read for this file."""

    def write(self, pairs: Iterable[SentencePair]) -> None:
        """Write pairs to a new file."""
        with open(self.path, "w", encoding="utf-8") as file:
            for pair in pairs:
                # JSON escapes line feeds and carriage returns, so that each pair is one line whatever its text
                # contains.
                fields: list[Any] = [getattr(pair, name) for name in _FIELDS]
                fields += [pair.links] if pair.links else []
                file.write(json.dumps(fields, ensure_ascii=False) + "\n")

    def __iter__(self) -> Iterator[SentencePair]:
        with open(self.path, encoding="utf-8") as file:
            for line in file:
                fields = json.loads(line)
                pair, links = SentencePair(*fields[: len(_FIELDS)]), fields[len(_FIELDS) :]
                yield replace(pair, links=tuple(map(tuple, links[0]))) if links else pair
