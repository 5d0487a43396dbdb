"""`clearhead evaluate`: compute metrics of a model, or of existing translations, on a test set."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import Flagged, refuse_missing, refuse_overwriting, warn_of_truncation
from clearhead.cli.console import progress
from clearhead.cli.options import (
    AlignBy,
    AsIs,
    BatchTokens,
    Beam,
    Columns,
    Device,
    Ensemble,
    FromLang,
    PairsFile,
    Precision,
    Shortlist,
    SourceLang,
    Split,
    Swap,
    TargetLang,
    Threads,
    ToLang,
    Workers,
    decode_settings,
)
from clearhead.cli.pairs import read_given
from clearhead.config.choices import MetricName, Tokenization
from clearhead.errors import ConfigError, DataError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.evaluation import AlignmentScores, Evaluation
    from clearhead.translation.translator import Translator


TITLES: Mapping[MetricName, str] = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++"}


class Measure(StrEnum):
    """`MetricName` as an enumeration, because typer does not accept lists of literals."""

    bleu = "bleu"
    chrf = "chrf"
    chrf_with_words = "chrf++"


def evaluate(
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="Model directory, or run directory that contains a model; not with --hypothesis."
        ),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--source", metavar="FILE", help="Source text, one segment per line.")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(
            "--reference", metavar="FILE", help="Reference translations, aligned line by line with the source."
        ),
    ] = None,
    pairs: PairsFile = None,
    columns: Columns = None,
    from_lang: FromLang = None,
    to_lang: ToLang = None,
    swap: Swap = False,
    hypothesis: Annotated[
        str | None,
        typer.Option("--hypothesis", metavar="FILE", help="Evaluate these existing translations instead of a model."),
    ] = None,
    metric: Annotated[
        list[Measure] | None,
        typer.Option("--metric", help="Metric to compute; may be repeated.", show_default="bleu and chrf"),
    ] = None,
    tokenize: Annotated[
        Tokenization | None,
        typer.Option(
            "--tokenize",
            help="Tokenization for BLEU, as in sacreBLEU.",
            show_default="chosen by the script of the references",
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in the metrics.")] = False,
    beam: Beam = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="MODEL2",
            help="Baseline model: test whether the difference to it is significant (paired bootstrap).",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option("--output", "-o", metavar="FILE", help="Also write the translations of MODEL to this file."),
    ] = None,
    gold_alignments: Annotated[
        str | None,
        typer.Option(
            "--gold-alignments",
            metavar="FILE",
            help="Manual word alignments: one line per sentence, 3-5 for a sure link and 3?5 for a possible one; or "
            "the NAACL format. MODEL's alignments of source and reference are compared with them: precision, "
            "recall, AER (docs/alignment.md).",
            show_default=False,
        ),
    ] = None,
    gold_base: Annotated[
        int | None,
        typer.Option(
            "--gold-base",
            min=0,
            max=1,
            help="Number of a sentence's first word in --gold-alignments.",
            show_default="0; 1 for the NAACL format",
        ),
    ] = None,
    align_by: AlignBy = None,
    split: Split = None,
    as_is: AsIs = False,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = None,
    shortlist: Shortlist = False,
    ensemble: Ensemble = None,
    device: Device = "auto",
    threads: Threads = None,
    workers: Workers = 1,
) -> None:
    """Print BLEU and chrF (with sacreBLEU signatures), exact match and speed on a test set."""
    settings = decode_settings(
        beam=beam,
        split=split,
        as_is=as_is,
        source_lang=source_lang,
        target_lang=target_lang,
        batch_tokens=batch_tokens,
        precision=precision,
        shortlist=shortlist,
    )
    _refuse_misnamed(model, source, reference, pairs, hypothesis)
    of_links = {"align_by": align_by, "gold_base": gold_base}
    if gold_alignments is None and (idle := [name for name, value in of_links.items() if value is not None]):
        raise ConfigError(f"--{idle[0].replace('_', '-')} has no meaning without --gold-alignments FILE")
    if hypothesis is not None:
        of_a_model = {"source": source, "compare": compare, "output": output, "ensemble": ensemble, **settings}
        of_a_model |= {"gold_alignments": gold_alignments}
        of_a_model["as_is"] = of_a_model.pop("familiar")
        of_a_model["device"] = None if device == "auto" else device
        of_a_model["workers"] = None if workers == 1 else workers
        if pairs is None and swap:
            of_a_model["swap"] = True
        if idle := [name for name, value in of_a_model.items() if value is not None]:
            flags = ", ".join("--" + name.removesuffix("_size").replace("_", "-") for name in idle)
            raise ConfigError(f"{flags}: no meaning with --hypothesis, whose translations are there already")
    if tokenize is not None and metric and Measure.bleu not in metric:
        raise ConfigError("--tokenize has no meaning without --metric bleu")
    files = [path for path in (source, reference, pairs, hypothesis, gold_alignments) if path is not None]
    refuse_missing(files)
    refuse_overwriting(output, files)
    if output is not None and is_standard_output(output):
        raise ConfigError(f"--output {output} would mix the translations with the metrics; name a file")

    from clearhead.bundle import model_directory
    from clearhead.evaluation import DEFAULT_METRICS, alignment_scores, judge, read_gold_links
    from clearhead.evaluation import compare as compare_outputs
    from clearhead.files import open_output, read_lines
    from clearhead.text.line_ends import on_one_line
    from clearhead.text.word_links import spaced_words
    from clearhead.translation.test_set import evaluate as evaluate_translator
    from clearhead.translation.worker_pool import TranslatorTeam

    measured: dict[str, Any] = {
        "metrics": tuple(dict.fromkeys(map(str, metric or DEFAULT_METRICS))),
        "tokenize": tokenize,
        "lowercase": lowercase,
    }
    languages = from_lang, to_lang
    given = read_given(source or hypothesis, reference, pairs, columns=columns, languages=languages, swap=swap)
    sources, references = given.sources, given.targets
    for path in (model, compare):
        if path is not None:
            model_directory(path)  # what is not there is refused before an hour of translating

    def aligned(translator: Translator) -> AlignmentScores | None:
        if gold_alignments is None:
            return None
        how: Any = {"source_lang": source_lang, "target_lang": target_lang, "batch_tokens": batch_tokens}
        target_language = translator.decode_config(how).target_lang
        texts = [text for _, text in translator.pair_encoder.split_sources(sources, target_language, name=given.name)]
        gold = read_gold_links(gold_alignments, texts, references, base=gold_base)
        with progress("aligning", total=len(sources)) as advance:
            how |= {"align_by": align_by, "name": given.name, "on_progress": advance}
            return alignment_scores(translator.align(sources, references, words=spaced_words, **how), gold)

    def judged(path: Path, others: Sequence[Path] = ()) -> tuple[Evaluation, list[str], AlignmentScores | None]:
        total = sum(bool(line.strip()) for line in sources)
        with TranslatorTeam.of(path, workers, device=device, ensemble=others) as translator:
            alignment = aligned(translator)
            with progress(f"translating with {path}", total=total) as advance:
                evaluation, translations = evaluate_translator(
                    translator, sources, references, **measured, name=given.name, on_progress=advance, **settings
                )
        numbers = range(1, len(translations) + 1)
        warn_of_truncation(translations, translator, name=given.name, numbers=numbers)
        flagged = Flagged(given.name)
        flagged.add(translations, numbers=numbers)
        flagged.tell()
        return evaluation, [translation.text for translation in translations], alignment

    translations: list[str] = []
    alignment = None
    if model is None:
        made_elsewhere = list(read_lines(hypothesis or "")) if pairs else sources
        evaluation = judge(made_elsewhere, references, **measured)
    else:
        evaluation, translations, alignment = judged(model, ensemble or ())
    unwritten = None
    if output is not None:
        try:
            with open_output(output) as out:
                # A line end that the model wrote would set all later lines beside the wrong source.
                out.writelines(on_one_line(text) + "\n" for text in translations)
        except DataError as error:  # of a full disk; the metrics are not lost with it
            unwritten = error
    result: dict[str, Any] = evaluation.to_dict()
    lines = [*_table(evaluation), *_alignment_lines(alignment)]
    if alignment is not None:
        result["alignment"] = asdict(alignment)
    if compare is not None:
        baseline, baseline_translations, baseline_alignment = judged(compare)
        comparison = compare_outputs(references, baseline_translations, translations, **measured)
        system = " + ".join(map(str, [model, *(ensemble or ())]))
        result["comparison"] = {"baseline": str(compare), "system": system, **comparison.to_dict()}
        lines += [
            "",
            f"{compare}:",
            *_table(baseline),
            *_alignment_lines(baseline_alignment),
            "",
            f"from {compare} to {system}:",
            *comparison.lines(),
        ]
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else "\n".join(lines))
    if unwritten is not None:
        raise unwritten


def _refuse_misnamed(
    model: Path | None, source: str | None, reference: str | None, pairs: str | None, hypothesis: str | None
) -> None:
    """Make sure that translations and references are each given exactly once."""
    if (model is None) == (hypothesis is None):
        raise ConfigError(
            "name a MODEL to evaluate, or translations made elsewhere with --hypothesis FILE; one of both"
        )
    if pairs is not None and (source or reference):
        raise ConfigError("--pairs holds both sides; leave out --source and --reference")
    if pairs is None and not (reference and (source or hypothesis)):
        sides = "--source FILE --reference FILE" if model else "--reference FILE"
        raise ConfigError(f"name the test set: {sides}, or --pairs FILE")


def _table(evaluation: Evaluation) -> list[str]:
    values = evaluation.to_dict()
    rows = [("metric", "value", "signature")]
    rows += [(TITLES[name], f"{values[name]:.2f}", metric.signature) for name, metric in evaluation.metrics.items()]
    rows += [("exact match, %", f"{values['exact_match']:.2f}", ""), ("sentences", f"{values['sentences']:,}", "")]
    speeds = {"sentences/s": "sentences_per_second", "output tokens/s": "output_tokens_per_second"}
    rows += [(title, f"{values[name]:,.2f}", "") for title, name in speeds.items() if name in values]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{name:<{first}}  {value:>{second}}  {signature}".rstrip() for name, value, signature in rows]


def _alignment_lines(scores: AlignmentScores | None) -> list[str]:
    if scores is None:
        return []
    return [
        f"alignment: precision {100 * scores.precision:.1f}%, recall {100 * scores.recall:.1f}%, "
        f"AER {100 * scores.error_rate:.1f}% ({scores.links:,} links; by hand {scores.sure:,} sure, "
        f"{scores.possible:,} possible)"
    ]
