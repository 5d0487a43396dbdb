"""From logits to text (sections 3.4, 6.1): softmax, argmax, sampling, and a beam that finds what greedy search misses.

The next word depends on the last one alone, by weights set by hand. Run it: python examples/logits_to_text.py
"""

from __future__ import annotations

from collections import Counter

import torch

import clearhead as ch
from clearhead.decoding import Sampling, SearchOptions, decode
from clearhead.inspection.plots import HeatMap

NEXT_WORD = {
    "<s>": {"the": 0.6, "a": 0.4},
    "the": {"dog": 0.4, "cat": 0.3, "bird": 0.3},
    "a": {"cat": 0.9, "dog": 0.1},
    "dog": {"barks": 0.6, "sleeps": 0.4},
    "cat": {"sleeps": 0.9, "sings": 0.1},
    "bird": {"sings": 0.8, "sleeps": 0.2},
    **{verb: {"</s>": 1.0} for verb in ("barks", "sleeps", "sings")},
}
WORDS = ["<pad>", "<s>", "</s>", *list(NEXT_WORD)[1:]]
SIZES = {"vocab_size": len(WORDS), "d_model": len(WORDS), "d_ff": 1, "num_heads": 1, "dropout": 0.0, "norm": "pre"}
EMPTY = {"num_encoder_layers": 1, "num_decoder_layers": 1, "final_norm": False, "positions": "none", "tying": "none"}


def main() -> HeatMap:
    """Take one step from logits to a word, then write sentences by search and by chance."""
    table = torch.tensor([[follows.get(word, 0.0) for word in WORDS] for follows in NEXT_WORD.values()])
    model = ch.Transformer(ch.ModelConfig(**SIZES, **EMPTY, embedding_scale=False)).eval().requires_grad_(False)
    [weight.zero_() for weight in model.parameters()]  # what goes in comes out, along the residual connections
    model.target_embedding.weight.copy_(torch.eye(len(WORDS)))
    model.output_proj.weight[:, [1, *range(3, 11)]] = table.log().clamp(min=-1e4).T + 3  # any constant; -1e4: never
    logits = model(torch.tensor([[2]]), torch.tensor([[1]]))[0, 0]  # (V,) after <s>: scores, not probabilities
    print("logits after <s>:", *(f"{word} {logit:.3f}" for word, logit in zip(WORDS[3:5], logits[3:5], strict=True)))
    for temperature in (0.1, 1.0, 10.0):
        probs = (logits / temperature).softmax(dim=-1)
        print(f"temperature {temperature:>4}: the {probs[3]:.3f}  a {probs[4]:.3f}  argmax {WORDS[probs.argmax()]}")

    def search(size: int, **options: object) -> list[tuple[str, float]]:
        asked = SearchOptions(ch.Config().decode.with_changes({"beam_size": size}), **options)
        return [(" ".join(WORDS[i] for i in one.tokens[:-1]), one.log_prob) for one in decode(model, [[2]], asked)[0]]

    for size, product in ((1, "0.6 x 0.4 x 0.6"), (2, "0.4 x 0.9 x 0.9")):
        for text, log_prob in search(size):
            print(f"beam {size}: {text}, probability {product} = {torch.tensor(log_prob).exp():.3f}")
    for temperature in (0.01, 1.0, 3.0):  # towards 0, sampling is greedy search
        sampling = Sampling(temperature=temperature, epsilon=0.0, seed=1)
        texts = Counter(text for text, _ in search(1, sampling=sampling, num_best=200))
        print(f"200 samples at temperature {temperature:>4}: {dict(texts.most_common(3))}, {len(texts)} different")
    return HeatMap("Probability of a word", table[:, 2:].tolist(), "next", "last", "", False, WORDS[2:], [*NEXT_WORD])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
