"""Asynchronous optimiser steps on a GPU: packed batches, one compiled graph, replayed as CUDA graphs.

The host prepares the next batch while the device computes, and reads the measurements some steps later. The device
itself skips a step whose gradient is not finite or whose loss exploded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy

import torch
from jaxtyping import Float, Int32
from torch import Tensor, nn

from clearhead.config import TrainConfig
from clearhead.kernels.bf16_linear import Linear
from clearhead.kernels.cuda_graphs import GraphRecorder
from clearhead.model.packing import Packing
from clearhead.model.transformer import Transformer
from clearhead.training.loss import chunked_cross_entropy
from clearhead.training.optimizer import Muon, compiled_muon_directions
from clearhead.training.packed_batches import PackedShape, PackedTensors
from clearhead.training.step import StepResult, model_products, most_nll, random_seed

PRECISIONS = {"cuda": "bf16", "cpu": "fp32", "meta": "fp32"}
"""Precision of matrix products by type of device."""

_WARM_UPS = 3
"""Steps before the CUDA graph is recorded: they compile, choose kernels and allocate what stays."""


def packed_loss(
    model: Transformer, batch: PackedTensors, smoothing: float, *, is_bf16: bool = False
) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
    """Return the smoothed loss and the plain negative log-likelihood of a packed batch, summed over target tokens."""
    packing = Packing.of(batch.source_side, batch.target_side)
    with model_products(batch.source.device, is_bf16=is_bf16):
        states = model.packed_states(batch.source, batch.target_in, packing)  # (T, D)
    is_token, output = batch.target_out != model.config.pad_id, model.output_proj
    return chunked_cross_entropy(
        states, output.weight, output.bias, batch.target_out, smoothing, is_token, is_bf16=is_bf16
    )


def with_bf16_weights(model: Transformer) -> Transformer:
    """Return a model with the same weights and tables, except that linear layers have copies of theirs in bfloat16.

    Inside autocast it computes the same bits as `model`, whose weights are cast anew in every pass.
    """
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    computing = deepcopy(model, shared)
    for layer in computing.modules():
        if isinstance(layer, Linear):
            for name, weight in list(layer.named_parameters()):
                setattr(layer, name, nn.Parameter(weight.detach().bfloat16(), weight.requires_grad))
    return computing


class PackedStepper:
    """Trainer of a model on packed batches, in bfloat16 on a GPU; for one worker.

    Args:
        model: Model in training mode.
        optimizer: Optimiser of the model's weights; its learning rate becomes a tensor.
        config: Settings of `[train]`.
        shape: Sizes of the batches.
        is_compiled: Whether to compile the pass, and the directions of Muon.
    """

    def __init__(
        self,
        model: Transformer,
        optimizer: torch.optim.Optimizer,
        config: TrainConfig,
        shape: PackedShape,
        *,
        is_compiled: bool = True,
    ) -> None:
        self.model, self.optimizer, self.config, self.shape = model, optimizer, config, shape
        self.device = model.device
        self.precision = PRECISIONS[self.device.type]
        self._numbers = torch.zeros(shape.size, dtype=torch.int32, device=self.device)
        self._batch = shape.views(self._numbers)
        self._loss: Callable[..., tuple[Tensor, Tensor]] = packed_loss
        if isinstance(optimizer, Muon) and is_compiled:
            optimizer.compiled = compiled_muon_directions()
        if is_compiled:
            self._loss = torch.compile(packed_loss, fullgraph=True, dynamic=False)
        model.reserve_positions(shape.longest)  # tables grow outside the graph
        self._computing = with_bf16_weights(model) if self.precision == "bf16" else model
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._weights = [weight for weight in self._computing.parameters() if weight.requires_grad]
        self._copied = [pair for pair in zip(self._weights, weights, strict=True) if pair[0] is not pair[1]]
        types = [weight.dtype for weight in self._weights]
        self._of_one_type = [[n for n, own in enumerate(types) if own == kind] for kind in dict.fromkeys(types)]
        self._gradients = [torch.zeros_like(weight) for weight in weights]
        for weight, gradient in zip(weights, self._gradients, strict=True):
            weight.grad = gradient
        self._tokens = torch.ones((), device=self.device)
        # Loss and nll of the step so far, norm of its gradient, and 1 if the step is skipped.
        self._measured = torch.zeros(4, device=self.device)
        *_, self._norm, self._is_wrong = self._measured.unbind()
        self._rate = torch.zeros((), device=self.device)
        for group in optimizer.param_groups:
            group["lr"] = self._rate
        self.optimizer.found_inf = self._is_wrong  # type: ignore[attr-defined]  # nothing moves where it is 1
        self._unread: list[tuple[int, Tensor]] = []
        recorder = GraphRecorder(self.device) if self.device.type == "cuda" else None
        self._accumulate = _Repeated(self._add_gradient, recorder, self._computing)
        self._update = _Repeated(self._move, recorder, self._computing)

    def step(
        self, parts: Sequence[Int32[Tensor, " F"]], *, number: int, rate: float, tokens: int
    ) -> Float[Tensor, "4"]:
        """Make optimiser step `number`; `results` waits for its measurements.

        Args:
            parts: Packed batches, see `PackedShape.pack`.
            number: Optimiser steps, counted from 1.
            rate: Learning rate.
            tokens: Target tokens of all parts.

        Returns:
            On the device, the smoothed loss and the negative log-likelihood, summed over tokens, the norm of the
            gradient, and 1 if the step changed nothing, else 0.
        """
        torch.manual_seed(random_seed(self.config.seed, number))
        self._rate.fill_(rate)
        self._tokens.fill_(tokens)
        self._measured.narrow(0, 0, 3).zero_()
        if self._copied:
            copies, weights = zip(*self._copied, strict=True)
            with torch.no_grad():
                torch._foreach_copy_(copies, weights)
        for numbers in parts:
            self._numbers.copy_(numbers, non_blocking=True)
            self._accumulate()
        self._update()
        measured = self._measured.clone()
        self._unread.append((tokens, measured))
        return measured

    def results(self) -> list[StepResult]:
        """Wait for the device, and return the measurements of the steps since the last call."""
        if not self._unread:
            return []
        counts, tensors = zip(*self._unread, strict=True)
        self._unread.clear()
        return [
            StepResult(loss / tokens, nll / tokens, norm, tokens, is_skipped=bool(is_wrong))
            for tokens, (loss, nll, norm, is_wrong) in zip(counts, torch.stack(tensors).tolist(), strict=True)
        ]

    def release_optimizer(self) -> None:
        """Undo what this stepper set in the optimiser, so that a padded stepper can use it."""
        self.optimizer.found_inf = self.optimizer.compiled = None  # type: ignore[attr-defined]

    def _add_gradient(self) -> None:
        is_bf16 = self.precision == "bf16"
        loss, nll = self._loss(self._computing, self._batch, self.config.label_smoothing, is_bf16=is_bf16)
        # Not by `backward`, which would add gradient by gradient.
        added = torch.autograd.grad(loss / self._tokens, self._weights, materialize_grads=True)
        for numbers in self._of_one_type:  # with several types, PyTorch would add all one by one
            torch._foreach_add_([self._gradients[n] for n in numbers], [added[n] for n in numbers])
        self._measured.narrow(0, 0, 2).add_(torch.stack([loss.detach(), nll]))

    @torch.no_grad()
    def _move(self) -> None:
        norm = torch.stack(torch._foreach_norm(self._gradients)).norm()
        self._norm.copy_(norm)
        nll = self._measured.select(0, 1) / self._tokens
        is_sound = norm.isfinite() & (nll < most_nll(self.model.config.vocab_size))
        self._is_wrong.copy_(is_sound.logical_not())
        if self.config.clip_norm:
            torch._foreach_mul_(self._gradients, (self.config.clip_norm / norm).clamp(max=1.0))
        is_recorded = self.device.type == "cuda" and torch.cuda.is_current_stream_capturing()
        for group in self.optimizer.param_groups:
            group["capturable"] = is_recorded  # Adam warns of it elsewhere
        self.optimizer.step()
        torch._foreach_zero_(self._gradients)  # not freed: a CUDA graph has their addresses


class _Repeated:
    """A function that is replayed as a CUDA graph after a few warm-up calls; on a CPU, an ordinary call.

    Args:
        function: See `GraphRecorder.record`.
        recorder: Recorder of CUDA graphs; None on a CPU.
        model: Model whose tables of positions the graph reads.
    """

    def __init__(self, function: Callable[[], None], recorder: GraphRecorder | None, model: Transformer) -> None:
        self._function, self._recorder, self._model = function, recorder, model
        self._repeat: Callable[[], None] | None = None
        self._calls = 0

    def __call__(self) -> None:
        """Call the function or replay its graph."""
        self._calls += 1
        if self._recorder is None:
            self._function()
        elif self._calls <= _WARM_UPS:
            self._recorder.prepare(self._function)
        else:
            self._repeat = self._repeat or self._recorder.record(self._function, self._model.buffers())
            self._repeat()
