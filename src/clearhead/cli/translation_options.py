"""Options of `clearhead translate` for what is written of the translations of lines and documents, and where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Literal, TextIO

import typer

from clearhead.cli.checks import refuse_alignments_in_output, refuse_overwriting, refuse_report
from clearhead.cli.from_settings import option
from clearhead.cli.options import OUTPUT, OptionGroup, Plain
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.translation.lines import LineWriter


class TranslationOptions(OptionGroup):
    """What is written of the translations, and where."""

    output: str | None = typer.Option(
        None,
        *OUTPUT,
        metavar="FILE",
        help="Output file; .gz, .xz and .zst are compressed. The translation of a document must have an "
        "extension of its format. For several documents name a directory; each translation gets the name "
        "of its document.",
    )
    output_format: Literal["text", "jsonl"] = typer.Option(
        "text",
        "--format",
        help="text: one translation per line. jsonl: one JSON object per line, with source, text, score (as "
        "computed by `clearhead score`), quality (with --quality), utility (with --mbr: the mean chrF against the "
        "other samples), "
        "tokens, alignment (with --alignments), alternatives, truncated, source_truncated, "
        "output_truncated, sentences (if the line was split or normalized), warnings, warning_details, "
        "terms (with --terms) and memory (with --memory). For a document: one object per segment, with its "
        "line number and more (docs/documents.md).",
    )
    protect_numbers = option("decode.protect_numbers")
    report: str | None = typer.Option(
        None,
        metavar="PAGE.html",
        help="Also write an HTML page of the translations to review first: suspicious translations, worst first, "
        "with the reasons, then those of which the model is least certain.",
    )
    quality: bool = typer.Option(
        False,
        "--quality",
        help="With --format jsonl: add the model's own estimate of the quality of each translation, from 0 to 1. "
        "It is the model's doubt, not the truth (docs/translation.md).",
    )
    only_if: float | None = typer.Option(
        None,
        min=0.0,
        max=1.0,
        metavar="Q",
        help="Leave untranslated what has a quality below Q: a line stays blank, a segment of a document as it is. "
        "They are counted on stderr.",
        show_default="all are translated",
    )
    alignments: str | None = typer.Option(
        None,
        metavar="FILE",
        help="Write word alignments: for each line, pairs such as 3-5 of source word and target word, both "
        "counted from 0 (Pharaoh format). With jsonl the objects contain them as well; - writes them to the "
        "objects only (docs/alignment.md).",
    )
    align_by = option("decode.align_by")
    plain: Plain = False

    @property
    def is_jsonl(self) -> bool:
        """Whether objects are written."""
        return self.output_format == "jsonl"

    def arguments(self, num_best: int) -> dict[str, Any]:
        """Return the options as arguments of `Translator.translate`, for documents as well."""
        return {
            "scores": self.is_jsonl or num_best > 1 or self.report is not None,
            "quality": self.quality or self.only_if is not None or self.report is not None,
            "plain": self.plain,
            **self.settings_of("decode"),
        }

    def refuse_overwriting(self, paths: Sequence[str]) -> None:
        """Make sure that the outputs are neither an input nor the same.

        Raises:
            ConfigError: If two of them are the same file, or a name does not fit.
            DataError: If one cannot be written, or is an input.
        """
        refuse_overwriting(self.output, paths)
        refuse_report(self.report, paths, [self.output, self.alignments])
        refuse_overwriting(self.alignments, paths)
        refuse_alignments_in_output(self.alignments, self.output, "translations")

    @contextmanager
    def writer(
        self, paths: Sequence[str], num_best: int, opened_output: Callable[[str | None], AbstractContextManager[TextIO]]
    ) -> Iterator[LineWriter]:
        """Open the outputs for the lines of some files.

        Args:
            paths: The files.
            num_best: Translations of each line.
            opened_output: Opens the file of the translations, such as `open_output`.

        Raises:
            DataError: If one cannot be written.
        """
        from clearhead.files import open_output, some_names
        from clearhead.translation.lines import LineWriter

        with ExitStack() as opened:
            report = None
            if self.report is not None:
                from clearhead.translation.report import reporting

                # Begun first, the report is written last: what comes of it does no harm to the translations.
                report = opened.enter_context(reporting(self.report, some_names(paths)))
            out, links = opened.enter_context(opened_output(self.output)), None
            if self.alignments is not None and not is_standard_output(self.alignments):
                links = opened.enter_context(open_output(self.alignments))
            yield LineWriter(out, is_jsonl=self.is_jsonl, num_best=num_best, links=links, report=report)
