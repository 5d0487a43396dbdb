"""`clearhead evaluate`: metrics of a model or of given translations, comparison of models, alignment errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from enum import StrEnum
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import refuse_missing, refuse_mixing, refuse_overwriting
from clearhead.cli.console import notice, progress
from clearhead.cli.options import (
    OUTPUT,
    AlignBy,
    Json,
    ReferenceFile,
    SourceFile,
    TranslatorOptions,
    with_option_groups,
)
from clearhead.cli.pairs import PairOptions
from clearhead.cli.rules import refuse_clashes
from clearhead.cli.translation_notices import TranslationNotices
from clearhead.config.choices import MetricName, Tokenization
from clearhead.errors import DataError

if TYPE_CHECKING:
    from clearhead.evaluation import AlignmentScores, Evaluation
    from clearhead.translation.translator import Translator


TITLES: Mapping[MetricName, str] = {"bleu": "BLEU", "chrf": "chrF", "chrf++": "chrF++"}


NEAR, FAR = "near_training", "far_from_training"
PARTS = {NEAR: "like one of the training text (half of their words or more)", FAR: "unlike any of the training text"}
"""The two parts of a test set, by their name in JSON."""


class Measure(StrEnum):
    """`MetricName` as an enumeration, because typer does not accept lists of literals."""

    bleu = "bleu"
    chrf = "chrf"
    chrf_with_words = "chrf++"


@with_option_groups
def evaluate(
    context: typer.Context,
    model: Annotated[
        Path | None,
        typer.Argument(
            metavar="MODEL", help="Model directory, or run directory that contains a model; not with --hypothesis."
        ),
    ] = None,
    *,
    source: SourceFile = None,
    reference: ReferenceFile = None,
    pairs: PairOptions,
    hypothesis: Annotated[
        str | None, typer.Option(metavar="FILE", help="Evaluate these existing translations instead of a model.")
    ] = None,
    metric: Annotated[
        list[Measure] | None, typer.Option(help="Metric to compute; may be repeated.", show_default="bleu and chrf")
    ] = None,
    tokenize: Annotated[
        Tokenization | None,
        typer.Option(
            help="Tokenization for BLEU, as in sacreBLEU.", show_default="chosen by the script of the references"
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case in the metrics.")] = False,
    as_json: Json = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL2",
            help="Baseline model: test whether the difference to it is significant (paired bootstrap).",
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(*OUTPUT, metavar="FILE", help="Also write the translations of MODEL to this file."),
    ] = None,
    gold_alignments: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Manual word alignments: one line per sentence, 3-5 for a sure link and 3?5 for a possible one; or "
            "the NAACL format. MODEL's alignments of source and reference are compared with them: precision, "
            "recall, AER (docs/alignment.md).",
        ),
    ] = None,
    gold_base: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=1,
            help="Number of a sentence's first word in --gold-alignments.",
            show_default="0; 1 for the NAACL format",
        ),
    ] = None,
    align_by: AlignBy = None,
    decoding: TranslatorOptions,
) -> None:
    """Print BLEU and chrF (with 95 % intervals and sacreBLEU signatures), exact match and speed on a test set.

    Examples:
      clearhead evaluate runs/de-en --source test.de --reference test.en
      clearhead evaluate runs/de-en --pairs test.tsv --compare runs/other
      clearhead evaluate --hypothesis theirs.en --reference test.en

    Of a run directory, the lines like its training text and those unlike it are judged apart, too, and the scores are
    kept in it (`evaluations.jsonl`) and shown in its report.
    """
    refuse_clashes(context, {"--metric": metric or list(Measure)})
    refuse_mixing("--output", output, "metrics")
    files = [path for path in (source, reference, pairs.pairs, hypothesis, gold_alignments) if path is not None]
    refuse_missing(files)
    refuse_overwriting(output, files)

    from clearhead.bundle import model_directory
    from clearhead.evaluation import DEFAULT_METRICS, alignment_scores, judge, read_gold_links
    from clearhead.evaluation import compare as compare_outputs
    from clearhead.files import open_output, read_lines
    from clearhead.text.line_ends import on_one_line
    from clearhead.text.word_links import spaced_words
    from clearhead.training.evaluations import record_evaluation
    from clearhead.translation.test_set import evaluate as evaluate_translator
    from clearhead.translation.test_set import near_training
    from clearhead.translation.worker_pool import TranslatorTeam

    measured: dict[str, Any] = {
        "metrics": tuple(dict.fromkeys(map(str, metric or DEFAULT_METRICS))),
        "tokenize": tokenize,
        "lowercase": lowercase,
    }
    given = pairs.read(source or hypothesis, reference)
    sources, references = given.sources, given.targets
    for path in (model, compare):
        if path is not None:
            model_directory(path)  # what is not there is refused before an hour of translating

    def aligned(translator: Translator) -> AlignmentScores | None:
        if gold_alignments is None:
            return None
        how: Any = {name: decoding.settings[name] for name in ("source_lang", "target_lang", "batch_tokens")}
        target_language = translator.decode_config(how).target_lang
        texts = [text for _, text in translator.pair_encoder.split_sources(sources, target_language, name=given.name)]
        gold = read_gold_links(gold_alignments, texts, references, base=gold_base)
        with progress("aligning", total=len(sources)) as advance:
            how |= {"align_by": align_by, "name": given.name, "on_progress": advance}
            return alignment_scores(translator.align(sources, references, words=spaced_words, **how), gold)

    def judged(
        path: Path, ensemble: Sequence[Path] = ()
    ) -> tuple[Evaluation, list[str], AlignmentScores | None, str | None]:
        total = sum(bool(line.strip()) for line in sources)
        with TranslatorTeam.of(path, decoding.workers, device=decoding.device, ensemble=ensemble) as translator:
            alignment = aligned(translator)
            with progress(f"translating with {path}", total=total) as advance:
                evaluation, translations = evaluate_translator(
                    translator,
                    sources,
                    references,
                    **measured,
                    intervals=True,
                    name=given.name,
                    on_progress=advance,
                    **decoding.settings,
                )
        notices = TranslationNotices(given.name, translator)
        notices.add(translations, places=[f"line {number}" for number in range(1, len(translations) + 1)])
        notices.tell()
        return evaluation, [one.text for one in translations], alignment, translator.bundle.model_sha256

    translations: list[str] = []
    others = decoding.ensemble or ()
    alignment, model_sha256 = None, None
    if model is None:
        made_elsewhere = list(read_lines(hypothesis or "")) if pairs.pairs else sources
        evaluation = judge(made_elsewhere, references, **measured, intervals=True)
    else:
        evaluation, translations, alignment, model_sha256 = judged(model, others)
    unwritten = None
    if output is not None:
        try:
            with open_output(output) as out:
                # A line end that the model wrote would set all later lines beside the wrong source.
                out.writelines(on_one_line(text) + "\n" for text in translations)
        except DataError as error:  # of a full disk; the metrics are not lost with it
            unwritten = error
    result: dict[str, Any] = evaluation.to_dict()
    lines = _table(evaluation)
    is_near = None
    if model is not None:
        try:
            is_near = near_training(model, sources)
        except DataError as error:  # the metrics are not lost with it
            notice(f"lines like the training text and unlike it are not judged apart: {error}")
    for name, part in _parts(is_near).items():
        found = judge(list(compress(translations, part)), list(compress(references, part)), **measured)
        result[name] = found.to_dict()
        lines.append(_part_line(name, found))
    lines += _alignment_lines(alignment)
    if alignment is not None:
        result["alignment"] = asdict(alignment)
    if compare is not None:
        baseline, baseline_translations, baseline_alignment, _ = judged(compare)
        comparison = compare_outputs(references, baseline_translations, translations, **measured)
        system = " + ".join(map(str, [model, *others]))
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
    if model is not None and not others:
        changed = {"tokenize": tokenize, "lowercase": lowercase or None, **decoding.settings}
        record_evaluation(
            model,
            model_sha256=model_sha256 or "",
            files=[path for path in (source, reference, pairs.pairs) if path is not None],
            options={name: value for name, value in changed.items() if value is not None},
            sentences=evaluation.sentences,
            found={TITLES[name]: asdict(metric) for name, metric in evaluation.metrics.items()},
            notice=notice,
        )
    if unwritten is not None:
        raise unwritten


def _table(evaluation: Evaluation) -> list[str]:
    values = evaluation.to_dict()
    rows = [("metric", "value", "95 %", "signature")]
    for name, metric in evaluation.metrics.items():
        interval = "{:.2f} to {:.2f}".format(*metric.interval) if metric.interval else ""
        rows.append((TITLES[name], f"{values[name]:.2f}", interval, metric.signature))
    rows += [("exact match, %", f"{values['exact_match']:.2f}", "", "")]
    rows += [("sentences", f"{values['sentences']:,}", "", "")]
    speeds = {"sentences/s": "sentences_per_second", "output tokens/s": "output_tokens_per_second"}
    rows += [(title, f"{values[name]:,.2f}", "", "") for title, name in speeds.items() if name in values]
    first, second, third = (max(len(row[column]) for row in rows) for column in range(3))
    return [f"{row[0]:<{first}}  {row[1]:>{second}}  {row[2]:<{third}}  {row[3]}".rstrip() for row in rows]


def _parts(is_near: Sequence[bool] | None) -> dict[str, list[bool]]:
    """Return which lines of a test set are near its model's training text, and which are not."""
    parts = {NEAR: list(is_near or ()), FAR: [not one for one in is_near or ()]}
    return {name: part for name, part in parts.items() if any(part)}


def _part_line(name: str, evaluation: Evaluation) -> str:
    scores = ", ".join(f"{TITLES[metric]} {found.score:.2f}" for metric, found in evaluation.metrics.items())
    return f"{evaluation.sentences:,} lines {PARTS[name]}: {scores}"


def _alignment_lines(scores: AlignmentScores | None) -> list[str]:
    if scores is None:
        return []
    return [
        f"alignment: precision {100 * scores.precision:.1f}%, recall {100 * scores.recall:.1f}%, "
        f"AER {100 * scores.error_rate:.1f}% ({scores.links:,} links; by hand {scores.sure:,} sure, "
        f"{scores.possible:,} possible)"
    ]
