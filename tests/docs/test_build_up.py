"""The program that builds a Transformer up: its parts are what they are called, and the page says what it found."""

from __future__ import annotations

import importlib
import math
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from clearhead.model.recorder import HiddenStates

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "build-up.md"
SOURCE, SHIFTED = torch.tensor([[5, 3, 9, 7, 2]]), torch.tensor([[1, 4, 8, 6]])


@pytest.fixture
def program(monkeypatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    return importlib.import_module("build_up")


@pytest.fixture(params=[None, "scale", "positions", "mask", "heads", "residual", "norm", "feed-forward"])
def without(request):
    """Return the part that is left out; None for the complete model."""
    return request.param


@pytest.fixture
def model(program, without):
    torch.manual_seed(1)
    return program.build(program.LEFT_OUT[without or "nothing"], 11).requires_grad_(requires_grad=False)


def test_the_order_of_the_source_counts_unless_there_are_no_positions(model, without):
    one, other = model(SOURCE, SHIFTED), model(SOURCE[:, [3, 1, 0, 2, 4]], SHIFTED)
    # Attention is a sum over the keys in any order: what no position tells apart is the same to it.
    assert torch.allclose(one, other, atol=1e-4) == (without == "positions")


def test_later_target_words_change_earlier_logits_only_without_the_mask(model, without):
    changed = torch.tensor([[1, 4, 8, 10]])
    assert torch.allclose(model(SOURCE, SHIFTED)[:, :3], model(SOURCE, changed)[:, :3], atol=1e-5) == (
        without != "mask"
    )


def test_attention_scores_are_scaled_except_without_the_scale(program, model, without):
    shares = model.attention_weights(SOURCE, None).encoder[0].log().double()
    layer = model.encoder.layers[0].self_attn
    x = model.source_embedding(SOURCE)
    q, k = (weight(x).view(1, 5, layer.num_heads, -1).transpose(1, 2) for weight in (layer.q_proj, layer.k_proj))
    products = (q @ k.transpose(-2, -1)).double()
    if without != "scale":
        products = products / math.sqrt(64 / layer.num_heads)
    torch.testing.assert_close(shares, products.log_softmax(dim=-1), atol=1e-3, rtol=1e-4)


def test_there_are_four_heads_or_one(model, without):
    assert model.attention_weights(SOURCE, SHIFTED).cross[0].size(1) == (1 if without == "heads" else 4)


def test_words_pass_attention_of_zero_values_except_without_the_residual_path(model, without):
    model.encoder.layers[0].self_attn.v_proj.weight.zero_()
    memory, _ = model.encode(SOURCE)
    assert torch.allclose(memory[:, 0], memory[:, 1], atol=1e-5) == (without == "residual")


def test_states_have_mean_0_and_variance_1_except_without_the_norm(model, without):
    states: HiddenStates = model.hidden_states(SOURCE, SHIFTED)
    for of_last in (states.encoder[-1], states.decoder[-1]):
        is_normal = torch.allclose(of_last.mean(dim=-1), torch.tensor(0.0), atol=1e-4) and torch.allclose(
            of_last.var(dim=-1, correction=0), torch.tensor(1.0), atol=1e-2
        )
        assert is_normal == (without != "norm")


def test_the_feed_forward_network_is_used_unless_it_is_left_out(model, without):
    before = model(SOURCE, SHIFTED)
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward.down_proj.bias[0] = 3.0
    assert torch.equal(before, model(SOURCE, SHIFTED)) == (without == "feed-forward")


def test_counts_are_shares_of_what_followed(program, monkeypatch):
    monkeypatch.setattr(program, "HELD_OUT", 0)
    a, b, end = 3, 4, program.EOS
    data = SimpleNamespace(
        words=["<pad>", "<s>", "</s>", "a", "b"],
        source=torch.tensor([[a, end], [a, end], [a, end]]),
        target=torch.tensor([[b, end], [b, end], [a, end]]),
    )
    model = program.Counts(data)
    # After <s>, where the source has a: b twice, a once, and each of five words once more.
    # After b, where the source has </s>: </s> twice.
    loss = program.loss_of(model, data.source[:1], data.target[:1])
    assert loss.item() == pytest.approx(-(math.log(3 / 8) + math.log(3 / 7)) / 2)
    assert program.write(model, data.source, 2).tolist() == [[b, end]] * 3


def test_pairs_of_a_task(program):
    for task in program.TASKS.values():
        data = program.Data(task)
        texts = {tuple(row) for row in data.source.tolist()}
        assert len(texts) == len(data.source) > 5_000  # so what is held out is never trained on
    english, german = data.text(data.source[0]), data.text(data.target[0])
    day, month, year = re.fullmatch(r"\w+ , (\w+) ((?:\d )+), ((?:\d ?){4})", english).group(2, 1, 3)
    assert re.fullmatch(rf"\w+ , {day}\. \w+ {year}", german)
    assert month.isalpha()


def test_model_without_the_mask_predicts_next_words_but_writes_no_date_right(program):
    torch.manual_seed(1)
    data = program.Data(program.dates)
    found = program.measure(program.build(program.LEFT_OUT["mask"], len(data.words)), data, 150)
    assert found.right > 90 > 10 > found.exact


def result(program, loss, right, exact):
    return program.Result(loss, right, exact, [2.0, loss], np.eye(2))


def test_the_table_has_means_and_the_range_of_whole_texts(program):
    both = [result(program, 0.1, 96.0, 40.0), result(program, 0.3, 98.0, 72.4)]
    results = {("dates", None): both, ("dates", frozenset()): both[:1]}
    assert program.table(results, "built up", {"counts": None, "one head": frozenset()}).splitlines() == [
        "| built up | dates: loss | next token | whole text |",
        "| --- | --- | --- | --- |",
        "| counts | 0.200 | 97% | 40% to 72% |",
        "| one head | 0.100 | 96% | 40% |",
    ]


def test_a_part_does_not_matter_if_the_worst_seed_is_nearly_as_good_without_it(program):
    exact = dict.fromkeys(program.LEFT_OUT, 99.0) | {"mask": 0.0, "heads": 94.0, "norm": 93.0}
    results = {
        ("dates", parts): [result(program, 0.1, 99.0, 100.0), result(program, 0.1, 99.0, exact[name])]
        for name, parts in program.LEFT_OUT.items()
    }
    parts = "scale, positions, heads, residual, feed-forward"
    assert program.conclusion(results, "dates") == f"dates: did not matter, if left out alone: {parts}"
    results["dates", program.LEFT_OUT["nothing"]] = [result(program, 2.0, 30.0, 0.0)]
    assert "not learned" in program.conclusion(results, "dates")


def rows_of(text):
    """Return the rows of all tables in a text, as lists of cells."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]


@pytest.mark.slow
def test_the_page_has_the_tables_that_the_program_prints_and_its_pictures(program, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib")
    # Where words stand in a picture is not compared, and takes half of drawing it.
    monkeypatch.setattr("matplotlib.layout_engine.ConstrainedLayoutEngine.execute", lambda *_: {})
    monkeypatch.setattr(program, "PAIRS", 40)
    monkeypatch.setattr(program, "HELD_OUT", 4)
    program.main(["--seeds", "1", "--steps", "1", "-o", str(tmp_path)])
    printed, page = rows_of(capsys.readouterr().out), rows_of(PAGE.read_text(encoding="utf-8"))
    assert [len(row) for row in printed] == [7] * (2 + 9 + 2 + 8)
    number = re.compile(r"\d+% to \d+%|\d+%|\d\.\d+")
    shape = [[number.sub("#", cell) for cell in row] for row in page]
    assert shape[: len(printed)] == [[number.sub("#", cell) for cell in row] for row in printed]
    for path in sorted(tmp_path.iterdir()):
        new, old = (
            {text.text for text in ElementTree.parse(picture).iter() if re.search("[a-z]{2}", text.text or "")}
            for picture in (path, ROOT / "docs" / "pictures" / path.name)
        )
        assert new - {"seed 1"} == old - {"seed 1", "seed 2", "seed 3"}
    assert len(list(tmp_path.iterdir())) == 2


def test_the_page_concludes_what_its_tables_say(program):
    page = PAGE.read_text(encoding="utf-8")
    rows = rows_of(page)
    heads = [number for number, row in enumerate(rows) if row[0] == "left out"]
    assert [len(rows[head]) for head in heads] == [7, 4]  # both tasks, and dates with three layers
    for head in heads:
        left_out = {name: cells for name, *cells in rows[head + 2 : head + 2 + len(program.LEFT_OUT)]}
        for place, title in enumerate(rows[head][1::3]):
            task = title.removesuffix(": loss")
            results = {
                (task, parts): [result(program, 0.0, 0.0, float(left_out[name][3 * place + 2].split("%")[0]))]
                for name, parts in program.LEFT_OUT.items()
            }
            assert f"\n{program.conclusion(results, task)}\n" in page


@pytest.mark.parametrize("arguments", [["--steps", "0"], ["-o", "{file}/pictures"]])
def test_invalid_steps_or_output_are_rejected_before_training(program, arguments, tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stopped:
        program.main([one.format(file=tmp_path / "file") for one in arguments])
    assert stopped.value.code == 2
    assert "must be at least 1" in (error := capsys.readouterr().err) or "Not a directory" in error
