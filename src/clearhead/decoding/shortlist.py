"""A lexical shortlist: which target tokens each source token may become, and the search's choice among those alone.

A sentence is written in the tokens that are always allowed and in those of its own source tokens, about a thousand in
all. Its scores come from the rows of the output matrix that belong to them: far fewer products, and a far shorter
soft-max, than with the whole vocabulary. No other sentence has a say in what it is allowed.

Shapes: N lanes, K beams, R rows, D d_model, V source vocabulary, A tokens always allowed, P own tokens of a sentence,
C candidates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.decoding.lanes import Rows, lazy_zeros, rounded
from clearhead.decoding.packed import PackedModel
from clearhead.decoding.products import make_product
from clearhead.errors import ModelError
from clearhead.weights import read_weights, write_weights

__all__ = ["ListedTokens", "Shortlist"]

NONE = -1
"""Fills the rows of source tokens that allow fewer tokens than others."""


class Shortlist:
    """The target tokens that a translation may be written in; the end token always is one.

    Args:
        common: Tokens that every sentence may use: (A) in int32.
        rows: Target tokens that each source token allows, filled up with -1: (V, C) in int32.
        path: The file it was read from, for messages.
    """

    def __init__(self, common: Tensor, rows: Tensor, path: Path | None = None) -> None:
        # Whatever a file or a caller holds: `check` looks at types and shapes, and says what is wrong with them.
        self.common = common
        self.rows = rows
        self.path = path

    def check(self, *, vocab_size: int, source_vocab_size: int) -> None:
        """See that every number is one that a model can use; what uses a shortlist calls this first.

        Args:
            vocab_size: Target tokens of the model.
            source_vocab_size: Its source tokens.

        Raises:
            ModelError: If a type, a shape or a number is wrong.
        """
        fault = _fault("common", self.common, [None], 0, vocab_size)
        fault = fault or _fault("rows", self.rows, [source_vocab_size, None], NONE, vocab_size)
        if fault:
            name = "the shortlist" if self.path is None else f"the shortlist {self.path}"
            raise ModelError(f"{name} does not fit the model: {fault}; {_ADVICE}")

    def own_tokens(self, source: Sequence[int]) -> Int[Tensor, " P"]:
        """Return the tokens that a sentence may use beside the common ones, ascending."""
        tokens = self.rows[list(source)].unique()
        return tokens[tokens != NONE].long()

    def coverage(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> tuple[float, float]:
        """Return the share of target tokens that their sentences may use, and how many tokens a sentence may use.

        Args:
            sources: Source ids of each pair; at least one pair.
            targets: Target ids of each pair; at least one token in all.
        """
        common = set(self.common.tolist())
        covered = allowed_tokens = 0
        for source, target in zip(sources, targets, strict=True):
            allowed = common.union(self.own_tokens(source).tolist())
            allowed_tokens += len(allowed)
            covered += sum(token in allowed for token in target)
        return covered / sum(map(len, targets)), allowed_tokens / len(sources)

    def save(self, path: str | Path, model: Mapping[str, str]) -> None:
        """Write a file, whole or not at all.

        Args:
            path: A `.safetensors` file; an older one is replaced.
            model: What tells the model it was learned with from all others.

        Raises:
            ModelError: If it cannot be written.
        """
        tensors = {"common": self.common, "rows": self.rows}
        try:
            write_weights(path, tensors, {**model, "sha256": _sha256(tensors)})
        except OSError as error:
            raise ModelError(f"cannot write the shortlist {path}: {error.strerror or error}") from None

    @classmethod
    def load(cls, path: str | Path, model: Mapping[str, str]) -> Shortlist:
        """Read a file.

        Args:
            path: What `save` wrote.
            model: What tells the model it is wanted for from all others.

        Raises:
            ModelError: If the file is missing, damaged, or was learned with another model.
        """
        if not Path(path).is_file():
            raise ModelError(f"the model has no shortlist: there is no {path}; {_ADVICE}")
        try:
            tensors, metadata = read_weights(path)
        except ModelError:
            raise ModelError(f"the shortlist {path} is damaged; {_ADVICE}") from None
        if metadata.get("sha256") != _sha256(tensors) or tensors.keys() != {"common", "rows"}:
            raise ModelError(f"the shortlist {path} is damaged; {_ADVICE}")
        if any(metadata.get(name) != value for name, value in model.items()):
            raise ModelError(f"the shortlist {path} was learned with another model; {_ADVICE}")
        return cls(tensors["common"], tensors["rows"], Path(path))


def _fault(name: str, tensor: object, shape: Sequence[int | None], smallest: int, vocab_size: int) -> str | None:
    """Say what is wrong with a tensor of a shortlist, if anything is; an axis of any length is None in its shape."""
    if not isinstance(tensor, Tensor) or tensor.dtype != torch.int32:
        kind = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
        return f"`{name}` is {kind}, not a tensor of int32"
    sizes = tuple(tensor.shape)
    if len(sizes) != len(shape) or any(a not in (None, b) for a, b in zip(shape, sizes, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        return f"`{name}` has the shape {sizes}, not ({wanted})"
    if tensor.numel():
        least, most = (int(number) for number in tensor.aminmax())
        if least < smallest or most >= vocab_size:
            wrong = least if least < smallest else most
            return f"`{name}` holds {wrong}, which is no token of a vocabulary of {vocab_size}"
    return None


_ADVICE = "learn one with `clearhead optimize MODEL --source FILE --target FILE`"


class ListedTokens:
    """The search's choice among the tokens that each sentence in flight may use.

    A sentence's rows of the output matrix are copied to its lane when it enters. Those of the common tokens are one
    matrix for all. Products are in float32, whatever the precision of the others: they are few.

    Args:
        model: What translates.
        shortlist: Learned with it.

    Raises:
        ModelError: If the shortlist does not fit the model.
    """

    def __init__(self, model: PackedModel, shortlist: Shortlist) -> None:
        config = model.config
        shortlist.check(vocab_size=config.vocab_size, source_vocab_size=config.source_vocab_size or config.vocab_size)
        self.shortlist = shortlist
        self.weight, self.bias = model.output_weight, model.output_bias
        # The end comes first. Padding and start, which are never written, keep their share of the probability: a
        # shortlist that allows everything changes nothing.
        never = sorted({config.pad_id, config.bos_id} - {config.eos_id})
        others = [token for token in dict.fromkeys(shortlist.common.tolist()) if token not in {config.eos_id, *never}]
        self._never = slice(1, 1 + len(never))
        self._common = torch.tensor([config.eos_id, *never, *others], device=model.device)  # (A,)
        self._common_logits = make_product(
            [self.weight[self._common]], [None if self.bias is None else self.bias[self._common]], "fp32"
        )
        self._sizes: list[int] = []  # own tokens of each lane
        width = len(self._common)
        self._ids = self._common.new_zeros((0, width))  # (N, A + P)
        self._weights = self.weight.new_zeros((0, 0, self.weight.size(1)))  # (N, P, D)
        self._biases = self.weight.new_zeros((0, 1, 0))  # (N, 1, P); minus infinity where there is no token

    def enter(self, sources: Sequence[Sequence[int]]) -> None:
        """Give the next lanes to sentences."""
        owned = [self.shortlist.own_tokens(source).to(self.weight.device) for source in sources]
        owned = [tokens[~torch.isin(tokens, self._common)] for tokens in owned]  # none counts twice
        self._make_room(len(self._sizes) + len(owned), max(map(len, owned)))
        for lane, tokens in enumerate(owned, start=len(self._sizes)):
            size = len(tokens)
            self._ids[lane, : len(self._common)] = self._common
            self._ids[lane, len(self._common) :][:size] = tokens
            torch.index_select(self.weight, 0, tokens, out=self._weights[lane, :size])
            self._biases[lane] = float("-inf")
            self._biases[lane, 0, :size] = 0.0 if self.bias is None else self.bias[tokens]
        self._sizes += map(len, owned)

    def leave(self, lane: int) -> None:
        """Give up a lane; the last one moves there."""
        last = len(self._sizes) - 1
        if lane < last:
            size = self._sizes[last]
            self._ids[lane] = self._ids[last]
            self._weights[lane, :size] = self._weights[last, :size]
            self._biases[lane] = self._biases[last]
        self._sizes[lane] = self._sizes[last]
        self._sizes.pop()

    def best(
        self, states: Float[Tensor, "R D"], rows: Rows, is_last: Sequence[bool], count: int
    ) -> tuple[Float[Tensor, "R C"], Int[Tensor, "R C"]]:
        """Return log-probabilities and ids of the best next tokens of each row, best first; see `stepper.Choice`."""
        num_lanes, width = rows.num_lanes, max(self._sizes)
        own = torch.baddbmm(
            self._biases[:num_lanes, :, :width],
            rows.spread(states),
            self._weights[:num_lanes, :width].transpose(1, 2),
        )  # (N, K, P)
        logits = torch.cat([self._common_logits(states), rows.gather(own)], dim=1)  # (R, A + P)
        log_probs = logits.log_softmax(dim=-1)
        log_probs[:, self._never] = float("-inf")
        if any(is_last):
            log_probs[torch.tensor(is_last, device=log_probs.device), 1:] = float("-inf")
        values, places = log_probs.topk(min(count, log_probs.size(1)), dim=-1)
        return values, self._ids[rows.index[:, None] // rows.beam_size, places]

    def _make_room(self, num_lanes: int, width: int) -> None:
        """Make sure that there are so many lanes, and room for so many own tokens in each."""
        old_lanes, old_width = self._weights.shape[:2]
        if num_lanes <= old_lanes and width <= old_width:
            return
        lanes = old_lanes if num_lanes <= old_lanes else max(num_lanes, 2 * old_lanes)
        places = old_width if width <= old_width else rounded(max(width, 2 * old_width))
        kept, device = len(self._sizes), self.weight.device
        ids = self._ids.new_zeros((lanes, len(self._common) + places))
        biases = self._biases.new_full((lanes, 1, places), float("-inf"))
        # What a bias hides must be a number all the same, or the sums would be none.
        weights = lazy_zeros([lanes, places, self.weight.size(1)], device)
        ids[:kept, : self._ids.size(1)] = self._ids[:kept]
        biases[:kept, :, :old_width] = self._biases[:kept]
        for lane, size in enumerate(self._sizes):
            weights[lane, :size] = self._weights[lane, :size]
        self._ids, self._biases, self._weights = ids, biases, weights


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the hash of what a file holds; the weights of a model are checked by its config.json, these are not."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
