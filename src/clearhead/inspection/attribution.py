"""Source attribution: integrated gradients and occlusion.

Attention weights show where a head attends, not how it changes the output (Jain and Wallace 2019; Wiegreffe and Pinter
2019); these methods measure the output.

Shapes: S source tokens, T target tokens, W source words, N points of an integral, D d_model, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64

from clearhead.decoding.step import token_log_probs
from clearhead.inspection.forward_pass import ModelPass
from clearhead.inspection.tokens import TokenWord

NUM_POINTS = 32
"""Points of Gauss-Legendre quadrature.

On three trained models, row sums then differed by 0.04 to 0.2 nats from the 9 nats that completeness requires.
"""


@dataclass(frozen=True, eq=False)
class Attribution:
    """Contribution of each source token to the log-probability of each target token, in nats."""

    gradients: Float64[np.ndarray, "T S"]
    """Integrated gradients; a row sums, except for `gap`, to the contribution of the whole source."""
    gap: float
    """Largest difference, over the rows, between a row's sum and the contribution of the whole source."""
    occlusion: Float64[np.ndarray, "T W"]
    """Decrease of the target token's log-probability when a source word is left out."""

    def to_dict(self, array: Callable[[np.ndarray], Any]) -> dict[str, Any]:
        """Return plain JSON values, with arrays converted by `array`."""
        return {
            "integrated_gradients": array(self.gradients),
            "completeness_gap": self.gap,
            "occlusion": array(self.occlusion),
        }


def attribute(
    ran: ModelPass, words: Sequence[TokenWord], on_progress: Callable[[int], None] | None = None
) -> Attribution:
    """Attribute a translation to its source.

    Args:
        ran: An encoder-decoder and its inputs.
        words: Words of the source, with their tokens.
        on_progress: Called with 1 after every target token.
    """
    gradients, whole = integrated_gradients(ran, on_progress=on_progress)
    gap = float(np.abs(gradients.sum(axis=-1) - whole).max())
    return Attribution(gradients, gap, occlusion(ran, words))


def num_products(ran: ModelPass) -> float:
    """Estimate the number of multiplications needed to attribute a translation, counting backward passes only.

    One CPU core computes 15 to 60 billion of them per second.
    """
    assert ran.source is not None
    weights = sum(p.numel() for stack in (ran.model.encoder, ran.model.decoder) for p in stack.parameters())
    num_target = len(ran.target_ids)
    return float(weights * (NUM_POINTS + 2) * (ran.source.size(1) + num_target) * num_target)


def integrated_gradients(
    ran: ModelPass, *, num_points: int = NUM_POINTS, on_progress: Callable[[int], None] | None = None
) -> tuple[Float64[np.ndarray, "T S"], Float64[np.ndarray, " T"]]:
    """Return integrated gradients of the log-probability of each target token (Sundararajan et al. 2017, equation 1).

    The path leads from a baseline with zero source embeddings (positions are kept) to the source; the target is fixed.

    Args:
        ran: An encoder-decoder and its inputs.
        num_points: Number of points at which the gradient is computed.
        on_progress: Called with 1 after every target token.

    Returns:
        The attribution to every source token, and the log-probability of each target token given the source minus that
        given the baseline, to which a row of the attribution converges as `num_points` grows (completeness).
    """
    model, source, target = ran.model, ran.source, ran.target
    assert source is not None
    assert target is not None
    points, shares = np.polynomial.legendre.leggauss(num_points)
    levels = torch.tensor([*(points + 1) / 2, 0.0, 1.0], device=model.device)  # the two ends as well
    weights = torch.tensor(shares / 2, device=model.device, dtype=torch.float64)
    with torch.inference_mode(False), torch.enable_grad():
        source, target = source.clone(), target.clone()  # gradients cannot pass tensors of inference mode
        tokens = model.source_embedding.vectors(source).detach()  # (1, S, D)
        parameter = next(model.parameters())
        path = (levels.to(parameter.dtype)[:, None, None] * tokens).requires_grad_()  # (N + 2, S, D)
        mask = (source != model.config.pad_id).expand(len(levels), -1)
        memory = model.encoder(model.source_embedding.placed(path), mask)
        states = model.states(target.expand(len(levels), -1), memory, mask)  # (N + 2, T, D)
        written = torch.tensor(ran.target_ids, device=model.device)
        rows: list[Float64[np.ndarray, " S"]] = []
        ends: list[float] = []
        for place, token in enumerate(written):
            log_probs = model.output_proj(states[:, place]).float().log_softmax(dim=-1)[:, token]  # (N + 2)
            [gradient] = torch.autograd.grad(log_probs.sum(), path, retain_graph=True)
            mean = torch.einsum("n,nsd->sd", weights, gradient[:num_points].double())
            rows.append((mean * tokens[0].double()).sum(dim=-1).cpu().numpy())
            ends.append((log_probs[-1] - log_probs[-2]).item())
            if on_progress is not None:
                on_progress(1)
    return np.stack(rows), np.array(ends)


@torch.inference_mode()
def occlusion(ran: ModelPass, words: Sequence[TokenWord]) -> Float64[np.ndarray, "T W"]:
    """Return the decrease of each target token's log-probability when one source word is left out.

    Args:
        ran: An encoder-decoder and its inputs.
        words: Words of the source, with their tokens.
    """
    assert ran.source is not None
    ids = ran.source[0].tolist()
    without = [[token for place, token in enumerate(ids) if place not in word.tokens] for word in words]
    targets = [list(ran.target_ids)]
    whole, *others = (
        token_log_probs(ran.model, [source], targets)[0].double().cpu().numpy() for source in (ids, *without)
    )
    return np.stack([whole - other for other in others], axis=-1) if others else np.zeros((len(whole), 0))
