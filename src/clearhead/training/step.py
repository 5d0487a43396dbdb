"""One optimiser step: the gradient of a whole batch, accumulated over parts, and the weight update."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int64
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.data.batches import Batch
from clearhead.decoding.pytorch.plain_engine import require_searchable
from clearhead.errors import ConfigError
from clearhead.kernels.bf16_linear import bf16_products
from clearhead.kernels.dropout import drawn_by_row
from clearhead.kernels.plain_code import plain_code
from clearhead.model.recorder import NOTHING, HeadOnSource, Recorder
from clearhead.model.transformer import Transformer
from clearhead.runtime.device import can_multiply_bf16, has_fast_bf16, keep_freed_memory
from clearhead.training.distributed import Workers, whole
from clearhead.training.loss import (
    GUIDED_HEAD,
    chunked_cross_entropy,
    guided_alignment_loss,
    guided_layer,
    label_smoothed_cross_entropy,
)
from clearhead.training.own_parts import NO_OWN_PARTS, LossFunction, OwnParts


@dataclass(frozen=True, slots=True)
class StepResult:
    """Measurements of one step."""

    loss: float
    """Label-smoothed loss per target token, in nats."""
    nll: float
    """Negative log-likelihood per target token, in nats."""
    grad_norm: float
    """Norm of the gradient before clipping."""
    target_tokens: int
    """Target tokens, not counting padding."""
    alignment: float | None = None
    """Cross-entropy of the guided head's attention per target token with links, in nats; None if no token has any."""
    is_skipped: bool = False
    """Whether the step changed nothing, because its gradient was not finite or its loss exploded."""


def uses_bf16(config: TrainConfig, device: torch.device) -> bool:
    """Return whether matrix products run in bfloat16 on this device; a CPU without bfloat16 uses float32.

    Raises:
        ConfigError: If bfloat16 and `config.compile` are combined on a CPU.
    """
    if config.plain:
        return False
    is_compiled_cpu = config.compile is True and device.type == "cpu"  # the compiler does not see `bf16_products`
    if config.precision == "bf16" and is_compiled_cpu:
        raise ConfigError(
            "train.precision = 'bf16' and train.compile do not go together on a CPU; leave one of them out"
        )
    if config.precision == "bf16":
        return device.type != "cpu" or can_multiply_bf16()
    return config.precision == "auto" and has_fast_bf16(device) and not is_compiled_cpu


def model_products(device: torch.device, *, is_bf16: bool) -> AbstractContextManager[object]:
    """Return a context in which a model's matrix products are in bfloat16, or, unless `is_bf16`, as they are."""
    if not is_bf16:
        return nullcontext()
    return bf16_products() if device.type == "cpu" else torch.autocast(device.type, dtype=torch.bfloat16)


def most_nll(vocab_size: int) -> float:
    """Return the negative log-likelihood per token, in nats, from which on a step is skipped.

    A uniform guess costs ln V per token; twice that is worse than no knowledge.
    """
    return 2.0 * math.log(vocab_size)


def random_seed(seed: int, number: int) -> int:
    """Return the seed of step `number` of a run.

    Args:
        seed: The run's.
        number: Optimiser steps, counted from 1.
    """
    # PyTorch's CPU generator uses only the lower 32 bits of a seed, so both numbers must be mixed into them.
    return int(np.random.SeedSequence((seed, number)).generate_state(1, np.uint64)[0])


class JointOutOfMemoryError(torch.OutOfMemoryError):
    """A part of a step did not fit into the memory of a worker; every worker knows, and changed nothing."""

    def __init__(self, workers: Sequence[str]) -> None:
        super().__init__(", ".join(workers))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, its cause, the cause of the cause, and so on."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__ or cause.__context__


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether a device without memory led to an error."""
    return any(isinstance(cause, torch.OutOfMemoryError) for cause in causes(error))


class Stepper:
    """Trainer of a model, step by step.

    Args:
        model: Model in training mode.
        optimizer: Optimiser of the model's weights.
        config: Settings of `[train]`.
        workers: Workers that share a step; None if this process is the only one.
        own: The run's own parts.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        workers: Workers | None = None,
        own: OwnParts = NO_OWN_PARTS,
    ) -> None:
        self._unread: list[StepResult] = []
        if config.plain:
            require_searchable(model)  # before training, for every validation searches
        self.model = model
        self.optimizer = optimizer
        self.config = config
        self.workers = workers or Workers()
        self.device = model.device
        self.is_bf16 = uses_bf16(config, self.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        plain = config.plain or bool(own.names)
        function = own.loss or (label_smoothed_cross_entropy if plain else None)
        self._loss = self.workers.parallel(Loss(model, config.label_smoothing, function, is_bf16=self.is_bf16))
        self._takes_logits = plain
        self._encode: Callable[[Tensor], tuple[Tensor, Tensor]] = model.encode
        self._states: Callable[..., Tensor] = model.states
        self._guided_layer = guided_layer(config, model.config)
        if config.compile is True:
            self._encode = torch.compile(model.encode, dynamic=True)
            self._states = torch.compile(model.states, dynamic=True)

    @property
    def precision(self) -> str:
        """Precision of matrix products, `bf16` or `fp32`."""
        return "bf16" if self.is_bf16 else "fp32"

    def step(self, parts: Sequence[Batch], *, number: int, rate: float, tokens: int | None = None) -> StepResult:
        """Make optimiser step `number`; if its gradient is not finite or its loss exploded, it changes nothing.

        The gradient, including that of the alignment loss, is divided by the target tokens of the whole step. So
        neither the division of the step into parts nor the number of workers changes it. Dropout follows from the seed
        and the step, so a resumed run draws the same as an uninterrupted one. On a CPU it also follows from the pair,
        and from its number among its copies in the step, so that it does not matter which part contains the pair.

        Args:
            parts: This worker's share of the step, in batches small enough to be computed at once. At least one; with
                sharded weights as many as on every other worker.
            number: Optimiser steps, counted from 1.
            rate: Learning rate.
            tokens: Target tokens of the whole step; those of the parts if not given.

        Raises:
            JointOutOfMemoryError: On every one of several workers, if a part of any does not fit into memory.
            LostWorkerError: If another worker is lost.
        """
        seed = random_seed(self.config.seed, number)
        torch.manual_seed(random_seed(seed, self.workers.rank) if self.workers.rank else seed)
        tokens = tokens or sum(batch.num_target_tokens for batch in parts)
        own, lacks_memory = np.zeros(4), False
        for count, batch in enumerate(parts, start=1):
            try:
                own += self._add_gradient(batch, seed, tokens, is_last=count == len(parts))
            except Exception as error:
                if self.workers.count == 1 or self.workers.is_sharding or not is_out_of_memory(error):
                    raise
                lacks_memory = True
            if lacks_memory:  # outside of `except`, where the error refers to tensors
                self._average_without_own()
                break
        loss, nll, alignment, linked, lacking = self.workers.sums(*own.tolist(), lacks_memory)
        if lacking:
            raise JointOutOfMemoryError(self.workers.gathered([f"worker {self.workers.rank}"] * lacks_memory))
        grad_norm = self._clip(self.config.clip_norm or math.inf)
        is_sound = math.isfinite(grad_norm) and nll / tokens < most_nll(self.model.config.vocab_size)
        of_links = alignment / linked if linked else None
        result = StepResult(loss / tokens, nll / tokens, grad_norm, tokens, of_links, is_skipped=not is_sound)
        if is_sound:
            for group in self.optimizer.param_groups:
                group["lr"] = rate
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self._unread.append(result)
        return result

    def _add_gradient(self, batch: Batch, seed: int, tokens: int, *, is_last: bool) -> tuple[float, ...]:
        """Add a part's gradient; return its loss, negative log-likelihood, alignment loss and tokens with links."""
        with (
            self.workers.together(),
            self.workers.accumulating(self._loss, is_last=is_last),
            self._computing(seed, batch),
        ):
            source, target_in, target_out = (
                ids.to(self.device, non_blocking=True) for ids in (batch.source, batch.target_in, batch.target_out)
            )
            with model_products(self.device, is_bf16=self.is_bf16):
                head = HeadOnSource(self._guided_layer, GUIDED_HEAD)
                recorder = NOTHING if batch.links is None else Recorder(head=head)
                if self._takes_logits and recorder is NOTHING:
                    outputs = self.model(source, target_in)
                else:
                    states = self._states(target_in, *self._encode(source), recorder=recorder)
                    outputs = self.model.output_proj(states) if self._takes_logits else states
                loss, nll = self._loss(outputs, target_out)
            whole_loss, alignment, linked = loss, 0.0, 0.0
            if batch.links is not None:
                part_alignment = guided_alignment_loss(head.log_weights[0], batch.links)
                whole_loss = loss + self.config.guided_alignment_weight * part_alignment
                alignment, linked = part_alignment.item(), batch.links.num_target_tokens
            (whole_loss / tokens * self.workers.count).backward()  # the workers average gradients
        return loss.item(), nll.item(), alignment, linked

    def _average_without_own(self) -> None:
        config = self.model.config
        outputs = torch.zeros(1, 1, config.vocab_size if self._takes_logits else config.d_model, device=self.device)
        self.workers.average_without_own(outputs, torch.full((1, 1), config.pad_id, device=self.device))

    def results(self) -> list[StepResult]:
        """Return the measurements of the steps since the last call."""
        results, self._unread = self._unread, []
        return results

    def _clip(self, limit: float) -> float:
        """Scale the gradient down to a maximum norm, and return its norm before that.

        Norms of rows are summed in float64. Each row is held completely by one worker, so the result does not depend,
        even in the last bit, on which worker holds which row.
        """
        gradients = [parameter.grad for parameter in self.model.parameters() if parameter.grad is not None]
        rows = (torch.linalg.vector_norm(grad, dim=-1) if grad.dim() > 1 else grad for grad in gradients)
        norms = [whole(torch.linalg.vector_norm(row, dtype=torch.float64)) for row in rows]
        norm = torch.stack(norms).norm().item()
        if norm > limit:
            torch._foreach_mul_(gradients, limit / norm)
        return norm

    def _computing(self, seed: int, batch: Batch) -> AbstractContextManager[object]:
        if self.config.plain:
            return plain_code()
        if self.device.type != "cpu" or self.config.compile is True:
            return nullcontext()  # PyTorch's own generator is used, and its numbers depend on the whole part
        # A store has fewer than 2**32 pairs. Copies of a pair in one step drop different elements.
        return drawn_by_row(seed, [row + (copy << 32) for row, copy in zip(batch.rows, batch.copies, strict=True)])


class Loss(nn.Module):
    """Training loss. It contains the model, so that PyTorch knows whose gradients to reduce.

    Args:
        model: Model in training mode.
        smoothing: Probability mass for label smoothing, `TrainConfig.label_smoothing`.
        function: The loss of logits, such as `label_smoothed_cross_entropy`; None for the same loss of decoder states,
            which is faster.
        is_bf16: Whether matrix products are in bfloat16.
    """

    def __init__(self, model: Transformer, smoothing: float, function: LossFunction | None, *, is_bf16: bool) -> None:
        super().__init__()
        self.model = model
        self.smoothing = smoothing
        self.function = function
        self.is_bf16 = is_bf16

    def forward(
        self, outputs: Float[Tensor, "B T D"], target: Int64[Tensor, "B T"]
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the smoothed loss and the plain negative log-likelihood, summed over target tokens, in nats.

        Args:
            outputs: Decoder states, or the logits if there is a function.
            target: Reference tokens, padded.

        Raises:
            ConfigError: If the function does not return two numbers.
        """
        is_token = target != self.model.config.pad_id  # (B, T)
        outputs, target = outputs[is_token], target[is_token]  # (B, T, D), (B, T) -> (N, D), (N,)
        if self.function is not None:
            losses = self.function(outputs, target, self.smoothing)
            if not (isinstance(losses, tuple) and [getattr(loss, "shape", None) for loss in losses] == [()] * 2):
                raise ConfigError(
                    "loss must return two scalar tensors, the loss and the negative log-likelihood, both summed over "
                    "the tokens, as clearhead.training.loss.label_smoothed_cross_entropy does"
                )
            return losses
        output = self.model.output_proj
        with torch.autocast(target.device.type, enabled=False):
            return chunked_cross_entropy(
                outputs, output.weight, output.bias, target, self.smoothing, is_bf16=self.is_bf16
            )
