"""`clearhead translate`: translate text line by line, or documents."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, nullcontext
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import (
    Flagged,
    given,
    refuse_idle_options,
    refuse_missing,
    refuse_overwriting,
    refuse_report,
    warn_of_truncation,
)
from clearhead.cli.console import progress
from clearhead.cli.memory import Recall, TermsAndMatches
from clearhead.cli.options import (
    AlignBy,
    AsIs,
    BatchTokens,
    Beam,
    Device,
    Ensemble,
    Model,
    Precision,
    Shortlist,
    SourceLang,
    Split,
    TargetLang,
    Threads,
    Workers,
    decode_settings,
)
from clearhead.cli.translate_documents import DocumentOptions, translate_documents
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output
from clearhead.translation.json_output import digits, json_line, translation_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from clearhead.translation.result import Translation
    from clearhead.translation.translator import Translator


CHUNK_LINES = 2_000
"""Lines read, translated and written at a time: enough to sort by length, few enough to limit memory use."""


class OutputFormat(StrEnum):
    """Output format of translations."""

    text = "text"
    jsonl = "jsonl"


def translate(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text files, one segment per line; .gz, .xz and .zst are decompressed, - is standard input (the "
            "default). Several files are translated one after the other. Documents, recognized by their "
            "extension (docs/documents.md), are accepted as well: their text is translated, everything else in "
            "them is kept.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Output file; .gz, .xz and .zst are compressed. The translation of a document must have the "
            "extension of the document. For several documents name a directory; each translation gets the name "
            "of its document.",
        ),
    ] = None,
    beam: Beam = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            "--length-penalty", metavar="A", help="Exponent of the length penalty.", show_default="the model's"
        ),
    ] = None,
    nbest: Annotated[
        int,
        typer.Option(
            "--nbest",
            metavar="N",
            help="Number of translations per line, at most the beam size, or the number of samples with --mbr. Above "
            "1, text output is in the Moses format, one translation per line, best first: `index ||| text ||| "
            "log-probability`; the index is the number of the input line, counted from 0. There are fewer than "
            "N if the search finds fewer different texts.",
        ),
    ] = 1,
    diversity: Annotated[
        float | None,
        typer.Option(
            "--diversity",
            metavar="X",
            help="With --nbest: diverse beam search, which makes the translations differ. A token is penalized by X "
            "nats for each earlier hypothesis that has the same token at the same step; 0.2 to 0.8 are usual.",
            show_default="0",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="TEXT",
            help="Begin every translation with exactly this text; the model may complete a word at its end.",
            show_default=False,
        ),
    ] = "",
    terms: Annotated[
        str | None,
        typer.Option(
            "--terms",
            metavar="FILE.tsv",
            help="Terminology: source term, tab, translation; further columns are other accepted forms of the "
            "translation. Translations use one of the forms for every term in their line; the number of terms "
            "met is reported on stderr (docs/terms.md).",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            "--memory",
            metavar="FILE",
            help="Translation memory, a .tmx or any other file of pairs; may be repeated. Translations of identical "
            "lines are reused, translations of similar lines are shown (docs/terms.md).",
            show_default=False,
        ),
    ] = None,
    fuzzy: Annotated[
        float | None,
        typer.Option(
            "--fuzzy",
            metavar="R",
            help="Minimum similarity, at most 1, of the lines of --memory that are shown: the share of words that "
            "match.",
            show_default="0.75",
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random instead of searching.")] = False,
    mbr: Annotated[
        int | None,
        typer.Option(
            "--mbr",
            metavar="N",
            help="Minimum Bayes risk decoding: draw N samples per line, and output the one with the highest mean "
            "chrF against the others; with --nbest the best ones.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature",
            help="Sampling temperature: below 1 sharpens the distribution, above 1 flattens it.",
            show_default="1",
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Never draw a token that is less probable than this; 0 draws from all tokens.",
            show_default="0.02",
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Draw only from this many most probable tokens.", show_default="all")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p",
            help="Draw only from the most probable tokens that together have this probability.",
            show_default="1",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option("--seed", help="Random seed of sampling; the same seed gives the same samples.", show_default="1"),
    ] = None,
    split: Split = None,
    as_is: AsIs = False,
    protect_numbers: Annotated[
        bool,
        typer.Option(
            "--protect-numbers",
            help="Copy numbers exactly, in the same way as placeholders; the model needs placeholder tokens "
            "(docs/placeholders.md).",
        ),
    ] = False,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="A[,B]",
            help="Column of a .csv or .tsv file to replace by its translation, or two columns: the one to translate "
            "and the one for the translations. Numbers counted from 1, or names from the header line.",
            show_default="the only one",
        ),
    ] = None,
    from_lang: Annotated[
        str | None,
        typer.Option(
            "--from-lang",
            metavar="L",
            help="Language to translate from in a .tmx file; also the source language in a --memory with named "
            "languages.",
            show_default="the source language of the file",
        ),
    ] = None,
    to_lang: Annotated[
        str | None,
        typer.Option(
            "--to-lang",
            metavar="L",
            help="Language to translate into in a .tmx file, which may be missing there so far; also the target "
            "language in a --memory with named languages.",
            show_default="the other one of two",
        ),
    ] = None,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs",
            help="Read plain text as paragraphs: lines up to a blank line are translated together, and wrapped like "
            "the source.",
        ),
    ] = False,
    only_missing: Annotated[
        bool | None,
        typer.Option(
            "--only-missing/--retranslate",
            help="Keep finished translations of a document, or translate them again.",
            show_default="--only-missing for .po, .xlf and .tmx",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            help="text: one translation per line. jsonl: one JSON object per line, with source, text, score (as "
            "computed by `clearhead score`), utility (with --mbr: the mean chrF against the other samples), "
            "tokens, alignment (with --alignments), alternatives, truncated, source_truncated, "
            "output_truncated, sentences (if the line was split or normalized), warnings, warning_details, "
            "terms (with --terms) and memory (with --memory). For a document: one object per segment, with its "
            "line number and more (docs/documents.md).",
        ),
    ] = OutputFormat.text,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="PAGE.html",
            help="Also write an HTML page of the translations to review first: suspicious translations, worst first, "
            "with the reasons, then those of which the model is least certain.",
            show_default=False,
        ),
    ] = None,
    alignments: Annotated[
        str | None,
        typer.Option(
            "--alignments",
            metavar="FILE",
            help="Write word alignments: for each line, pairs such as 3-5 of source word and target word, both "
            "counted from 0 (Pharaoh format). With jsonl the objects contain them as well; - writes them to the "
            "objects only (docs/alignment.md).",
            show_default=False,
        ),
    ] = None,
    align_by: AlignBy = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = None,
    shortlist: Shortlist = False,
    ensemble: Ensemble = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = 1,
) -> None:
    """Translate text line by line, or documents.

    Text has one line of output per line of input, in the same order. In documents only the text changes. A line that
    is longer than the lines that the model was trained on is translated sentence by sentence. Suspicious translations
    are counted on stderr, and flagged in jsonl (docs/translation.md). If the translation of a document is interrupted,
    running the same command again resumes it.
    """
    paths = files or ["-"]
    drawn = given(temperature=temperature, epsilon=epsilon, top_k=top_k, top_p=top_p, seed=seed)
    searched = given(beam=beam, length_penalty=length_penalty, precision=precision, shortlist=shortlist or None)
    searched |= given(diversity=diversity)
    if sample and mbr is not None:
        raise ConfigError("--mbr draws samples itself, and takes the best of them; leave out --sample to have that")
    drawing = "--sample" if sample else "--mbr" if mbr is not None else None
    ways = "--sample or --mbr N, which draw translations at random"
    refuse_idle_options(drawing, searched if drawing else drawn, ways=ways)
    if align_by is not None and alignments is None:
        raise ConfigError("--align-by has no meaning without --alignments FILE")
    if alignments is not None and is_standard_output(alignments) and output_format is OutputFormat.text:
        raise ConfigError(f"--alignments {alignments} would mix the links with the translations; name a file")
    refuse_missing(paths)
    if fuzzy is not None and not memory:
        raise ConfigError("--fuzzy has no meaning without --memory FILE")
    if memory and nbest > 1:
        raise ConfigError(
            "--nbest: what --memory has for a line is one translation; ask for one, or leave out --memory"
        )
    if memory and prefix:
        raise ConfigError("--prefix: what --memory has for a line begins as it does; leave one of them out")

    from clearhead.decoding import Sampling
    from clearhead.files import display_name, open_output, some_names
    from clearhead.text.word_links import pharaoh
    from clearhead.translation.review_page import reporting
    from clearhead.translation.worker_pool import TranslatorTeam

    is_jsonl = output_format is OutputFormat.jsonl
    settings: dict[str, Any] = {
        "scores": is_jsonl or nbest > 1 or report is not None,
        "sampling": Sampling(**drawn) if drawing else None,
        "mbr": mbr,
        "length_penalty": length_penalty,
        "align_by": align_by,
        "protect_numbers": protect_numbers or None,
        **decode_settings(
            beam=beam,
            split=split,
            as_is=as_is,
            source_lang=source_lang,
            target_lang=target_lang,
            batch_tokens=batch_tokens,
            precision=precision,
            shortlist=shortlist,
        ),
    }

    if terms is not None:
        from clearhead.translation.terminology import Terms

        settings["terms"] = Terms.load(terms)
    recall = Recall.of(memory or [], fuzzy, from_lang, to_lang)

    def load() -> AbstractContextManager[Translator]:
        return TranslatorTeam.of(model, workers, device=device, ensemble=ensemble or ())

    of_documents = DocumentOptions(columns, paragraphs, only_missing, is_jsonl, from_lang, to_lang, recall)
    if of_documents.are_for(paths):
        of_lines = {"--nbest": nbest != 1, "--diversity": diversity is not None, "--prefix": prefix != ""}
        of_lines["--alignments"] = alignments is not None
        if idle := [name for name, is_given in of_lines.items() if is_given]:
            raise ConfigError(f"{', '.join(idle)}: only lines of text have that, and {paths[0]} is read as a document")
        translate_documents(load, paths, output, report, of_documents, settings, workers=workers)
        return
    refuse_overwriting(output, paths)
    refuse_report(report, paths, [output, alignments])
    refuse_overwriting(alignments, paths)
    if alignments is not None and output is not None and os.path.realpath(alignments) == os.path.realpath(output):
        raise ConfigError(f"--alignments {alignments} is where the translations go; name another file")
    settings |= {
        "alignments": alignments is not None,
        "num_best": nbest,
        "diversity": diversity or 0.0,
        "prefix": prefix,
        "one_line": output_format is OutputFormat.text,
    }
    count = 0
    with load() as translator, ExitStack() as opened:
        translator.translate([], **settings)  # an impossible setting is refused before anything is read
        # Begun first, the report is written last: what comes of it does no harm to the translations.
        pages = opened.enter_context(reporting(report, some_names(paths)))
        out = opened.enter_context(open_output(output))
        advance = opened.enter_context(_bar(output))
        links = None
        if alignments is not None and not is_standard_output(alignments):
            links = opened.enter_context(open_output(alignments))
        for path in paths:
            name = display_name(path)
            flagged, before = Flagged(name), count
            kept = TermsAndMatches(name)
            for first, lines in _chunks(path, workers):
                matches, asked = recall.asked(lines)
                made = translator.translate(asked, name=name, first=first, on_progress=advance, **settings)
                translations = recall.recalled(lines, matches, made, one_line=settings["one_line"])
                numbers = range(first, first + len(lines))
                warn_of_truncation(translations, translator, name=name, numbers=numbers)
                for index, translation in enumerate(translations, start=count):
                    out.write(_written(translation, index, output_format, nbest))
                if links is not None:
                    links.writelines(pharaoh(translation.alignment or ()) + "\n" for translation in translations)
                out.flush()
                count += len(translations)
                flagged.add(translations, numbers=numbers)
                kept.add(translations, numbers=numbers)
                if pages is not None:
                    pages.add(translations, name=name, numbers=numbers)
                if _is_typed(path):
                    flagged.tell()
            flagged.tell()
            kept.tell()
            if pages is not None:
                pages.add_file(f"{name}: {count - before:,} lines")


def _bar(output: str | None) -> AbstractContextManager[Callable[[int], None] | None]:
    """Return a progress bar, unless the translations themselves appear on the terminal."""
    if is_standard_output(output) and sys.stdout.isatty():
        return nullcontext()
    return progress("translating")


def _chunks(path: str, workers: int = 1) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of a file in chunks, with the line number of the first line of each."""
    from clearhead.files import read_lines

    # Whoever types a line wants to see its translation before typing the next.
    size = 1 if _is_typed(path) else CHUNK_LINES * workers
    lines = read_lines(path)
    first = 1
    while chunk := list(islice(lines, size)):
        yield first, chunk
        first += len(chunk)


def _is_typed(path: str) -> bool:
    return path == "-" and sys.stdin.isatty()


def _written(translation: Translation, index: int, output_format: OutputFormat, num_best: int) -> str:
    if output_format is OutputFormat.jsonl:
        return json_line(translation_object(translation)) + "\n"
    if num_best == 1:
        return translation.text + "\n"
    best = translation.alternatives or [translation]
    return "".join(f"{index} ||| {one.text} ||| {digits(one.score)}\n" for one in best)
