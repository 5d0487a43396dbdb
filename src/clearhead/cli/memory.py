"""Options `--terms`, `--memory` and `--fuzzy` of `clearhead translate`, and the matches of its lines in the memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.console import notice

if TYPE_CHECKING:
    from clearhead.translation.memory import TranslationMemory
    from clearhead.translation.result import MemoryMatch, Translation
    from clearhead.translation.terminology import Terms


@dataclass(frozen=True)
class TermOptions:
    """Terminology and translation memory."""

    terms: Annotated[
        str | None,
        typer.Option(
            metavar="FILE.tsv",
            help="Terminology: source term, tab, translation; further columns are other accepted forms of the "
            "translation. Translations use one of the forms for every term in their line; the number of terms "
            "met is reported on stderr (docs/terms.md).",
        ),
    ] = None
    memory: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Translation memory, a .tmx or any other file of pairs; may be repeated. Translations of identical "
            "lines are reused, translations of similar lines are shown (docs/terms.md).",
        ),
    ] = None
    fuzzy: Annotated[
        float | None,
        typer.Option(
            metavar="R",
            help="Minimum similarity, at most 1, of the lines of --memory that are shown: the share of words that "
            "match.",
            show_default="0.75",
        ),
    ] = None

    @property
    def settings(self) -> dict[str, Terms]:
        """The terminology as an argument of `Translator.translate`, if there is one.

        Raises:
            DataError: As in `Terms.load`.
        """
        if self.terms is None:
            return {}
        from clearhead.translation.terminology import Terms

        return {"terms": Terms.load(self.terms)}

    def recall(self, from_lang: str | None, to_lang: str | None) -> Recall:
        """Read the translation memory, and report the number of translations in it.

        Raises:
            ConfigError: As in `TranslationMemory.load`, or if the similarity is not above 0 and at most 1.
            DataError: As in `TranslationMemory.load`.
        """
        if not self.memory:
            return Recall()
        from clearhead.translation.memory import LEAST_SIMILARITY, TranslationMemory

        memory = TranslationMemory.load(self.memory, from_lang=from_lang, to_lang=to_lang)
        recall = Recall(memory, LEAST_SIMILARITY if self.fuzzy is None else self.fuzzy)
        recall.match("")  # an impossible share is refused before anything is translated
        notice(f"translation memory: {len(memory):,} translations")
        return recall


@dataclass(frozen=True, slots=True)
class Recall:
    """A translation memory, if there is one, and the minimum similarity of its matches."""

    memory: TranslationMemory | None = None
    least: float = 1.0

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
