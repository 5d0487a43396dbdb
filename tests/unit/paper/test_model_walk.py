"""The walk of any model: every line of code exists, and the numbers under it are the model's."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import torch
from axe_playwright_python.sync_playwright import Axe

import clearhead
from browsers import serious
from clearhead.inspection.explain import explain
from clearhead.inspection.tokens import visible
from clearhead.paper import recording
from clearhead.paper.walk import model_walk
from clearhead.paper.walk.model_walk import walk_of
from every_run import slow

TEXT, TARGET = "Ein Hund rennt.", "A dog runs."
VARIANTS = [
    {"norm": "post"},
    {"norm": "post", "final_norm": True, "tying": "none", "output_bias": True},
    {"norm": "pre", "norm_kind": "rms", "activation": "silu", "gated": True, "positions": "rotary"},
    {"positions": "relative", "attention_scale": False, "embedding_scale": False, "output_scale": True},
    {"positions": "learned", "max_positions": 90, "embedding_norm": True, "output_transform": True},
    {"num_encoder_layers": 0, "tying": "decoder"},
]


@pytest.fixture
def explained(make_translator):
    """Return a function that explains a sentence with a small model; takes settings of the model."""

    def make(**settings):
        sizes = {"d_model": 24, "num_heads": 2, "num_decoder_layers": 2}
        return explain(make_translator(**{**sizes, **settings}), TEXT, TARGET, search=False)

    return make


def parts_of(lines: list[str]) -> dict[str, list[str]]:
    """Return the lines of each part by its title."""
    parts: dict[str, list[str]] = {}
    for line in lines:
        if line and not line.startswith(" "):
            parts[line] = []
        elif line:
            parts[list(parts)[-1]].append(line)
    return parts


def numbers(lines: list[str]) -> torch.Tensor:
    """Return the four numbers at the end of each line."""
    return torch.tensor([[float(cell) for cell in line.split()[-4:]] for line in lines])


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
def test_the_states_are_those_of_the_model_and_the_lines_those_of_the_code(explained, settings):
    explanation = explained(**settings)
    lines = list(walk_of(explanation).lines())
    code = [re.match(r"  clearhead/(\S+):(\d+)  (.+)", line) for line in lines]
    found = [match.groups() for match in code if match]
    assert len(found) > 15
    for file, number, text in found:
        source = (Path(clearhead.__file__).parent / file).read_text(encoding="utf-8").splitlines()
        assert source[int(number) - 1].split("  #")[0].strip() == text
    parts, model_pass = parts_of(lines), explanation.model_pass
    states = model_pass.model.hidden_states(model_pass.source, model_pass.target)
    last = "decoder, after the layers" if "decoder, after the layers" in parts else "decoder, layer 2 of 2: its output"
    torch.testing.assert_close(numbers(parts[last][-6:]), states.decoder[-1][0, :6, :4], atol=6e-4, rtol=0)
    if settings.get("positions") != "relative":  # whose last lines are the distances
        title, [embedded, *_] = ("the source", states.encoder) if states.encoder else ("the target", states.decoder)
        torch.testing.assert_close(numbers(parts[title][-6:]), embedded[0, :6, :4], atol=6e-4, rtol=0)


def test_of_other_layers_than_the_first_the_output_alone_is_shown(explained):
    parts = parts_of(list(walk_of(explained(norm="post")).lines()))
    assert list(parts)[3:9] == [
        "the source",
        "encoder, layer 1 of 2",
        "encoder, layer 2 of 2: its output",
        "the target",
        "decoder, layer 1 of 2",
        "decoder, layer 2 of 2: its output",
    ]
    assert len(parts["encoder, layer 2 of 2: its output"]) == 2 + 6  # the line, the formula, six tokens


def test_attention_has_the_tokens_that_it_is_about(explained):
    explanation = explained(norm="post")
    parts = parts_of(list(walk_of(explanation).lines()))
    assert parts["the source"][2].split()[0] == visible(explanation.source_tokens[0])
    decoder = parts["decoder, layer 1 of 2"]
    first_rows = [
        decoder[place + 1].split()[0]
        for place, line in enumerate(decoder)
        if line.startswith(("    keys: ", "    queries: "))
    ]
    start, source = explanation.decoder_tokens[0], visible(explanation.source_tokens[0])
    assert first_rows == [start, start, source, start]
    weights = decoder.index("    weights: softmax of the scores (equation 1)")
    assert decoder[weights + 1].split()[1:] == ["1.000", "0.000", "0.000", "0.000"]  # <s> sees itself alone


def test_tensors_without_a_row_for_each_token_are_not_shown(explained):
    lines = list(walk_of(explained(norm="post", positions="rotary")).lines())
    assert not {"    view_as", "    unflatten", "    stack"}.intersection(lines)
    queries = lines.index("    queries: Q_i = x W_i^Q, head by head (section 3.2.2)")
    rotated = lines.index("    flatten", queries)
    (a, b, *_), (c, d, *_) = numbers(lines[queries + 1 : queries + 3]).tolist()  # turned by 0 and by 1 radian
    turned = [c * math.cos(1) - d * math.sin(1), c * math.sin(1) + d * math.cos(1)]
    torch.testing.assert_close(
        numbers(lines[rotated + 1 : rotated + 3])[:, :2], torch.tensor([[a, b], turned]), atol=2e-3, rtol=0
    )


def test_a_long_sentence_does_not_fill_the_memory(make_translator, monkeypatch):
    kept = []

    class Counted(recording.Recording):
        def __torch_function__(self, *args, **kwargs):
            result = super().__torch_function__(*args, **kwargs)
            kept.append(sum(call.tensor.numel() for call in self.calls))
            return result

    monkeypatch.setattr(model_walk, "Recording", Counted)
    translator, most = make_translator(num_encoder_layers=1), []
    for words in (8, 16, 32):
        kept.clear()
        list(walk_of(explain(translator, "a " * words, TARGET, search=False)).lines())
        most.append(max(kept))
    assert most[0] == most[1] == most[2]


def test_the_probabilities_of_the_steps_end_the_text(explained):
    explanation = explained(norm="post")
    last = list(walk_of(explanation).lines())[-min(6, len(explanation.steps)) :]
    assert [line.rsplit(" ", 1)[1] for line in last] == [f"{step.probability:.3f}" for step in explanation.steps[:6]]


def test_an_encoder_alone_has_no_target(make_translator):
    parts = parts_of(list(walk_of(explain(make_translator(num_decoder_layers=0), TEXT)).lines()))
    assert list(parts)[2:] == [
        "the source",
        "encoder, layer 1 of 2",
        "encoder, layer 2 of 2: its output",
        "encoder, after the layers",
    ]


def test_the_json_has_the_numbers_of_the_text(explained):
    walked = walk_of(explained(norm="post"))
    values = json.loads(json.dumps(walked.to_dict(), allow_nan=False))
    lines = [line for line in walked.lines() if line.startswith("      ")]
    shown = [
        (name, *(f"{-math.inf if value is None else value:z.3f}" for value in row))
        for stage in values["stages"]
        for one in stage["computed"]
        for name, row in zip(one["tokens"], one["values"], strict=True)
    ]
    assert shown == [tuple(line.split()) for line in lines]
    assert any("-inf" in row for row in shown)
    assert [step["probability"] for step in values["steps"]] == [
        one.probability for one in walked.explanation.steps[:6]
    ]


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_layer_is_a_stage_for_each_sublayer_on_the_page(explained, norm):
    walked = walk_of(explained(norm=norm))
    decoder = next(stage for stage in walked.stages if stage.name == "decoder, layer 1 of 2")
    parts = list(decoder.sublayers())
    assert [part.name.partition(": ")[2] for part in parts] == [
        *("self-attention", "cross-attention", "feed-forward network")
    ]
    assert [one for part in parts for one in part.computed] == decoder.computed
    ends = [part.computed[-1].formula for part in parts]
    assert ends == (["LayerNorm(x + Sublayer(x)) (section 3.1)"] * 3 if norm == "post" else ["add"] * 3)
    assert [part.computed[0].formula for part in parts].count("layer_norm") == (3 if norm == "pre" else 0)


@pytest.mark.parametrize(("width", "theme"), [(390, "light"), slow(1280, "dark")])
def test_the_page_steps_through_the_numbers(explained, browser, tmp_path, width, theme):
    walked = walk_of(explained(norm="post"))
    path = tmp_path / "walk.html"
    path.write_text(walked.to_html(), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 844}, color_scheme=theme)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.goto(path.as_uri())
    stages = [part for stage in walked.stages for part in stage.sublayers()]
    for number, stage in enumerate(stages, start=1):
        shown = page.locator(".stage:visible")
        assert shown.get_attribute("id") == f"stage-{number}"
        assert shown.locator("h2").inner_text().endswith(stage.name)
        cells = shown.locator("tr").evaluate_all("rows => rows.map(row => [...row.cells].map(one => one.innerText))")
        assert cells == [
            [name, *(f"{value:z.3f}" for value in row)]
            for one in stage.computed
            for name, row in zip(one.tokens, one.values, strict=True)
        ]
        assert page.evaluate("document.documentElement.scrollWidth") == width
        assert page.evaluate("document.documentElement.scrollHeight") <= 6 * 844
        page.keyboard.press("ArrowRight")
        page.locator(f"#stage-{number + 1}").wait_for()
    assert walked.explanation.translation in page.locator(".ending").inner_text()
    assert serious(Axe().run(page)) == []
    assert complaints == []
    page.close()
