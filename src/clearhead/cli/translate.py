"""`clearhead translate`: lines of text in, one translation a line out; or documents in, the same translated out."""

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
"""Lines read, translated and written at a time: enough to sort by length, few enough to bound the memory."""


class OutputFormat(StrEnum):
    """How translations are written."""

    text = "text"
    jsonl = "jsonl"


def translate(
    model: Model,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE",
            help="Text files, one segment a line; .gz, .xz and .zst are decompressed, - is standard input (the "
            "default). Several are translated one after the other. Or documents, told by their extension "
            "(docs/documents.md): their text is translated, all else in them stays as it is.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="Where the translations go; .gz, .xz and .zst are compressed. A document's translation has the same "
            "extension; several go into a directory, each under its name.",
        ),
    ] = None,
    beam: Beam = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            "--length-penalty", metavar="A", help="Exponent of the GNMT length penalty.", show_default="the model's"
        ),
    ] = None,
    nbest: Annotated[
        int,
        typer.Option(
            "--nbest",
            metavar="N",
            help="Translations of each line, at most the beam size, or the samples of --mbr. Above 1, text output is "
            "in Moses form, one a line, best first: `index ||| text ||| log-probability`; input lines are counted from "
            "0. Fewer than N where the search finds fewer texts.",
        ),
    ] = 1,
    diversity: Annotated[
        float | None,
        typer.Option(
            "--diversity",
            metavar="X",
            help="With --nbest: a token loses X nats for each hypothesis before that writes it at the same step, so "
            "that the translations differ; 0.2 to 0.8 are usual (diverse beam search).",
            show_default="0",
        ),
    ] = None,
    prefix: Annotated[
        str,
        typer.Option(
            "--prefix",
            metavar="TEXT",
            help="Begin every translation with this text, to the letter; a word at its end may be completed.",
            show_default=False,
        ),
    ] = "",
    terms: Annotated[
        str | None,
        typer.Option(
            "--terms",
            metavar="FILE.tsv",
            help="Terminology: a term of the source, a tab, its translation; further columns are other forms that do "
            "as well. Translations have a form of every term of their line; how many do is said on stderr "
            "(docs/terms.md).",
            show_default=False,
        ),
    ] = None,
    memory: Annotated[
        list[str] | None,
        typer.Option(
            "--memory",
            metavar="FILE",
            help="Translation memory, a .tmx or any other file of pairs; several may be given. Its translations of "
            "equal lines are reused, those of similar ones are shown (docs/terms.md).",
            show_default=False,
        ),
    ] = None,
    fuzzy: Annotated[
        float | None,
        typer.Option(
            "--fuzzy",
            metavar="R",
            help="Similarity from which on a line of --memory is shown, up to 1: the share of words that are alike.",
            show_default="0.75",
        ),
    ] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw translations at random.")] = False,
    mbr: Annotated[
        int | None,
        typer.Option(
            "--mbr",
            metavar="N",
            help="Draw N samples of each line, and take the one that is most like all the others by chrF (minimum "
            "Bayes risk decoding); with --nbest those that are.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float | None,
        typer.Option(
            "--temperature", help="Below 1 sharpens what is drawn from, above 1 flattens it.", show_default="1"
        ),
    ] = None,
    epsilon: Annotated[
        float | None,
        typer.Option(
            "--epsilon",
            help="Never draw a token that the model finds less probable than this; 0 draws from all.",
            show_default="0.02",
        ),
    ] = None,
    top_k: Annotated[
        int | None, typer.Option("--top-k", help="Draw among this many most probable tokens.", show_default="all")
    ] = None,
    top_p: Annotated[
        float | None,
        typer.Option(
            "--top-p", help="Draw among the most probable tokens that hold this much probability.", show_default="1"
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", help="Equal seeds give equal samples.", show_default="1")
    ] = None,
    split: Split = None,
    as_is: AsIs = False,
    protect_numbers: Annotated[
        bool,
        typer.Option(
            "--protect-numbers",
            help="Copy numbers to the letter, as placeholders are, by a model that has tokens for these "
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
            help="Column of a .csv or .tsv to translate in its place, or the one to translate and the one for the "
            "translations: numbers counted from 1, or names from a header line.",
            show_default="the only one",
        ),
    ] = None,
    from_lang: Annotated[
        str | None,
        typer.Option(
            "--from-lang",
            metavar="L",
            help="Language in a .tmx to translate from; of the sources in a --memory that names languages.",
            show_default="the one that the file calls its source",
        ),
    ] = None,
    to_lang: Annotated[
        str | None,
        typer.Option(
            "--to-lang",
            metavar="L",
            help="Language in a .tmx of the translations, which may be new there; of those in a --memory.",
            show_default="the other one of two",
        ),
    ] = None,
    paragraphs: Annotated[
        bool,
        typer.Option(
            "--paragraphs",
            help="Plain text in paragraphs: lines up to a blank one are translated together, and wrapped as they were.",
        ),
    ] = False,
    only_missing: Annotated[
        bool | None,
        typer.Option(
            "--only-missing/--retranslate",
            help="Keep the finished translations that a document has, or replace them as well.",
            show_default="--only-missing for .po, .xlf and .tmx",
        ),
    ] = None,
    output_format: Annotated[
        OutputFormat,
        typer.Option(
            "--format",
            help="text: one line a translation. jsonl: one JSON object a line, with source, text, score (what "
            "`clearhead score` says of them), utility (with --mbr: the mean chrF against the other samples), tokens, "
            "alignment (with --alignments), alternatives, truncated, source_truncated, output_truncated, sentences (of "
            "a line that was split or read in another form), warnings and warning_details, with --terms also terms and "
            "with --memory also memory; of a document one a segment, with its line and more (docs/documents.md).",
        ),
    ] = OutputFormat.text,
    report: Annotated[
        str | None,
        typer.Option(
            "--report",
            metavar="PAGE.html",
            help="Write a page of the translations to read first as well: what looks wrong, worst first, with the "
            "reasons, then what the model is least sure of.",
            show_default=False,
        ),
    ] = None,
    alignments: Annotated[
        str | None,
        typer.Option(
            "--alignments",
            metavar="FILE",
            help="Write which words of a line became which words of its translation: a line for each, with pairs such "
            "as 3-5, both counted from 0 (Pharaoh form). With jsonl they are in the objects as well, and with - there "
            "alone (docs/alignment.md).",
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
    """Translate text: one line in is one line out, in order; or documents, whose text alone changes.

    A line that is longer than the model was trained on is translated sentence by sentence. What looks wrong is counted
    on stderr, and flagged in jsonl (docs/translation.md). Documents that are broken off go on where they were.
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
    """Yield the lines of a file, some at a time, with the number of the first of them."""
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
