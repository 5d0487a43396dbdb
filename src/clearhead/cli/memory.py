"""Matches of `--memory`, and the report on stderr of terms and matches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from clearhead.cli.checks import MOST_LINES_NAMED
from clearhead.cli.console import notice

if TYPE_CHECKING:
    from clearhead.translation.memory import TranslationMemory
    from clearhead.translation.result import MemoryMatch, TermUse, Translation


@dataclass(frozen=True, slots=True)
class Recall:
    """A translation memory, if there is one, and the minimum similarity of its matches."""

    memory: TranslationMemory | None = None
    least: float = 1.0

    @classmethod
    def of(cls, paths: Sequence[str], least: float | None, from_lang: str | None, to_lang: str | None) -> Self:
        """Read the given files, and report the number of translations in them.

        Raises:
            ConfigError: As in `TranslationMemory.load`, or if `least` is not above 0 and at most 1.
            DataError: As in `TranslationMemory.load`.
        """
        if not paths:
            return cls()
        from clearhead.translation.memory import LEAST_SIMILARITY, TranslationMemory

        memory = TranslationMemory.load(paths, from_lang=from_lang, to_lang=to_lang)
        recall = cls(memory, LEAST_SIMILARITY if least is None else least)
        recall.match("")  # an impossible share is refused before anything is translated
        notice(f"translation memory: {len(memory):,} translations")
        return recall

    def match(self, text: str) -> MemoryMatch | None:
        """Return the match of a text in the memory."""
        return None if self.memory is None else self.memory.match(text, self.least)

    def asked(self, lines: Sequence[str]) -> tuple[list[MemoryMatch | None], Sequence[str]]:
        """Return the matches of lines, and the lines to translate, in which reused ones are blank."""
        if self.memory is None:
            return [], lines
        from clearhead.translation.memory import left_to_translate

        matches = list(map(self.match, lines))
        return matches, left_to_translate(lines, matches)

    def recalled(
        self,
        lines: Sequence[str],
        matches: Sequence[MemoryMatch | None],
        translations: list[Translation],
        *,
        one_line: bool,
    ) -> list[Translation]:
        """Return the translations of lines: from the memory if it has them, otherwise from the model.

        Args:
            lines: Source lines.
            matches: Matches of the lines, as returned by `asked`.
            translations: The model's translations of the lines that `asked` returned.
            one_line: As in `Translator.translate`.
        """
        if self.memory is None:
            return translations
        from clearhead.translation.memory import recalled

        return recalled(lines, matches, translations, one_line=one_line)


class TermsAndMatches:
    """Counts the terms and the memory matches in the translations of a file."""

    def __init__(self, name: str) -> None:
        """Start counting for a file."""
        self._name = name
        self._missed: list[tuple[int, TermUse]] = []
        self._terms = self._reused = self._shown = 0

    def add(self, translations: Iterable[Translation], *, numbers: Iterable[int]) -> None:
        """Count the terms and matches of lines, or of segments that begin on them."""
        for number, translation in zip(numbers, translations, strict=True):
            for use in translation.terms or ():
                self._terms += 1
                if not use.form:
                    self._missed.append((number, use))
            if translation.memory is not None:
                self._reused += translation.memory.is_reused
                self._shown += not translation.memory.is_reused

    def tell(self) -> None:
        """Report the counts, and the missed terms."""
        from clearhead.text.shortening import first_few
        from clearhead.translation.result import TERM_REASONS

        if self._terms:
            missed = [
                f"line {number}: {use.source!r} as {use.target!r} ({TERM_REASONS[use.reason or 'unmet']})"
                for number, use in self._missed
            ]
            words = f"; missed: {first_few(missed, MOST_LINES_NAMED, '; ')}" if missed else ""
            notice(f"{self._name}: {self._terms - len(self._missed):,} of {self._terms:,} terms met{words}")
        if self._reused or self._shown:
            notice(
                f"{self._name}: translation memory: {self._reused:,} reused, {self._shown:,} similar ones, which the "
                f"model translated"
            )
