"""A BERT of Hugging Face transformers, imported: the states of every layer, and the word behind a [MASK].

It is made and trained here on a few sentences; a published BERT is read alike. It needs `transformers`
(pip install '.[interop]'). Run it: python examples/masked_word.py
"""

from __future__ import annotations

import torch
from transformers import BertConfig, BertForMaskedLM

import clearhead as ch
from clearhead.inspection.plots import HeatMap
from clearhead.interop import import_state

SENTENCES = ["the fish swims in the sea", "the bird sings in the tree", "the horse runs in the field"]
WORDS = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", *sorted({word for sentence in SENTENCES for word in sentence.split()})]
MASK = WORDS.index("[MASK]")
SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}


def encoded(sentence: str) -> torch.Tensor:
    """Return the ids of a sentence, as BERT reads it."""
    return torch.tensor([[WORDS.index(word) for word in ("[CLS]", *sentence.split(), "[SEP]")]])


def main() -> HeatMap:
    """Train a BERT, bring it here, and fill in a word of each sentence."""
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(WORDS), **SIZES, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    theirs = BertForMaskedLM(config)
    optimizer = torch.optim.Adam(theirs.parameters(), lr=1e-3)
    whole = torch.cat([encoded(sentence) for sentence in SENTENCES * 8])
    for _ in range(80):  # hide a word of every sentence, again and again
        hidden = torch.randint(1, whole.size(1) - 1, (len(whole), 1))
        labels = torch.full_like(whole, -100).scatter(1, hidden, whole.gather(1, hidden))
        theirs(whole.scatter(1, hidden, MASK), labels=labels).loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    config, tensors = import_state("bert", theirs.eval().config.to_dict(), theirs.state_dict())
    ours = ch.Transformer(config).eval()
    ch.load_tensors(ours, tensors, origin="a BERT")
    shown = {}
    for sentence, word in zip(SENTENCES, ("fish", "sings", "field"), strict=True):
        ids = encoded(masked := sentence.replace(word, "[MASK]"))
        with torch.inference_mode():
            states = ours.hidden_states(ids).encoder
            for layer, their_layer in zip(states, theirs(ids, output_hidden_states=True).hidden_states, strict=True):
                torch.testing.assert_close(layer, their_layer, atol=1e-5, rtol=1e-5)
            probs = theirs.cls(states[-1]).softmax(dim=-1)[0, ids[0].tolist().index(MASK)]
        print(f"{masked}: {WORDS[probs.argmax()]}")
        shown[masked] = probs[4:].tolist()
    return HeatMap("The word behind [MASK]", [*shown.values()], "word", "", "probability", False, WORDS[4:], [*shown])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
