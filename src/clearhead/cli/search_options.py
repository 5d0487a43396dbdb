"""Options of `clearhead translate` for the search, and for random samples in its place."""

from __future__ import annotations

from typing import Any

import typer

from clearhead.cli.checks import given
from clearhead.cli.from_settings import option
from clearhead.cli.options import DecodeSettings, Sample
from clearhead.config import Sampling


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
