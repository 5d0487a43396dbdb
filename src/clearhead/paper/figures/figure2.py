"""The part "figure2": one attention and its heads (paper figure 2), drawn from a forward pass of a configuration."""

from __future__ import annotations

from clearhead.config import ModelConfig
from clearhead.paper.diagram import Diagram
from clearhead.paper.figures.attention_boxes import FigureHalf, panels
from clearhead.paper.figures.attention_layout import AttentionLayout
from clearhead.paper.figures.boxes import HINT, described
from clearhead.paper.figures.operations import ForwardPass, forward_pass, shape_text
from clearhead.paper.parts import Check, ModelPart, paragraph, part_text


def figure2(config: ModelConfig | None = None) -> ModelPart:
    """Return figure 2 of a configuration: its boxes with the shapes of a forward pass, as text and as a diagram.

    It shows the attention of the model with the most steps: cross-attention, unless positions are added to or rotate
    self-attention.

    Args:
        config: Any model, such as `Translator.config`; None for the paper's base model.

    Raises:
        ConfigError: If the model has fewer than three positions.

    >>> part = figure2(ModelConfig(num_heads=4))
    >>> [box["name"] for box in part.data["scaled_dot_product_attention"]]
    ['Scale', 'MatMul', 'Mask', 'SoftMax', 'MatMul']
    """
    config = config or ModelConfig()
    found = forward_pass(config)
    halves = panels(found)
    left, right = halves
    upper = AttentionLayout(found, left, 6.0)
    lower = AttentionLayout(found, right, upper.end + 14.0)
    checks = (_weights(found, left), _heads(config, right))
    title = f"Figure 2: {config.num_heads} heads, {left.subtitle.partition(':')[0]}"
    words = described(left.groups, right.groups)
    lines = [
        *paragraph(
            "The boxes of figure 2 with the shapes of a forward pass of the code, in the order in which they run. The "
            "queries are scaled before they are multiplied with the keys: the scores are the same as in the figure."
        )[1:],
    ]
    for half in halves:
        lines += ["", half.title, half.subtitle, "", *half.groups.table()]
    lines += paragraph(HINT)
    return ModelPart(
        title=title,
        text=part_text(lines, checks),
        diagrams={"figure2": Diagram(title, words, lower.end + 6.0, [*upper.parts(), *lower.parts()])},
        data={
            "config": config.model_dump(mode="json"),
            "scaled_dot_product_attention": left.groups.data(),
            "multi_head_attention": right.groups.data(),
        },
        checks=checks,
    )


def _weights(found: ForwardPass, panel: FigureHalf) -> Check:
    """Compare the weights with the queries and keys that they are of: one row a query, one column a key."""
    shapes = {name: found.shapes[arrow.tensor] for name, arrow in panel.inputs}
    [weights] = [out for box, _, out in panel.groups.rows if box.name == "SoftMax"]
    expected = (*shapes["Q"][:-1], shapes["K"][-2])
    return Check("equation 1: a weight for each query and key", weights == expected, shape_text(weights))


def _heads(config: ModelConfig, panel: FigureHalf) -> Check:
    """Compare the width of the concatenated heads with the configuration."""
    [width] = [out[-1] for box, _, out in panel.groups.rows if box.name == "Concat"]
    expected = config.num_heads * config.value_dim
    evidence = f"{width}; h = {config.num_heads}, d_v = {config.value_dim}"
    return Check("section 3.2.2: Concat is h d_v wide", width == expected, evidence)
