"""BertGeneration: an encoder and a decoder of Hugging Face transformers, as two models and as one of ours.

Made here with random weights and a vocabulary of words; published weights are read alike. It needs `transformers`
(pip install '.[interop]'). Run it: python examples/bert_generation.py
"""

from __future__ import annotations

import torch
from transformers import BertGenerationConfig, BertGenerationDecoder, BertGenerationEncoder

import clearhead as ch
from clearhead.inspection.plots import HeatMap
from clearhead.interop import import_parts

SOURCE, TARGET = "[CLS] hello , my dog is cute [SEP]", "bonjour , mon chien est mignon [SEP]"
WORDS = ["[PAD]", "[CLS]", "[SEP]", *SOURCE.split()[1:-1], *TARGET.split()[:1], *TARGET.split()[2:-1]]
VOCAB = WORDS + [f"[unused{i}]" for i in range(30_522 - len(WORDS))]  # as many as BERT has


def main() -> HeatMap:
    """Run the two parts of theirs by hand, then ours in one call, and compare."""
    torch.manual_seed(1)
    sizes = {"vocab_size": 30_522, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"intermediate_size": 128, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    sizes |= {"attn_implementation": "eager"}  # which returns its attention
    encoder = BertGenerationEncoder(BertGenerationConfig(**sizes)).eval()
    decoder = BertGenerationDecoder(BertGenerationConfig(**sizes, is_decoder=True, add_cross_attention=True)).eval()
    source, target = (torch.tensor([[WORDS.index(word) for word in text.split()]]) for text in (SOURCE, TARGET))
    shifted = torch.cat([torch.tensor([[1]]), target[:, :-1]], dim=1)  # right by one: [CLS] bonjour , mon ..
    print("the decoder reads", *(WORDS[i] for i in shifted[0]), "and must write", TARGET)
    with torch.inference_mode():
        # As two models: the decoder's cross-attention makes its keys and values of the encoder's states.
        asked = {"output_hidden_states": True, "output_attentions": True}
        read = encoder(source, **asked)
        written = decoder(shifted, encoder_hidden_states=read.last_hidden_state, **asked)
        # As one of ours.
        config, tensors = import_parts(*((part.config.to_dict(), part.state_dict()) for part in (encoder, decoder)))
        model = ch.Transformer(config).eval()
        ch.load_tensors(model, tensors, origin="two BertGenerations")
        logits = model(source, shifted)
        weights = model.attention_weights(source, shifted)
        states = model.hidden_states(source, shifted)
    ours = [states.encoder, states.decoder, weights.encoder, weights.decoder, weights.cross]
    theirs = [read.hidden_states, written.hidden_states, read.attentions, written.attentions, written.cross_attentions]
    print("equal: logits", list(logits.shape), "states and attention", [list(one[0].shape) for one in ours])
    torch.testing.assert_close([logits, *ours], [written.logits, *map(list, theirs)], atol=1e-5, rtol=1e-5)
    probs = logits.softmax(dim=-1)  # the logits are scores; argmax needs no softmax
    assert torch.equal(probs.argmax(dim=-1), logits.argmax(dim=-1))
    for word, row in zip(shifted[0], probs[0], strict=True):
        best = int(row.argmax())
        print(f"after {WORDS[word]:<8} logits -> softmax -> argmax {best:>5} -> {VOCAB[best]}  ({row[best]:.5f})")
    named = {"x_names": SOURCE.split(), "y_names": [WORDS[i] for i in shifted[0]]}
    return HeatMap("Cross-attention", weights.cross[0][0, 0].tolist(), "key", "query", "", are_shares=True, **named)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
