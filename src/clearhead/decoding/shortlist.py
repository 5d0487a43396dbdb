"""Lexical shortlist: the target tokens that each source token may become; its file format and its learning.

A sentence is written in the tokens that are always allowed and those of its own source tokens, about a thousand in all.
Its logits use only their rows of the output matrix: far fewer products and a far shorter softmax than over the whole
vocabulary. The allowed tokens do not depend on other sentences of a batch.

The shortlist is learned from parallel text. At the step that writes a token, cross-attention looks at the source tokens
that it translates. So its weights are summed over the text for every pair of source and target token.

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
from clearhead.files import os_error_as
from clearhead.files.tensors import read_weights, write_weights
from clearhead.model.transformer import Transformer

PER_TOKEN = 20
"""Default number of target tokens per source token."""
COMMON = 1_000
"""Default number of target tokens that are always allowed; all sentences share their output rows."""

LINKS = 3
"""Number of source tokens that each target token is linked to: those with the largest attention weights."""
BUFFER = 1 << 22
"""Number of entries collected before equal keys are summed."""

NONE = -1
"""Pads the rows of source tokens that allow fewer target tokens than others."""


class Shortlist:
    """The allowed target tokens of a translation; the end token always is one.

    Args:
        common: Tokens that every sentence may use: (A) in int32.
        rows: Target tokens that each source token allows, padded with -1: (V, C) in int32.
        path: The file it was read from, for messages.
    """

    def __init__(self, common: Tensor, rows: Tensor, path: Path | None = None) -> None:
        # Not validated here: `check` validates types and shapes, and reports what is wrong.
        self.common = common
        self.rows = rows
        self.path = path

    def check(self, model: ModelConfig) -> None:
        """Check that types, shapes and token ids fit a model; every user of a shortlist calls this first.

        Raises:
            ModelError: If a type, a shape or an id is wrong.
        """
        fault = _fault("common", self.common, [None], 0, model.vocab_size)
        fault = fault or _fault("rows", self.rows, [model.source_vocabulary, None], NONE, model.vocab_size)
        if fault:
            name = "the shortlist" if self.path is None else f"the shortlist {self.path}"
            raise ModelError(f"{name} does not fit the model: {fault}; {_ADVICE}")

    def own_tokens(self, source: Sequence[int]) -> Int[Tensor, " P"]:
        """Return the tokens that a source allows besides the common ones, ascending."""
        tokens = self.rows[list(source)].unique()
        return tokens[tokens != NONE].long()

    def tokens_for(self, sentence: Sentence) -> Int[Tensor, " P"]:
        """Return the tokens that the sentence's source and prefix allow besides the common ones, ascending."""
        own = self.own_tokens(sentence.source)
        return torch.cat([own, own.new_tensor(sentence.prefix.tokens)]).unique() if sentence.prefix.tokens else own

    def coverage(self, sources: Sequence[list[int]], targets: Sequence[list[int]]) -> tuple[float, float]:
        """Return the fraction of target tokens that are allowed, and the mean number of allowed tokens per sentence.

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
        """Write the shortlist to a file atomically.

        Args:
            path: A `.safetensors` file; an existing one is replaced.
            model: Metadata that identifies the model it was learned with.

        Raises:
            ModelError: If the file cannot be written.
        """
        tensors = {"common": self.common, "rows": self.rows}
        with os_error_as(ModelError, f"cannot write the shortlist {path}"):
            write_weights(path, tensors, {**model, "sha256": _sha256(tensors)})

    @classmethod
    def load(cls, path: str | Path, model: Mapping[str, str]) -> Shortlist:
        """Read a shortlist from a file.

        Args:
            path: A file written by `save`.
            model: Metadata that identifies the model it will be used with.

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
    """Return what is wrong with a tensor of a shortlist, or None; a None in `shape` accepts any length."""
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
    """Return the hash of a file's tensors; unlike model weights they have no hash in config.json."""
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
    """Learn from parallel text which target tokens each source token may become.

    Args:
        model: An encoder-decoder in evaluation mode.
        sources: Source ids, ended by `eos_id`.
        targets: Target ids, ended by `eos_id`.
        per_token: Maximum target tokens per source token; with a shared vocabulary, the token itself is one of them.
        common: Number of most frequent target tokens that are always allowed; the end token is one of them.
        batch_tokens: Tokens of the longer side per batch, padding included.
        on_progress: Called with the number of pairs finished, after each batch.
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
        # Allows copying of names, numbers and the like, even if this text does not contain them.
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
    """Return the attention links of each target token: keys (source id times V plus target id) and weights."""
    config = model.config
    weights = AlignmentHead().of(cross_attention_weights(model, source, target))
    # Attention often falls on the end of the source if nothing there is relevant.
    weights = weights.masked_fill(((source == config.eos_id) | (source == config.pad_id))[:, None], 0.0)
    weights, places = weights.topk(min(LINKS, weights.size(-1)), dim=-1)  # (B, T, LINKS)
    looked_at = source[:, None].expand(-1, target.size(1), -1).gather(2, places)
    keys = looked_at * config.vocab_size + target[..., None]
    counts = (weights > 0) & ((target != config.pad_id) & (target != config.eos_id))[..., None]
    return keys[counts].cpu(), weights[counts].cpu()


class _Counts:
    """Sums of weights by key; a table of all token pairs would not fit into memory."""

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
        """Return every distinct key, ascending, and its sum."""
        keys, places = torch.cat(self._keys).unique(return_inverse=True)
        sums = torch.zeros(len(keys)).index_add_(0, places, torch.cat(self._weights))
        self._keys, self._weights, self._waiting = [keys], [sums], 0
        return keys, sums


def _heaviest(
    keys: Int[Tensor, " E"], weights: Float[Tensor, " E"], num_sources: int, vocab_size: int, most: int
) -> Int[Tensor, "_ C"]:
    """Return for each source token the target tokens with the largest weights, largest first, padded with -1."""
    order = weights.argsort(descending=True, stable=True)
    order = order[(keys[order] // vocab_size).argsort(stable=True)]
    sources, targets = keys[order] // vocab_size, keys[order] % vocab_size
    starts = torch.searchsorted(sources, sources)  # start of each source token's entries
    ranks = torch.arange(len(sources)) - starts
    kept = ranks < most
    rows = torch.full((num_sources, most), NONE)
    rows[sources[kept], ranks[kept]] = targets[kept]
    return rows
