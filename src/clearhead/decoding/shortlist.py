"""Lexical shortlist: the target tokens that each source token may become; and its file format.

A sentence is written in the tokens that are always allowed and those of its own source tokens, about a thousand in all.
Its logits use only their rows of the output matrix: far fewer products and a far shorter softmax than over the whole
vocabulary. The allowed tokens do not depend on other sentences of a batch.

It is learned from parallel text (`shortlist_learning`).

Shapes: V source vocabulary, A tokens always allowed, C tokens that a source token allows, P own tokens of a sentence.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from clearhead.config import ModelConfig
from clearhead.decoding.sentence import Sentence
from clearhead.errors import ModelError
from clearhead.files import os_error_as
from clearhead.files.arrays import read_arrays, write_arrays

if TYPE_CHECKING:
    from jaxtyping import Int

NONE = -1
"""Pads the rows of source tokens that allow fewer target tokens than others."""


class Shortlist:
    """The allowed target tokens of a translation; the end token always is one.

    Args:
        common: Tokens that every sentence may use: (A) in int32.
        rows: Target tokens that each source token allows, padded with -1: (V, C) in int32.
        path: The file it was read from, for messages.
    """

    def __init__(self, common: np.ndarray, rows: np.ndarray, path: Path | None = None) -> None:
        # Not validated here: `check` validates types and shapes, and reports what is wrong.
        self.common = common
        self.rows = rows
        self.path = path

    def with_common(self, tokens: Int[np.ndarray, " A"]) -> Shortlist:
        """Return a shortlist that allows further tokens always."""
        return Shortlist(np.union1d(self.common, tokens.astype(np.int32)), self.rows, self.path)

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

    def own_tokens(self, source: Sequence[int]) -> Int[np.ndarray, " P"]:
        """Return the tokens that a source allows besides the common ones, ascending."""
        tokens = np.unique(self.rows[list(source)])
        return tokens[tokens != NONE]

    def tokens_for(self, sentence: Sentence) -> Int[np.ndarray, " P"]:
        """Return the tokens that a sentence's source and prefix allow besides the common ones, ascending, in int32."""
        own = self.own_tokens(sentence.source)
        return np.union1d(own, np.array(sentence.prefix.tokens, dtype=np.int32)) if sentence.prefix.tokens else own

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
        arrays = {"common": self.common, "rows": self.rows}
        with os_error_as(ModelError, f"cannot write the shortlist {path}"):
            write_arrays(path, arrays, {**model, "sha256": _sha256(arrays)})

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
            arrays, metadata = read_arrays(path)
        except ModelError:
            raise ModelError(f"the shortlist {path} is damaged; {_ADVICE}") from None
        if metadata.get("sha256") != _sha256(arrays) or arrays.keys() != {"common", "rows"}:
            raise ModelError(f"the shortlist {path} is damaged; {_ADVICE}")
        if any(metadata.get(name) != value for name, value in model.items()):
            raise ModelError(f"the shortlist {path} was learned with another model; {_ADVICE}")
        return cls(arrays["common"], arrays["rows"], Path(path))


def _fault(name: str, array: object, shape: Sequence[int | None], smallest: int, vocab_size: int) -> str | None:
    """Return what is wrong with an array of a shortlist, or None; a None in `shape` accepts any length."""
    if not isinstance(array, np.ndarray) or array.dtype != np.int32:
        kind = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        return f"`{name}` is {kind}, not an array of int32"
    sizes = array.shape
    if len(sizes) != len(shape) or any(a not in (None, b) for a, b in zip(shape, sizes, strict=True)):
        wanted = ", ".join("any" if size is None else str(size) for size in shape)
        return f"`{name}` has the shape {sizes}, not ({wanted})"
    if array.size:
        least, most = int(array.min()), int(array.max())
        if least < smallest or most >= vocab_size:
            wrong = least if least < smallest else most
            return f"`{name}` holds {wrong}, which is no token of a vocabulary of {vocab_size}"
    return None


_ADVICE = "learn one with `clearhead optimize MODEL --source FILE --target FILE`"


def _sha256(arrays: Mapping[str, np.ndarray]) -> str:
    """Return the hash of a file's arrays."""
    digest = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        digest.update(f"{name} torch.{array.dtype} {array.shape}".encode())  # as PyTorch names the type
        digest.update(array.tobytes())
    return digest.hexdigest()
