"""From hidden states to the best next tokens, of all or of a shortlist, and to candidates of each sentence.

Shapes: N slots, K beams, R rows (the active beams of all slots), D d_model, V vocabulary in whole blocks, A tokens that
a shortlist always allows, P own tokens of a sentence, C candidates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from clearhead.config import ModelConfig, Sampling
from clearhead.decoding.engine import Candidates, leave_slot
from clearhead.decoding.pytorch.slots import SlotRows, lazy_zeros, rounded
from clearhead.decoding.pytorch.weights import BLOCK, PackedModel
from clearhead.decoding.rules import candidates_of_sentence, never_written
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.shortlist import Shortlist
from clearhead.decoding.token_masks import Mask
from clearhead.kernels.products import make_product


def log_probs_of_all(
    model: PackedModel, hidden_states: Float[Tensor, "R D"], masks: Sequence[Mask | None]
) -> Float[Tensor, "R blocks"]:
    """Return the log-probabilities of all tokens after each row; minus infinity for tokens that are not allowed.

    The result has a whole number of blocks, so the last one may have columns beyond the vocabulary.

    Args:
        model: Packed weights of the model.
        hidden_states: The decoder's final hidden states.
        masks: Allowed next tokens of each row; None allows anything.
    """
    log_probs, never = model.log_probs(hidden_states), never_written(model.config)
    for row, mask in _restricted(log_probs, never, masks):
        log_probs[row, : len(mask)][~torch.from_numpy(mask).to(log_probs.device)] = float("-inf")
    return log_probs


def _restricted(
    log_probs: Float[Tensor, "R C"], never: list[int], masks: Sequence[Mask | None]
) -> Iterable[tuple[int, Mask]]:
    """Exclude never-written tokens from rows without a mask; return the masked rows, where only the mask counts."""
    free = torch.tensor([row for row, mask in enumerate(masks) if mask is None], dtype=torch.int64)
    log_probs[slice(None) if len(free) == len(masks) else free[:, None], never] = float("-inf")
    return [(row, mask) for row, mask in enumerate(masks) if mask is not None]


def best_candidates(scores: Float[Tensor, "R C"], tokens: Int[Tensor, "R C"], rows: SlotRows) -> list[Candidates]:
    """Return the best (score, beam, token) of each slot, best first."""
    count = scores.size(1)
    scores = rows.spread(scores, float("-inf"))  # (N, K, C)
    tokens = rows.spread(tokens)
    most = min(candidates_of_sentence(rows.beam_size), scores[0].numel())
    best, places = scores.flatten(1).topk(most, dim=-1)
    best_ids = tokens.flatten(1).gather(1, places)
    return [
        zip(slot_scores, beams, ids, strict=True)
        for slot_scores, beams, ids in zip(best.tolist(), (places // count).tolist(), best_ids.tolist(), strict=True)
    ]


def best_tokens(log_probs: Float[Tensor, "R V"], count: int) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
    """Return the `count` best tokens of each row, best first; V is a whole number of blocks.

    The best tokens are in the blocks with the best maxima, which one pass at full memory speed finds.
    """
    blocks = log_probs.unflatten(1, (-1, BLOCK))
    chosen = blocks.amax(dim=-1).topk(min(count, blocks.size(1)), dim=-1).indices  # (R, C)
    near = blocks.gather(1, chosen[..., None].expand(-1, -1, BLOCK)).flatten(1)
    tokens = torch.add(torch.arange(BLOCK, device=chosen.device), chosen[..., None], alpha=BLOCK).flatten(1)
    values, places = near.topk(min(count, near.size(1)), dim=-1)
    return values, tokens.gather(1, places)


def drawn_tokens(
    log_probs: Float[Tensor, "R V"], chances: Float[Tensor, " R"], sampling: Sampling
) -> Int[Tensor, "R 1"]:
    """Return the token of each row that `batched_sampling.draw_token` draws with a uniform number."""
    nothing, best = float("-inf"), log_probs.amax(dim=1, keepdim=True)
    least = math.log(sampling.epsilon) if sampling.epsilon > 0.0 else torch.finfo(log_probs.dtype).min
    scaled = (log_probs.double() - best) / sampling.temperature
    scaled = scaled.masked_fill(log_probs < best.clamp(max=least), nothing)
    if 0 < sampling.top_k < scaled.size(1):
        scaled = scaled.masked_fill(scaled < scaled.topk(sampling.top_k, dim=1).values[:, -1:], nothing)
    weights = scaled.exp()
    if sampling.top_p < 1.0:
        ordered, order = weights.sort(dim=1, descending=True, stable=True)
        cumulative = ordered.cumsum(dim=1)
        # A token stays if those before it sum to less than top_p.
        ordered = ordered.masked_fill(cumulative - ordered >= sampling.top_p * cumulative[:, -1:], 0.0)
        weights = weights.scatter(1, order, ordered)
    cumulative = weights.cumsum(dim=1)
    places = torch.searchsorted(cumulative, chances[:, None] * cumulative[:, -1:], right=True)
    return places.clamp(max=cumulative.size(1) - 1)


class ListMasks:
    """The tokens that a shortlist lacks for a sentence, as masks of the whole vocabulary.

    Args:
        config: The configuration of the model.
        shortlist: A shortlist learned with the model.
        device: Device of the masks.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, config: ModelConfig, shortlist: Shortlist, device: torch.device) -> None:
        shortlist.check(config)
        self._shortlist, self._eos_id, self._device = shortlist, config.eos_id, device
        self._uncommon = torch.ones(config.vocab_size, dtype=torch.bool, device=device)
        # What is never written keeps its share of the probability, as in `ListedTokens`.
        self._uncommon[[config.eos_id, *never_written(config), *shortlist.common.tolist()]] = False

    def unlisted(self, sentences: Sequence[Sentence]) -> Bool[Tensor, "N V"]:
        """Return True for the tokens that are not allowed in each sentence."""
        own = [torch.from_numpy(self._shortlist.tokens_for(sentence)).long() for sentence in sentences]
        listed = pad_sequence(own, batch_first=True, padding_value=self._eos_id).to(self._device)  # (N, P)
        return self._uncommon.repeat(len(sentences), 1).scatter_(1, listed, False)


class ListedTokens:
    """The output rows of the shortlist tokens of each sentence in flight; slots as in `SlotCache`.

    A sentence's rows of the output matrix are copied to its slot when it enters. The rows of the common tokens are one
    matrix for all sentences. Products are always in float32, because they are small.

    Args:
        model: Packed weights of the model.
        shortlist: A shortlist learned with the same model.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, model: PackedModel, shortlist: Shortlist) -> None:
        config = model.config
        shortlist.check(config)
        self.shortlist = shortlist
        self.weight, self.bias = model.output_weight, model.output_bias
        # The end token is first. Padding and start are never written, but keep their share of the probability, so that
        # a shortlist that allows everything changes nothing.
        never = never_written(config)
        others = [token for token in dict.fromkeys(shortlist.common.tolist()) if token not in {config.eos_id, *never}]
        self._never = list(range(1, 1 + len(never)))
        self._common = torch.tensor([config.eos_id, *never, *others], device=model.device)  # (A,)
        self._common_logits = make_product(
            [self.weight[self._common]], [None if self.bias is None else self.bias[self._common]], "fp32"
        )
        self._sizes: list[int] = []  # own tokens of each slot
        width = len(self._common)
        self._ids = self._common.new_zeros((0, width))  # (N, A + P)
        self._weights = self.weight.new_zeros((0, 0, self.weight.size(1)))  # (N, P, D)
        self._biases = self.weight.new_zeros((0, 1, 0))  # (N, 1, P); minus infinity in unused places

    def enter(self, sentences: Sequence[Sentence]) -> None:
        """Assign the next free slots to sentences."""
        own_tokens = (torch.from_numpy(self.shortlist.tokens_for(sentence)) for sentence in sentences)
        owned = [tokens.to(self.weight.device, torch.int64) for tokens in own_tokens]
        owned = [tokens[~torch.isin(tokens, self._common)] for tokens in owned]  # no token may count twice
        self._make_room(len(self._sizes) + len(owned), max(map(len, owned)))
        for slot, tokens in enumerate(owned, start=len(self._sizes)):
            size = len(tokens)
            self._ids[slot, : len(self._common)] = self._common
            self._ids[slot, len(self._common) :][:size] = tokens
            torch.index_select(self.weight, 0, tokens, out=self._weights[slot, :size])
            self._biases[slot] = float("-inf")
            self._biases[slot, 0, :size] = 0.0 if self.bias is None else self.bias[tokens]
        self._sizes += map(len, owned)

    def leave(self, slot: int) -> None:
        """Free a slot; the last one moves there."""
        last = len(self._sizes) - 1
        if slot < last:
            size = self._sizes[last]
            self._ids[slot] = self._ids[last]
            self._weights[slot, :size] = self._weights[last, :size]
            self._biases[slot] = self._biases[last]
        leave_slot(slot, self._sizes)

    def best(
        self, hidden_states: Float[Tensor, "R D"], rows: SlotRows, masks: Sequence[Mask | None], count: int
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
        """Return log-probabilities and ids of each row's best next tokens, best first; see `best_tokens`."""
        num_slots, width, hidden_states = rows.num_slots, max(self._sizes), hidden_states.float()
        own = torch.baddbmm(
            self._biases[:num_slots, :, :width],
            rows.spread(hidden_states),
            self._weights[:num_slots, :width].transpose(1, 2),
        )  # (N, K, P)
        logits = torch.cat([self._common_logits(hidden_states), rows.gather(own)], dim=1)  # (R, A + P)
        log_probs = logits.log_softmax(dim=-1)
        ids = self._ids[rows.index // rows.beam_size, : log_probs.size(1)]  # (R, A + P)
        for row, mask in _restricted(log_probs, self._never, masks):
            log_probs[row, ~torch.from_numpy(mask).to(log_probs.device)[ids[row]]] = float("-inf")
        values, places = log_probs.topk(min(count, log_probs.size(1)), dim=-1)
        return values, ids.gather(1, places)

    def _make_room(self, num_slots: int, width: int) -> None:
        """Grow to at least `num_slots` slots of at least `width` own tokens each."""
        old_slots, old_width = self._weights.shape[:2]
        if num_slots <= old_slots and width <= old_width:
            return
        slots = old_slots if num_slots <= old_slots else max(num_slots, 2 * old_slots)
        places = old_width if width <= old_width else rounded(max(width, 2 * old_width))
        kept = len(self._sizes)
        ids = self._ids.new_zeros((slots, len(self._common) + places))
        biases = self._biases.new_full((slots, 1, places), float("-inf"))
        # Values masked by a bias must still be finite, because the bias is added to them.
        weights = lazy_zeros([slots, places, self.weight.size(1)], self.weight)
        ids[:kept, : self._ids.size(1)] = self._ids[:kept]
        biases[:kept, :, :old_width] = self._biases[:kept]
        for slot, size in enumerate(self._sizes):
            weights[slot, :size] = self._weights[slot, :size]
        self._ids, self._biases, self._weights = ids, biases, weights
