"""The part "figure1": encoder and decoder stacks (paper figure 1), drawn from a forward pass of a configuration."""

from __future__ import annotations

from clearhead.config import ModelConfig
from clearhead.paper.counts import parameter_count
from clearhead.paper.diagram import Diagram
from clearhead.paper.figures.boxes import HINT, described
from clearhead.paper.figures.operations import forward_pass
from clearhead.paper.figures.stack_boxes import StackBoxes
from clearhead.paper.figures.stack_layout import layout
from clearhead.paper.parts import Check, ModelPart, paragraph, part_text


def figure1(config: ModelConfig | None = None) -> ModelPart:
    """Return figure 1 of a configuration: its boxes with the shapes of a forward pass, as text and as a diagram.

    Args:
        config: Any model, such as `Translator.config`; None for the paper's base model.

    Raises:
        ConfigError: If the model has fewer than three positions.

    >>> part = figure1(ModelConfig(norm="pre", num_decoder_layers=0))
    >>> [box["name"] for box in part.data["boxes"]][3:6]
    ['Norm', 'Multi-Head Attention', 'Add']
    """
    config = config or ModelConfig()
    stacks = StackBoxes(config, forward_pass(config))
    title = f"Figure 1: {config.norm}-norm, {stacks.layers_text}"
    checks = (_weights(stacks), _widths(stacks))
    lines = [
        *paragraph(
            "The boxes of figure 1 with the shapes of a forward pass of the code, from the inputs up: B sentences, "
            "S source tokens, T target tokens. The layers of a stack are alike; one is listed."
        )[1:],
        "",
        *stacks.groups.table(),
        *paragraph(HINT),
    ]
    return ModelPart(
        title=title,
        text=part_text(lines, checks),
        diagrams={"figure1": Diagram(title, described(stacks.groups), *layout(stacks))},
        data={"config": config.model_dump(mode="json"), "boxes": stacks.groups.data()},
        checks=checks,
    )


def _weights(stacks: StackBoxes) -> Check:
    """Compare the weights that the boxes read with the closed form: no part of the model is without a box."""
    times = {
        name: stacks.layers_of(name) if ".layers." in name else 1
        for box in stacks.groups.boxes.values()
        for operation in box.operations
        for name in operation.weights
    }
    drawn = sum(number * stacks.found.model.get_parameter(name).numel() for name, number in times.items())
    count = parameter_count(stacks.config)
    return Check("the boxes hold every weight of the model", drawn == count, f"{drawn:,}; in closed form {count:,}")


def _widths(stacks: StackBoxes) -> Check:
    d_model = stacks.config.d_model
    widths = [one[-1] for box, reads, _ in stacks.groups.rows if box.name.startswith("Add") for one in reads]
    return Check(
        "section 3.1: all that is added has width d_model",
        set(widths) == {d_model},
        f"{widths.count(d_model)} of {len(widths)} arrows into sums are {d_model} wide",
    )
