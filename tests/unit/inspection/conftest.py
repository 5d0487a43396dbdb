"""Translators of small models, of every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch

if TYPE_CHECKING:
    from clearhead.translation.translator import Translator


@pytest.fixture(scope="session")
def make_translator(sentences: tuple[str, ...]) -> Callable[..., Translator]:
    """Return a function from settings of the model to a translator whose every weight is random."""
    from clearhead.bundle import Bundle
    from clearhead.config import DecodeConfig, ModelConfig
    from clearhead.model import Transformer
    from clearhead.tokenizers import Tokenizer
    from clearhead.translation.translator import Translator

    trained = Tokenizer.train(sentences, vocab_size=339, placeholders=True).text

    def make(
        *, scale: float = 2.0, decode: dict[str, Any] | None = None, info: dict[str, Any] | None = None, **settings: Any
    ) -> Translator:
        tokenizer = Tokenizer(trained)
        sizes = {"d_model": 22, "num_heads": 11, "d_ff": 17, "num_encoder_layers": 2, "num_decoder_layers": 1}
        torch.manual_seed(3)
        model = Transformer(ModelConfig(**{**tokenizer.model_settings, "norm": "pre", **sizes, **settings})).eval()
        with torch.no_grad():
            for name, weight in model.named_parameters():
                if weight.dim() == 1:
                    weight.normal_(mean=float("norm.weight" in name), std=0.3)
                else:
                    weight.mul_(scale)
        return Translator(Bundle(model, tokenizer, DecodeConfig(**{"extra_length": 5, **(decode or {})}), info or {}))

    return make
