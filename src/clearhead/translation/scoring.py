"""Score given translations: the model's log-probability of each target given its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from clearhead.config import DecodeConfig
from clearhead.decoding import Engine, score
from clearhead.errors import DataError
from clearhead.translation.pair_encoding import PairEncoder


def score_pairs(
    engine: Engine,
    encoder: PairEncoder,
    sources: Sequence[str],
    targets: Sequence[str],
    config: DecodeConfig,
    *,
    name: str,
    on_progress: Callable[[int], None] | None,
) -> list[float]:
    """Return the log-probability of each target in nats; 0 for a blank source with an empty target.

    Args:
        engine: The model, in float32.
        encoder: Tokenizes the pairs.
        sources: Source lines.
        targets: Their translations.
        config: As for `PairEncoder.encoded`, and `batch_tokens`.
        name: Name of the file of the sources, for messages.
        on_progress: Called with the number of pairs finished, batch by batch.

    Raises:
        ConfigError: As `PairEncoder.encoded`.
        DataError: As `PairEncoder.encoded`; or if a decoder-only model cannot continue a source with its target.
    """
    parts, source_ids, target_ids = encoder.encoded(sources, targets, config, name=name)
    model = engine.model.config
    if model.is_decoder_alone:
        _require_continuations(source_ids, target_ids, targets, most=model.max_length, name=name)
    rows = [row for row, (_, text) in enumerate(parts) if text.strip() or targets[row]]
    if on_progress is not None and len(rows) < len(parts):
        on_progress(len(parts) - len(rows))
    scores = score(
        engine,
        [source_ids[row] for row in rows],
        [target_ids[row] for row in rows],
        batch_tokens=config.batch_tokens,
        on_progress=on_progress,
        given=[len(encoder.tokenizer.given(parts[row][0])) for row in rows],
    )
    found = dict(zip(rows, scores, strict=True))
    return [found.get(row, 0.0) for row in range(len(parts))]


def _require_continuations(
    sources: Sequence[list[int]], targets: Sequence[list[int]], texts: Sequence[str], *, most: int | None, name: str
) -> None:
    """Require that a decoder-only model can continue each source with its target.

    Args:
        sources: Ids of the sources.
        targets: Ids of their targets.
        texts: The targets as text.
        most: Number of positions of the model; None for no limit.
        name: Name of the file of the sources, for messages.

    Raises:
        DataError: Naming the first pair whose source is empty, or which needs more positions than the model has.
    """
    for number, (source, target, text) in enumerate(zip(sources, targets, texts, strict=True), start=1):
        where = f"{name}{', ' if name else ''}pair {number}"
        if text and not source:
            raise DataError(f"{where} has no source, and this model, a decoder alone, continues a text")
        if most is not None and len(source) + len(target) > most:
            raise DataError(
                f"{where} has {len(source) + len(target):,} tokens, and this model has positions for {most:,}"
            )
