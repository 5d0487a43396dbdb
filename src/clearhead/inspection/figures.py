"""Figures of an explanation or a comparison as plain values: heads, alignment, search tree, ablation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from clearhead.errors import ConfigError, DataError
from clearhead.inspection.canvas import literal, token_label
from clearhead.inspection.compare import ExplanationComparison
from clearhead.inspection.explanation import Explanation
from clearhead.inspection.heads import ATTENTIONS, AttentionName
from clearhead.inspection.pictures import HeadGrid, HeadValues, Links, Tree, TreeNode
from clearhead.inspection.plots import Figure, HeatMap
from clearhead.inspection.tokens import Span
from clearhead.text.lines import shortened
from clearhead.tokenizers.spans import UNREADABLE

if TYPE_CHECKING:
    from jaxtyping import Float

PICTURES = {
    "heads": "every head of every layer as a small map",
    "cross.2.1": "one head: attention (encoder, decoder or cross), layer and head, counted from 1",
    "alignment": "where each target token looked, by the head that aligns words",
    "links": "the same as lines between source and translation",
    "tree": "the beam search",
    "ablation": "what is lost without each head",
}
"""The figures that can be drawn of an explanation."""

_TITLES: dict[AttentionName, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
_MOST_STEPS = 60
"""Most steps of a search shown in a figure."""


def figure_of(explanation: Explanation, picture: str = "heads") -> Figure:
    """Return one of `PICTURES` of an explanation.

    Raises:
        ConfigError: If there is no such figure.
        DataError: If the explanation lacks the data for it.
    """
    require_picture(picture)
    match picture:
        case "heads":
            parts = [(_TITLES[name], _masked(name, weights)) for name, weights in explanation.attentions.items()]
            return HeadGrid(_title(explanation), parts, "rows ask, columns are looked at; each row sums to 1")
        case "alignment" | "links":
            if not len(explanation.alignment):
                raise DataError("there is no alignment: the model has no cross-attention")
            axes = _target_labels(explanation), _source_labels(explanation)
            if picture == "links":
                return Links("", axes[1], axes[0], explanation.alignment, str(explanation.alignment_head))
            title = f"{_title(explanation)}\n{explanation.alignment_head}"
            return _map(title, explanation.alignment, *axes, "target token")
        case "tree":
            return _tree(explanation)
        case "ablation":
            return _ablation(explanation)
    name, layer, head = picture.split(".")
    return _head(explanation, cast(AttentionName, name), int(layer), int(head))


def require_picture(picture: str) -> None:
    """Make sure that a name is one of `PICTURES`, or a head in the form of its example.

    Raises:
        ConfigError: If it is neither.
    """
    if picture not in PICTURES and not re.fullmatch(rf"({'|'.join(ATTENTIONS)})\.\d{{1,9}}\.\d{{1,9}}", picture):
        raise ConfigError(f"there is no picture {picture!r}; there are {', '.join(PICTURES)}")


def comparison_figure(comparison: ExplanationComparison) -> Figure:
    """Return a figure of the distance of every head between two explanations.

    Raises:
        DataError: If the models differ in shape, or the texts share no token.
    """
    parts = [(_TITLES[name], values) for name, values in comparison.heads.items() if values is not None]
    if not parts:
        raise DataError("there is nothing to draw: the models differ in shape, or the texts share no token")
    caption = "total variation of the rows that both have: 0 is the same, 1 is nothing in common"
    return HeadValues("How far every head is from the other's", parts, "distance", caption=caption)


def _head(explanation: Explanation, name: AttentionName, layer: int, head: int) -> HeatMap:
    weights = explanation.attentions.get(name)
    if weights is None or not (1 <= layer <= weights.shape[0] and 1 <= head <= weights.shape[1]):
        shapes = [f"{side} has {len(part)} layers of {part.shape[1]}" for side, part in explanation.attentions.items()]
        raise DataError(f"there is no head {name}.{layer}.{head}; {', '.join(shapes)} heads, counted from 1")
    title = f"{_TITLES[name]}, layer {layer}, head {head}"
    source = _source_labels(explanation)
    begun = source if explanation.kind == "decoder" else [token_label(explanation.start_token)]
    read = source if name == "encoder" else [*begun, *_target_labels(explanation)[:-1]]
    keys = read if name == "decoder" else source
    return _map(title, _masked(name, weights[layer - 1, head - 1]), read, keys, "read")


def _masked(name: AttentionName, weights: Float[np.ndarray, "*LH T S"]) -> Float[np.ndarray, "*LH T S"]:
    """Return weights with NaN where the causal mask of a decoder hides a key."""
    return np.where(np.tri(*weights.shape[-2:]) > 0, weights, np.nan) if name == "decoder" else weights


def _map(
    title: str, values: Float[np.ndarray, "T S"], rows: Sequence[str], columns: Sequence[str], row_label: str
) -> HeatMap:
    return HeatMap(
        title,
        values.tolist(),
        x_label="looked at",
        y_label=row_label,
        value_label="weight",
        x_names=columns,
        y_names=rows,
        are_shares=True,
    )


def _source_labels(explanation: Explanation) -> list[str]:
    return _labels(explanation.source_tokens, explanation.source_spans, explanation.source)


def _target_labels(explanation: Explanation) -> list[str]:
    return _labels(explanation.target_tokens, explanation.target_spans, explanation.translation)


def _labels(tokens: Sequence[str], spans: Sequence[Span | None], text: str) -> list[str]:
    """Return the labels of tokens; if several are part of one character, the first is labelled with the character."""
    labels = []
    for place, token in enumerate(tokens):
        span = spans[place] if place < len(spans) else None
        if UNREADABLE not in token or span is None:
            labels.append(token_label(token))
        elif place and spans[place - 1] == span:
            labels.append("〃")  # ditto mark
        else:
            labels.append(token_label(text[slice(*span)]))
    return labels


def _tree(explanation: Explanation) -> Tree:
    if explanation.search is None:
        raise DataError("there is no search to draw: it was not recorded, or the model writes nothing")
    search = explanation.to_search()
    nodes = [
        TreeNode(
            node["parent"],
            node["step"],
            node["token"],
            f"{np.exp(node['log_prob']):.1%}  {node['rank_score']:.2f}",
            "chosen" if node["is_chosen"] else node["fate"],
        )
        for node in search["nodes"]
        if node["step"] <= _MOST_STEPS
    ]
    steps = search["nodes"][-1]["step"]
    caption = "below each token: its probability, and log-probability over length penalty of the hypothesis; "
    caption += "blue: chosen, green: finished, black: went on, grey: pruned"
    if steps > _MOST_STEPS:
        caption += f"; the first {_MOST_STEPS} of {steps} steps"
    return Tree(f"Beam search of {search['beam_size']}", nodes, caption)


def _ablation(explanation: Explanation) -> HeadValues:
    if (ablation := explanation.ablation) is None:
        raise DataError("there is no ablation to draw; ask for it (--ablate)")
    parts = []
    for name in ATTENTIONS:
        heads = [head for head in ablation.heads if head.attention == name]
        if heads:
            shape = max(head.layer for head in heads) + 1, max(head.head for head in heads) + 1
            values = np.zeros(shape)
            for head in heads:
                if head.test_set is not None and ablation.test_set is not None:
                    values[head.layer, head.head] = head.test_set.loss - ablation.test_set.loss
                else:
                    values[head.layer, head.head] = ablation.score - head.score
            parts.append((_TITLES[name], values))
    if ablation.test_set is not None:
        label, caption = "loss gained, nats per token", f"over {ablation.num_sentences:,} sentences"
    else:
        label, caption = "log-probability lost, nats", f"of the translation “{_short(ablation.translation)}”"
    return HeadValues("What is lost without each head", parts, label, diverging=True, caption=caption)


def _title(explanation: Explanation) -> str:
    return _short(explanation.source) + (f"\n→ {_short(explanation.translation)}" if explanation.translation else "")


def _short(text: str) -> str:
    return literal(shortened(" ".join(text.split()), 44))
