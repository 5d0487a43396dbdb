"""Add & Norm (section 3.1): gradients and words through twelve layers, with and without the residual path.

Run it: python examples/add_and_norm.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cosine_similarity

from clearhead.config import ModelConfig
from clearhead.inspection.plots import LinePlot, Panel, Series
from clearhead.model.encoder import EncoderLayer

LAYERS, WORDS, D_MODEL, PAIRS = 12, 8, 64, ~torch.eye(8, dtype=torch.bool)  # pairs of two different words


class WithoutAdd(nn.Sequential):
    """In place of Add & Norm: without the sum."""

    def add_and_norm(self, x: Tensor, sublayer: nn.Module) -> Tensor:
        """Return LayerNorm(Sublayer(x)), or Sublayer(x) if there is no norm."""
        return self(sublayer(x))


def through(replacement: nn.Module | None) -> tuple[list[float], list[float]]:
    """Return the length of the gradient at the input of each layer, and how alike the words are there."""
    torch.manual_seed(1)
    layers = [EncoderLayer(ModelConfig(d_model=D_MODEL, d_ff=256, num_heads=4, dropout=0.0)) for _ in range(LAYERS)]
    states = [torch.randn(1, WORDS, D_MODEL, requires_grad=True)]
    for layer in layers:
        if replacement is not None:
            layer.self_attn_residual = layer.feed_forward_residual = replacement
        states.append(layer(states[-1], torch.ones(1, 1, 1, WORDS, dtype=torch.bool)))
    gradients = torch.autograd.grad((states[-1] * torch.randn(1, WORDS, D_MODEL)).sum(), states)
    alike = [cosine_similarity(one[0, :, None], one[0, None], dim=-1)[PAIRS].mean().item() for one in states]
    return [gradient.norm().item() for gradient in gradients], alike


def main() -> LinePlot:
    """Compare the layer of the paper with layers that lack the sum, or both."""
    kinds = {"Norm(x + Sublayer(x))": None, "Norm(Sublayer(x))": WithoutAdd(nn.LayerNorm(D_MODEL))}
    found = {name: through(replacement) for name, replacement in {**kinds, "Sublayer(x)": WithoutAdd()}.items()}
    for name, (gradients, alike) in found.items():
        print(f"{name}\n  gradient at the input of layer 12, 8, 4, 1:", *(f"{gradients[i]:.0e}" for i in (11, 7, 3, 0)))
        print("  cosine of two words before layer 1, 5, 9, and after 12:", *(f"{alike[i]:.2f}" for i in (0, 4, 8, 12)))
    (kept, apart), (_, alike), (lost, _) = found.values()
    assert kept[0] > 0.5 * kept[-1]  # along the sums the gradient stays about as long
    assert lost[0] < 1e-9 * lost[-1]  # without them it vanishes; a norm alone scales it up again, but in vain:
    assert apart[-1] < 0.9 < 0.999 < alike[4]  # after four layers all words are the same
    lines = [[Series(name, range(13), pair[i]) for name, pair in found.items()] for i in (0, 1)]
    gradient = Panel("Gradient", "layers", "its length", lines[0], y_scale="log")
    return LinePlot("Twelve layers, with sums and without", [gradient, Panel("Words", "layers", "cosine", lines[1])])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
