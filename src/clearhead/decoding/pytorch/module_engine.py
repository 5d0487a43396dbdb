"""The engine of a module that was changed: every step is a call of the module, as `model(source, target)`.

There are no packed weights, no caches and no batches of several sentences, so whatever was replaced in the module, or
hooked into it, has its effect. It is many times slower than the other engines. `TransformerEngine` has what it shares
with the engine of packed weights.

Shapes: B rows, R rows (the open hypotheses of all slots), V vocabulary, T tokens of a target; L layers, H heads, S
source length.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config import DecodePrecision
from clearhead.decoding.best_tokens import best_continuations
from clearhead.decoding.engine import Beams, Candidates, Engine, Slots, leave_slot
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.pytorch.weights import cross_attention_weights
from clearhead.decoding.rules import never_written
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.step import pad_batch, restricted, token_log_probs
from clearhead.model.transformer import Transformer


class TransformerEngine(Engine):
    """What the engines in PyTorch have in common.

    Raises:
        ValueError: If the model has no decoder.
    """

    model: Transformer

    def __init__(self, model: Transformer, precision: DecodePrecision = "fp32") -> None:
        if not model.config.num_decoder_layers:
            raise ValueError("an encoder alone writes nothing")
        super().__init__(model, precision)

    def num_workers(self, most: int) -> int:
        """Return 1: PyTorch's own threads share every product, and hooks of a module may keep state."""
        del most
        return 1

    def cross_attention(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, "L H T S"]]:
        """Return for each pair the cross-attention weights of every head, at the steps that write the target.

        Args:
            sources: Source ids of each sentence, ended by `eos_id`.
            targets: Target ids of each sentence, ended by `eos_id`.
        """
        pad_id, device = self.model.config.pad_id, self.model.device
        source, target = (pad_batch([list(ids) for ids in side], pad_id).to(device) for side in (sources, targets))
        with self.computing():
            weights = cross_attention_weights(self.model, source, target)
            layers = [layer.float().numpy(force=True) for layer in weights]
        sizes = zip(map(len, targets), map(len, sources), strict=True)
        return [np.stack([layer[pair, :, :t, :s] for layer in layers]) for pair, (t, s) in enumerate(sizes)]


class ModuleEngine(TransformerEngine):
    """A `Transformer` that computes itself, in its own precision.

    Raises:
        ValueError: If the model has no decoder.
    """

    def __init__(self, model: Transformer) -> None:
        super().__init__(model)

    def computing(self) -> AbstractContextManager[Any]:
        """Return a context without gradients and without dropout."""
        return _evaluating(self.model)

    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> Slots:
        """Return the slots of the worker, without a limit on their number; see `engine.Engine`."""
        del max_slots, team
        if shortlist is not None:
            shortlist.check(self.model.config)
        return ModuleSlots(self.model, beam_size, shortlist)

    def token_log_probs(
        self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
    ) -> list[Float[np.ndarray, " T"]]:
        """Return the log-probability of every target token, in nats; see `engine.Engine`."""
        pairs = zip(sources, targets, strict=True)
        return [token_log_probs(self.model, [list(src)], [list(tgt)])[0].numpy(force=True) for src, tgt in pairs]


class ModuleSlots:
    """The sentences that the worker has in flight; see `engine.Slots`.

    Args:
        model: The module.
        beam_size: Maximum hypotheses of a sentence.
        shortlist: Selects the target tokens allowed for each sentence; None allows the whole vocabulary.
    """

    def __init__(self, model: Transformer, beam_size: int, shortlist: Shortlist | None) -> None:
        self._model, self._beam_size, self._shortlist = model, beam_size, shortlist
        self._sentences: list[Sentence] = []
        self._read: list[list[list[int]]] = []
        """For each sentence, the decoder input of every open hypothesis."""
        self.source_lengths: list[int] = []

    def encode(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """Return the sentences unchanged: each step encodes its sentence."""
        return list(sentences)

    def enter(self, encoded: Sequence[Sentence]) -> None:
        """Assign the next free slots to sentences."""
        begun = self._model.config.is_decoder_alone
        self._sentences += encoded
        self._read += [[list(sentence.source[:-1]) if begun else []] for sentence in encoded]
        self.source_lengths += [len(sentence.source) for sentence in encoded]

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        leave_slot(slot, self._sentences, self._read, self.source_lengths)

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step and return the best candidates; see `engine.Slots`."""
        return list(best_continuations(active, self.log_probs(active), self._beam_size))

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step and return all log-probabilities; see `engine.Slots`."""
        return np.concatenate([self._next(slot, beams).numpy(force=True) for slot, beams in enumerate(active)])

    def _next(self, slot: int, beams: Beams) -> Float[Tensor, "B V"]:
        """Return the log-probabilities of the next token of each hypothesis of a sentence."""
        model, sentence, before = self._model, self._sentences[slot], self._read[slot]
        rows = [[*before[parent], token] for parent, token in zip(beams.parents, beams.newest, strict=True)]
        self._read[slot] = rows
        target = torch.tensor(rows, device=model.device)
        source = None
        if not model.config.is_decoder_alone:
            source = torch.tensor([list(sentence.source)] * len(rows), device=model.device)
        logits = model(source, target)[:, -1].float()
        if self._shortlist is not None:
            listed = [*self._shortlist.common.tolist(), *self._shortlist.tokens_for(sentence).tolist()]
            is_left_out = torch.ones(logits.size(1), dtype=torch.bool, device=logits.device)
            is_left_out[[*listed, model.config.eos_id, *never_written(model.config)]] = False
            logits = logits.masked_fill(is_left_out, float("-inf"))
        return restricted(logits.log_softmax(dim=-1), beams.masks, model.config)


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Switch dropout off while the block runs, and compute no gradients."""
    training = [part for part in model.modules() if part.training]
    for part in training:
        part.training = False
    try:
        with torch.inference_mode():
            yield
    finally:
        for part in training:
            part.training = True
