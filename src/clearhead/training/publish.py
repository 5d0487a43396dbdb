"""Publish weights of a run, or averaged checkpoints, as a model directory with model card and golden sentences.

The model that is there before has a record of its scores, with which new ones are compared.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from clearhead.bundle import Bundle, load_bundle, save_bundle
from clearhead.bundle.model_directory import refuse_foreign
from clearhead.bundle.side_files import ALIGNMENT_FILE, SideFiles
from clearhead.config import NO_GOLDEN, Config, DecodeConfig
from clearhead.data.inputs import ROLES
from clearhead.data.prepare import Prepared, open_prepared
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import CheckpointError, ConfigError, DataError, ModelError
from clearhead.files import read_lines, readable_version
from clearhead.files.tensors import average_weights
from clearhead.runtime.device import resolve_device
from clearhead.text.languages import split_tag
from clearhead.tokenizers import Vocabulary
from clearhead.training.checkpoints import Checkpoints, TrainingState
from clearhead.training.loss import GUIDED_HEAD, guided_layer
from clearhead.training.model_card import model_card
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.training.run_directory import lock
from clearhead.training.shards import require_fitting_checkpoint
from clearhead.training.validation import Validation, is_better, measured_on, validate_weights, with_weights
from clearhead.training.warm_start import model_name
from clearhead.translation.alignment import choose_head, guided_head_of, save_head
from clearhead.translation.golden import make_golden, require_computed_alike
from clearhead.translation.quality import Calibration, QualityEstimator
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

SideFilesOf = Callable[[Translator], SideFiles]
"""Returns the side files of a model, which are written with it."""

_MOST_GOLDEN = 100
_MOST_LOOKED_AT = 200
"""Validation pairs among which to look for ones short enough to choose an alignment head."""
_ANY_LENGTH = 100_000


def publish(
    directory: Path,
    weights: Mapping[str, Tensor],
    config: Config,
    data: Prepared,
    state: TrainingState,
    validation: Validation,
    chosen: str,
    side_files: SideFilesOf | None = None,
    own: OwnParts = NO_OWN_PARTS,
) -> Translator:
    """Write a model directory.

    Args:
        directory: Path of the directory.
        weights: Tensors of the model.
        config: Complete settings of the run.
        data: Training and validation data.
        state: State of the run when it had these weights, or the last of those averaged.
        validation: Validation result of these weights.
        chosen: Description of the weights, such as "step 500".
        side_files: Function that returns the side files of the model; without it, there are none.
        own: The run's own parts.

    Returns:
        The model, ready to translate, on the CPU.
    """
    model = with_weights(weights, config, torch.device("cpu"), own)
    named = (path for role in ROLES for path in getattr(config.data, role))
    start = config.from_model and model_name(config.from_model)
    settings = config.model_copy(update={"from_model": start}).model_dump(mode="json")
    paths = {config.out, config.golden, *(file["path"] for file in data.report["files"]), *named}
    guided = AlignmentHead(guided_layer(config.train, config.model), GUIDED_HEAD, is_reading=True)
    general = validation.general
    info = {
        "preset": config.preset,
        "weights": chosen,
        **({"started_from": {"name": start, "sha256": config.from_sha256}} if start else {}),
        **({"imported_from": state.imported_from} if state.imported_from else {}),
        **({"guided_alignment": guided._asdict()} if config.data.alignments else {}),
        "data": _without_directories(data.report, paths),
        "training": {
            "date": time.strftime("%Y-%m-%d"),
            "steps": state.step,
            "minutes": round(state.elapsed / 60, 2),
            "target_tokens": state.target_tokens,
            "device": state.device,
            "precision": state.precision,
        },
        "settings": _without_directories(settings, paths),
        "metrics": {
            "valid_bleu": round(validation.bleu, 2),
            "bleu_signature": validation.bleu_signature,
            "valid_chrf": round(validation.chrf, 2),
            "chrf_signature": validation.chrf_signature,
            "valid_nll": round(validation.nll, 4),
            "valid_ppl": round(validation.ppl, 3),
            **({"general_bleu": round(general.bleu, 2), "general_chrf": round(general.chrf, 2)} if general else {}),
        },
    }
    translator = Translator(Bundle(model.eval(), data.tokenizer, config.decode, info), directory)
    golden = make_golden(translator, golden_sources(config.golden, data.tokenizer, config.decode.target_lang))
    save_bundle(
        directory,
        translator.bundle,
        golden=golden,
        card=model_card(directory.name, translator.bundle),
        side_files=side_files and side_files(translator),
        check=partial(require_computed_alike, golden=golden),
    )
    return translator


def choose_alignment_head(translator: Translator, data: Prepared) -> tuple[AlignmentHead, float]:
    """Return the attention head that aligns words, the guided one or else the best, and its agreement with occlusion.

    Args:
        translator: A model to publish.
        data: Prepared data.
    """
    bundle, config = translator.bundle, translator.bundle.decode
    rows = translatable(data, config.target_lang, _MOST_LOOKED_AT)
    sources, targets = [source for _, source in rows], [data.valid.target(row) for row, _ in rows]
    pairs = translator.pair_encoder.pairs(sources, targets, config.with_changes({"max_input_tokens": _ANY_LENGTH}))
    guided = guided_head_of(bundle)
    return choose_head(bundle.own_module, pairs, batch_tokens=config.batch_tokens, guided=guided)


def calibrated(translator: Translator, translations: Sequence[Translation], chrfs: Sequence[float]) -> Calibration:
    """Fit the quality estimate to a model's translations of validation sentences.

    Args:
        translator: A model to publish.
        translations: Scored translations.
        chrfs: The chrF of each, in percent.
    """
    estimator = QualityEstimator(Calibration(), translator.bundle.line_statistics)
    pairs = [
        (estimator.sureness(translation.source, translation.text, translation.score), chrf)
        for translation, chrf in zip(translations, chrfs, strict=True)
        if translation.score is not None and translation.source.strip()
    ]
    return Calibration.fitted([sure for sure, _ in pairs], [chrf for _, chrf in pairs])


def _with_head(data: Prepared, translator: Translator) -> SideFiles:
    head, agreement = choose_alignment_head(translator, data)
    return {ALIGNMENT_FILE: partial(save_head, head=head, agreement=agreement)}


def golden_lines(golden: str | None) -> list[str]:
    """Return the lines of the file given by the setting `golden`, or nothing if it names no file.

    Raises:
        DataError: If the file cannot be read, has no sentence, or has too many.
    """
    if golden is None or golden == NO_GOLDEN:
        return []
    lines = list(islice(read_lines(golden), _MOST_GOLDEN + 1))
    if not any(map(str.strip, lines)) or len(lines) > _MOST_GOLDEN:
        raise DataError(f"--golden {golden}: give a file of 1 to {_MOST_GOLDEN} sentences, one a line, or none")
    return lines


def golden_sources(golden: str | None, tokenizer: Vocabulary, target_lang: str | None) -> list[str] | None:
    """Return the golden sentences to translate; None if they are to be made from the vocabulary.

    Raises:
        DataError: If the file cannot be read, has no sentence or too many, or a sentence cannot be translated.
    """
    if golden is None:
        return None
    sources = golden_lines(golden)
    parts = tokenizer.split_sources(sources, target_lang, name=golden)
    for number, (language, text) in enumerate(parts if tokenizer.language_tags else [], start=1):
        if language is None and text.strip():
            raise DataError(
                f"{golden}, line {number}: into which language? start it with a tag, or set decode.target_lang"
            )
    return sources


def _without_directories(value: Any, paths: Collection[str | None]) -> Any:
    """Return nested values in which each given path is replaced by its file name, also in `path:line`.

    A model directory is made to be copied, and the location of the text is private.
    """
    match value:
        case Mapping():
            return {name: _without_directories(inner, paths) for name, inner in value.items()}
        case list() | tuple():
            return [_without_directories(inner, paths) for inner in value]
        case str():
            path, line = value.rpartition(":")[::2]
            if value in paths:
                return Path(value).name
            return f"{Path(path).name}:{line}" if path in paths and line.isdigit() else value
    return value


def translatable(data: Prepared, target_lang: str | None, count: int) -> list[tuple[int, str]]:
    """Return row and source of the first validation pairs that the model can translate unchanged, at most `count`.

    A source without a language tag can be trained on, but cannot be translated unless `target_lang` is given.
    """
    languages, sources = data.tokenizer.language_tags, map(data.valid.source, range(len(data.valid)))
    rows = (
        (row, source)
        for row, source in enumerate(sources)
        if not languages or (split_tag(source, languages)[0] or target_lang) in languages
    )
    return list(islice(rows, count))


def average_run(
    run: Path, output: Path, *, last: int | None, device: str, force: bool, notice: Callable[[str], None]
) -> list[Path]:
    """Average the last checkpoints of a run into a model directory (paper section 6.1), and report its quality.

    The average is validated like the models of the run. It is compared with the model at `output` and the run's
    published model by their recorded scores; these models are not run again.

    Args:
        run: Run directory.
        output: Model directory to write.
        last: Number of newest checkpoints to average; None means `train.average_last` of the run.
        device: Device for validation.
        force: Whether to replace a model that exists at `output`, even a better one.
        notice: Called with the scores of the models, and when a damaged checkpoint is skipped.

    Returns:
        The checkpoints that were averaged, oldest first.

    Raises:
        CheckpointError: If `run` is not a run directory, has too few checkpoints, or is being trained while `output` is
            inside it.
        ModelError: If a model exists at `output` without `force`, or anything that is not a model.
    """
    if not (run / "config.toml").is_file():
        raise CheckpointError(f"{run} is not a run directory: it holds no config.toml")
    refuse_foreign(output)
    found_device = torch.device(resolve_device(device))
    output, run = output.resolve(), run.resolve()  # resolve links and `..`, so that each model has one path
    published_at = {directory: read_published(directory) for directory in dict.fromkeys((run / "model", output))}
    earlier = {directory: published for directory, published in published_at.items() if published is not None}
    if output in earlier and not force:
        raise ModelError(
            f"there is a model at {output} ({earlier[output].words}); give -o another name, or --force to put the "
            f"average there"
        )
    config = Config.load(run / "config.toml")
    NO_OWN_PARTS.require(config.train.own_parts)
    checkpoints = Checkpoints(run / "checkpoints", notice)
    newest = checkpoints.newest()
    if newest is None:
        raise CheckpointError(f"{run} has no checkpoint yet")
    require_fitting_checkpoint(config.model, newest[0], run)
    count = last or config.train.average_last
    paths = checkpoints.last(count, multiple_of=config.train.checkpoint_every)
    if last is not None and len(paths) < last:
        raise CheckpointError(f"{run} has {len(paths)} good checkpoints, fewer than --last {last}")
    weights, state = average_weights(paths, checkpoints.weights), checkpoints.state(paths[-1])
    data = open_prepared(run / "data")
    validation = validate_weights(weights, data, config, found_device)
    chosen = "average of " + ", ".join(path.name for path in paths)
    # A running training publishes into its own directory.
    with lock(run) if output.is_relative_to(run) else nullcontext():
        publish(output, weights, config, data, state, validation, chosen, partial(_with_head, data))
    notice(f"{output}: {chosen}, validation {validation.scores}, perplexity {validation.ppl:.2f}")
    for directory, published in earlier.items():
        what = "what stood there" if directory == output else str(directory)
        notice(f"{published.verdict(validation, data, config)} {what}: {published.words}")
    return paths


@dataclass(frozen=True, slots=True)
class PublishedScores:
    """Scores that rank weights, rounded as in `publish`, so that equal weights compare equal."""

    nll: float
    """Negative log-likelihood per target token, in nats."""
    chrf: float
    """chrF of greedy translations, in percent."""


@dataclass(frozen=True, slots=True)
class Published:
    """Record of a published model."""

    words: str
    """Description of the weights and their scores, or why these are unknown."""
    scores: PublishedScores | None = None
    measured_on: tuple[str, ...] = ()
    """What must agree before scores can be compared: see `validation.measured_on`; and the metric."""

    def verdict(self, validation: Validation, data: Prepared, config: Config) -> str:
        """Return in words whether new weights rank better by `is_better`, without validating the published ones again.

        The recorded scores count only if they were measured on the same text, with the same settings and metric.
        Another type of processor may have added numbers in another order, but that effect is far below the rounding.
        """
        if self.scores is None:
            return "not to be compared with"
        now_on = measured_on(data.report, config.train.validate_sentences, config.decode), validation.chrf_signature
        if self.measured_on != now_on:
            return "measured on other validation text than"
        now = PublishedScores(round(validation.nll, 4), round(validation.chrf, 2))
        if is_better(now, self.scores):
            return "better than"
        return "worse than" if is_better(self.scores, now) else "as good as"


def read_published(directory: Path) -> Published | None:
    """Return the record of the model in a directory; None if the directory has no model."""
    if not (readable_version(directory) / "config.json").is_file():
        return None
    try:
        info = load_bundle(directory).info
        metrics = info["metrics"]
        nll, chrf = float(metrics["valid_nll"]), float(metrics["valid_chrf"])
        scores = {"BLEU": metrics["valid_bleu"], "chrF": chrf, "perplexity": metrics["valid_ppl"]}
        words = ", ".join(f"{name} {score:.2f}" for name, score in scores.items())
        settings = info["settings"]
        on = measured_on(info["data"], settings["train"]["validate_sentences"], DecodeConfig(**settings["decode"]))
        measured = on, str(metrics["chrf_signature"])
        return Published(f"{info['weights']}, validation {words}", PublishedScores(nll, chrf), measured)
    except ModelError as error:
        return Published(f"it cannot be read: {error}")
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError, ConfigError):
        return Published("its quality is not known")
