"""An encoder and a decoder that are two models of Hugging Face transformers, as one Transformer of ours.

Twice: of BertGeneration, and of BERT itself (BERT2BERT). They are made here with random weights, so nothing is
downloaded; weights of a published BERT would be read alike. Both sides give the same logits, and the same tokens. Run
it: python examples/bert_generation.py
It needs `transformers` (pip install 'clearhead[interop]').
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import (
    BertConfig,
    BertGenerationConfig,
    BertGenerationDecoder,
    BertGenerationEncoder,
    BertLMHeadModel,
    BertModel,
)

import clearhead as ch
from clearhead.interop import import_parts

SIZES = {"vocab_size": 30_522, "hidden_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
SIZES |= {"intermediate_size": 256, "bos_token_id": 101, "eos_token_id": 102, "pad_token_id": 0}
DECODER = {**SIZES, "is_decoder": True, "add_cross_attention": True}
SOURCE = [101, 7592, 1010, 2026, 3899, 2003, 102]  # 7 tokens
WORDS = {0: "[PAD]", 101: "[CLS]", 102: "[SEP]"}
"""In a real vocab.txt every line is a token."""


def main() -> None:
    """Build two parts of either kind, bring them together on both sides, and compare."""
    torch.manual_seed(1)
    print("BertGeneration")
    compare(
        BertGenerationEncoder(BertGenerationConfig(**SIZES)), BertGenerationDecoder(BertGenerationConfig(**DECODER))
    )
    print("BERT2BERT")
    compare(BertModel(BertConfig(**SIZES)), BertLMHeadModel(BertConfig(**DECODER)))


def compare(encoder: Any, decoder: Any) -> None:
    """Make one model of ours of two of theirs, and compare logits, hidden states and tokens."""
    encoder, decoder = encoder.eval(), decoder.eval()
    config, tensors = import_parts(
        (encoder.config.to_dict(), encoder.state_dict()), (decoder.config.to_dict(), decoder.state_dict())
    )
    ours = ch.Transformer(config).eval()
    ch.load_tensors(ours, tensors, origin="two BERTs")

    source = target = torch.tensor([SOURCE])
    with torch.inference_mode():
        memory = encoder(source).last_hidden_state
        theirs = decoder(target, encoder_hidden_states=memory).logits
        logits = ours(source, target)
        hidden = ours.hidden_states(source, target)
    difference = (logits - theirs).abs().max().item()
    print(f"logits {list(logits.shape)}, at most {difference:.1e} from theirs")
    assert logits.shape == (1, 7, 30_522)
    assert difference < 1e-5
    torch.testing.assert_close(hidden.encoder[-1], memory, atol=1e-5, rtol=1e-5)
    print(f"hidden states of {len(hidden.encoder) - 1} + {len(hidden.decoder) - 1} layers, each {list(memory.shape)}")

    best, their_best = logits.argmax(dim=-1)[0].tolist(), theirs.argmax(dim=-1)[0].tolist()
    assert best == their_best
    print("the likeliest token at every place:", " ".join(WORDS.get(token, f"#{token}") for token in best))


if __name__ == "__main__":
    main()
