"""Figures 1 and 2 have the boxes, the shapes and the lines of the model that they are of."""

from __future__ import annotations

import ast
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import clearhead
from clearhead.config import ModelConfig
from clearhead.config.presets import PRESETS
from clearhead.model.transformer import Transformer
from clearhead.paper.diagram import WIDTH, Label, Node, Polyline
from clearhead.paper.figures.figure1 import figure1
from clearhead.paper.figures.figure2 import figure2
from clearhead.paper.figures.operations import forward_pass, shape_text
from every_run import one_in

PACKAGE = Path(clearhead.__file__).parent
ODD = ModelConfig(
    vocab_size=29,
    source_vocab_size=31,
    tying="decoder",
    d_model=10,
    d_ff=11,
    num_heads=3,
    d_k=8,
    d_v=7,
    num_encoder_layers=5,
    num_decoder_layers=6,
)
"""Pairwise different sizes."""
MODELS = {
    "paper": ModelConfig(),
    "odd": ODD,
    "pre": ModelConfig(norm="pre", norm_kind="rms", gated=True, activation="silu", num_encoder_layers=12),
    "relative": ModelConfig(norm="pre", positions="relative", attention_scale=False, output_scale=True),
    "rotary": ModelConfig(positions="rotary", num_encoder_layers=0, num_target_segments=2),
    "one head": ModelConfig(positions="none", num_heads=1, tying="none", embedding_scale=False, output_bias=True),
    "bert": PRESETS["bert-base"](),
    "bart": ModelConfig(
        activation="gelu_tanh", positions="learned", embedding_norm=True, output_transform=True, final_norm=True
    ),
}


def names(part, key="boxes"):
    return [box["name"] for box in part.data[key]]


def test_figure_1_has_the_boxes_of_the_paper_in_their_order():
    ends = ["Positional Encoding", "Add Positions"]
    rest = ["Add & Norm", "Feed Forward", "Add & Norm"]
    assert names(figure1()) == [
        *["Input Embedding", *ends, "Multi-Head Attention", *rest],
        *["Output Embedding", *ends, "Masked Multi-Head Attention", "Add & Norm", "Multi-Head Attention", *rest],
        *["Linear", "Softmax"],
    ]


def test_pre_norm_puts_the_norms_before_the_sub_layers_and_one_after_the_stack():
    assert names(figure1(ModelConfig(norm="pre"))) == [
        *["Input Embedding", "Positional Encoding", "Add Positions"],
        *["Norm", "Multi-Head Attention", "Add", "Norm", "Feed Forward", "Add", "Norm"],
        *["Output Embedding", "Positional Encoding", "Add Positions"],
        *["Norm", "Masked Multi-Head Attention", "Add", "Norm", "Multi-Head Attention", "Add"],
        *["Norm", "Feed Forward", "Add", "Norm", "Linear", "Softmax"],
    ]


def test_the_figure_follows_the_other_options():
    bert = figure1(PRESETS["bert-base"]())
    layer = ["Multi-Head Attention", "Add & Norm", "Feed Forward", "Add & Norm"]
    assert names(bert) == ["Input Embedding", "Learned Positions", "Add Positions", "Add Segment", "Norm", *layer]
    assert names(figure1(MODELS["rotary"])) == [
        *["Output Embedding", "Add Segment", "Masked Multi-Head Attention", *layer[1:], "Linear", "Softmax"]
    ]
    assert names(figure1(MODELS["relative"]))[:2] == ["Input Embedding", "Relative Positions"]
    assert names(figure1(MODELS["relative"]))[-3:] == ["Divide by √512", "Linear", "Softmax"]
    assert names(figure1(MODELS["bart"]))[-4:] == ["Norm", "Output Transform", "Linear", "Softmax"]


def test_the_figure_says_what_is_shared_and_how_wide_things_are():
    def details(config):
        return {box["name"]: box["detail"] for box in figure1(config).data["boxes"]}

    paper = details(ModelConfig())
    assert paper["Input Embedding"] == paper["Output Embedding"] == "matrix E, × √512"
    assert (paper["Linear"], paper["Feed Forward"]) == ("matrix E", "relu, 2048")
    assert paper["Multi-Head Attention"] == "8 heads"
    odd = details(ODD)
    assert (odd["Input Embedding"], odd["Output Embedding"], odd["Linear"]) == ("× √10", "matrix E, × √10", "matrix E")
    assert details(MODELS["one head"])["Input Embedding"] == ""
    assert details(MODELS["pre"])["Feed Forward"] == "gated silu, 2048"
    assert details(MODELS["rotary"])["Masked Multi-Head Attention"] == "8 heads, rotary"


def test_the_number_of_layers_is_that_of_the_configuration():
    texts = [part.text for part in figure1(ODD).diagrams["figure1"].parts if isinstance(part, Label)]
    assert [text for text in texts if text.endswith("×")] == ["5×", "6×"]


def test_figure_2_has_the_boxes_of_the_paper():
    part = figure2()
    assert names(part, "scaled_dot_product_attention") == ["Scale", "MatMul", "Mask", "SoftMax", "MatMul"]
    assert sorted(names(part, "multi_head_attention")) == [
        *["Concat", *["Linear"] * 4, "Scaled Dot-Product Attention", *["Split Heads"] * 3],
    ]
    relative, rotary = figure2(MODELS["relative"]), figure2(MODELS["rotary"])
    assert names(relative, "scaled_dot_product_attention")[2] == "Add Bias"
    assert names(relative, "multi_head_attention").count("Multiply") == 1
    assert names(rotary, "multi_head_attention").count("Rotate") == 2


def measured(config, sizes):
    """Return the output shape of every module in an ordinary pass of a whole model, and of the weights."""
    model = Transformer(config).eval()
    shapes = {}
    for name, module in model.named_modules():
        module.register_forward_hook(lambda module, inputs, output, name=name: shapes.update({name: output.shape}))
    source = torch.full((sizes["B"], sizes["S"]), 3)
    target = torch.full((sizes["B"], sizes["T"]), 4)
    logits = model(source, target)
    shapes["weights"] = model.attention_weights(source, target).cross[-1].shape
    return {**shapes, "logits": logits.shape}


def test_shapes_are_those_of_an_ordinary_pass():
    sizes = {"B": 2, "S": 13, "T": 17}
    shapes = {name: tuple(shape) for name, shape in measured(ODD, sizes).items() if isinstance(shape, torch.Size)}

    def puts_out(boxes):
        return [tuple(sizes.get(size, size) for size in box["puts_out"]) for box in boxes]

    encoder, decoder = "encoder.layers.4.", "decoder.layers.5."
    boxes = figure1(ODD).data["boxes"]
    assert puts_out(boxes) == [
        *[shapes["source_embedding"], (13, 10), shapes["source_embedding"]],
        *[shapes[f"{encoder}self_attn"], shapes[f"{encoder}self_attn_residual.norm"]],
        *[shapes[f"{encoder}feed_forward"], shapes[encoder.rstrip(".")]],
        *[shapes["target_embedding"], (17, 10), shapes["target_embedding"]],
        *[shapes[f"{decoder}self_attn.out_proj"], shapes[f"{decoder}self_attn_residual.norm"]],
        *[shapes[f"{decoder}cross_attn.out_proj"], shapes[f"{decoder}cross_attn_residual.norm"]],
        *[shapes[f"{decoder}feed_forward"], shapes[decoder.rstrip(".")]],
        *[shapes["logits"], shapes["logits"]],
    ]
    left, right = figure2(ODD).data["scaled_dot_product_attention"], figure2(ODD).data["multi_head_attention"]
    assert puts_out(left) == [(2, 3, 17, 8), *[shapes["weights"]] * 3, (2, 3, 17, 7)]
    found = list(zip(right, puts_out(right), strict=True))
    assert {box["detail"]: shape for box, shape in found if box["name"] == "Linear"} == {
        matrix: shapes[f"{decoder}cross_attn.{name}"]
        for matrix, name in {"W^Q": "q_proj", "W^K": "k_proj", "W^V": "v_proj", "W^O": "out_proj"}.items()
    }
    assert [shape for box, shape in found if box["name"] != "Linear"] == [
        *[(2, 3, 13, 8), (2, 3, 13, 7), (2, 3, 17, 8), (2, 3, 17, 7), (2, 17, 21)]
    ]


def test_a_size_of_the_batch_is_a_letter_though_the_model_has_the_same_number():
    found = forward_pass(ModelConfig(vocab_size=5, d_model=4, d_ff=3, num_heads=2, num_decoder_layers=0))
    wanted = {"(B, S)", "(B, S, 4)", "(B, S, 3)", "(B, 2, S, 2)", "(B, 2, S, S)"}
    assert wanted <= {shape_text(shape) for shape in found.shapes}


def defined(file, line):
    """Return the names of the classes and functions that a line is in, from the outermost."""
    tree = ast.parse((PACKAGE / file).read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef)
    inside = [one for one in ast.walk(tree) if isinstance(one, kinds) and one.lineno <= line <= one.end_lineno]
    return ".".join(one.name for one in sorted(inside, key=lambda one: one.lineno))


TEXTS = {
    "Input Embedding": "functional.embedding(ids, self.weight) * self.scale",
    "Add Positions": "x + self.positions(",
    "Add Segment": "x + self.segments(",
    "Add & Norm": "self.norm(x + self.dropout(sublayer(x)))",
    "Add": "x + self.dropout(sublayer(self.norm(x)))",
    "Multi-Head Attention": "class MultiHeadAttention",
    "Relative Positions": "class RelativePositions",
    "Feed Forward": "class FeedForward",
    "Linear": "class OutputProjection",
    "Softmax": "log_softmax(",
    "Scale": "/ math.sqrt(",
    "MatMul": " @ ",
    "Mask": ".masked_fill(",
    "SoftMax": ".softmax(",
    "Scaled Dot-Product Attention": "def scaled_dot_product_attention(",
    "Split Heads": ".view(",
    "Concat": ".flatten(2)",
    "Add Bias": "scores + bias",
    "Multiply": "q * math.sqrt(",
    "Rotate": "def rotary_positions(",
}


@pytest.mark.parametrize("config", one_in(2, MODELS.values(), first=1), ids=MODELS)
def test_every_box_is_on_the_line_that_it_names(config):
    one, two = figure1(config).data, figure2(config).data
    for box in [*one["boxes"], *two["scaled_dot_product_attention"], *two["multi_head_attention"]]:
        line = (PACKAGE / box["file"]).read_text(encoding="utf-8").splitlines()[box["line"] - 1]
        if box["name"] == "Linear" and box["detail"].startswith("W"):
            assert "_proj = Linear(" in line
            assert box["detail"] in line
        else:
            assert TEXTS.get(box["name"], "") in line
        assert defined(box["file"], box["line"]).startswith(box["code"])


@pytest.mark.parametrize("config", one_in(2, MODELS.values()), ids=MODELS)
@pytest.mark.parametrize("figure", [figure1, figure2])
def test_checks_of_figures_hold_for_every_model(figure, config):
    part = figure(config)
    assert part.failures == []
    assert len(part.checks) == 2


def edges(node):
    return node.x - node.width / 2, node.y - node.height / 2, node.x + node.width / 2, node.y + node.height / 2


def is_on_the_edge(node, x, y):
    left, top, right, bottom = edges(node)
    is_beside = any(abs(x - edge) < 0.1 for edge in (left, right)) and top < y < bottom
    return is_beside or (any(abs(y - edge) < 0.1 for edge in (top, bottom)) and left < x < right)


@pytest.mark.parametrize("config", one_in(2, MODELS.values(), first=1), ids=MODELS)
@pytest.mark.parametrize("figure", [figure1, figure2])
def test_boxes_lie_apart_and_every_arrow_ends_at_one(figure, config):
    [diagram] = figure(config).diagrams.values()
    nodes = [part for part in diagram.parts if isinstance(part, Node)]
    outputs = [part for part in diagram.parts if isinstance(part, Label) and part.look == "name"]
    for one, other in combinations(nodes, 2):
        a, b = edges(one), edges(other)
        assert a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1], (one.name, other.name)
    for node in nodes:
        left, top, right, bottom = edges(node)
        assert 0 < left < right < WIDTH
        assert 0 < top < bottom < diagram.height
    for line in (part for part in diagram.parts if isinstance(part, Polyline)):
        x, y = line.points[-1]
        is_output = any(label.x == x and 0 < y - label.y < 10 for label in outputs)
        assert is_output or any(is_on_the_edge(node, x, y) for node in nodes)
        straight = zip(line.points, line.points[1:], strict=False)
        assert all(a[0] == b[0] or a[1] == b[1] for a, b in straight)


@pytest.mark.parametrize("config", one_in(2, MODELS.values()), ids=MODELS)
@pytest.mark.parametrize("figure", [figure1, figure2])
def test_the_picture_is_whole_and_asks_for_nothing(figure, config):
    part = figure(config)
    [diagram] = part.diagrams.values()
    text = diagram.svg("../of a <package>")
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    assert (root.get("width"), root.get("role")) == (str(WIDTH), "group")  # an image would hide its links
    assert [element for element in root.iter() if element.get("id") not in (None, "tip")] == []  # two may be on a page
    kinds = {element.tag.removeprefix(space) for element in root.iter()}
    assert kinds <= {"svg", "title", "desc", "style", "defs", "marker", "path", "rect", "circle", "a", "text"}
    assert text.count("http") == 1  # the name of SVG itself
    assert "url(" not in text.replace("url(#tip)", "")
    links = list(root.iter(f"{space}a"))
    boxes = [box for key, value in part.data.items() if key != "config" for box in value]
    assert sorted(link.get("href") for link in links) == sorted(
        f"../of a <package>/{box['file']}#L{box['line']}" for box in boxes
    )
    for link in links:
        title = link.find(f"{space}title").text
        assert link.get("href").partition(">/")[2].replace("#L", ":") in title
        assert "paper" in title
    assert diagram.title == root.find(f"{space}title").text
