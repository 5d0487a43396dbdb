"""Options of `clearhead translate` for the search, and for random samples in its place."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from clearhead.cli.checks import given, refuse_impossible_decoding
from clearhead.cli.options import OptionGroup, Seed
from clearhead.config import Sampling


class SearchOptions(OptionGroup):
    """Search for translations, or random samples.

    Raises:
        ConfigError: If the length penalty is impossible.
    """

    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        refuse_impossible_decoding({"length_penalty": self.length_penalty})

    length_penalty: Annotated[
        float | None, typer.Option(metavar="A", help="Exponent of the length penalty.", show_default="the model's")
    ] = None
    nbest: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Number of translations per line, at most the beam size, or the number of samples with --mbr. Above "
            "1, text output is in the Moses format, one translation per line, best first: `index ||| text ||| "
            "log-probability`; the index is the number of the input line, counted from 0. There are fewer than "
            "N if the search finds fewer different texts.",
        ),
    ] = 1
    diversity: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="With --nbest: diverse beam search, which makes the translations differ. A token is penalized by X "
            "nats for each earlier hypothesis that has the same token at the same step; 0.2 to 0.8 are usual.",
            show_default="0",
        ),
    ] = None
    prefix: Annotated[
        str,
        typer.Option(
            metavar="TEXT",
            help="Begin every translation with exactly this text; the model may complete a word at its end.",
        ),
    ] = ""
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")] = False
    mbr: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Minimum Bayes risk decoding: draw N samples per line, and output the one with the highest mean "
            "chrF against the others; with --nbest the best ones.",
        ),
    ] = None
    temperature: Annotated[
        float | None,
        typer.Option(
            help="Sampling temperature: below 1 sharpens the distribution, above 1 flattens it.", show_default="1"
        ),
    ] = None
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="Never draw a token that is less probable than this; 0 draws from all tokens.", show_default="0.02"
        ),
    ] = None
    top_k: Annotated[
        int | None, typer.Option(help="Draw only from this many most probable tokens.", show_default="all")
    ] = None
    top_p: Annotated[
        float | None,
        typer.Option(
            help="Draw only from the most probable tokens that together have this probability.", show_default="1"
        ),
    ] = None
    seed: Seed = None

    @property
    def settings(self) -> dict[str, Any]:
        """The options as arguments of `Translator.translate`, for documents as well.

        Raises:
            ConfigError: If a value of sampling is impossible.
        """
        names = ("temperature", "epsilon", "top_k", "top_p", "seed")
        drawn = given(**{name: getattr(self, name) for name in names})
        is_drawn = self.sample or self.mbr is not None
        return {
            "length_penalty": self.length_penalty,
            "mbr": self.mbr,
            "sampling": Sampling(**drawn) if is_drawn else None,
        }

    @property
    def line_settings(self) -> dict[str, Any]:
        """The options that apply to lines of text only, as arguments of `Translator.translate`."""
        return {"num_best": self.nbest, "diversity": self.diversity or 0.0, "prefix": self.prefix}
