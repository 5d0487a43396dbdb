"""Small sentencepiece models, as published vocabularies hold them."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

import sentencepiece


def sentencepiece_model(lines: Iterable[str], vocab_size: int, kind: str = "unigram", **settings: Any) -> bytes:
    """Train a model as sentencepiece does; it has fewer pieces than `vocab_size` if the lines yield no more."""
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=made,
        vocab_size=vocab_size,
        model_type=kind,
        hard_vocab_limit=False,
        minloglevel=2,
        **settings,
    )
    return made.getvalue()


def pieces_of(model: bytes) -> list[str]:
    """Return the pieces of a sentencepiece model by its own ids."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]
