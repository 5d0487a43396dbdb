"""The translation memory of corrections: what a person accepts or writes is found for the next segment."""

from __future__ import annotations

from collections.abc import Container, Sequence
from pathlib import Path

from clearhead.translation.memory import LEAST_SIMILARITY, Lookup
from clearhead.translation.memory_file import MemoryFile, write_memory
from clearhead.translation.result import MemoryMatch


class CorrectionMemory:
    """A memory file that gets pairs one by one; it is made with the first.

    Args:
        path: The file.
        languages: Languages of sources and translations; None if they are not known.
        least: Minimum similarity of a match.

    Raises:
        ConfigError: If the file is for other languages.
        DataError: If it cannot be read, or is not a memory.
    """

    def __init__(
        self, path: Path, languages: tuple[str | None, str | None], *, least: float = LEAST_SIMILARITY
    ) -> None:
        self.path, self._languages, self._least = path, languages, least
        self._file = self._opened() if path.exists() else None

    def _opened(self) -> MemoryFile:
        return MemoryFile(self.path, from_lang=self._languages[0], to_lang=self._languages[1])

    def __len__(self) -> int:
        return 0 if self._file is None else len(self._file)

    def match(self, text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        """Return the most similar entry, as `TranslationMemory.match`.

        Raises:
            DataError: As `MemoryFile.match`, like those of the other methods.
        """
        return None if self._file is None else self._file.match(text, self._least, context=context)

    def nearest(self, text: str, /) -> Sequence[MemoryMatch]:
        """Return the most similar entries, which the model may consult, as `TranslationMemory.nearest`."""
        return [] if self._file is None else self._file.nearest(text)

    def has(self, source: str, target: str, context: str | None) -> bool:
        """Return whether the file has a pair in this context."""
        return self._file is not None and self._file.has(source, target, context)

    def add(self, source: str, target: str, context: str | None) -> None:
        """Add a pair; it is on disk when this returns."""
        if self._file is None:
            write_memory(str(self.path), [(source, target, context)], self._languages)
            self._file = self._opened()
        else:
            self._file.add(source, target, context)

    def remove(self, source: str, target: str, context: str | None) -> None:
        """Remove a pair, if the file has it."""
        if self._file is not None:
            self._file.remove(source, target, context)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()


def first_of(lookups: Sequence[Lookup]) -> Lookup:
    """Return a look-up of the most similar match of several, of equal ones the first."""

    def match(text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        found = [one for lookup in lookups if (one := lookup(text, context=context)) is not None]
        return max(found, key=lambda one: one.similarity, default=None)

    return match


def without(lookup: Lookup, sources: Container[tuple[str, str | None]]) -> Lookup:
    """Return a look-up that finds nothing for some sources.

    Args:
        lookup: The look-up for all others.
        sources: The sources, each with its context.
    """

    def match(text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        return None if (text, context) in sources else lookup(text, context=context)

    return match
