"""Options of `clearhead translate` for the search, random samples in its place, terms and translation memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from clearhead.cli.checks import given
from clearhead.cli.console import notice
from clearhead.cli.from_settings import option
from clearhead.cli.options import MEMORY_FILE, DecodeSettings, Sample
from clearhead.config import Sampling

if TYPE_CHECKING:
    from clearhead.translation.terminology import Terms
    from clearhead.translation.translator import Translator


class SearchOptions(DecodeSettings):
    """Search for translations, or random samples."""

    length_penalty = option("decode.length_penalty", metavar="A")
    nbest: int = typer.Option(
        1,
        metavar="N",
        help="Number of translations per line, at most the beam size, or the number of samples with --mbr. Above "
        "1, text output is in the Moses format, one translation per line, best first: `index ||| text ||| "
        "log-probability`; the index is the number of the input line, counted from 0. There are fewer than "
        "N if the search finds fewer different texts.",
    )
    diversity: float | None = typer.Option(
        None,
        metavar="X",
        help="With --nbest: diverse beam search, which makes the translations differ. A token is penalized by X "
        "nats for each earlier hypothesis that has the same token at the same step; 0.2 to 0.8 are usual.",
        show_default="0",
    )
    prefix: str = typer.Option(
        "",
        metavar="TEXT",
        help="Begin every translation with exactly this text; the model may complete a word at its end.",
    )
    sample: Sample = False
    mbr: int | None = typer.Option(
        None,
        metavar="N",
        help="Minimum Bayes risk decoding: draw N samples per line, and output the one with the highest mean "
        "chrF against the others; with --nbest the best ones.",
    )
    temperature = option("sampling.temperature")
    epsilon = option("sampling.epsilon")
    top_k = option("sampling.top_k")
    top_p = option("sampling.top_p")
    seed = option("sampling.seed")

    @property
    def translate_arguments(self) -> dict[str, Any]:
        """The options as arguments of `Translator.translate`, for documents as well.

        Raises:
            ConfigError: If a value of sampling is impossible.
        """
        drawn = given(**self.settings_of("sampling"))
        is_drawn = self.sample or self.mbr is not None
        return {**self.settings, "mbr": self.mbr, "sampling": Sampling(**drawn) if is_drawn else None}

    @property
    def line_arguments(self) -> dict[str, Any]:
        """The options that apply to lines of text only, as arguments of `Translator.translate`."""
        return {"num_best": self.nbest, "diversity": self.diversity or 0.0, "prefix": self.prefix}


class MemoryOptions(DecodeSettings):
    """A translation memory, and how much the model consults it."""

    memory: list[str] | None = typer.Option(
        None,
        metavar="FILE",
        help=f"Translation memory: {MEMORY_FILE}; may be repeated, except a .sqlite file. Translations of identical "
        "lines are reused, those of similar lines are repaired, shown, and consulted by the model (docs/terms.md).",
    )
    memory_weight = option("decode.memory_weight", metavar="W", show_default="by similarity")

    def lookups(self, from_lang: str | None, to_lang: str | None, least: float | None = None) -> dict[str, Any]:
        """Read the translation memory, if there is one, and report the number of translations in it.

        Args:
            from_lang: Language of its sources, in files that name languages.
            to_lang: Language of its translations.
            least: Minimum similarity of a match, if given.

        Returns:
            The arguments `memory` and `neighbours` of `Translator.translate`; empty without a memory.

        Raises:
            ConfigError: As in `load_memory`, or if the similarity is not above 0 and at most 1.
            DataError: As in `load_memory`.
        """
        if not self.memory:
            return {}
        from clearhead.translation.memory_file import load_memory

        memory = load_memory(self.memory, from_lang=from_lang, to_lang=to_lang)
        lookup = partial(memory.match, **given(least=least))
        lookup("")  # an impossible share is refused before anything is translated
        notice(f"translation memory: {len(memory):,} translations")
        return {"memory": lookup, "neighbours": memory.nearest}


def report_unconsulted(translator: Translator, arguments: Mapping[str, Any]) -> None:
    """Report on stderr if the model cannot consult the pairs of a memory, which are reused and shown all the same.

    Args:
        translator: The model.
        arguments: Those of `Translator.translate`; with a `memory_weight` above 0, `translate` raises an error.
    """
    from clearhead.translation.retrieval import WHO_CONSULTS

    config = translator.decode_config({name: arguments.get(name) for name in ("memory_weight", "precision")})
    if arguments.get("neighbours") is None or config.memory_weight is not None:
        return
    by = translator.plain if arguments.get("plain") else translator
    if not translator.config.num_decoder_layers or not by.engines.of(config.precision).consults_neighbours:
        notice(f"translation memory: similar pairs are not consulted; {WHO_CONSULTS}")


class TermOptions(MemoryOptions):
    """Terminology and translation memory."""

    terms: str | None = typer.Option(
        None,
        metavar="FILE",
        help="Terminology: a .tsv with source term, tab, translation, and further columns with other accepted forms "
        "of the translation; or a .csv, .xlsx or .tbx with a header or languages. Translations use one of the forms "
        "for every term in their line; the number of terms met is reported on stderr (docs/terms.md).",
    )
    fuzzy: float | None = typer.Option(
        None,
        metavar="R",
        help="Minimum similarity, at most 1, of the lines of --memory that are shown: the share of words that match.",
        show_default="0.75",
    )
    reuse_from: float | None = typer.Option(
        None,
        metavar="R",
        help="Minimum similarity, at most 1, of the lines of --memory whose translations are repaired and reused: "
        "numbers, placeholders, the end mark or a word that differ are replaced. What cannot be repaired for certain "
        "is translated by the model. 1 repairs none (docs/terms.md).",
        show_default="0.75 for numbers and placeholders, else none",
    )

    @property
    def arguments(self) -> dict[str, Any]:
        """The options about matches that were given, as arguments of `Translator.translate`."""
        return given(reuse_from=self.reuse_from, **self.settings)

    def reader(
        self, decoding: Mapping[str, Any], from_lang: str | None, to_lang: str | None
    ) -> Callable[[Translator], dict[str, Terms]] | None:
        """Return what reads the terminology as an argument of `Translator.translate`; None if there is none.

        It raises the errors of `Terms.load`. The translator's languages choose the columns where none are given.

        Args:
            decoding: Decoding settings, which may name the target language.
            from_lang: Language of the terms.
            to_lang: Language of their translations.
        """
        if (path := self.terms) is None:
            return None
        from clearhead.translation.terminology import Terms
        from clearhead.translation.translator import target_language

        def read(translator: Translator) -> dict[str, Terms]:
            sources = translator.bundle.languages[0]
            source = from_lang or (sources[0] if len(sources) == 1 else None)
            target = to_lang or target_language(translator, decoding) or None
            return {"terms": Terms.load(path, from_lang=source, to_lang=target)}

        return read
