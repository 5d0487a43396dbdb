"""The walk: a reader can compute every printed result from the printed operands and weights, and finds the lines."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import clearhead
from clearhead.errors import ConfigError
from clearhead.paper import plain
from clearhead.paper.places import PLACES
from clearhead.paper.recording import Recording
from clearhead.paper.walk import stages
from clearhead.paper.walk.model import LEARNED, VOCABULARY, WEIGHTS
from clearhead.paper.walk.part import walk
from clearhead.paper.walk.steps import NamedMatrix, WalkStep
from clearhead.paper.walk.text import matrices

OTHERS = ["cat", "runs The mouse the cat sleeps", "the the the the the the the the"]
SELF, CROSS, MASKED = (
    "the encoder's self-attention",
    "the decoder's cross-attention",
    "the decoder's masked self-attention",
)
NETWORK, DECODER_NETWORK = "the encoder's feed-forward network", "the decoder's feed-forward network"

Numbers = list[list[float]]


@dataclass
class Printed:
    """The matrices of a part of the text, cells as printed, and the names of their rows."""

    cells: dict[str, list[list[str]]] = field(default_factory=dict)
    rows: dict[str, list[str]] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Numbers:
        return [[float(cell) for cell in row] for row in self.cells[name]]


def read(lines: list[str]) -> Printed:
    """Return the matrices of some lines: a line of names, then a line for each row."""
    found, names = Printed(), []
    for line in lines:
        if rows := re.findall(r"\[ (.*?) \]", line):
            for name, row in zip(names, rows, strict=True):
                found.cells[name].append(row.split())
                found.rows[name].append(line.partition("[ ")[0].strip())
        else:
            names = line.split()
            found.cells |= {name: [] for name in names}
            found.rows |= {name: [] for name in names}
    return found


def parsed(text: str) -> tuple[dict[str, Printed], dict[str, tuple[Printed, Printed]]]:
    """Return the weights by block, and the operands and results of each step by its number."""
    parts = re.split(r"\n(?=Stage \d+ of 13: )", text)
    blocks = re.split(r"\n\n  (?=the )", parts[0])[1:]
    weights = {block.split("\n")[0].split(",")[0]: read(block.split("\n")[1:]) for block in blocks}
    steps = {}
    for block in re.split(r"\n\n  (?=\d+\.\d)", "\n".join(parts[1:]))[1:]:
        lines = [line for line in block.split("\n\n")[0].split("\n") if "columns: " not in line]
        [end] = [place for place, line in enumerate(lines) if line.startswith("       result, ")]
        start = next((place for place, line in enumerate(lines) if line.startswith("       operands, ")), end)
        steps[lines[0].split()[0]] = read(lines[start + 1 : end]), read(lines[end + 1 :])
    return weights, steps


def product(a: Numbers, b: Numbers) -> Numbers:
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def softmax(rows: Numbers) -> Numbers:
    powers = [[math.exp(x) for x in row] for row in rows]
    return [[power / sum(row) for power in row] for row in powers]


def plus(a: Numbers, b: Numbers) -> Numbers:
    return [
        [x + y for x, y in zip(*rows, strict=True)] for rows in zip(a, b if len(b) > 1 else b * len(a), strict=True)
    ]


def layer_norm(rows: Numbers) -> Numbers:
    found = []
    for row in rows:
        mean = sum(row) / 4
        variance = sum((x - mean) ** 2 for x in row) / 4
        found.append([(x - mean) / math.sqrt(variance + 0.00001) for x in row])
    return found


def scores(q: Numbers, k: Numbers) -> Numbers:
    return [[value / math.sqrt(2) for value in row] for row in product(q, [list(row) for row in zip(*k, strict=True)])]


def causal(rows: Numbers) -> Numbers:
    return [[x if key <= query else -math.inf for key, x in enumerate(row)] for query, row in enumerate(rows)]


def encodings(positions: Numbers) -> Numbers:
    return [[math.sin(pos), math.cos(pos), math.sin(pos / 100), math.cos(pos / 100)] for [pos] in positions]


def replayed(weights: dict[str, Printed], steps: dict[str, tuple[Printed, Printed]]) -> dict[str, dict[str, Numbers]]:
    """Compute the results of every step from printed numbers alone."""
    given = {number: operands for number, (operands, _) in steps.items()}
    embedding = dict(zip(weights["the embedding"].rows["E"], weights["the embedding"]["E"], strict=True))
    ids = dict(zip(weights["the embedding"].rows["id"], weights["the embedding"]["id"], strict=True))
    found: dict[str, dict[str, Numbers]] = {"1.1": {"id": [ids[token] for token in steps["1.1"][1].rows["id"]]}}

    def embed(first: str, name: str) -> None:
        stage, _, place = first.partition(".")
        rows = [embedding[token] for token in given[first].rows["E[id]"]]
        assert given[first]["E[id]"] == rows
        found[first] = {f"{name}0": [[2 * x for x in row] for row in rows]}
        encoded, placed = ("3.1", "3.2") if stage == "2" else (f"{stage}.{int(place) + 1}", f"{stage}.{int(place) + 2}")
        found[encoded] = {"PE": encodings(given[encoded]["pos"])}
        found[placed] = {name: plus(given[placed][f"{name}0"], given[placed]["PE"])}

    def attend(numbers: list[str], block: str, query: str, memory: str, name: str) -> None:
        w, (project, score, *mask, soft, weigh, join, add, norm) = weights[block], numbers
        sides = {"Q": query, "K": memory, "V": memory}
        heads = [(letter, head) for letter in sides for head in (1, 2)]
        found[project] = {
            f"{letter}_{head}": product(given[project][sides[letter]], w[f"W_{head}^{letter}"])
            for letter, head in heads
        }
        found[score] = {f"S_{head}": scores(given[score][f"Q_{head}"], given[score][f"K_{head}"]) for head in (1, 2)}
        for one in mask:
            found[one] = {f"S'_{head}": causal(given[one][f"S_{head}"]) for head in (1, 2)}
        scored = "S'" if mask else "S"
        found[soft] = {f"A_{head}": softmax(given[soft][f"{scored}_{head}"]) for head in (1, 2)}
        found[weigh] = {
            f"head_{head}": product(given[weigh][f"A_{head}"], given[weigh][f"V_{head}"]) for head in (1, 2)
        }
        both = zip(given[join]["head_1"], given[join]["head_2"], strict=True)
        found[join] = {"M": product([left + right for left, right in both], w["W^O"])}
        found[add] = {"R": plus(given[add][query], given[add]["M"])}
        found[norm] = {name: layer_norm(given[norm]["R"])}

    def feed(stage: int, block: str, x: str, name: str) -> None:
        w, (widen, narrow, add, norm) = weights[block], [f"{stage}.{place}" for place in range(1, 5)]
        hidden = plus(product(given[widen][x], w["W_1"]), w["b_1"])
        found[widen] = {"H": [[max(0.0, value) for value in row] for row in hidden]}
        found[narrow] = {"F": plus(product(given[narrow]["H"], w["W_2"]), w["b_2"])}
        found[add] = {"R": plus(given[add][x], given[add]["F"])}
        found[norm] = {name: layer_norm(given[norm]["R"])}

    embed("2.1", "X")
    attend(["4.1", "5.1", "6.1", "7.1", "7.2", "8.1", "8.2"], SELF, "X", "X", "N")
    feed(9, NETWORK, "N", "memory")
    embed("10.1", "Y")
    attend([f"10.{place}" for place in range(4, 12)], MASKED, "Y", "Y", "Y'")
    attend([f"11.{place}" for place in range(1, 8)], CROSS, "Y'", "memory", "Y''")
    feed(12, DECODER_NETWORK, "Y''", "Z")
    [z] = given["13.1"]["z"]
    found["13.1"] = {"logit": [[sum(a * b for a, b in zip(row, z, strict=True))] for row in embedding.values()]}
    found["13.2"] = {"p": [[p] for p in softmax([[x for [x] in given["13.2"]["logit"]]])[0]]}
    return found


@pytest.mark.parametrize("sentence", [*LEARNED, *OTHERS])
def test_every_result_can_be_computed_from_the_printed_numbers(sentence):
    text = walk(sentence).text
    weights, steps = parsed(text)
    found = replayed(weights, steps)
    assert list(steps) == sorted(found, key=lambda number: tuple(map(int, number.split("."))))
    for number, (_, results) in steps.items():
        assert found[number].keys() == results.cells.keys(), number
        for name, rows in results.cells.items():
            shown = [
                [
                    f"{value:z.{len(cell.partition('.')[2]) if cell != '-inf' else 2}f}"
                    for value, cell in zip(*both, strict=True)
                ]
                for both in zip(found[number][name], rows, strict=True)
            ]
            assert shown == rows, (number, name)
    probabilities = {token: p for token, [p] in zip(VOCABULARY, steps["13.2"][1]["p"], strict=True)}
    assert re.search(r"The next token is (\S+)\.", text)[1] == max(probabilities, key=probabilities.get)


@pytest.mark.parametrize("sentence", [*LEARNED, *OTHERS])
def test_an_operand_is_a_result_printed_before(sentence):
    _, steps = parsed(walk(sentence).text)
    before: dict[str, Numbers] = {}
    for number, (operands, results) in steps.items():
        for name in operands.cells:
            if name in ("E[id]", "pos", "z"):
                continue
            for row, earlier in zip(operands[name], before[name], strict=True):
                assert row == pytest.approx(earlier, abs=0.0051), (number, name)
        before |= {name: results[name] for name in results.cells}
    assert steps["13.1"][0]["z"][0] == pytest.approx(before["Z"][-1], abs=0.0051)


def test_the_lines_are_those_of_the_code():
    lines = re.findall(r"^ +clearhead/(\S+):(\d+)  (.+)$", walk().text, flags=re.MULTILINE)
    assert len(lines) > 40
    for file, number, text in lines:
        code = (Path(clearhead.__file__).parent / file).read_text(encoding="utf-8").splitlines()
        assert code[int(number) - 1].split("  #")[0].strip() == text


def test_every_line_that_a_step_names_ran(monkeypatch):
    named = {place for stage in stages.walked(["the", "cat"]).stages for step in stage.steps for place in step.code}
    recordings: list[Recording] = []
    monkeypatch.setattr(stages, "_stages", lambda run, search, *_: recordings.extend([run, search]))
    stages.walked(["the", "cat"])
    ran = {(call.code.file, call.code.text) for recording in recordings for call in recording.calls}
    assert len(named) > 15
    assert {(PLACES[place].file, PLACES[place].line) for place in named} <= ran


def test_there_are_13_stages_with_a_place_in_the_paper():
    numbers = re.findall(
        r"^Stage (\d+) of 13: .+ \((?:equation \d, )?section [\d.]+\)$", walk().text, flags=re.MULTILINE
    )
    assert numbers == [str(number) for number in range(1, 14)]


@pytest.mark.parametrize(("sentence", "translation"), LEARNED.items())
def test_the_learned_sentences_are_translated(sentence, translation):
    part = walk(sentence)
    assert part.failures == []
    assert part.data["translation"] == [*translation.split(), "</s>"]
    assert (part.data["target"], part.data["next_token"]) == (["<s>", translation.split()[0]], translation.split()[1])


def test_the_weights_are_small_integers():
    values = {value for block in WEIGHTS.values() for matrix in block.values() for row in matrix for value in row}
    assert values == {-2, -1, 0, 1, 2}


def test_attention_is_spread_over_several_words():
    [step] = walk().data["stages"][5]["steps"]
    for head in step["results"].values():
        largest = [max(row) for row in head["values"]]
        assert max(largest) > 0.6
        assert min(largest) < 0.6


def test_the_data_are_json_without_infinities():
    data = json.loads(json.dumps(walk().data, allow_nan=False))
    assert [stage["number"] for stage in data["stages"]] == list(range(1, 14))
    masked = data["stages"][9]["steps"][5]
    assert masked["results"]["S'_1"]["values"][0][1] is None
    assert masked["results"]["S'_1"]["rows"] == masked["results"]["S'_1"]["columns"] == ["<s>", "le"]


def test_other_numbers_than_those_of_plain_python_fail(monkeypatch):
    monkeypatch.setattr(plain, "softmax", lambda row: [1 / len(row) for _ in row])
    failures = " ".join(walk().failures)
    assert [number for number in range(1, 14) if f"stage {number}," in failures] == [6, 10, 11, 13]


def test_operands_have_as_few_decimals_as_give_the_result():
    def step(factor: float, *, result: float) -> WalkStep:
        operand, product = NamedMatrix("x", [[1.23456]]), NamedMatrix("y", [[result]])
        return WalkStep("y = factor x", (), (operand,), (product,), lambda x: [[[factor * x[0][0]]]])

    assert step(1, result=1.23456).decimals == 2
    assert step(10, result=12.3456).decimals == 3  # 12.35 from 1.235, but 12.30 from 1.23
    assert step(100, result=123.456).decimals == 4  # 123.46 from 1.2346, but 123.50 from 1.235
    assert step(10, result=12.31).decimals == 12  # no number of decimals gives what is not the product


def test_matrices_with_the_same_rows_are_side_by_side():
    tables = [
        NamedMatrix("A", [[1.0, -0.5], [0.25, 0.0]], ["the", "cat"]),
        NamedMatrix("B", [[3.0], [4.0]], ["the", "cat"]),
        NamedMatrix("C", [[-math.inf]], ["the"], ["cat"]),
    ]
    assert [line.strip() for line in matrices(tables)] == [
        "A                 B",
        "the  [  1.00  -0.50 ]  [ 3 ]",
        "cat  [  0.25   0.00 ]  [ 4 ]",
        "columns: cat",
        "C",
        "the  [ -inf ]",
    ]


def test_the_text_says_which_variance_a_norm_has():
    text = " ".join(walk().text.split())
    assert "variance = ((r_1 - mean)^2 + ... + (r_4 - mean)^2) / 4;" in text  # torch.var divides by 3


def test_the_text_says_why_its_formulas_have_no_dropout():
    text = " ".join(walk().text.split())
    assert "self.dropout(sublayer(x))" in text
    assert "Dropout, which some of these lines name, does nothing outside training." in text


@pytest.mark.parametrize(
    ("sentence", "message"),
    [
        ("the dog sleeps.", "unknown words: 'dog', 'sleeps.'; the model knows the, cat, sleeps, runs, mouse"),
        ("", "1 to 8 words, this one has 0"),
        ("the cat " * 5, "1 to 8 words, this one has 10"),
    ],
)
def test_walk_rejects_unknown_words_and_too_many_words(sentence, message):
    with pytest.raises(ConfigError, match=re.escape(message)):
        walk(sentence)
