"""Word alignment by a model: pairs as it spells them, links of their words, and the head that tells them best.

The head is chosen once for a model, by `choose_head`, and kept in its directory: alignment.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearhead.bundle import Bundle
from clearhead.config.choices import AlignBy
from clearhead.decoding.cross_attention import AlignmentHead, attended, candidates, occluded
from clearhead.errors import ModelError
from clearhead.files import read_json, write_json
from clearhead.model.transformer import Transformer
from clearhead.text.placeholder_masking import Protected
from clearhead.text.word_links import Link, Span, link_words, words_of
from clearhead.tokenizers import Vocabulary

__all__ = [
    "ALIGNMENT_FILE",
    "AlignmentHead",
    "SpelledPair",
    "align",
    "alignment_head",
    "choose_head",
    "guided_head_of",
    "save_head",
    "spelled_pair",
]

ALIGNMENT_FILE = "alignment.json"
"""Beside the model's own files, like a shortlist; its checksums say nothing of it."""

PAIRS_TO_CHOOSE = 40
"""Pairs that a head is chosen by; of Multi30k's they hold about 400 links."""
MOST_TOKENS_TO_CHOOSE = 40
"""Tokens of a side of one of them at most; occlusion takes as many passes as the source has."""

_ADVICE = "choose one with `clearhead optimize MODEL --source FILE --target FILE`"


@dataclass(frozen=True, slots=True)
class SpelledPair:
    """A source and a target: their ids, where in their texts these stand, and where their words."""

    source_ids: list[int]
    target_ids: list[int]
    source_tokens: list[Span]
    target_tokens: list[Span]
    source_words: list[Span]
    target_words: list[Span]

    def links(self, weights: Any) -> list[Link]:
        """Return the links that follow from how much target tokens look at source tokens; see `link_words`."""
        return link_words(weights, self.source_tokens, self.target_tokens, self.source_words, self.target_words)


def spelled_pair(
    tokenizer: Vocabulary,
    source: Protected,
    source_ids: list[int],
    target: str,
    target_ids: list[int],
    words: Callable[[str], list[Span]] = words_of,
) -> SpelledPair:
    """Return a pair whose spans are those of its texts with their placeholders.

    Args:
        tokenizer: Spelled them.
        source: Its protected text is what the ids spell, or begin to.
        source_ids: Ended by the end token, if the source was not cut.
        target: With the signs of the source.
        target_ids: Ended by the end token.
        words: Finds the words to be linked.
    """
    return SpelledPair(
        source_ids,
        target_ids,
        source.restored_spans(source.text, tokenizer.source_spans(source_ids, source.text)),
        source.restored_spans(target, tokenizer.target_spans(target_ids, target)),
        words(source.restored(source.text)),
        words(source.restored(target)),
    )


def align(
    models: Sequence[tuple[Transformer, AlignmentHead]],
    pairs: Sequence[SpelledPair],
    *,
    by: AlignBy,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> list[list[Link]]:
    """Return the links of each pair.

    Args:
        models: Encoder-decoders in evaluation mode, each with the head to look at; what several say is added up.
        pairs: What to align.
        by: What tells the links; see `DecodeConfig.align_by`.
        batch_tokens: Tokens of the longer side computed at once, padding included.
        on_progress: Called with the number of pairs finished.
    """
    sources, targets = [pair.source_ids for pair in pairs], [pair.target_ids for pair in pairs]
    told = []
    for number, (model, head) in enumerate(models, start=1):
        how: dict[str, Any] = {"batch_tokens": batch_tokens, "on_progress": on_progress if number == 1 else None}
        match by:
            case "attention":
                told.append(attended(model, sources, targets, head, **how))
            case "occlusion":
                told.append(occluded(model, sources, targets, **how))
    return [pair.links(sum(weights)) for pair, weights in zip(pairs, zip(*told, strict=True), strict=True)]


def choose_head(
    model: Transformer, pairs: Sequence[SpelledPair], *, batch_tokens: int, guided: AlignmentHead | None = None
) -> tuple[AlignmentHead, float]:
    """Return the head whose links agree best with those of occlusion, and how well: 1 is on all of them.

    Single heads, the means of layers and that of all are compared, as of the steps that write a word and of those that
    read it. Agreement is F1: twice the links in common, divided by all of both.

    Args:
        model: An encoder-decoder in evaluation mode.
        pairs: The first `PAIRS_TO_CHOOSE` that are no longer than `MOST_TOKENS_TO_CHOOSE` are looked at; without any
            such, the mean over all is taken, of which nothing is known (0).
        batch_tokens: Tokens of the longer side computed at once, padding included.
        guided: The head that was trained by given links, if one was; it is taken, however well it agrees.
    """
    short = [pair for pair in pairs if max(map(len, (pair.source_ids, pair.target_ids))) <= MOST_TOKENS_TO_CHOOSE]
    short = short[:PAIRS_TO_CHOOSE]
    if not short:
        return guided or AlignmentHead(), 0.0
    sources, targets = [pair.source_ids for pair in short], [pair.target_ids for pair in short]
    wanted = _all_links(short, occluded(model, sources, targets, batch_tokens=batch_tokens))
    best, best_agreement = AlignmentHead(), -1.0
    for head, weights in candidates(model, sources, targets, batch_tokens=batch_tokens):
        if guided is not None and head != guided:
            continue
        links = _all_links(short, weights)
        agreement = 2 * len(links & wanted) / max(1, len(links) + len(wanted))
        if agreement > best_agreement:
            best, best_agreement = head, agreement
    return best, best_agreement


def save_head(path: Path, head: AlignmentHead, agreement: float, model: Mapping[str, str]) -> None:
    """Write alignment.json, whole or not at all.

    Args:
        path: Where it shall stand.
        head: As `choose_head` says.
        agreement: Likewise.
        model: What tells the model it was chosen for from all others.

    Raises:
        ModelError: If it cannot be written.
    """
    try:
        write_json(path, {**head._asdict(), "agreement": round(agreement, 4), **model})
    except OSError as error:
        raise ModelError(f"cannot write {path}: {error.strerror or error}") from None


def guided_head_of(bundle: Bundle) -> AlignmentHead | None:
    """Return the head that a model's training taught to look along given links; None if there were none.

    Raises:
        ModelError: If its config.json is damaged.
    """
    values = bundle.info.get("guided_alignment")
    problem = "the model's config.json is damaged: info.guided_alignment is none of its heads; copy the model again"
    return None if values is None else _head_of(bundle, values, problem)


def alignment_head(bundle: Bundle) -> AlignmentHead:
    """Return the head that was trained or chosen for a model; the mean over all where none was.

    Raises:
        ModelError: If its alignment.json is damaged, or was chosen for another model.
    """
    path = bundle.directory and bundle.directory / ALIGNMENT_FILE
    if path is None or not path.is_file():
        return guided_head_of(bundle) or AlignmentHead()
    values = read_json(path, ModelError)
    if any(values.get(name) != value for name, value in bundle.identity().items()):
        raise ModelError(f"{path} was chosen for another model; remove it, or {_ADVICE}")
    return _head_of(bundle, values, f"{path} is damaged: the model has no such head; remove it, or {_ADVICE}")


def _head_of(bundle: Bundle, values: Any, problem: str) -> AlignmentHead:
    config = bundle.model.config
    layer, head, is_reading = (values.get(name) if isinstance(values, dict) else None for name in AlignmentHead._fields)
    fits_layer = layer is None or _is_number(layer, config.num_decoder_layers)
    fits_head = head is None or (layer is not None and _is_number(head, config.num_heads))
    if not (fits_layer and fits_head and isinstance(is_reading, bool)):
        raise ModelError(problem)
    return AlignmentHead(layer, head, is_reading)


def _all_links(pairs: Sequence[SpelledPair], weights: Sequence[Any]) -> set[tuple[int, Link]]:
    return {
        (number, link)
        for number, (pair, one) in enumerate(zip(pairs, weights, strict=True))
        for link in pair.links(one)
    }


def _is_number(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
