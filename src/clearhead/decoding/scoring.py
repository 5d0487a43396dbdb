"""The model's own score of a given translation, by force-decoding.

Shapes: B batch, T target length.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.decoding.packed import fingerprint
from clearhead.decoding.step import pad_batch
from clearhead.model.transformer import Transformer

__all__ = ["DoubleModel", "token_log_probs"]


class DoubleModel:
    """A copy of a model in float64, for scores where the compiled core does not run.

    In float32 PyTorch's sums depend on the batch and the number of threads from the fourth decimal on; in float64 they
    do from about the twelfth.

    Args:
        model: In evaluation mode; the copy holds as long as its weights stay as they are (see `is_current`).
    """

    def __init__(self, model: Transformer) -> None:
        self._original = model
        self._fingerprint = fingerprint(model)
        self._model = deepcopy(model).double()

    def is_current(self) -> bool:
        """Tell whether the model still has the weights that were copied; if not, copy it again."""
        return self._fingerprint == fingerprint(self._original)

    def score(self, sources: list[list[int]], targets: list[list[int]]) -> list[float]:
        """Return the log-probability of each target given its source, in nats.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.
        """
        return token_log_probs(self._model, sources, targets).sum(dim=-1).tolist()


def token_log_probs(model: Transformer, sources: list[list[int]], targets: list[list[int]]) -> Float[Tensor, "B T"]:
    """Return the log-probability of every target token given the source and the tokens before it.

    Args:
        model: In evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.

    Returns:
        Log-probabilities in nats, 0 at padding; the sum of a row is the log-probability of its translation.
    """
    config = model.config
    device = model.device
    target = pad_batch(targets, config.pad_id).to(device)
    shifted = torch.cat([torch.full_like(target[:, :1], config.bos_id), target[:, :-1]], dim=1)
    logits = model(pad_batch(sources, config.pad_id).to(device), shifted)  # (B, T, V)
    # bfloat16 has 8 significant bits; a sum over the vocabulary needs float32.
    log_probs = logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(dim=-1)
    picked = log_probs.gather(-1, target[..., None])[..., 0]  # (B, T)
    return picked.masked_fill(target == config.pad_id, 0.0)
