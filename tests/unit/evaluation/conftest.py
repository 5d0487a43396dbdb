"""A tiny random translator whose answers differ from sentence to sentence."""

from __future__ import annotations

import pytest
import torch

from clearhead.bundle import Bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from clearhead.translator import Translator

SENTENCES = [
    "a dog runs across the field",
    "two children play in the snow",
    "a woman reads a book by the window",
    "the old man sells apples",
    "three birds sit on the roof",
]


@pytest.fixture
def sentences() -> list[str]:
    return list(SENTENCES)


@pytest.fixture
def translator() -> Translator:
    torch.manual_seed(7)
    tokenizer = Tokenizer.train(SENTENCES * 3, vocab_size=397)
    config = ModelConfig(
        vocab_size=tokenizer.vocab_size,
        d_model=22,
        d_ff=31,
        num_heads=11,
        num_encoder_layers=1,
        num_decoder_layers=2,
    )
    model = Transformer(config).eval()
    return Translator(Bundle(model, tokenizer, DecodeConfig(beam_size=2, extra_length=3)))
