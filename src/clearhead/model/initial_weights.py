"""Initial weights, as in the reference implementation, tensor2tensor; the paper does not specify them."""

from __future__ import annotations

import math

import torch
from torch import nn

from clearhead.config import ModelConfig
from clearhead.model.attention import MultiHeadAttention
from clearhead.model.embeddings import Embedding, OutputProjection
from clearhead.model.other_positions import RelativePositions


def draw_initial_weights(model: nn.Module, config: ModelConfig) -> None:
    """Draw Xavier-uniform matrices and normal embeddings; biases start at 0 and norms as the identity.

    tensor2tensor calls Xavier-uniform uniform unit scaling over the fan average. Embeddings and relative positions have
    standard deviation d_model ** -0.5. PyTorch's own draws, made when the layers are constructed, are discarded:
    avoiding them would take custom layers.

    As in T5, queries start smaller if attention does not divide by sqrt(d_k), and embeddings have standard deviation 1
    if they are not multiplied by sqrt(d_model) and the output is divided by it.
    """
    narrow = config.d_model**-0.5
    tied = {id(module.weight) for module in model.modules() if isinstance(module, Embedding)}
    for module in model.modules():
        if isinstance(module, nn.Linear | OutputProjection):
            if id(module.weight) not in tied:
                nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm | nn.RMSNorm):
            module.reset_parameters()
        elif isinstance(module, RelativePositions):
            nn.init.normal_(module.weight, std=narrow)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, MultiHeadAttention) and not module.scale:
                module.q_proj.weight /= math.sqrt(module.q_proj.out_features // module.num_heads)
    for name, weight in model.named_parameters():  # a tied matrix is listed once
        if "_embedding." in name and ".norm." not in name:
            nn.init.normal_(weight, std=1.0 if config.output_scale and not config.embedding_scale else narrow)
