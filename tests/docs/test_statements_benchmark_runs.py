"""The measurements of statements of the paper are what they say, and run."""

from __future__ import annotations

import json
import math
import runpy
import sys

import pytest
import torch
from benchmarks import BENCH


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["statements.py"])
        return runpy.run_path(str(BENCH / "statements.py"))


def rows(capsys):
    return [line.strip("| ").split(" | ") for line in capsys.readouterr().out.splitlines()]


def test_additive_scores_are_a_network_with_one_hidden_layer(bench):
    torch.manual_seed(0)
    score, q, k = bench["Additive"](3), torch.randn(2, 3), torch.randn(5, 3)
    w, u, v = (one.tolist() for one in (score.of_query.weight, score.of_key.weight, score.v))

    def by_hand(query, key):
        pairs = (
            [zip(w[unit], query, strict=True) for unit in range(3)],
            [zip(u[unit], key, strict=True) for unit in range(3)],
        )
        hidden = [math.tanh(sum(a * b for a, b in [*one, *other])) for one, other in zip(*pairs, strict=True)]
        return sum(a * b for a, b in zip(v, hidden, strict=True))

    expected = [[by_hand(query, key) for key in k.tolist()] for query in q.tolist()]
    torch.testing.assert_close(score(q, k), torch.tensor(expected))
    x = torch.randn(1, 4, 3)
    torch.testing.assert_close(bench["AdditiveAttention"](3)(x).shape, x.shape)


def test_additive_attention_holds_a_hidden_layer_for_each_pair(bench, capsys):
    bench["print_additive"](lengths=(16, 32), width=8, rounds=1)
    header, _, *found = rows(capsys)
    assert len(found) == 2
    for row, n in zip(found, (16, 32), strict=True):
        assert len(row) == len(header) == 7
        assert row[0] == str(n)
        assert float(row[5].replace(",", "")) >= n * n * 8 * 4 / 1024 - 1  # one float32 for each unit and pair
        assert int(row[6]) > 1


def test_a_look_up_asks_for_the_value_of_its_key(bench):
    model = bench["LookUp"](4, bench["SCORES"]["q . k"](4))
    (keys, values, query), answer = model.draw(50)
    assert all(len(set(row)) == 16 for row in keys.tolist())
    for row, named, (asked,), right in zip(
        keys.tolist(), values.tolist(), query.tolist(), answer.tolist(), strict=True
    ):
        assert named[row.index(asked)] == right
    q, k = torch.randn(1, 4), torch.randn(3, 4)
    plain, scaled = (bench["SCORES"][name](4)(q, k) for name in ("q . k", "q . k / sqrt(d_k)"))
    torch.testing.assert_close(scaled, plain / 2)


def test_copies_are_read_shifted_and_padded(bench):
    source, shifted, target = bench["copies"](40, 1, 5)
    assert source.shape == shifted.shape == target.shape == (40, 6)
    lengths = set()
    for read, given, written in zip(source.tolist(), shifted.tolist(), target.tolist(), strict=True):
        end = read.index(2)
        lengths.add(end)
        assert all(digit >= 3 for digit in read[:end])
        assert read[end + 1 :] == [0] * (5 - end)
        assert given == [1, *read[:end], *[0] * (5 - end)]
        assert written == read
    assert lengths == {1, 2, 3, 4, 5}


def test_the_tables_of_training_are_printed(bench, capsys):
    bench["print_scale"](seeds=1, steps=1, widths=(4,))
    header, _, row = rows(capsys)
    assert header == ["d_k", "additive", "q . k", "q . k / sqrt(d_k)"]
    assert row[0] == "4"
    assert all(cell.endswith("%") for cell in row[1:])
    bench["print_extrapolation"](seeds=2, steps=1)
    header, _, *found = rows(capsys)
    assert header[1:] == ["8 digits", "9 digits", *(f"{length} digits" for length in (10, 11, 12, 13, 14, 16))]
    assert [row[0] for row in found] == ["sinusoidal", "learned"]
    assert bench["spread"]([0.5, 1.0]) == "75 % (50 to 100)"
    assert bench["spread"]([1.0, 1.0]) == "100 %"


def test_the_curves_of_runs_are_drawn(bench, tmp_path):
    pytest.importorskip("matplotlib")
    for warmup in (400, 1000):
        run = tmp_path / str(warmup)
        run.mkdir()
        (run / "config.toml").write_text(f"[train]\nwarmup_steps = {warmup}\n", encoding="utf-8")
        rows = [{"split": "train", "step": step, "loss": 9 - step, "lr": step / warmup} for step in (1, 2)]
        (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, {"split": "valid"}]))
    bench["draw_curves"]([tmp_path / "400", tmp_path / "1000"], tmp_path / "curves.svg")
    picture = (tmp_path / "curves.svg").read_text(encoding="utf-8")
    assert picture.count("warm-up of 400 steps") == picture.count("warm-up of 1,000 steps") > 0
