"""How weights start: the paper does not say, so as in its reference implementation, tensor2tensor."""

from __future__ import annotations

from torch import nn

from clearhead.model.embeddings import Embedding, OutputProjection

__all__ = ["draw_initial_weights"]


def draw_initial_weights(model: nn.Module, *, d_model: int) -> None:
    """Draw Xavier-uniform matrices and normal embeddings; biases are 0 and norms change nothing.

    Xavier-uniform is uniform unit scaling over fan-average there; embeddings have deviation d_model ** -0.5. What
    PyTorch drew when it made the layers is lost: not to draw it would take layers of our own.
    """
    tied = {id(module.weight) for module in model.modules() if isinstance(module, Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear | OutputProjection):
            if id(module.weight) not in tied:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
    for name, weight in model.named_parameters():  # a tied matrix comes once
        if "_embedding." in name and ".norm." not in name:
            nn.init.normal_(weight, std=d_model**-0.5)
