"""A BERT of Hugging Face transformers, imported: the states of every layer, and the words behind a [MASK].

It is made and trained here for a few seconds on a dozen sentences, so nothing is downloaded; a published BERT is read
alike. Run it: python examples/masked_word.py
It needs `transformers` (pip install 'clearhead[interop]').
"""

from __future__ import annotations

import torch
from torch.nn import functional
from transformers import BertConfig, BertForMaskedLM

import clearhead as ch
from clearhead.interop import import_state

SENTENCES = [
    f"the {animal} {does} in the {place}"
    for animal, does, place in (("fish", "swims", "sea"), ("bird", "sings", "tree"), ("horse", "runs", "field"))
]
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for sentence in SENTENCES for word in sentence.split()})]
MASK = WORDS.index("[MASK]")


def main() -> None:
    """Train a BERT, bring it here, and let both fill in a word."""
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
    sizes |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    theirs = BertForMaskedLM(BertConfig(vocab_size=len(WORDS), **sizes))
    train(theirs)

    state = theirs.eval().state_dict()
    config, tensors = import_state("bert", theirs.config.to_dict(), state)
    ours = ch.Transformer(config).eval()
    ch.load_tensors(ours, tensors, origin="a BERT")

    for sentence in ("the [MASK] swims in the sea", "the bird [MASK] in the tree"):
        ids = encoded(sentence)
        with torch.inference_mode():
            expected = theirs(ids, output_hidden_states=True)
            layers = ours.hidden_states(ids).encoder
            for layer, their_layer in zip(layers, expected.hidden_states, strict=True):
                torch.testing.assert_close(layer, their_layer, atol=1e-5, rtol=1e-5)
            # On top of the encoder is the pre-training head: a layer, its norm, and the embedding again.
            head = "cls.predictions.transform."
            x = functional.gelu(layers[-1] @ state[f"{head}dense.weight"].T + state[f"{head}dense.bias"])
            gain, bias = state[f"{head}LayerNorm.weight"], state[f"{head}LayerNorm.bias"]
            x = functional.layer_norm(x, (64,), gain, bias, eps=1e-12)
            logits = x @ ours.source_embedding.weight.T + state["cls.predictions.bias"]
        torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-5)
        place = ids[0].tolist().index(MASK)
        word = WORDS[logits[0, place].argmax()]
        assert sentence.replace("[MASK]", word) in SENTENCES
        print(f"{sentence}: {word}")


def encoded(sentence: str) -> torch.Tensor:
    """Return the ids of a sentence, as BERT reads it."""
    return torch.tensor([[WORDS.index(word) for word in ("[CLS]", *sentence.split(), "[SEP]")]])


def train(model: BertForMaskedLM) -> None:
    """Hide a word of every sentence, again and again, and let the model guess it."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    whole = torch.cat([encoded(sentence) for sentence in SENTENCES * 8])
    for _ in range(100):
        hidden = torch.randint(1, whole.size(1) - 1, (len(whole), 1))
        masked = whole.scatter(1, hidden, MASK)
        labels = torch.full_like(whole, -100).scatter(1, hidden, whole.gather(1, hidden))
        model(masked, labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()
