"""From logits to text: softmax, argmax, temperature, sampling, and a beam that finds what greedy search misses.

The model is a Transformer whose weights are set by hand, so that every probability is known: with nothing in its layers
and a table behind its embedding, the next word depends on the last one alone. Run it: python examples/logits_to_text.py
"""

from __future__ import annotations

from collections import Counter

import torch

import clearhead as ch
from clearhead.decoding import Sampling, SearchOptions, decode

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
START, SOURCE = WORDS.index("<s>"), [WORDS.index("</s>")]  # the source is empty but for its end


@torch.no_grad()
def build_model() -> ch.Transformer:
    """Return the Transformer that computes NEXT_WORD."""
    sizes = {"vocab_size": len(WORDS), "d_model": len(WORDS), "d_ff": 1, "num_heads": 1, "dropout": 0.0}
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1, "norm": "pre", "final_norm": False}
    embedding = {"positions": "none", "tying": "none", "embedding_scale": False}
    model = ch.Transformer(ch.ModelConfig.model_validate({**sizes, **layers, **embedding})).eval()
    for weight in model.parameters():
        weight.zero_()  # every sub-layer adds nothing: what goes in comes out, along the residual connections
    model.target_embedding.weight.copy_(torch.eye(len(WORDS)))
    for word, choices in NEXT_WORD.items():
        probs = torch.tensor([choices.get(choice, 0.0) for choice in WORDS])
        model.output_proj.weight[:, WORDS.index(word)] = (probs + 1e-9).log()
    return model


def main() -> None:
    """Take one step from logits to a word, then whole sentences by three searches."""
    model = build_model()
    memory, mask = model.encode(torch.tensor([SOURCE]))
    logits = model.decode(torch.tensor([[START]]), memory, mask)[0][0, 0]  # (V,) scores, not probabilities
    for temperature in (0.1, 1.0, 10.0):
        probs = (logits / temperature).softmax(dim=-1)
        shown = "  ".join(f"{word} {probs[WORDS.index(word)]:.3f}" for word in ("the", "a"))
        print(f"first word at temperature {temperature:>4}: {shown}   argmax {WORDS[probs.argmax()]}")
        torch.testing.assert_close(probs.sum(), torch.tensor(1.0))
        torch.testing.assert_close((logits / temperature + 5.0).softmax(dim=-1), probs)  # a constant changes nothing
        assert probs.argmax() == logits.argmax(), "softmax keeps the order, so argmax needs none"

    def search(beam_size: int, sampling: Sampling | None = None, num_best: int = 1) -> list[tuple[str, float]]:
        config = ch.Config().decode.with_changes({"beam_size": beam_size})
        found = decode(model, [SOURCE], SearchOptions(config, num_best=num_best, sampling=sampling))[0]
        return [(" ".join(WORDS[token] for token in best.tokens[:-1]), best.log_prob) for best in found]

    for size in (1, 2):
        ((text, log_prob),) = search(size)
        print(f"{'greedy' if size == 1 else 'beam 2'}: {text}, probability {torch.tensor(log_prob).exp():.3f}")
    assert search(1)[0][0] == "the dog barks"  # the best first word leads to 0.6 * 0.4 * 0.6 = 0.144
    assert search(2)[0][0] == "a cat sleeps"  # the second best to 0.4 * 0.9 * 0.9 = 0.324
    for temperature in (0.01, 1.0, 3.0):
        drawn = Counter(
            text for text, _ in search(1, Sampling(temperature=temperature, epsilon=0.0, seed=1), num_best=200)
        )
        print(f"200 samples at temperature {temperature:>4}: {dict(drawn.most_common(4))}, {len(drawn)} different")
        assert temperature > 0.01 or drawn == {search(1)[0][0]: 200}  # towards 0, sampling is greedy search


if __name__ == "__main__":
    main()
