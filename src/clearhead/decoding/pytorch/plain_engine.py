"""The engine of plain code: the searches that are written to be read, without any of their fast twins.

It runs `beam_search`, `greedy_search` or `token_by_token` with the module's own `encode` and `decode`, and scores with
`token_log_probs`. So whoever changes that code sees the change.

Shapes: K beams, R rows (the open hypotheses of all slots), V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from clearhead.config import Sampling
from clearhead.decoding.batched_sampling import seed_of
from clearhead.decoding.beam_search import beam_search
from clearhead.decoding.best_tokens import best_continuations
from clearhead.decoding.engine import Beams, Candidates, leave_slot
from clearhead.decoding.helper_threads import Team
from clearhead.decoding.neighbour_keys import with_keys
from clearhead.decoding.neighbours import Neighbours, Pair
from clearhead.decoding.pytorch.module_engine import ModuleEngine
from clearhead.decoding.rules import Hypothesis, SearchOptions
from clearhead.decoding.sampling import draw_tokens, greedy_search, token_by_token
from clearhead.decoding.sentence import Prefix, Sentence, length_batches, sentences_of
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.step import DecodingBatch, decoder_states, next_log_probs
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.errors import ConfigError
from clearhead.kernels.plain_code import plain_code
from clearhead.model.module_state import has_forward_alone

if TYPE_CHECKING:
    from clearhead.decoding.constraints import Required
    from clearhead.model.transformer import Transformer


def require_searchable(model: Transformer) -> None:
    """Require that the plain searches, which call `encode` and `decode`, compute the same as a call of the model.

    Raises:
        ConfigError: If its `forward` alone was changed.
    """
    if has_forward_alone(model):
        raise ConfigError(
            "the model's own `forward` was replaced, or has hooks, and plain code searches by its `encode` and "
            "`decode`, which were not; change `decode` as well, or leave out plain"
        )


class PlainEngine(ModuleEngine):
    """A `Transformer` searched by plain code; see `ModuleEngine`.

    Raises:
        ConfigError: If the model's `forward` alone was changed.
        ValueError: If the model has no decoder.
    """

    is_plain = True

    def __init__(self, model: Transformer) -> None:
        require_searchable(model)
        super().__init__(model)
        self.consults_neighbours = model.config.is_encoder_decoder

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Return a context of plain code, without gradients and without dropout."""
        with plain_code(), super().computing():
            yield

    def slots(
        self, beam_size: int, max_slots: int, shortlist: Shortlist | None = None, team: Team | None = None
    ) -> PlainSlots:
        """Return the slots of a batch; see `engine.Engine`."""
        assert shortlist is None, "a search with a shortlist has no plain form"
        del max_slots, team
        return PlainSlots(self.model, beam_size)

    def decoder_states(self, pairs: Sequence[Pair]) -> list[Float[np.ndarray, "T D"]]:
        """Return the decoder's output at the steps that write the targets of pairs; see `engine.Engine`."""
        with self.computing():
            return decoder_states(self.model, pairs)

    def search(
        self,
        sources: list[list[int]],
        max_lengths: list[int],
        options: SearchOptions,
        prefixes: Sequence[Prefix] = (),
        required: Sequence[Required] = (),
        neighbours: Sequence[Neighbours | None] = (),
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Yield the index of each source and its hypotheses, as `scheduler.search` does.

        Raises:
            ConfigError: If the search has no plain form.
        """
        without = {
            "a search for terms": bool(required),
            "a diverse search": options.diversity > 0,
            "a search with a shortlist": options.shortlist is not None,
        }
        if asked := next((name for name, is_asked in without.items() if is_asked), None):
            raise ConfigError(f"{asked} has no plain form; leave out plain")
        sentences = sentences_of(sources, max_lengths, prefixes, neighbours=neighbours)
        # A decoder alone reads texts of one length at a time.
        most = 0 if self.model.config.is_decoder_alone else options.config.batch_tokens
        for indices in length_batches(list(map(len, sources)), most):
            batch = with_keys([sentences[index] for index in indices], self.keys_of)
            yield from zip(indices, self._searched(batch, options), strict=True)

    def _searched(self, sentences: list[Sentence], options: SearchOptions) -> list[list[Hypothesis]]:
        config, model = options.config, self.model
        allowed = AllowedTokens.of(model.config, config, self.parts)
        if options.sampling is not None:
            return self._samples(sentences, options.sampling, options.num_found, allowed)
        if config.beam_size == 1:
            hypotheses = greedy_search(
                model,
                [list(sentence.source) for sentence in sentences],
                max_lengths=[sentence.max_length for sentence in sentences],
                prefixes=[sentence.prefix for sentence in sentences],
                neighbours=[sentence.neighbours for sentence in sentences],
                allowed=allowed,
            )
            return [[hypothesis] for hypothesis in hypotheses]
        return beam_search(self, sentences, config, num_best=options.num_best)

    def _samples(
        self, sentences: list[Sentence], sampling: Sampling, count: int, allowed: AllowedTokens
    ) -> list[list[Hypothesis]]:
        """Return the samples of each sentence, drawn one after the other."""
        model, sources = self.model, [list(sentence.source) for sentence in sentences]

        def drawn(number: int) -> list[Hypothesis]:
            own = [torch.Generator().manual_seed(seed_of(sampling.seed, number, ids)) for ids in sources]

            def pick(log_probs: Tensor, rows: list[int]) -> Tensor:
                return draw_tokens(log_probs, [own[row] for row in rows], sampling)

            return token_by_token(model, DecodingBatch.encode(model, sources), sentences, allowed, pick)

        return [list(samples) for samples in zip(*map(drawn, range(count)), strict=True)]


class PlainSlots:
    """The sentences of a batch, which enter together and take every step together; see `engine.Slots`.

    Args:
        model: The module.
        beam_size: Maximum hypotheses of a sentence, K.
    """

    def __init__(self, model: Transformer, beam_size: int) -> None:
        self._model, self._beam_size = model, beam_size
        self._places: list[int] = []
        """The place in the batch of the sentence in each slot."""
        self._neighbours: list[Neighbours | None] = []
        self._has_left = False
        self.source_lengths: list[int] = []

    def encode(self, sentences: Sequence[Sentence]) -> list[Sentence]:
        """Return the sentences unchanged: `enter` encodes them as a batch."""
        return list(sentences)

    def enter(self, encoded: Sequence[Sentence]) -> None:
        """Assign the slots to sentences, once."""
        assert not self._places
        sources = [list(sentence.source) for sentence in encoded]
        self._batch = DecodingBatch.encode(self._model, sources, self._beam_size)
        self._places = list(range(len(sources)))
        self._neighbours = [sentence.neighbours for sentence in encoded]
        self.source_lengths = list(map(len, sources))

    def leave(self, slot: int) -> None:
        """Free a slot; the sentence in the last slot moves there."""
        leave_slot(slot, self._places, self._neighbours, self.source_lengths)
        self._has_left = True

    def step(self, active: Sequence[Beams]) -> list[Candidates]:
        """Run one decoder step and return the best candidates; see `engine.Slots`."""
        return list(best_continuations(active, self.log_probs(active), self._beam_size))

    def log_probs(self, active: Sequence[Beams]) -> Float[np.ndarray, "R V"]:
        """Run one decoder step and return all log-probabilities; see `engine.Slots`."""
        parents, newest, masks, numbers = [], [], [], []
        for slot, (place, beams) in enumerate(zip(self._places, active, strict=True)):
            # A batch has K rows of every sentence; those without a hypothesis repeat the first one.
            rows = [*range(len(beams.parents)), *[0] * (self._beam_size - len(beams.parents))]
            parents += [place * self._beam_size + beams.parents[row] for row in rows]
            newest += [beams.newest[row] for row in rows]
            masks += [beams.masks[row] for row in rows]
            numbers += [slot * self._beam_size + row for row in range(len(beams.parents))]
        near = [own for own in self._neighbours for _ in range(self._beam_size)]
        device = self._model.device
        # While all stay, what is of a sentence, such as the keys of its source, is not copied.
        kept = torch.tensor(self._places, device=device) if self._has_left else None
        self._batch.select(torch.tensor(parents, device=device), kept)
        self._places, self._has_left = list(range(len(active))), False
        log_probs = next_log_probs(self._model, self._batch, torch.tensor(newest, device=device), masks, near)
        return log_probs.numpy(force=True)[numbers]
