"""`clearhead explain`: inspect or compare translations, or rank heads; as a page, JSON, a picture or text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

import typer

from clearhead.cli.checks import given, refuse_binary, refuse_missing, refuse_overwriting, refuse_untold_language
from clearhead.cli.console import notice, progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import (
    OUTPUT,
    REFERENCE,
    Device,
    Languages,
    Model,
    OptionGroup,
    Plain,
    Threads,
    with_option_groups,
)
from clearhead.cli.pairs import PairOptions
from clearhead.cli.rules import refuse_clashes
from clearhead.cli.search_options import MemoryOptions, report_unconsulted
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output
from clearhead.runtime.installation import pip_install
from clearhead.runtime.pytorch import needing_pytorch

if TYPE_CHECKING:
    from clearhead.cli.pairs import GivenPairs
    from clearhead.inspection.ablation import Ablation
    from clearhead.inspection.compare import ExplanationComparison
    from clearhead.inspection.explanation import Explanation
    from clearhead.paper.walk.model_walk import ModelWalk
    from clearhead.translation.translator import Translator


MOST_PRODUCTS = 3e12
"""Maximum multiplications for attribution by default: one to three minutes on one core, for thirty tokens of the
paper's base model or a hundred and fifty of the preset tiny."""


Form = Literal["html", "json", "png", "svg", "text"]
"""Output formats."""


class ExplainOptions(Languages):
    """The languages, and the beam search that is explained."""

    beam = option("decode.beam_size", "--beam", metavar="K")
    plain: Plain = False

    @property
    def arguments(self) -> dict[str, Any]:
        """The options that were given, as arguments of `explain`."""
        return {**given(**self.settings), "plain": self.plain}


class QuestionOptions(OptionGroup):
    """What is explained."""

    target: str | None = typer.Option(
        None, metavar="TEXT", help="The translation to explain.", show_default="the model's own, found by beam search"
    )
    attribution: bool | None = typer.Option(
        None,
        "--attribution/--no-attribution",
        help="Compute source attribution: the contribution of each source word to each target word (html and json).",
        show_default="only if it takes at most a few minutes",
    )
    ablate: bool = typer.Option(False, "--ablate", help="Switch off each head in turn, and rank the heads by the loss.")
    walk: bool = typer.Option(
        False,
        "--walk",
        help="Show what each line of the model computed, with the first numbers of every vector (text, html or json).",
    )
    source: Annotated[
        str | None,
        option(
            "data.source",
            metavar="FILE",
            more="With --ablate: of the test set on which the heads are ranked.",
            rich_help_panel="More",
        ),
    ] = None
    reference: str | None = typer.Option(None, metavar="FILE", help=REFERENCE, rich_help_panel="More")
    compare: Path | None = typer.Option(None, metavar="MODEL2", help="Compare with another model on the same sentence.")
    compare_text: str | None = typer.Option(None, metavar="TEXT", help="Compare with another sentence.")

    @property
    def is_comparison(self) -> bool:
        """Whether another model or sentence is named."""
        return self.compare is not None or self.compare_text is not None

    def require_pytorch(self) -> None:
        """Make sure that PyTorch is there, if it is needed.

        Raises:
            ConfigError: Naming the option that needs it.
        """
        if self.attribution or self.ablate or self.walk:
            with needing_pytorch("--attribution" if self.attribution else "--ablate" if self.ablate else "--walk"):
                import clearhead.inspection.attribution  # noqa: F401 - as `ablation` and `walk`, it uses PyTorch


class PictureOptions(OptionGroup):
    """How the explanation is written, and where."""

    output: str | None = typer.Option(
        None, *OUTPUT, metavar="FILE", help="Output file.", show_default="standard output"
    )
    form: Form | None = typer.Option(
        None,
        "--format",
        help="Output format: an HTML page, JSON (docs/explanation-json.md), a PNG or SVG picture, or a text "
        "summary for a terminal.",
        show_default="by the extension of FILE, otherwise text",
    )
    picture: str | None = typer.Option(
        None,
        metavar="NAME",
        help="Content of png and svg: heads, alignment, tree (the beam search), ablation, or a single head such "
        "as cross.2.1 (layer and head counted from 1).",
        show_default="heads, or ablation with --ablate",
    )

    @property
    def chosen(self) -> Form:
        """The output format.

        Raises:
            ConfigError: If neither an option nor the extension of the file determines it.
        """
        if self.form is not None:
            return self.form
        if self.output is None or is_standard_output(self.output):
            return "text"
        ending = Path(self.output).suffix.lower().removeprefix(".")
        by_ending = {"htm": "html", "txt": "text", **{form: form for form in get_args(Form)}}
        if ending not in by_ending:
            raise ConfigError(f"what shall {self.output} be? Name it .html, .json, .png, .svg or .txt, or say --format")
        return by_ending[ending]


@with_option_groups
def explain(
    context: typer.Context,
    model: Model,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The sentence, which is neither split nor normalized.")],
    *,
    asked: QuestionOptions,
    outputs: PictureOptions,
    decoding: ExplainOptions,
    memory: MemoryOptions,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Explain the translation of a sentence: attention heads, decoding steps, beam search and source attribution.

    Examples:
      clearhead explain runs/de-en "Ein Hund rennt."
      clearhead explain runs/de-en "Ein Hund rennt." -o page.html
      clearhead explain runs/de-en "Ein Hund rennt." --picture cross.2.1 -o head.png

    The translation is the model's own, found by beam search, or the one given with --target.
    """
    chosen, output = outputs.chosen, outputs.output
    compared_as_html = asked.is_comparison and chosen == "html"
    refuse_clashes(context, {"--format": chosen, "a comparison as html": compared_as_html})
    if compared_as_html or asked.walk or chosen not in ("html", "json"):
        asked.attribution = False
    test_set = [path for path in (asked.source, asked.reference) if path is not None]
    refuse_missing(test_set)
    refuse_overwriting(output, test_set)
    if chosen == "png":
        refuse_binary("a picture", output or "-")
    wanted = outputs.picture or ("ablation" if asked.ablate else "heads")
    asked.require_pytorch()

    from clearhead.bundle.model_directory import model_directory
    from clearhead.translation.translator import Translator

    models = [model_directory(path) for path in (model, asked.compare) if path is not None]
    refuse_overwriting(output, [str(part) for directory in models for part in directory.iterdir()])
    if chosen in ("png", "svg"):
        from clearhead.inspection.canvas import require_plots
        from clearhead.inspection.figures import require_picture

        require_plots()
        require_picture(wanted)
    pairs = PairOptions().read(asked.source, asked.reference) if asked.source else None
    translator = Translator.load(model, device=device)
    other = translator if asked.compare is None else Translator.load(asked.compare, device=device)
    is_other_told = other.bundle.tokenizer.tells_languages
    refuse_untold_language(other if is_other_told else translator, decoding.source_lang)  # one of two has to be
    shown: Explanation | ExplanationComparison | ModelWalk
    recalled = memory.lookups(decoding.source_lang, decoding.target_lang)
    arguments = {**decoding.arguments, **memory.settings, "neighbours": recalled.get("neighbours")}
    shown = first = _explained(translator, text, asked, arguments)
    if asked.walk:
        from clearhead.paper.walk.model_walk import walk_of

        shown = walk_of(first)
    if asked.is_comparison:
        from clearhead.inspection.compare import compare

        second = _explained(other, text if asked.compare_text is None else asked.compare_text, asked, arguments)
        shown = compare(*_told_apart((first, second), models))
    if asked.ablate:
        shown = replace(first, ablation=_ablated(translator, text, asked.target, pairs, given(**decoding.settings)))
    _write(_content(shown, chosen, wanted), output)


def _ablated(
    translator: Translator, text: str, target: str | None, pairs: GivenPairs | None, settings: dict[str, Any]
) -> Ablation:
    """Rank the heads by what is lost without each, on a sentence and a test set."""
    from clearhead.inspection.ablation import ablate, num_heads

    test_set: dict[str, Any] = {}
    if pairs is not None:
        test_set = {"sources": pairs.sources, "references": pairs.targets, "name": pairs.name}
    with progress("switching heads off", total=num_heads(translator.bundle.own_module)) as advance:
        return ablate(translator, text, target, on_progress=advance, **test_set, **settings)


def _explained(translator: Translator, text: str, asked: QuestionOptions, arguments: dict[str, Any]) -> Explanation:
    """Explain a sentence and attribute its translation to its words; None attributes only if that is fast.

    Raises:
        ConfigError: If attribution is requested for a model without cross-attention.
    """
    from clearhead.inspection.explain import explain as explain_text
    from clearhead.inspection.explain import with_attribution

    report_unconsulted(translator, {**arguments, "precision": "fp32"})
    explanation, attribution = explain_text(translator, text, asked.target, **arguments), asked.attribution
    if explanation.model_pass is None:
        if attribution is not False:
            notice(
                "source attribution, the logit lens, states, queries and keys are left out: they need PyTorch, which "
                f"is not installed: {pip_install('train')}"
            )
        return explanation

    from clearhead.inspection.attribution import num_products

    if explanation.kind != "encoder-decoder":
        if attribution:
            raise ConfigError("--attribution has no meaning for an encoder or a decoder alone")
        return explanation
    if attribution is None and num_products(explanation.model_pass) > MOST_PRODUCTS:
        notice("what each word did is left out, for it would take minutes; --attribution computes it all the same")
        return explanation
    if attribution is False:
        return explanation
    with progress("attributing", total=len(explanation.target_tokens)) as advance:
        return with_attribution(explanation, on_progress=advance)


def _told_apart(both: tuple[Explanation, Explanation], models: Sequence[Path]) -> tuple[Explanation, Explanation]:
    """Name two models whose directories have the same name by the shortest part of their paths that differs."""
    first, second = both
    paths = [path.absolute().parts for path in models]
    if first.model["name"] != second.model["name"] or len({*paths}) < 2:
        return both
    length = next(length for length in count(1) if paths[0][-length:] != paths[1][-length:])
    names = [str(Path(*parts[-length:])) for parts in paths]
    first, second = (replace(one, model={**one.model, "name": name}) for one, name in zip(both, names, strict=True))
    return first, second


def _content(shown: Explanation | ExplanationComparison | ModelWalk, form: Form, picture: str) -> str | bytes:
    from clearhead.inspection.compare import ExplanationComparison
    from clearhead.inspection.explanation import Explanation

    match form:
        case "html":
            return shown.to_html()
        case "json":
            return json.dumps(shown.to_dict(), ensure_ascii=False) + "\n"
        case "text":
            from clearhead.inspection.summary import summary_lines

            lines = summary_lines(shown) if isinstance(shown, Explanation) else shown.lines()
            return "\n".join(lines) + "\n"
        case "png" | "svg":
            from clearhead.inspection.figures import comparison_figure, figure_of
            from clearhead.inspection.plots import draw

            assert isinstance(shown, Explanation | ExplanationComparison), "a walk has no picture"
            figure = figure_of(shown, picture) if isinstance(shown, Explanation) else comparison_figure(shown)
            return draw(figure, form)


def _write(content: str | bytes, output: str | None) -> None:
    """Write a file, whole or not at all, or to standard output.

    Raises:
        DataError: If the file cannot be written.
    """
    from clearhead.files import open_output

    with open_output(output) as out:
        if isinstance(content, str):
            out.write(content)
        else:
            out.buffer.write(content)
    if output is not None and not is_standard_output(output):
        notice(f"wrote {output}")
