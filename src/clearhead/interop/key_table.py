"""Key tables: the mapping between tensors of another library's model and ours, in both directions.

A table accounts for every tensor: a row maps it, or an entry leaves it out with a reason. Any other tensor is an
error, so no model is read incompletely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import torch
from torch import Tensor

from clearhead.config.choices import Tying
from clearhead.files.arrays import raise_problems


@dataclass(frozen=True)
class Layout:
    """How our tensors are arranged in one of theirs.

    A layout only moves numbers, so it converts gradients just like weights.
    """

    name: str
    """Name of the layout, for error messages."""
    axes: tuple[int, ...]
    """Allowed numbers of axes of their tensor; empty for any."""
    split: Callable[[Tensor, int], Sequence[Tensor]]
    """Split their tensor into a given number of our tensors."""
    join: Callable[[Sequence[Tensor]], Tensor]
    """Join our tensors to theirs."""


SAME = Layout("same", (), lambda theirs, _: [theirs], lambda ours: ours[0])
TRANSPOSED = Layout("transposed", (2,), lambda theirs, _: [theirs.T], lambda ours: ours[0].T)
"""The input axis comes before the output axis, as in GPT-2's Conv1D."""
STACKED = Layout("stacked", (1, 2), lambda theirs, count: theirs.chunk(count), lambda ours: torch.cat(list(ours)))
"""Several projections stacked in one matrix, as in torch's `in_proj_weight`."""
STACKED_TRANSPOSED = Layout(
    "stacked and transposed", (2,), lambda theirs, count: theirs.T.chunk(count), lambda ours: torch.cat(list(ours)).T
)
"""Stacked and transposed, as in GPT-2's `c_attn`."""
ONE_ROW = Layout("one row", (2,), lambda theirs, _: [theirs.flatten()], lambda ours: ours[0][None])
"""A vector stored as a matrix of one row, as in `final_logits_bias`."""
AFTER_TWO_ROWS = Layout(
    "after two rows",
    (2,),
    lambda theirs, _: [theirs[2:]],
    lambda ours: torch.cat([ours[0].new_zeros(2, ours[0].size(1)), ours[0]]),
)
"""Two unused rows precede ours, as in BART's learned positions; they are written as zeros."""


@dataclass(frozen=True)
class KeyRow:
    """One of their tensors and the tensors of our model that it contains."""

    ours: tuple[str, ...]
    """Names of our tensors in it; `{i}` is the layer number."""
    theirs: str
    """Their main name, which an export writes."""
    layout: Layout = SAME
    """Arrangement of our tensors in theirs."""
    also: tuple[str, ...] = ()
    """Other names under which a file may store the same tensor; all copies must be equal."""
    zeros: tuple[int, ...] | None = None
    """Shape of their tensor, if a file without it means zeros."""


@dataclass(frozen=True)
class Computed:
    """A tensor that our model computes, with only the rows needed, as settings may name a huge number of rows."""

    make: Callable[[int], Tensor]
    """Return the first rows of the tensor, as many as requested."""
    rows: int
    """Number of rows in their model."""


@dataclass(frozen=True)
class LeftOut:
    """Their tensors that our model does not need."""

    pattern: str
    """Pattern of their names; `*` matches anything."""
    reason: str
    """Why nothing is lost by leaving them out."""
    computed: Computed | None = None
    """Tensor that our model computes instead; the rows of a stored tensor must agree with it."""


def pair(ours: str, theirs: str, layout: Layout = SAME) -> list[KeyRow]:
    """Return the rows of a module with weight and bias; the layout applies to the weight."""
    return [KeyRow((f"{ours}.weight",), f"{theirs}.weight", layout), KeyRow((f"{ours}.bias",), f"{theirs}.bias")]


def target_rows(words: str, output: str, *, are_one: bool) -> list[KeyRow]:
    """Return the rows of the target embedding and of the linear map before the softmax, which may be tied.

    Args:
        words: Their name of the embedding.
        output: Their name of the linear map.
        are_one: Whether the two are tied.
    """
    if are_one:
        return [KeyRow(("target_embedding.weight",), words, also=(output,))]
    return [KeyRow(("target_embedding.weight",), words), KeyRow(("output_proj.weight",), output)]


TYINGS: Mapping[tuple[bool, bool], Tying] = {
    (True, True): "three-way",
    (True, False): "embeddings",
    (False, True): "decoder",
    (False, False): "none",
}
"""Whether both embeddings are one matrix, and whether the target's is also the output, to the setting `tying`."""


def embedding_rows(tying: Tying, source: str, target: str, output: str) -> list[KeyRow]:
    """Return the rows of both embeddings and of the linear map before the softmax; files may repeat a tied matrix.

    Args:
        tying: Which of the three matrices are tied, as in `[model]`.
        source: Their name of the source embedding.
        target: Their name of the target embedding.
        output: Their name of the linear map.
    """
    match tying:
        case "three-way":
            return [KeyRow(("source_embedding.weight",), source, also=(target, output))]
        case "embeddings":
            return [
                KeyRow(("source_embedding.weight",), source, also=(target,)),
                KeyRow(("output_proj.weight",), output),
            ]
        case _:
            rows = target_rows(target, output, are_one=tying == "decoder")
            return [KeyRow(("source_embedding.weight",), source), *rows]


def numbered(rows: Iterable[KeyRow], count: int, *, ours: str, theirs: str) -> list[KeyRow]:
    """Return the rows of all layers.

    Args:
        rows: Rows of one layer.
        count: Number of layers.
        ours: Prefix of our names, with `{i}` for the layer number.
        theirs: Prefix of their names, with `{i}` for the layer number.
    """
    return [
        replace(
            row,
            ours=tuple(ours.format(i=number) + name for name in row.ours),
            theirs=theirs.format(i=number) + row.theirs,
        )
        for number in range(count)
        for row in rows
    ]


@dataclass(frozen=True)
class KeyTable:
    """Mapping of all tensors of a model between both libraries.

    Layouts only move numbers, so a table also converts gradients.
    """

    rows: tuple[KeyRow, ...]
    left_out: tuple[LeftOut, ...] = ()
    prefix: str = ""
    """Prefix of a model's names inside a model with a head; files may have or omit it."""

    def from_theirs(self, state: Mapping[str, Tensor], *, origin: str = "the state") -> dict[str, Tensor]:
        """Return our tensors from theirs.

        Args:
            state: All tensors of their model or file, by name.
            origin: Name of the source, for the error message.

        Raises:
            ModelError: Listing every tensor that is missing, unknown, or contradicts another.
        """
        names = {name.removeprefix(self.prefix): name for name in state}
        tensors: dict[str, Tensor] = {}
        problems = [f"unknown   {name}, beside {self.prefix}{name}" for name in state.keys() - set(names.values())]
        for row in self.rows:
            wanted = [name.removeprefix(self.prefix) for name in (row.theirs, *row.also)]
            present = [names.pop(name) for name in wanted if name in names]
            if not present and row.zeros is None:
                problems.append(f"missing   {row.theirs}")
                continue
            theirs = state[present[0]] if present else torch.zeros(row.zeros or ())
            problems += [
                f"differs   {other} from {present[0]}, with which it should be one"
                for other in present[1:]
                if not torch.equal(state[other], theirs)
            ]
            if row.layout.axes and theirs.dim() not in row.layout.axes:
                wanted_axes = " or ".join(map(str, row.layout.axes))
                problems.append(f"shape     {present[0]}  {tuple(theirs.shape)}, not of {wanted_axes} axes")
                continue
            parts = [theirs] if row.layout is SAME else _copies(row.layout.split(theirs, len(row.ours)))
            if len(parts) != len(row.ours):
                problems.append(f"shape     {present[0]}  {tuple(theirs.shape)}, not {len(row.ours)} parts")
                continue
            tensors.update(zip(row.ours, parts, strict=True))
        for bare, name in names.items():
            problems += self._problems_of_left_out(bare, name, state[name])
        raise_problems(problems, f"{origin} does not fit this kind of model")
        return tensors

    def to_theirs(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return their tensors from ours, each once; tied copies and computed tensors are not written.

        Args:
            tensors: All tensors of our model, see `clearhead.files.tensors.model_tensors`.

        Raises:
            ModelError: Listing every tensor that is missing or has no place in their model.
        """
        mapped = [name for row in self.rows for name in row.ours]
        problems = [f"missing   {name}" for name in mapped if name not in tensors]
        problems += [f"unknown   {name}" for name in tensors.keys() - set(mapped)]
        raise_problems(problems, "these tensors do not fit their kind of model")
        state = {}
        for row in self.rows:
            ours = [tensors[name] for name in row.ours]
            state[row.theirs] = ours[0] if row.layout is SAME else _copies([row.layout.join(ours)])[0]
        return state

    def _problems_of_left_out(self, bare: str, name: str, tensor: Tensor) -> list[str]:
        known = [entry for entry in self.left_out if fnmatchcase(bare, entry.pattern.removeprefix(self.prefix))]
        if not known:
            return [f"unknown   {name}  {tuple(tensor.shape)}"]
        computed = known[0].computed
        if computed is None:
            return []
        row = tuple(computed.make(0).shape[1:])
        if tensor.dim() == 0 or tensor.shape[1:] != row:
            return [f"shape     {name}  {tuple(tensor.shape)}, not rows of {row}"]
        rows = min(computed.rows, len(tensor))
        # The file may be in half precision; a table of another formula would differ by about 1.
        if torch.allclose(tensor[:rows].float(), computed.make(rows), atol=1e-2):
            return []
        return [f"differs   {name} from what this model computes there"]


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return contiguous copies of tensors, which safetensors files require."""
    return [tensor.clone(memory_format=torch.contiguous_format) for tensor in tensors]
