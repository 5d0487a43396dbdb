"""End of a run: sample translations, verdict and training report; also the counts of its data, as lines to print."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle.side_files import ALIGNMENT_FILE, QUALITY_FILE, SideFiles
from clearhead.config import DataConfig
from clearhead.data.clean import CleaningReport
from clearhead.data.doctor.code_points import Texts
from clearhead.data.doctor.identification import SideLanguages
from clearhead.data.doctor.wrong_pairs import wrong_lines
from clearhead.data.prepare import Prepared
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import DataError
from clearhead.evaluation.metrics import sentence_chrf
from clearhead.files import display_name, write_text
from clearhead.inspection.explain import explain
from clearhead.inspection.explanation import Explanation
from clearhead.model.module_state import has_own_forward
from clearhead.runtime.device import device_name
from clearhead.runtime.threads import num_threads
from clearhead.runtime.version import full_version
from clearhead.text.languages import count_scripts, english_name
from clearhead.training.log import comparable, read_metrics
from clearhead.training.loop import UNCHANGED, Loop
from clearhead.training.outcome import outcome, unchanged
from clearhead.training.publish import calibrated, choose_alignment_head, translatable
from clearhead.training.report import Answer, Judged, LearnedPair, write_report
from clearhead.training.run_directory import from_here
from clearhead.training.usable import usable, usable_lines
from clearhead.training.validation import Validation
from clearhead.training.verdict import misalignment, verdict
from clearhead.translation.alignment import save_head
from clearhead.translation.quality import save_calibration
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

VERDICT_FILE = "verdict.txt"
"""Name of the file of a run with the sentences of its verdict, one a line."""

_NUM_EXAMPLES = 3
_LONGEST_EXAMPLE = 20
"""Maximum tokens of a translation whose attention fits a small picture; the source may have 4 characters per token."""
_LINES_OF_A_SCRIPT = 200
_LONGEST_SHOWN = 100
"""Maximum characters shown of each side of the example pair that illustrates the translation direction."""


class Samples:
    """Translations of validation sentences by the model that a run publishes, and what is learned from them.

    Args:
        loop: The run, at its end.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.translations: list[Translation] = []
        self.references: list[str] = []
        self.chrfs: list[float] = []
        """The chrF of each translation, in percent."""
        self.head = AlignmentHead()
        """The attention head that aligns words best."""

    def side_files(self, translator: Translator) -> SideFiles:
        """Choose the head that aligns words, translate, calibrate the quality estimate, and return both files.

        Args:
            translator: The model to publish.
        """
        loop = self._loop
        data, config = loop.data, loop.config
        self.head, agreement = choose_alignment_head(translator, data)
        pairs = translatable(data, config.decode.target_lang, config.train.validate_sentences)
        if not pairs:
            loop.display.say("no validation line names a language, so there are no samples")
        loop.display.stage("translating samples", 0)
        self.translations = translator.translate([source for _, source in pairs], raw=True)
        self.references = [data.valid.target(row) for row, _ in pairs]
        self.chrfs = sentence_chrf([translation.text for translation in self.translations], self.references)
        calibration = calibrated(translator, self.translations, self.chrfs)
        return {
            ALIGNMENT_FILE: partial(save_head, head=self.head, agreement=agreement),
            QUALITY_FILE: partial(save_calibration, calibration=calibration),
        }


def report_end(
    loop: Loop, translator: Translator, validation: Validation, samples: Samples, ended_by: str
) -> str | None:
    """Write `report.html`, and print how the run ended and what to do about it.

    Returns:
        The outcome of a run that started from a model, in words, which are not printed yet; else None.

    Args:
        loop: The run.
        translator: The published model.
        validation: Validation result of the published model.
        samples: Its translations of validation sentences.
        ended_by: Why training ended, as `TrainingState.ended_by` returns it.
    """
    data, state, config = loop.data, loop.state, loop.config
    translations, references = samples.translations, samples.references
    minutes, records = state.elapsed / 60, comparable(read_metrics(loop.run / "metrics.jsonl"))
    is_unchanged = translator.bundle.info["weights"] == UNCHANGED
    judgement = verdict(
        from_here(loop.run),
        config.train,
        state,
        records,
        num_pairs=data.report["train"]["kept"],
        misaligned=misalignment(data),
        wrong=data.report["wrong"],
        epochs=state.step / loop.order.batches_per_epoch,
        validation=validation,
        is_unchanged=is_unchanged,
        ended_by=ended_by,
    )
    may_start = config.from_model is None and not data.tokenizer.language_tags
    judgement += usable_lines(samples.chrfs, data.report["languages"], may_start=may_start)
    judgement += state.divergence.lines()
    valid = [record for record in records if record["split"] == "valid"]
    if is_unchanged:
        found_out = unchanged(valid) if state.step else None
    else:
        found_out = outcome(from_here(loop.run), translator, translations, references)
    said = [*judgement, found_out] if found_out else judgement
    write_text(loop.run / VERDICT_FILE, "".join(line + "\n" for line in said))
    write_report(
        loop.run / "report.html",
        config=config,
        answer=Answer(
            *_direction(data, config.data),
            _scores(validation, samples.chrfs),
            [*filter(None, [found_out]), *judgement],
            translator.bundle.model_sha256 or "",
            [int(step) for step in re.findall(r"step[ -](\d+)", translator.bundle.info["weights"])],
        ),
        made=_made(loop, translator, validation, ended_by),
        metrics=records,
        judged=[Judged(*values) for values in zip(translations, references, samples.chrfs, strict=True)],
        lengths={"source": data.train.source_lengths[:], "target": data.train.target_lengths[:]},
        head=samples.head,
        explanations=[
            replace(explanation, alignment_head=samples.head)
            for explanation in islice(_explained(translator, translations), _NUM_EXAMPLES)
        ],
        learned=_learned(loop),
        data_lines=[*_reading_lines(data.report), *data_lines(data.report)],
    )
    loop.display.say(
        f"finished by {ended_by} after {state.step:,} steps, {minutes:.1f} minutes: validation {validation.scores}"
    )
    for line in judgement:
        loop.display.say(line)
    return found_out


def _scores(validation: Validation, chrfs: Sequence[float]) -> dict[str, str]:
    """Return the scores of the published model in words, by name."""
    return {
        f"{validation.bleu_title}, validation": f"{validation.bleu:.1f}",
        "chrF, validation": f"{validation.chrf:.1f}",
        **({"usable as they are, of 100": str(usable(chrfs)[0])} if chrfs else {}),
        **({"chrF, general text": f"{validation.general.chrf:.1f}"} if validation.general else {}),
    }


def _made(loop: Loop, translator: Translator, validation: Validation, ended_by: str) -> dict[str, str]:
    """Return how the model was made, by name."""
    state, config = loop.state, loop.config
    return {
        "text": _text(loop.data, config.data),
        "validation (greedy)": f"{validation.scores}, perplexity {validation.ppl:.2f} a piece",
        **({"general text (greedy)": validation.general.scores} if validation.general else {}),
        "signatures": f"BLEU {validation.bleu_signature}; chrF {validation.chrf_signature}",
        "model": f"{config.preset}: {translator.bundle.info['weights']}",
        **({"started from": f"{config.from_model} (SHA-256 {config.from_sha256})"} if config.from_model else {}),
        "training": f"{state.step:,} steps, {state.target_tokens:,} target tokens, {state.elapsed / 60:.1f} minutes",
        "ended by": ended_by,
        "made": f"{time.strftime('%Y-%m-%d')} on {loop.device} ({device_name(loop.device)}, threads: "
        f"{num_threads()}), clearhead {full_version()}, PyTorch {torch.__version__}",
    }


def _explained(translator: Translator, translations: Sequence[Translation]) -> Iterator[Explanation]:
    """Yield explanations of the translations that fit a small picture and the model's length limit.

    There are none of a run's own model with a `forward` of its own, which is not explained.
    """
    if has_own_forward(translator.bundle.own_module):
        return
    for translation in translations:
        if translation.text and 4 <= len(translation.tokens) <= _LONGEST_EXAMPLE >= len(translation.source) // 4:
            with suppress(DataError):
                yield explain(translator, translation.source, translation.text, search=False)


def _learned(loop: Loop) -> list[LearnedPair]:
    """Return the logged cross-attention of each watched validation pair."""
    snapshots, valid, tokenizer = loop.attention_log.read(), loop.data.valid, loop.data.tokenizer
    return [
        LearnedPair(
            tokenizer.source_pieces(valid.source_ids(row).tolist()),
            tokenizer.pieces(valid.target_ids(row).tolist()),
            [(step, weights[number]) for step, weights in snapshots],
        )
        for number, row in enumerate(loop.attention_log.rows)
        if snapshots
    ]


def _direction(data: Prepared, files: DataConfig) -> tuple[str, str]:
    """Return the translation direction in words, and how it was guessed; empty if both languages are named."""
    rows = range(min(len(data.valid), _LINES_OF_A_SCRIPT))
    sides = [[side(row) for row in rows] for side in (data.valid.source, data.valid.target)]
    scripts = [next((name.title() for name, _ in count_scripts(texts).most_common(1)), "") for texts in sides]
    known, doubt = data.report["languages"], ""
    if tags := data.tokenizer.language_tags:
        many = next(iter(tags)) if len(tags) == 1 else f"{len(tags)} languages"
        known = known[0] or many, many
    elif None in (files.from_lang, files.to_lang) and not files.pairs:
        doubt = "probably, by the names of the files"
    if None in known:
        doubt = "by script; data.from_lang and data.to_lang name the languages"
        seen = SideLanguages.learn(*([Texts(texts)] for texts in sides)) if rows else ""
        if isinstance(seen, SideLanguages):
            known = known[0] or seen.languages[0], known[1] or seen.languages[1]
            doubt = "probably, by the text; data.from_lang and data.to_lang name the languages"
    words = [
        english_name(language) or language if language else f"{script} script" if script else "no letters"
        for language, script in zip(known, scripts, strict=True)
    ]
    return " → ".join(words), doubt


def _text(data: Prepared, files: DataConfig) -> str:
    """Return file names, language tags and the first pair."""
    by_side = (files.target, files.source) if files.swap else (files.source, files.target)
    names = [Path(path).name for paths in (*by_side, files.pairs) for path in paths]
    tags = ", ".join(data.tokenizer.language_tags)
    into = f"; languages asked for by tag: {tags}" if tags else ""
    example = " -> ".join(repr(side(0))[:_LONGEST_SHOWN] for side in (data.train.source, data.train.target))
    return f"{', '.join(names)}{into}; the first pair: {example}"


def _reading_lines(report: Mapping[str, Any]) -> list[str]:
    return [f"{display_name(file['path'])}: {file['read_as']}" for file in report["files"] if file["read_as"]]


def data_lines(report: Mapping[str, Any]) -> list[str]:
    """Return the counts of pairs read, kept and dropped, as lines to print.

    Args:
        report: Data report of `prepare`.
    """
    lines = []
    titles = {"train": "training text", "valid": "validation text", "general": "general text, mixed in"}
    for part, title in titles.items():
        if part in report and report[part]["read"]:
            held_out_for = "watching" if part == "general" else "validation"
            lines += [title, *CleaningReport(**report[part]).lines(held_out_for=held_out_for)]
            added = report.get("augmented", {})
            if part == "train" and any(added.values()):
                kinds = ", ".join(f"{count:,} {kind}" for kind, count in added.items() if count)
                lines.append(f"{sum(added.values()):>12,} altered copies added: {kinds}")
            if part == "train":
                lines += wrong_lines(report["wrong"], report[part]["kept"])[:1]
            if part == "train" and (links := report.get("links")) is not None:
                lines.append(
                    f"{links['pairs']:>12,} have links, which {links['target_tokens']:,} target tokens learn from"
                )
            epochs = report.get("rounds", {}).get("epochs", 1)
            if part == "general" and epochs > 1:
                lines.append(f"{report[part]['kept'] // epochs:>12,} of those kept come in each of {epochs} epochs")
    return lines
