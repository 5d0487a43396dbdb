"""Every picture of an explanation is drawn, the same bytes every time, with its texts as they are."""

from __future__ import annotations

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from every_run import slow

pytest.importorskip("matplotlib")

from clearhead.errors import ConfigError, DataError
from clearhead.inspection.ablation import Ablation, HeadEffect, SetResult
from clearhead.inspection.compare import compare
from clearhead.inspection.explain import explain
from clearhead.inspection.figures import PICTURES, comparison_figure, figure_of
from clearhead.inspection.pictures import HeadGrid, HeadValues, Links, Tree
from clearhead.inspection.plots import HeatMap, draw

TEXT, TARGET = "Ein <script> kostet $5 und 犬 $x$.", "שלום a\u0301\u200b $12,50 " + "x" * 40


@pytest.fixture(scope="module")
def translator(make_translator):
    return make_translator(num_heads=2, num_decoder_layers=2, decode={"beam_size": 2, "extra_length": 3})


@pytest.fixture(scope="module")
def explained(translator):
    found = explain(translator, TEXT, TARGET)
    heads = [HeadEffect("cross", 0, head, -float(head), "x", SetResult(2.0 + head, 30.0)) for head in range(2)]
    return replace(found, ablation=Ablation(TEXT, TARGET, -3.0, TARGET, tuple(heads), SetResult(2.25, 31.0), 7, "sig"))


def texts(svg: bytes) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


@pytest.mark.parametrize("picture", PICTURES)
def test_every_picture_is_drawn(explained, picture):
    svg = draw(figure_of(explained, picture), "svg")
    assert not re.search(rb"<script|\d{4}-\d\d-\d\dT", svg)
    assert texts(svg)


@pytest.mark.parametrize(("form", "start"), [slow("png", b"\x89PNG\r\n"), ("svg", b"<?xml")])
def test_the_same_picture_has_the_same_bytes(explained, form, start):
    first = draw(figure_of(explained, "alignment"), form)
    assert first.startswith(start)
    assert first == draw(figure_of(explained, "alignment"), form)


def test_tokens_are_written_as_text_short_and_visible(explained):
    heat = figure_of(explained, "alignment")
    assert isinstance(heat, HeatMap)
    found = texts(draw(heat, "svg"))
    assert "</s>" in found
    assert found.count("犬") == 1  # and two more bytes of it
    assert "$" in found  # a token, not the beginning of a formula
    assert any(text.startswith("Ein <script> kostet $5") for text in found)
    assert all(len(text) < 19 for text in heat.x_names)


def test_pictures_show_the_numbers_of_the_explanation(explained):
    heat = figure_of(explained, "decoder.2.1")
    later = ~np.tri(len(heat.values), dtype=bool)  # what the causal mask hides
    np.testing.assert_array_equal(heat.values, np.where(later, np.nan, explained.decoder[1, 0]))
    grid = figure_of(explained)
    assert isinstance(grid, HeadGrid)
    for (_, weights), (name, expected) in zip(grid.parts, explained.attentions.items(), strict=True):
        np.testing.assert_array_equal(weights, np.where(later, np.nan, expected) if name == "decoder" else expected)
    assert "decoder self-attention (hatched: masked)" in texts(draw(grid, "svg"))
    tree = figure_of(explained, "tree")
    assert isinstance(tree, Tree)
    assert len(tree.nodes) == len(explained.search.nodes)
    assert sum(node.fate == "chosen" for node in tree.nodes) == len(explained.search.hypothesis.tokens)
    values = figure_of(explained, "ablation")
    assert isinstance(values, HeadValues)
    assert values.parts[0][1].tolist() == [[-0.25, 0.75]]


def test_maps_are_numbered_as_layers_and_heads_unless_they_have_names():
    parts, names = [("one", np.full((2, 3, 4, 5), 0.2))], {"row_names": ["x", "y"], "column_names": ["a", "b", "c"]}
    assert texts(draw(HeadGrid("", parts), "svg"))[:5] == ["head 1", "head 2", "head 3", "layer 1", "layer 2"]
    assert texts(draw(HeadGrid("", parts, **names), "svg"))[:5] == ["a", "b", "c", "x", "y"]


def test_links_are_as_thick_as_the_weights_of_the_alignment(explained):
    links = figure_of(explained, "links")
    assert isinstance(links, Links)
    assert links.weights is explained.alignment
    weights = np.array([[0.9, 0.1, 0.0], [0.05, 0.2, 0.75]])
    svg = draw(Links("", ["a", "b", "$"], ["x", "y"], weights), "svg")
    assert texts(svg) == ["a", "b", "$", "x", "y"]
    widths = [float(one) for one in re.findall(rb"stroke-width: ([\d.]+); stroke-linecap: round", svg)]
    assert widths == pytest.approx([0.5 + 4 * 0.9, 0.5 + 4 * 0.1, 0.5 + 4 * 0.2, 0.5 + 4 * 0.75])


def test_two_compared_are_a_number_for_every_head(translator, explained):
    other = explain(translator, "Ein Hund.", TARGET, search=False)
    figure = comparison_figure(compare(explained, other))
    assert [name for name, _ in figure.parts] == ["encoder self-attention", "decoder self-attention", "cross-attention"]
    assert draw(figure, "svg")


def test_figure_of_rejects_unknown_pictures_and_missing_parts(translator, explained, make_translator):
    for picture in ("maps", "cross", "cross.x.1", "middle.1.1"):
        with pytest.raises(ConfigError, match=r"there is no picture .*; there are heads"):
            figure_of(explained, picture)
    for picture in ("cross.0.1", "cross.3.1", "cross.1.3"):
        with pytest.raises(DataError, match=r"encoder has 2 layers of 2.*counted from 1"):
            figure_of(explained, picture)
    bare = explain(translator, "Ein Hund.", TARGET, search=False)
    with pytest.raises(DataError, match="no search to draw"):
        figure_of(bare, "tree")
    with pytest.raises(DataError, match="--ablate"):
        figure_of(bare, "ablation")
    with pytest.raises(DataError, match="no cross-attention"):
        figure_of(explain(make_translator(num_decoder_layers=0), "Ein Hund."), "alignment")
