"""A lexical shortlist: which target tokens each source token may become; its file, and how it is learned.

A sentence is written in the tokens that are always allowed and in those of its own source tokens, about a thousand in
all. Its scores come from the rows of the output matrix that belong to them: far fewer products, and a far shorter
softmax, than with the whole vocabulary. No other sentence has a say in what it is allowed.

It is learned from parallel text: cross-attention that is about to write a token looks at the source tokens it
translates, so its weights are summed over the text for every pair of a source and a target token that met.

Shapes: V source vocabulary, A tokens always allowed, C tokens that a source token allows, P own tokens of a sentence,
B pairs, T target length, S source length, E entries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.decoding.batching import advice_on_memory, length_batches
from clearhead.decoding.cross_attention import AlignmentHead, cross_attention_weights
from clearhead.decoding.sentence import Sentence
from clearhead.decoding.step import pad_batch
from clearhead.errors import ModelError
from clearhead.files.tensors import read_weights, write_weights
from clearhead.model.transformer import Transformer

__all__ = ["COMMON", "PER_TOKEN", "Shortlist", "learn_shortlist"]

PER_TOKEN = 20
"""Target tokens that a source token allows, unless told otherwise."""
COMMON = 1_000
"""Target tokens that are always allowed, unless told otherwise; all sentences share their matrix."""

LINKS = 3
"""Source tokens that a target token is counted with: those it looks at most."""
BUFFER = 1 << 22
"""Entries gathered before equal ones are summed."""

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

    def check(self, model: ModelConfig) -> None:
        """Check that every number is one that a model can use; what uses a shortlist calls this first.

        Raises:
            ModelError: If a type, a shape or a number is wrong.
        """
        fault = _fault("common", self.common, [None], 0, model.vocab_size)
        fault = fault or _fault("rows", self.rows, [model.source_vocabulary, None], NONE, model.vocab_size)
        if fault:
            name = "the shortlist" if self.path is None else f"the shortlist {self.path}"
            raise ModelError(f"{name} does not fit the model: {fault}; {_ADVICE}")

    def own_tokens(self, source: Sequence[int]) -> Int[Tensor, " P"]:
        """Return the tokens that a source allows beside the common ones, ascending."""
        tokens = self.rows[list(source)].unique()
        return tokens[tokens != NONE].long()

    def tokens_for(self, sentence: Sentence) -> Int[Tensor, " P"]:
        """Return the tokens that a sentence may use: those of its source and of its prefix, ascending."""
        own = self.own_tokens(sentence.source)
        return torch.cat([own, own.new_tensor(sentence.prefix.tokens)]).unique() if sentence.prefix.tokens else own

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


def _sha256(tensors: Mapping[str, Tensor]) -> str:
    """Return the hash of what a file holds; the weights of a model are checked by its config.json, these are not."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


@torch.inference_mode()
def learn_shortlist(
    model: Transformer,
    sources: Sequence[list[int]],
    targets: Sequence[list[int]],
    *,
    per_token: int = PER_TOKEN,
    common: int = COMMON,
    batch_tokens: int,
    on_progress: Callable[[int], None] | None = None,
) -> Shortlist:
    """Learn from translations which target tokens each source token may become.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        per_token: Most target tokens that a source token allows; where both sides share a vocabulary, itself is one.
        common: Most frequent target tokens, which are always allowed; the end token is one.
        batch_tokens: Tokens of the longer side computed at once, padding included.
        on_progress: Called with the number of pairs finished, batch by batch.
    """
    config = model.config
    num_sources = config.source_vocabulary
    frequencies = torch.zeros(config.vocab_size, dtype=torch.int64)
    counts = _Counts()
    lengths = [max(len(source), len(target)) for source, target in zip(sources, targets, strict=True)]
    for indices in length_batches(lengths, batch_tokens):
        source, target = (pad_batch([side[i] for i in indices], config.pad_id) for side in (sources, targets))
        frequencies += target.flatten().bincount(minlength=config.vocab_size)
        with advice_on_memory(batch_tokens):
            counts.add(*_links(model, source.to(model.device), target.to(model.device)))
        if on_progress is not None:
            on_progress(len(indices))

    frequencies[[config.pad_id, config.bos_id]] = 0
    frequencies[config.eos_id] = max(map(len, [*targets, []])) * len(targets) + 1
    always = frequencies.topk(min(common, int((frequencies > 0).sum()))).indices
    if num_sources == config.vocab_size:
        # Names, numbers and whatever else is copied, also what this text does not hold.
        tokens = torch.arange(num_sources)
        tokens = tokens[(tokens != config.pad_id) & (tokens != config.bos_id) & (tokens != config.eos_id)]
        counts.add(tokens * config.vocab_size + tokens, torch.full(tokens.shape, float("inf")))
    keys, weights = counts.totals()
    is_own = torch.ones(config.vocab_size, dtype=torch.bool)
    is_own[always] = False
    is_own[[config.pad_id, config.bos_id]] = False
    kept = is_own[keys % config.vocab_size]
    return Shortlist(
        always.int(), _heaviest(keys[kept], weights[kept], num_sources, config.vocab_size, per_token).int()
    )


def _links(
    model: Transformer, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]
) -> tuple[Int[Tensor, " E"], Float[Tensor, " E"]]:
    """Return what each target token looked at before it was written: source id times V plus target id, and weight."""
    config = model.config
    weights = AlignmentHead().of(cross_attention_weights(model, source, target))
    # Much attention rests on the end of the source, when nothing is to be found there.
    weights = weights.masked_fill(((source == config.eos_id) | (source == config.pad_id))[:, None], 0.0)
    weights, places = weights.topk(min(LINKS, weights.size(-1)), dim=-1)  # (B, T, LINKS)
    looked_at = source[:, None].expand(-1, target.size(1), -1).gather(2, places)
    keys = looked_at * config.vocab_size + target[..., None]
    counts = (weights > 0) & ((target != config.pad_id) & (target != config.eos_id))[..., None]
    return keys[counts].cpu(), weights[counts].cpu()


class _Counts:
    """Sums by key; a table of all pairs of tokens would not fit into memory."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = [torch.empty(0, dtype=torch.int64)]
        self._weights: list[Tensor] = [torch.empty(0)]
        self._waiting = 0

    def add(self, keys: Int[Tensor, " E"], weights: Float[Tensor, " E"]) -> None:
        """Add weights to the sums of their keys."""
        self._keys.append(keys)
        self._weights.append(weights)
        self._waiting += len(keys)
        if self._waiting > BUFFER:
            self.totals()

    def totals(self) -> tuple[Int[Tensor, " E"], Float[Tensor, " E"]]:
        """Return every key once, ascending, and its sum."""
        keys, places = torch.cat(self._keys).unique(return_inverse=True)
        sums = torch.zeros(len(keys)).index_add_(0, places, torch.cat(self._weights))
        self._keys, self._weights, self._waiting = [keys], [sums], 0
        return keys, sums


def _heaviest(
    keys: Int[Tensor, " E"], weights: Float[Tensor, " E"], num_sources: int, vocab_size: int, most: int
) -> Int[Tensor, "_ C"]:
    """Return for each source token the target tokens of most weight, heaviest first, filled up with -1."""
    order = weights.argsort(descending=True, stable=True)
    order = order[(keys[order] // vocab_size).argsort(stable=True)]
    sources, targets = keys[order] // vocab_size, keys[order] % vocab_size
    starts = torch.searchsorted(sources, sources)  # where each one's row begins
    ranks = torch.arange(len(sources)) - starts
    kept = ranks < most
    rows = torch.full((num_sources, most), NONE)
    rows[sources[kept], ranks[kept]] = targets[kept]
    return rows
