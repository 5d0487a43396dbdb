"""Options `--terms`, `--memory` and `--fuzzy` of `clearhead translate`, and the reading of their files."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import typer

from clearhead.cli.console import notice
from clearhead.cli.options import OptionGroup

if TYPE_CHECKING:
    from clearhead.translation.memory import Lookup
    from clearhead.translation.terminology import Terms


class TermOptions(OptionGroup):
    """Terminology and translation memory."""

    terms: str | None = typer.Option(
        None,
        metavar="FILE.tsv",
        help="Terminology: source term, tab, translation; further columns are other accepted forms of the "
        "translation. Translations use one of the forms for every term in their line; the number of terms "
        "met is reported on stderr (docs/terms.md).",
    )
    memory: list[str] | None = typer.Option(
        None,
        metavar="FILE",
        help="Translation memory, a .tmx or any other file of pairs; may be repeated. Translations of identical "
        "lines are reused, translations of similar lines are shown (docs/terms.md).",
    )
    fuzzy: float | None = typer.Option(
        None,
        metavar="R",
        help="Minimum similarity, at most 1, of the lines of --memory that are shown: the share of words that match.",
        show_default="0.75",
    )

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

    def lookup(self, from_lang: str | None, to_lang: str | None) -> Lookup | None:
        """Read the translation memory, if there is one, and report the number of translations in it.

        Raises:
            ConfigError: As in `TranslationMemory.load`, or if the similarity is not above 0 and at most 1.
            DataError: As in `TranslationMemory.load`.
        """
        if not self.memory:
            return None
        from clearhead.translation.memory import LEAST_SIMILARITY, TranslationMemory

        memory = TranslationMemory.load(self.memory, from_lang=from_lang, to_lang=to_lang)
        found = partial(memory.match, least=LEAST_SIMILARITY if self.fuzzy is None else self.fuzzy)
        found("")  # an impossible share is refused before anything is translated
        notice(f"translation memory: {len(memory):,} translations")
        return found
