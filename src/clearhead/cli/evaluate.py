"""`clearhead evaluate`: metrics of a model or of given translations, comparison of models, alignment errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.bulk_work import BulkOptions, finished_parts, named_file
from clearhead.cli.checks import refuse_missing, refuse_mixing, refuse_overwriting
from clearhead.cli.console import notice, progress
from clearhead.cli.from_settings import option
from clearhead.cli.options import (
    OUTPUT,
    Json,
    OptionGroup,
    ReferenceFile,
    SourceFile,
    TranslatorOptions,
    with_option_groups,
)
from clearhead.cli.pairs import PairOptions
from clearhead.cli.rules import refuse_clashes
from clearhead.cli.search_options import MemoryOptions, report_unconsulted
from clearhead.cli.translation_notices import TranslationNotices
from clearhead.config.choices import Tokenization
from clearhead.errors import DataError

if TYPE_CHECKING:
    from clearhead.cli.pairs import GivenPairs
    from clearhead.translation.test_set import ModelEvaluation
    from clearhead.translation.translator import Translator

_SHARD_LINES = 250
"""Lines of a shard: a test set has few, which are divided among all workers."""


class Measure(StrEnum):
    """`MetricName` as an enumeration, because typer does not accept lists of literals."""

    bleu = "bleu"
    chrf = "chrf"
    chrf_with_words = "chrf++"


class EvaluatedText(PairOptions):
    """A test set; or translations of one, in place of its source."""

    source: SourceFile = None
    reference: ReferenceFile = None
    hypothesis: str | None = typer.Option(
        None, metavar="FILE", help="Evaluate these existing translations instead of a model."
    )
    sets: Path | None = typer.Option(
        None,
        metavar="DIR",
        help="Directory of test sets, on which every MODEL is judged and compared with the first (docs/recipes.md): "
        "files of pairs as for --pairs, and pairs of files such as news.de and news.en.",
    )

    @property
    def files(self) -> list[str]:
        """The files of the test set."""
        return [path for path in (self.source, self.reference, self.pairs) if path is not None]


class JudgingOptions(OptionGroup):
    """How translations are compared with references."""

    metric: list[Measure] | None = typer.Option(
        None, help="Metric to compute; may be repeated.", show_default="bleu and chrf"
    )
    tokenize: Tokenization | None = typer.Option(
        None, help="Tokenization for BLEU, as in sacreBLEU.", show_default="chosen by the script of the references"
    )
    lowercase: bool = typer.Option(False, "--lowercase", help="Ignore case in the metrics.")

    @property
    def settings(self) -> dict[str, Any]:
        """The options as arguments of `judge`."""
        from clearhead.evaluation import DEFAULT_METRICS

        metrics = tuple(dict.fromkeys(map(str, self.metric or DEFAULT_METRICS)))
        return {"metrics": metrics, "tokenize": self.tokenize, "lowercase": self.lowercase}


class GoldOptions(OptionGroup):
    """Manual word alignments, with which the model's own are compared."""

    gold_alignments: str | None = typer.Option(
        None,
        metavar="FILE",
        help="Manual word alignments: one line per sentence, 3-5 for a sure link and 3?5 for a possible one; or "
        "the NAACL format. MODEL's alignments of source and reference are compared with them: precision, "
        "recall, AER (docs/alignment.md).",
    )
    gold_base: int | None = typer.Option(
        None,
        min=0,
        max=1,
        help="Number of a sentence's first word in --gold-alignments.",
        show_default="0; 1 for the NAACL format",
    )
    align_by = option("decode.align_by")


class ResultOptions(OptionGroup):
    """What is printed and written."""

    as_json: Json = False
    compare: Path | None = typer.Option(
        None,
        metavar="MODEL2",
        help="Baseline model: test whether the difference to it is significant (paired bootstrap).",
    )
    output: str | None = typer.Option(
        None,
        *OUTPUT,
        metavar="FILE",
        help="Also write the translations of MODEL to this file; with --sets the table, as .csv or .html.",
    )


@with_option_groups
def evaluate(
    context: typer.Context,
    models: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="MODEL",
            help="Model directory, or run directory that contains a model; several with --sets, none with "
            "--hypothesis.",
            show_default=False,
        ),
    ] = None,
    *,
    text: EvaluatedText,
    judging: JudgingOptions,
    results: ResultOptions,
    gold: GoldOptions,
    decoding: TranslatorOptions,
    memory: MemoryOptions,
    bulk: BulkOptions,
) -> None:
    """Print BLEU and chrF (with 95 % intervals and sacreBLEU signatures), exact match and speed on a test set.

    Examples:
      clearhead evaluate runs/de-en --source test.de --reference test.en --compare runs/other
      clearhead evaluate runs/de-en runs/other --sets tests -o table.html
      clearhead evaluate --hypothesis theirs.en --reference test.en

    Of a run directory, the lines like its training text and those unlike it are judged apart, too, and the scores are
    kept in it (`evaluations.jsonl`) and shown in its report.
    """
    several = len(models or ()) > 1
    refuse_clashes(context, {"--metric": judging.metric or list(Measure), "more than one MODEL": several})
    refuse_mixing("--output", results.output, "metrics")
    files = [*text.files, *(path for path in (text.hypothesis, gold.gold_alignments) if path is not None)]
    refuse_missing(files)
    refuse_overwriting(results.output, files)

    from clearhead.bundle.model_directory import model_directory
    from clearhead.files import read_lines
    from clearhead.translation.test_set import ModelEvaluation

    for path in (*(models or ()), results.compare):
        if path is not None:
            model_directory(path)  # what is not there is refused before an hour of translating
    if text.sets is not None:
        _evaluate_sets(list(dict.fromkeys(models or ())), text.sets, text, judging, results, decoding, memory, bulk)
        return
    model = models[0] if models else None
    given = text.read(text.source or text.hypothesis, text.reference)
    recalled = {**memory.settings, **memory.lookups(text.from_lang, text.to_lang)}
    evaluated = partial(_evaluated, [given], text.swap, judging, gold, decoding, recalled)
    others = decoding.ensemble or ()
    if model is None:
        made_elsewhere = list(read_lines(text.hypothesis or "")) if text.pairs else given.sources
        evaluation = ModelEvaluation.of_texts(made_elsewhere, given.targets, intervals=True, **judging.settings)
    else:
        (evaluation,) = evaluated(model, others)
    unwritten = None if results.output is None else _write(results.output, evaluation.texts if model else ())
    if model is not None:
        evaluation = _with_parts(evaluation, model, given.sources)
    if results.compare is not None:
        names = str(results.compare), " + ".join(map(str, [model, *others]))
        (baseline,) = evaluated(results.compare)
        evaluation = evaluation.compared_with(baseline, names)
    as_json = json.dumps(evaluation.to_dict(), ensure_ascii=False) if results.as_json else None
    typer.echo(as_json or "\n".join(evaluation.lines()))
    if model is not None and not others:
        _record(model, evaluation, text.files, judging, decoding, memory)
    if unwritten is not None:
        raise unwritten


def _evaluate_sets(
    models: Sequence[Path],
    directory: Path,
    text: EvaluatedText,
    judging: JudgingOptions,
    results: ResultOptions,
    decoding: TranslatorOptions,
    memory: MemoryOptions,
    bulk: BulkOptions,
) -> None:
    """Evaluate every model on every test set of a directory, loading it once."""
    from clearhead.cli.test_sets import read_sets, refuse_other_than_table
    from clearhead.runtime.ray_shards import ray_actors
    from clearhead.translation.test_sets import JudgedSet, as_values, table_lines, write_table

    refuse_other_than_table(results.output, directory)
    sets = read_sets(directory, text, models)
    recalled = {**memory.settings, **memory.lookups(text.from_lang, text.to_lang)}
    judged, pairs = list[JudgedSet](), [one.given for one in sets]
    with ExitStack() as kept:  # the finished parts of all models, until the table is written
        if bulk.ray is not None:
            kept.enter_context(ray_actors(bulk.ray, device=decoding.device))  # one connection for all models
        for place, model in enumerate(models):
            if bulk.ray is None:
                evaluations = _evaluated(pairs, text.swap, judging, GoldOptions(), decoding, recalled, model)
            else:
                output = f"{named_file(results.output)}.{place}"
                evaluations = _evaluated_on_ray(kept, bulk, output, pairs, text.swap, judging, decoding, model)
            for number, (one, evaluation) in enumerate(zip(sets, evaluations, strict=True)):
                _record(model, evaluation, one.files, judging, decoding, memory)
                evaluation = replace(evaluation, translations=())
                if model != models[0]:
                    evaluation = evaluation.compared_with(judged[number].evaluation, (str(models[0]), str(model)))
                judged.append(JudgedSet(one.name, one.files, str(model), evaluation))
        as_json = json.dumps(as_values(judged), ensure_ascii=False) if results.as_json else None
        typer.echo(as_json or "\n".join(table_lines(judged)))
        if results.output is not None:
            write_table(results.output, judged)  # last, so that a full disk takes no scores with it


def _record(
    model: Path,
    evaluation: ModelEvaluation,
    files: Sequence[str],
    judging: JudgingOptions,
    decoding: TranslatorOptions,
    memory: MemoryOptions,
) -> None:
    """Keep the scores of a run in it."""
    from clearhead.training.evaluations import record_evaluation

    changed = {"tokenize": judging.tokenize, "lowercase": judging.lowercase or None, **decoding.settings}
    changed |= {"memory": memory.memory and [str(file) for file in memory.memory], **memory.settings}
    record_evaluation(
        model,
        model_sha256=evaluation.model_sha256,
        files=files,
        options={name: value for name, value in changed.items() if value is not None},
        sentences=evaluation.scores.sentences,
        metrics=evaluation.titled_metrics(),
        notice=notice,
    )


def _evaluated(
    test_sets: Sequence[GivenPairs],
    is_swapped: bool,
    judging: JudgingOptions,
    gold: GoldOptions,
    decoding: TranslatorOptions,
    recalled: Mapping[str, Any],
    path: Path,
    ensemble: Sequence[Path] = (),
) -> Iterator[ModelEvaluation]:
    """Evaluate a model on each test set, and report what is notable in its translations."""
    from clearhead.translation.test_set import evaluate_model
    from clearhead.translation.worker_pool import TranslatorTeam

    options: dict[str, Any] = {**vars(gold), **judging.settings, **decoding.settings, **recalled}
    with TranslatorTeam.of(path, decoding.workers, device=decoding.device, ensemble=ensemble) as translator:
        report_unconsulted(translator, options)
        for given in test_sets:
            options["name"] = given.name
            evaluation = evaluate_model(
                translator, given.sources, given.targets, intervals=True, stage=progress, **options
            )
            _tell(translator, given, evaluation, decoding, is_swapped=is_swapped)
            yield evaluation


def _evaluated_on_ray(
    kept: ExitStack,
    bulk: BulkOptions,
    output: str,
    test_sets: Sequence[GivenPairs],
    is_swapped: bool,
    judging: JudgingOptions,
    decoding: TranslatorOptions,
    path: Path,
) -> Iterator[ModelEvaluation]:
    """Evaluate a model on each test set as `_evaluated` does, with translations made on a Ray cluster.

    Args:
        kept: Where the finished parts are kept until its end.
        bulk: The cluster.
        output: File beside which they are kept.
        test_sets: The test sets.
        is_swapped: Whether their sides are exchanged.
        judging: How translations are compared with references.
        decoding: How they are made.
        path: The model.
    """
    from clearhead.translation.line_shards import Judging, Models, translations_in
    from clearhead.translation.test_set import ModelEvaluation

    models, work = Models(path, decoding.device), Judging(decoding.settings)
    translator = models.load("cpu")  # the workers have the GPUs
    translator.translate([], **decoding.settings)  # an impossible setting is refused before anything is translated
    inputs = [(given.name, given.sources) for given in test_sets]
    parts = kept.enter_context(finished_parts(bulk, output, inputs, models, work, translator, _SHARD_LINES))
    translations = translations_in(parts)
    for given in test_sets:
        evaluation = ModelEvaluation.of_translations(
            list(islice(translations, len(given.sources))),
            given.targets,
            model_sha256=translator.bundle.model_sha256,
            intervals=True,
            **judging.settings,
        )
        _tell(translator, given, evaluation, decoding, is_swapped=is_swapped)
        yield evaluation


def _tell(
    translator: Translator,
    given: GivenPairs,
    evaluation: ModelEvaluation,
    decoding: TranslatorOptions,
    *,
    is_swapped: bool,
) -> None:
    """Report what is notable in the translations of a test set."""
    from clearhead.translation.test_set import seems_swapped

    if seems_swapped(translator, evaluation, given.sources, **decoding.settings):
        remedy = "leave out" if is_swapped else "add"
        notice(f"{given.name}: {translator.path} seems to translate the references into the sources; {remedy} --swap")
    notices = TranslationNotices(given.name, translator)
    notices.add([(f"line {number}", result) for number, result in enumerate(evaluation.translations, start=1)])
    notices.tell()


def _write(output: str, texts: Sequence[str]) -> DataError | None:
    """Write translations; return the error of a full disk, with which the metrics are not lost."""
    from clearhead.files import open_output
    from clearhead.text.lines import on_one_line

    try:
        with open_output(output) as out:
            # A line end that the model wrote would set all later lines beside the wrong source.
            out.writelines(on_one_line(text) + "\n" for text in texts)
    except DataError as error:
        return error
    return None


def _with_parts(evaluation: ModelEvaluation, model: Path, sources: Sequence[str]) -> ModelEvaluation:
    """Return an evaluation with the lines near the model's training text and the others judged apart, if possible."""
    from clearhead.translation.test_set import near_training

    try:
        return evaluation.with_parts(near_training(model, sources))
    except DataError as error:  # the metrics are not lost with it
        notice(f"lines like the training text and unlike it are not judged apart: {error}")
        return evaluation
