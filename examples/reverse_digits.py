"""A Transformer learns to reverse strings of digits, and its attention shows how (sections 3 and 5).

It sees nothing but pairs such as 1414 -> 4141. To write digit t it must look at digit n - t, so the cross-attention of
a model that has understood is an anti-diagonal. Run it: python examples/reverse_digits.py
"""

from __future__ import annotations

import torch
from torch.nn.functional import cross_entropy

import clearhead as ch
from clearhead.decoding import SearchOptions, decode
from clearhead.inspection.plots import HeatMap

BOS, EOS, ZERO = 1, 2, 3  # ids: 0 is padding, digit d is ZERO + d
STEPS, LENGTH = 200, 6


def draw_pairs(count: int, *, held_out: bool) -> tuple[torch.Tensor, ...]:
    """Return up to `count` strings, what the decoder reads, and what it must write; a sum of digits is held out."""
    digits = torch.randint(10, (count, LENGTH))
    digits = digits[(digits.sum(dim=1) % 7 == 0) == held_out] + ZERO  # training never sees those of the test
    start, end = torch.full((len(digits), 1), BOS), torch.full((len(digits), 1), EOS)
    return torch.cat([digits, end], 1), torch.cat([start, digits.flip(1)], 1), torch.cat([digits.flip(1), end], 1)


def main() -> HeatMap:
    """Train, test on strings never seen, and look at where each digit came from."""
    torch.manual_seed(1)
    config = ch.ModelConfig(vocab_size=ZERO + 10, d_model=64, d_ff=128, num_heads=1, dropout=0.0)
    model = ch.Transformer(config.model_copy(update={"num_encoder_layers": 1, "num_decoder_layers": 1}))
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, STEPS + 1):
        source, shifted, target = draw_pairs(64, held_out=False)
        loss = cross_entropy(model(source, shifted).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.param_groups[0]["lr"] = 3e-3 * min(step / 40, 1 - step / STEPS)  # climbs, then falls to zero
        optimizer.step()
        if step % 40 == 0:
            print(f"step {step:>4}  loss {loss.item():.2f}")

    model.eval()
    source, shifted, target = draw_pairs(3_000, held_out=True)
    found = decode(model, source.tolist(), SearchOptions(ch.Config().decode.with_changes({"beam_size": 1})))
    right = [best.tokens == tuple(row) for (best,), row in zip(found, target.tolist(), strict=True)]
    print(f"{sum(right) / len(right):.0%} of {len(right)} held-out strings are reversed without a mistake")
    assert sum(right) > 0.95 * len(right)
    weights = model.attention_weights(source[:1], shifted[:1]).cross[0][0, 0].detach()  # (T, S)
    print("looked at, to write each digit:", (weights[:LENGTH].argmax(dim=1) + 1).tolist())
    assert weights[:LENGTH].argmax(dim=1).tolist() == [*range(LENGTH)][::-1], "the anti-diagonal"
    read, written = ([*(str(i - ZERO) for i in ids[0, :LENGTH].tolist()), "</s>"] for ids in (source, target))
    return HeatMap("Cross-attention", weights.tolist(), "read", "written", "weight", x_names=read, y_names=written)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
