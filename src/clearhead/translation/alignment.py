"""Word alignment by cross-attention or occlusion: tokenized pairs, their links, and the choice of the attention head.

The head is chosen once for a model, by `choose_head`, and stored in its directory as alignment.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from clearhead.bundle import Bundle
from clearhead.bundle.side_files import ALIGNMENT_FILE
from clearhead.config import DecodeConfig
from clearhead.config.choices import AlignBy
from clearhead.decoding.cross_attention import AlignmentHead, attended, candidates
from clearhead.decoding.engine import Engine
from clearhead.decoding.ensemble_engine import EnsembleEngine
from clearhead.decoding.sentence import length_batches
from clearhead.errors import ConfigError, ModelError
from clearhead.files import os_error_as, write_json
from clearhead.runtime.interruption import check_interruption
from clearhead.runtime.lazy import cached_property
from clearhead.text.placeholder_masking import Protected
from clearhead.text.word_links import Link, Span, link_words, words_of
from clearhead.tokenizers import Vocabulary
from clearhead.translation.segment import Segment

if TYPE_CHECKING:
    import numpy as np
    from jaxtyping import Float

    from clearhead.model.transformer import Transformer

PAIRS_TO_CHOOSE = 40
"""Pairs used to choose a head; of Multi30k's, they contain about 400 links."""
MOST_TOKENS_TO_CHOOSE = 40
"""Maximum tokens on either side of such a pair; occlusion takes one pass for each source token."""

_ADVICE = "choose one with `clearhead optimize MODEL --source FILE --target FILE`"


class EncodedPair(NamedTuple):
    """A tokenized pair: ids of both sides, and the spans of tokens and words in their texts."""

    source_ids: list[int]
    target_ids: list[int]
    source_tokens: list[Span]
    target_tokens: list[Span]
    source_words: list[Span]
    target_words: list[Span]

    def links(self, weights: Float[np.ndarray, "T S"]) -> list[Link]:
        """Return the word links implied by the attention of target tokens to source tokens; see `link_words`."""
        return link_words(weights, self.source_tokens, self.target_tokens, self.source_words, self.target_words)


def encoded_pair(
    tokenizer: Vocabulary,
    source: Protected,
    source_ids: list[int],
    target: str,
    target_ids: list[int],
    words: Callable[[str], list[Span]] = words_of,
) -> EncodedPair:
    """Return a tokenized pair whose spans refer to the texts with their original placeholders.

    Args:
        tokenizer: Vocabulary of the ids.
        source: The source; the ids tokenize its masked text, or the beginning of it.
        source_ids: Source ids, with the end token unless the source was cut.
        target: The target, with the signs of the source in place of placeholders.
        target_ids: Target ids, with the end token.
        words: Returns the spans of the words to be linked.
    """
    return EncodedPair(
        source_ids,
        target_ids,
        source.restored_spans(source.text, tokenizer.source_spans(source_ids, source.text)),
        source.restored_spans(target, tokenizer.target_spans(target_ids, target)),
        words(source.restored(source.text)),
        words(source.restored(target)),
    )


class Aligner:
    """Aligns words by the models of a translator.

    Args:
        bundles: The model, or the members of an ensemble.
        engine: Returns their inference engine, in fp32.
    """

    def __init__(self, bundles: Sequence[Bundle], engine: Callable[[], Engine]) -> None:
        self._bundles = bundles
        self._engine = engine
        self.passes: AbstractContextManager[object] = nullcontext()
        """Entered for each pass of the models; a server limits them, for each takes far more memory than a search."""

    def require(self) -> None:
        """Require models with cross-attention.

        Raises:
            ConfigError: If one is encoder-only or decoder-only.
        """
        if not all(bundle.config.is_encoder_decoder for bundle in self._bundles):
            raise ConfigError("words are aligned by cross-attention, which an encoder or a decoder alone has not")

    @cached_property
    def _heads(self) -> list[AlignmentHead]:
        """The alignment head of each model."""
        return list(map(alignment_head, self._bundles))

    def __call__(
        self,
        pairs: Sequence[EncodedPair],
        *,
        by: AlignBy,
        batch_tokens: int,
        on_progress: Callable[[int], None] | None = None,
    ) -> list[list[Link]]:
        """Return the word links of each pair; the weights of several models are summed.

        Args:
            pairs: Pairs to align.
            by: Method of alignment; see `DecodeConfig.align_by`.
            batch_tokens: Tokens of the longer side computed at once, counting padding.
            on_progress: Called with the number of pairs finished.
        """
        links: dict[int, list[Link]] = {}
        for indices in length_batches(
            [max(len(pair.source_ids), len(pair.target_ids)) for pair in pairs], batch_tokens
        ):
            some = [pairs[index] for index in indices]
            with self.passes:
                check_interruption()
                weights = self._weights(some, by, batch_tokens, on_progress)
            links.update((index, pair.links(own)) for index, pair, own in zip(indices, some, weights, strict=True))
        return [links[index] for index in range(len(pairs))]

    def _weights(
        self, pairs: Sequence[EncodedPair], by: AlignBy, batch_tokens: int, on_progress: Callable[[int], None] | None
    ) -> list[Float[np.ndarray, "T S"]]:
        sides = [pair.source_ids for pair in pairs], [pair.target_ids for pair in pairs]

        def progress(model: int) -> Callable[[int], None] | None:
            return None if model else on_progress

        match by:
            case "attention":
                engine = self._engine()
                engines: Sequence[Any] = engine.members if isinstance(engine, EnsembleEngine) else [engine]
                of_models = [
                    attended(own, *sides, self._heads[number], batch_tokens=batch_tokens, on_progress=progress(number))
                    for number, own in enumerate(engines)
                ]
            case "occlusion":
                from clearhead.decoding.occlusion import occluded

                of_models = [
                    occluded(own.own_module, *sides, batch_tokens=batch_tokens, on_progress=progress(number))
                    for number, own in enumerate(self._bundles)
                ]
        return [sum(others, first) for first, *others in zip(*of_models, strict=True)]

    def align_segments(self, segments: Sequence[Segment], config: DecodeConfig) -> None:
        """Set the word links of segments with their best translations.

        Args:
            segments: The segments, translated.
            config: Only `align_by` and `batch_tokens` are used.
        """
        tokenizer = self._bundles[0].tokenizer
        texts = tokenizer.decode_batch([segment.hypotheses[0].tokens for segment in segments])
        pairs = [
            encoded_pair(tokenizer, segment.protected, segment.ids, text, list(segment.hypotheses[0].tokens))
            for segment, text in zip(segments, texts, strict=True)
        ]
        links = self(pairs, by=config.align_by, batch_tokens=config.batch_tokens)
        for segment, own in zip(segments, links, strict=True):
            segment.links = own


def choose_head(
    model: Transformer, pairs: Sequence[EncodedPair], *, batch_tokens: int, guided: AlignmentHead | None = None
) -> tuple[AlignmentHead, float]:
    """Return the head whose links agree best with those of occlusion, and the agreement as F1 (1 is perfect).

    Single heads, layer means and the mean over all are compared, at the steps that write a word and at those that read
    it. F1 is twice the number of links in common, divided by the number of links of both.

    Args:
        model: An encoder-decoder in evaluation mode.
        pairs: The first `PAIRS_TO_CHOOSE` that are no longer than `MOST_TOKENS_TO_CHOOSE` are used. If there are none,
            the mean over all heads is returned, with agreement 0.
        batch_tokens: Tokens of the longer side computed at once, counting padding.
        guided: The head trained on given links, if any; it is always chosen.
    """
    from clearhead.decoding.occlusion import occluded
    from clearhead.decoding.pytorch.engine import PyTorchEngine

    short = [pair for pair in pairs if max(map(len, (pair.source_ids, pair.target_ids))) <= MOST_TOKENS_TO_CHOOSE]
    short = short[:PAIRS_TO_CHOOSE]
    if not short:
        return guided or AlignmentHead(), 0.0
    sources, targets = [pair.source_ids for pair in short], [pair.target_ids for pair in short]
    expected = _all_links(short, occluded(model, sources, targets, batch_tokens=batch_tokens))
    best, best_agreement = AlignmentHead(), -1.0
    for head, weights in candidates(PyTorchEngine(model), model.config, sources, targets, batch_tokens=batch_tokens):
        if guided is not None and head != guided:
            continue
        links = _all_links(short, weights)
        agreement = 2 * len(links & expected) / max(1, len(links) + len(expected))
        if agreement > best_agreement:
            best, best_agreement = head, agreement
    return best, best_agreement


def save_head(path: Path, _model: Mapping[str, str], *, head: AlignmentHead, agreement: float) -> None:
    """Write alignment.json; its checksum in config.json makes it part of the model (`SideFiles`).

    Args:
        path: Path of the file.
        head: The head, from `choose_head`.
        agreement: Its agreement with occlusion, from `choose_head`.

    Raises:
        ModelError: If it cannot be written.
    """
    with os_error_as(ModelError, f"cannot write {path}"):
        write_json(path, {**head._asdict(), "agreement": round(agreement, 4)})


def guided_head_of(bundle: Bundle) -> AlignmentHead | None:
    """Return the head that was trained on given links (guided alignment); None if there is none.

    Raises:
        ModelError: If its config.json is damaged.
    """
    values = bundle.info.get("guided_alignment")
    problem = "the model's config.json is damaged: info.guided_alignment is none of its heads; copy the model again"
    return None if values is None else _head_of(bundle, values, problem)


def alignment_head(bundle: Bundle) -> AlignmentHead:
    """Return the head that was trained or chosen for a model; by default, the mean over all heads.

    Raises:
        ModelError: If its alignment.json is damaged.
    """
    from clearhead.decoding.cross_attention import AlignmentHead

    values, path = bundle.side_file(ALIGNMENT_FILE), f"{bundle.directory}/{ALIGNMENT_FILE}"
    if values is None:
        return guided_head_of(bundle) or AlignmentHead()
    agreement = values.get("agreement")
    if not (isinstance(agreement, int | float) and 0 <= agreement <= 1):
        raise ModelError(f"{path} is damaged: agreement must be a number from 0 to 1; {_ADVICE}")
    return _head_of(bundle, values, f"{path} is damaged: the model has no such head; {_ADVICE}")


def _head_of(bundle: Bundle, values: object, problem: str) -> AlignmentHead:
    from clearhead.decoding.cross_attention import AlignmentHead

    config = bundle.config
    layer, head, is_reading = (values.get(name) if isinstance(values, dict) else None for name in AlignmentHead._fields)
    fits_layer = layer is None or _is_number(layer, config.num_decoder_layers)
    fits_head = head is None or (layer is not None and _is_number(head, config.num_heads))
    if not (fits_layer and fits_head and isinstance(is_reading, bool)):
        raise ModelError(problem)
    return AlignmentHead(layer, head, is_reading)


def _all_links(pairs: Sequence[EncodedPair], weights: Sequence[Float[np.ndarray, "T S"]]) -> set[tuple[int, Link]]:
    return {(number, link) for number, pair in enumerate(pairs) for link in pair.links(weights[number])}


def _is_number(value: object, limit: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < limit
