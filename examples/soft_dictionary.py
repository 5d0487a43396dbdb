"""Attention as a soft dictionary (section 3.2): the value of every key, each as much as its key is like the query.

Run it: python examples/soft_dictionary.py
"""

from __future__ import annotations

import torch

import clearhead as ch
from clearhead.inspection.plots import HeatMap

DICTIONARY = {"apple": 10.0, "banana": 5.0, "chair": 2.0}
SIMILARITIES = {"apple": [1.0, 0.0, 0.0], "fruit": [0.6, 0.4, 0.0]}  # of a query to each key


def main() -> HeatMap:
    """Look up a key, then a word that is none, first by hand and then by equation 1."""
    print("a dictionary:", DICTIONARY, "-> apple is", DICTIONARY["apple"], "and fruit is an error")
    for word, weights in SIMILARITIES.items():
        terms = [f"{weight} x {value:g}" for weight, value in zip(weights, DICTIONARY.values(), strict=True)]
        answer = sum(weight * value for weight, value in zip(weights, DICTIONARY.values(), strict=True))
        print(f"a soft dictionary: {word} is {' + '.join(terms)} = {answer:g}")

    # Equation 1 gets its weights by a softmax of scores: a score that is the logarithm of a weight gives that weight.
    keys, values = torch.eye(3), torch.tensor([[value] for value in DICTIONARY.values()])
    for word, shares in SIMILARITIES.items():
        query = torch.tensor([shares]).clamp(min=1e-9).log() * 3**0.5  # equation 1 divides by sqrt(d_k), d_k = 3
        output, weights = ch.scaled_dot_product_attention(query, keys, values)
        scores = (query @ keys.T / 3**0.5)[0].tolist()
        print(f"equation 1: {word} has scores {[round(score, 3) for score in scores]}", end=", ")
        print(f"weights {[round(weight, 3) for weight in weights[0].tolist()]}: {output.item():.3f}")
        torch.testing.assert_close(weights[0], torch.tensor(shares))
    assert round(output.item(), 4) == 8.0

    print("if the similarities 0.6 0.4 0.0 were the scores themselves:")  # the larger, the nearer to the dictionary
    scores = torch.tensor([0.6, 0.4, 0.0])
    for factor in (0, 1, 10, 100):
        shares = (factor * scores).softmax(dim=-1)
        print(f"scores x {factor:>3}: weights {[round(share, 3) for share in shares.tolist()]}", end=", ")
        print(f"answer {(shares @ values).item():.3f}")
    assert (shares @ values).item() == 10.0  # to the last bit
    # A sigmoid brings each score between 0 and 1 as well, but the weights are no shares: they sum to more than 1.
    sigmoid = scores.sigmoid()
    print(
        f"a sigmoid: weights {[round(share, 3) for share in sigmoid.tolist()]}, their sum {sigmoid.sum():.3f}", end=", "
    )
    print(f"answer {(sigmoid @ values).item():.3f}, more than any value")
    assert (sigmoid @ values).item() > 10.0

    names = {"x_names": [f"{key}: {value:g}" for key, value in DICTIONARY.items()]}
    names["y_names"] = [f"{word}: {torch.tensor(row) @ values[:, 0]:g}" for word, row in SIMILARITIES.items()]
    rows = list(SIMILARITIES.values())
    return HeatMap("A soft dictionary", rows, "key: value", "query: answer", "weight", **names)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
