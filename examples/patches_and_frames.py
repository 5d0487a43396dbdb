"""Applications: the encoder of the paper on images and sounds, cut into sixteen "words" of 16 numbers.

The same code learns to name both; they are made here. Run it: python examples/patches_and_frames.py
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from clearhead.config import ModelConfig
from clearhead.inspection.plots import HeatMap, HeatMaps
from clearhead.model.encoder import Encoder
from clearhead.model.positions import sinusoidal_positions

CONFIG = ModelConfig(d_model=32, d_ff=64, num_heads=4, dropout=0.0, num_encoder_layers=1)


def scores(model: nn.ModuleDict, words: Tensor) -> Tensor:
    """Return scores [B, 4] of words [B, 16, 16]: a linear map in place of the embedding, positions, the encoder."""
    x = model["embed"](words) + sinusoidal_positions(16, 32)
    return model["name"](model["encoder"](x, torch.ones(words.shape[:2], dtype=torch.bool)).mean(dim=1))


def images(classes: Tensor) -> Tensor:
    """Return images of 16 x 16 pixels with one of four corners bright, cut into 16 patches of 4 x 4."""
    corners = torch.eye(4)[classes].view(-1, 2, 2).repeat_interleave(8, dim=1).repeat_interleave(8, dim=2)
    return (corners + torch.rand(corners.shape)).unfold(1, 4, 4).unfold(2, 4, 4).reshape(-1, 16, 16)


def sounds(classes: Tensor) -> Tensor:
    """Return sounds of one of four pitches, from any moment, cut into 16 frames of 16 samples."""
    time = torch.arange(256) + 100 * torch.rand(len(classes), 1)
    return (torch.sin(time * (classes[:, None] + 2) / 8) + torch.randn(time.shape) / 2).view(-1, 16, 16)


def main() -> HeatMaps:
    """Train a classifier on each, and count its right answers on new ones."""
    torch.manual_seed(1)
    for make, what in ((images, "bright corner"), (sounds, "pitch")):
        model = nn.ModuleDict({"embed": nn.Linear(16, 32), "encoder": Encoder(CONFIG), "name": nn.Linear(32, 4)})
        optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
        for classes in torch.randint(4, (100, 32)):
            optimizer.zero_grad()
            cross_entropy(scores(model, make(classes)), classes).backward()
            optimizer.step()
        right = (scores(model, make(classes := torch.randint(4, (200,)))).argmax(dim=1) == classes).float().mean()
        print(f"{make.__name__}: the {what} is named right for {right:.0%} of 200 new ones")
        assert right > 0.9
    patches = images(classes := torch.tensor([2]))[0]
    image = patches.view(4, 4, 4, 4).transpose(1, 2).reshape(16, 16)  # the patches back in their places
    shown = {"An image, lower left": image, "Its 16 patches": patches, "A sound, as 16 frames": sounds(classes)[0]}
    return HeatMaps("What an encoder reads", [HeatMap(name, rows.tolist(), "", "", "") for name, rows in shown.items()])


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
