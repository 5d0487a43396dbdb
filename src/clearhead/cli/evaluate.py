"""`clearhead evaluate`: translate a test set and compare with its references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from clearhead.cli.checks import refuse_missing, refuse_overwriting, warn_of_truncation
from clearhead.cli.console import progress
from clearhead.cli.options import BatchTokens, Beam, Device, Model, Precision, Shortlist, SourceFile, TargetLang
from clearhead.errors import ConfigError
from clearhead.files import is_standard_output

if TYPE_CHECKING:
    from clearhead.evaluation import Evaluation

__all__ = ["evaluate"]


def evaluate(
    model: Model,
    source: SourceFile,
    reference: Annotated[
        str, typer.Option("--reference", metavar="FILE", help="Its true translations, line by line beside the source.")
    ],
    beam: Beam = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            "--compare",
            metavar="MODEL2",
            help="A second model, the baseline: is the difference to it more than chance? (paired bootstrap)",
        ),
    ] = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write MODEL's translations here as well.")
    ] = None,
    target_lang: TargetLang = None,
    batch_tokens: BatchTokens = None,
    precision: Precision = None,
    shortlist: Shortlist = False,
    device: Device = "auto",
) -> None:
    """Print BLEU, chrF (with their sacreBLEU signatures), exact match and speed on a test set."""
    refuse_missing([source, reference])
    refuse_overwriting(output, [source, reference])
    if output is not None and is_standard_output(output):
        raise ConfigError(f"--output {output} would mix the translations with the metrics; name a file")

    from clearhead.corpora import display_name, open_output, read_parallel
    from clearhead.evaluation import compare as compare_outputs
    from clearhead.evaluation import evaluate as evaluate_translator
    from clearhead.translator import Translator

    pairs = list(read_parallel([source], [reference]))
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    settings = {
        "beam_size": beam,
        "target_lang": target_lang,
        "batch_tokens": batch_tokens,
        "precision": precision,
        "shortlist": shortlist or None,
    }

    def judge(path: Path) -> tuple[Evaluation, list[str]]:
        translator = Translator.load(path, device=device)
        name = display_name(source)
        with progress(f"translating with {path}", total=sum(bool(line.strip()) for line in sources)) as advance:
            evaluation, translations = evaluate_translator(
                translator, sources, references, name=name, on_progress=advance, **settings
            )
        warn_of_truncation(translations, translator, name=name)
        return evaluation, [translation.text for translation in translations]

    evaluation, translations = judge(model)
    if output is not None:
        with open_output(output) as out:
            # A line end that the model wrote would set all later lines beside the wrong source.
            out.writelines(text.replace("\n", " ").replace("\r", " ") + "\n" for text in translations)
    result: dict[str, Any] = evaluation.to_dict()
    lines = _table(evaluation)
    if compare is not None:
        baseline, baseline_translations = judge(compare)
        comparison = compare_outputs(references, baseline_translations, translations)
        result["comparison"] = {"baseline": str(compare), "system": str(model), **comparison.to_dict()}
        lines += ["", f"{compare}:", *_table(baseline), "", f"from {compare} to {model}:", *comparison.lines()]
    typer.echo(json.dumps(result, ensure_ascii=False) if as_json else "\n".join(lines))


def _table(evaluation: Evaluation) -> list[str]:
    rows = [
        ("metric", "value", "signature"),
        ("BLEU", f"{evaluation.bleu:.2f}", evaluation.bleu_signature),
        ("chrF", f"{evaluation.chrf:.2f}", evaluation.chrf_signature),
        ("exact match, %", f"{evaluation.exact_match:.2f}", ""),
        ("sentences", f"{evaluation.sentences:,}", ""),
        ("sentences/s", f"{evaluation.sentences_per_second:,.2f}", ""),
        ("output tokens/s", f"{evaluation.output_tokens_per_second:,.2f}", ""),
    ]
    first, second = (max(len(row[column]) for row in rows) for column in (0, 1))
    return [f"{name:<{first}}  {value:>{second}}  {signature}".rstrip() for name, value, signature in rows]
