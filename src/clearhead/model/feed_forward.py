"""The position-wise feed-forward network (paper section 3.3).

Shapes: B batch, T length, D d_model.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from clearhead.config.choices import Activation
from clearhead.kernels.bf16_linear import Linear
from clearhead.kernels.dropout import Dropout

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "silu": functional.silu,
}
"""ReLU (the paper), GELU (Hendrycks and Gimpel 2016; BERT), its tanh approximation (GPT-2), SiLU (same authors)."""


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W1 + b1) W2 + b2, the same at every position (equation 2).

    Args:
        d_model: Width of input and output.
        d_ff: Width of the hidden layer (paper: 2048).
        activation: Activation function; max(0, ...) in the paper.
        gated: Multiply a second projection of x into the hidden layer: (act(x W_gate) * x W1) W2 (Shazeer 2020; SwiGLU
            with `silu`, GEGLU with `gelu`). The network then has half as many weights again.
        bias: Whether the projections have biases, as in the paper.
        dropout: Dropout rate on the hidden layer; the paper has none there.
    """

    def __init__(
        self,
        *,
        d_model: int,
        d_ff: int,
        activation: Activation = "relu",
        gated: bool = False,
        bias: bool = True,
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.up_proj = Linear(d_model, d_ff, bias=bias)  # W1, b1
        self.gate_proj = Linear(d_model, d_ff, bias=bias) if gated else None
        self.down_proj = Linear(d_ff, d_model, bias=bias)  # W2, b2
        self.activation = ACTIVATIONS[activation]
        self.dropout = Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B T D"]:
        """Apply the network to each position separately."""
        hidden = self.up_proj(x)  # (B, T, d_ff)
        if self.gate_proj is not None:
            hidden = self.dropout(self.activation(self.gate_proj(x)) * hidden)
        else:
            hidden = self.dropout.after(self.activation, hidden)  # max(0, x W1 + b1)
        return self.down_proj(hidden)
