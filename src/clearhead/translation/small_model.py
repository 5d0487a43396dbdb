"""Small models: a copy of a model whose matrices are in 8 bits or in bfloat16, and its comparison with the original."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from clearhead.bundle import Bundle, read_card, save_bundle
from clearhead.bundle.model_directory import is_small_model, require_new
from clearhead.bundle.side_files import ALIGNMENT_FILE, QUALITY_FILE, SHORTLIST_FILE, side_file_path
from clearhead.config.choices import StoredPrecision
from clearhead.decoding import NativeEngine
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.decoding.shortlist import Shortlist
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.metrics import Evaluation, judge
from clearhead.model.rounded_weights import RoundedWeights
from clearhead.model.stored import StoredModel
from clearhead.translation.alignment import alignment_head, save_head
from clearhead.translation.golden import make_golden, require_computed_alike
from clearhead.translation.quality import Calibration, calibration_of, save_calibration
from clearhead.translation.translator import Translator

_BITS = {"int8": "8-bit integers, with a scale for each row", "bf16": "bfloat16"}


@dataclass(frozen=True)
class Comparison:
    """Translations of the original and of the small model, each with its own decode settings."""

    num_lines: int
    num_equal: int
    """Number of lines that both translate alike."""
    before: Evaluation | None = None
    """Quality of the original; None without references."""
    after: Evaluation | None = None

    def lines(self) -> list[str]:
        """Return the figures as text, a line each."""
        if not self.num_lines:
            return ["on no lines: the model has no golden sentences, and none were given"]
        lines = [f"{self.num_equal:,} of {self.num_lines:,} lines are translated alike"]
        if self.before is not None and self.after is not None:
            lines += [
                f"{metric.name} {metric.score:.2f} before, {self.after.metrics[name].score:.2f} after "
                f"({metric.signature})"
                for name, metric in self.before.metrics.items()
            ]
        return lines


def export_small(
    bundle: Bundle,
    directory: Path,
    precision: StoredPrecision,
    *,
    sources: Sequence[str] | None = None,
    references: Sequence[str] | None = None,
    force: bool = False,
    on_progress: Callable[[int], None] | None = None,
) -> tuple[Comparison, list[str]]:
    """Write a model directory whose matrices are rounded; it translates in that precision unless told otherwise.

    The golden sentences are translated anew. A shortlist, an alignment head and a calibration are copied: tokens and
    heads stay the same, and the scores nearly.

    Args:
        bundle: The model, in float32.
        directory: Path of the new directory.
        precision: Precision of the matrices.
        sources: Lines on which both models are compared; the golden sentences if not given.
        references: Their translations, for BLEU and chrF.
        force: Whether to replace a small model that exists there.
        on_progress: Called with the number of lines that were translated.

    Returns:
        The comparison, and notes on what a user should know.

    Raises:
        ConfigError: If the model is rounded already.
        DataError: If there are not as many references as sources.
        ModelError: If the path exists or cannot be written, the weights cannot be rounded, or a file beside them
            is damaged or was made for another model.
    """
    require_new(directory, is_small_model, force=force)
    if bundle.precision is not None:
        raise ConfigError(
            f"this model is in {bundle.precision} already, and rounding it twice would lose more; export the model "
            f"that it was made from"
        )
    if references is not None and len(references) != len(sources or ()):
        raise DataError(f"{len(sources or ()):,} sources and {len(references):,} references are no pairs")
    shortlist, head, calibration = read_beside(bundle)
    whole = StoredModel.of(bundle.weights)
    rounded = StoredModel(
        whole.config, RoundedWeights.of(whole.arrays, precision, origin=str(bundle.directory or "the model"))
    )
    notes = []
    obstacle = NativeEngine.obstacle(rounded, precision)
    decode = bundle.decode
    if obstacle is None:
        decode = decode.with_changes({"precision": precision})
    else:
        notes.append(f"it translates in {decode.precision} unless --precision says otherwise: {obstacle}")
    small = replace(bundle, weights=rounded, decode=decode)
    golden_sources = [str(sentence["source"]) for sentence in bundle.golden]
    golden = make_golden(Translator(small, bundle.directory), golden_sources) if golden_sources else []
    comparison = _compare(bundle, small, golden_sources if sources is None else sources, references, on_progress)
    card = _card(directory.name, bundle, precision, comparison, given=sources is not None)
    beside: dict[str, Callable[[Path, Mapping[str, str]], None]] = {}
    if shortlist is not None:
        beside[SHORTLIST_FILE] = shortlist.save
    if head is not None:
        beside[ALIGNMENT_FILE] = partial(save_head, head=head[0], agreement=head[1])
    if calibration is not None:
        beside[QUALITY_FILE] = partial(save_calibration, calibration=calibration)
    check = partial(require_computed_alike, golden=golden)
    save_bundle(directory, small, golden=golden, card=card, side_files=beside, check=check)
    return comparison, notes


def _compare(
    bundle: Bundle,
    small: Bundle,
    sources: Sequence[str],
    references: Sequence[str] | None,
    on_progress: Callable[[int], None] | None,
) -> Comparison:
    if not sources:
        return Comparison(0, 0)
    before, after = (
        [
            translation.text
            for translation in Translator(which, bundle.directory).translate(
                list(sources), scores=False, raw=True, on_progress=on_progress
            )
        ]
        for which in (bundle, small)
    )
    qualities = (None, None) if references is None else (judge(before, references), judge(after, references))
    return Comparison(len(sources), sum(map(str.__eq__, before, after)), *qualities)


def _card(name: str, bundle: Bundle, precision: StoredPrecision, comparison: Comparison, *, given: bool) -> str:
    """Return the model card in Markdown; the original's card is appended."""
    figures = "\n".join(f"- {line}" for line in comparison.lines())
    lines = "the given lines" if given else "the golden sentences"
    original = read_card(bundle.directory) if bundle.directory else ""
    return f"""# {name}

A small copy of a model: its matrices are stored in {_BITS[precision]}.

Compared on {lines}: the model that it was made from, and this one, each with its own decode settings.

{figures}

The SHA-256 of the original's weights is {bundle.model_sha256 or "not known"}. Its card:

{original}"""


def read_beside(bundle: Bundle) -> tuple[Shortlist | None, tuple[AlignmentHead, float] | None, Calibration | None]:
    """Return a model's shortlist, alignment head with agreement, and calibration of quality; None for what it lacks.

    Raises:
        ModelError: If a file is damaged, or was made for another model.
    """
    if bundle.directory is None:
        return None, None, None
    head, has_shortlist = bundle.side_file(ALIGNMENT_FILE), SHORTLIST_FILE in bundle.side_files
    return (
        Shortlist.load(side_file_path(bundle.directory, SHORTLIST_FILE), bundle.identity()) if has_shortlist else None,
        (alignment_head(bundle), head["agreement"]) if head is not None else None,
        calibration_of(bundle),
    )
