"""Parity check with CTranslate2, of an export or an import: both libraries give a translation the same score."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig
from clearhead.config.choices import ForeignPrecision
from clearhead.decoding import SearchOptions, decode, given_prefix
from clearhead.errors import ModelError
from clearhead.interop.ctranslate2.pieces import SubwordPieces
from clearhead.interop.imported import MOST_ROUNDING, TOLERANCE, proof_settings


@torch.inference_mode()
def prove_ctranslate2(
    directory: Path,
    bundle: Bundle,
    sources: Sequence[str],
    precision: ForeignPrecision,
    pieces: SubwordPieces,
    *,
    tolerance: float | None = None,
) -> str:
    """Compare a model with its CTranslate2 version on a few sentences.

    The exported weights are compared in float32. For integer weights, the difference in integer arithmetic on this
    processor is reported too: without VNNI its sums may overflow.

    Args:
        directory: Directory of the CTranslate2 model.
        bundle: Our model.
        sources: Source sentences; each may begin with a target-language tag.
        precision: Precision of the CTranslate2 weights.
        pieces: Token lists of the CTranslate2 model.
        tolerance: Largest allowed score difference, in nats per token; None for the default of the precision.

    Returns:
        A summary of the comparison, in words.

    Raises:
        ModelError: If the scores differ by more, or CTranslate2 cannot load the directory.
    """
    if tolerance is None:
        tolerance = TOLERANCE if precision == "float32" else MOST_ROUNDING
    vocabulary, settings = bundle.tokenizer, proof_settings(bundle)
    parts = vocabulary.split_sources(sources, settings.target_lang)
    ids = vocabulary.encode_parts(parts, settings.source_lang)
    given = [vocabulary.given(language) for language, _ in parts]
    ours = [
        best for (best,) in decode(bundle.model, ids, SearchOptions(settings), prefixes=list(map(given_prefix, given)))
    ]
    # CTranslate2 adds some source tokens by itself; those are not passed to it.
    read = [[pieces.source[token] for token in row[pieces.adds_bos : len(row) - pieces.adds_eos]] for row in ids]
    written = [[pieces.target[token] for token in best.tokens[:-1]] for best in ours]

    def agreement(compute_type: str) -> tuple[float, int]:
        """Return the largest score difference per token, and how many translations CTranslate2's search also finds."""
        theirs = _their_translator(directory, compute_type)
        scored = theirs.score_batch(read, written)
        scores = [sum(result.log_probs[len(begin) :]) for result, begin in zip(scored, given, strict=True)]
        searched = theirs.translate_batch(
            read,
            target_prefix=[[pieces.target[token] for token in begin] for begin in given],
            beam_size=settings.beam_size,
            length_penalty=settings.length_penalty,
            max_decoding_length=max(map(len, ids)) + settings.extra_length,
            **search_arguments(settings),
        )
        largest = max(abs(best.log_prob - score) / len(best.tokens) for best, score in zip(ours, scores, strict=True))
        return largest, sum(result.hypotheses[0] == tokens for result, tokens in zip(searched, written, strict=True))

    largest, same = agreement("float32")
    if not largest <= tolerance:
        raise ModelError(
            f"a translation has another score in CTranslate2, by {largest:.4f} a token; nothing was written"
        )
    said = (
        f"{len(sources)} sentences: scores differ by {largest:.1e} a token at most, and CTranslate2's own search finds "
        f"{same} of the same translations"
    )
    if not precision.startswith("int"):
        return said
    largest, same = agreement("default")
    return f"{said}; in the integer arithmetic of this processor they differ by {largest:.1e}, and it finds {same}"


def search_arguments(decode: DecodeConfig) -> dict[str, int]:
    """Return the arguments of CTranslate2's `translate_batch` for settings that its models do not store."""
    said = {
        "min_decoding_length": decode.min_length - 1,  # theirs does not count the end token
        "no_repeat_ngram_size": decode.no_repeat_ngram_size,
    }
    return {name: value for name, value in said.items() if value > 0}


def _their_translator(directory: Path, compute_type: str) -> Any:
    import ctranslate2

    try:
        return ctranslate2.Translator(str(directory), device="cpu", compute_type=compute_type)
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"CTranslate2 cannot load {directory}: {error}") from None
