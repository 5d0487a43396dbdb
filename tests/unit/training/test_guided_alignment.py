"""Guided alignment: the loss equals its formula, however a step is split, and a stopped run resumes exactly."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from one_step import BOS, EOS, VOCAB_SIZE, batch_of, gradients, stepper_of

from clearhead.bundle import load_bundle, save_bundle
from clearhead.data.store import PairStore, StoreWriter
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import CheckpointError, ConfigError, DataError
from clearhead.files.tensors import read_weights
from clearhead.model import Transformer
from clearhead.training.layers import Layers
from clearhead.training.log import read_metrics
from clearhead.training.resume import gather
from clearhead.training.run import train_from_values
from clearhead.training.step import Stepper
from clearhead.translation.alignment import alignment_head, guided_head_of

LENGTHS = [(3, 11), (7, 2), (2, 7), (13, 5), (5, 3)]
WEIGHT = 0.3


def write_store(path: Path, *, with_links: bool = True) -> PairStore:
    choose = np.random.default_rng(5)
    with StoreWriter(path, with_links=with_links) as writer:
        for number, (source, target) in enumerate(LENGTHS):
            ids = [[*choose.integers(3, VOCAB_SIZE, length - 1).tolist(), EOS] for length in (source, target)]
            places = choose.integers(0, (source - 1, target - 1), size=(4, 2)).tolist()
            links = sorted({(a, b) for a, b in places}) if number != 1 else []  # one pair has none
            writer.append("", "", *ids, links)
    return PairStore.open(path)


@pytest.fixture
def store(tmp_path) -> PairStore:
    return write_store(tmp_path / "pairs.arrow")


def guided(dropout=0.0, model=None, **train) -> Stepper:
    """Return what makes steps with guided alignment, of a post-norm model with one encoder layer."""
    settings = {"guided_alignment_weight": WEIGHT, "label_smoothing": 0.0, **train}
    return stepper_of(dropout=dropout, model={"num_encoder_layers": 1, "norm": "post", **(model or {})}, **settings)


def plain_losses(model: Transformer, store: PairStore, layer: int):
    """Return both losses of all pairs, summed in plain loops over one pair at a time and every weight of every head."""
    translation, alignment = [], []
    for row in range(len(store)):
        source, target = store.source_ids(row).tolist(), store.target_ids(row).tolist()
        read = torch.tensor([[BOS, *target[:-1]]])
        log_probs = model(torch.tensor([source]), read)[0].log_softmax(-1)
        translation += [-log_probs[place, token] for place, token in enumerate(target)]
        weights = model.attention_weights(torch.tensor([source]), read).cross[layer][0, 0]
        for place in range(len(target) - 1):
            looked_at = [s for s, t in store.links(row).tolist() if t == place]
            # The target's token at `place` is read one step later, behind the start token.
            alignment += [-weights[place + 1, s].log() / len(looked_at) for s in looked_at]
    linked = {(row, t) for row in range(len(store)) for _, t in store.links(row).tolist()}
    return sum(translation), sum(alignment), len(linked)


@pytest.mark.parametrize(("asked", "layer"), [(None, 1), (2, 2)])
def test_loss_and_gradient_are_those_of_the_formula(store, asked, layer):
    stepper = guided(guided_alignment_layer=asked)
    translation, alignment, linked = plain_losses(stepper.model, store, layer)
    tokens = sum(length for _, length in LENGTHS)
    names, parameters = zip(*stepper.model.named_parameters(), strict=True)
    slope = torch.autograd.grad((translation + WEIGHT * alignment) / tokens, parameters)

    found, result = gradients(stepper, [batch_of(store)])
    assert result.loss == pytest.approx((translation / tokens).item(), rel=1e-5)
    assert result.alignment == pytest.approx((alignment / linked).item(), rel=1e-5)
    for name, expected in zip(names, slope, strict=True):
        torch.testing.assert_close(found[name], expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("cut", [[(0, 1), (2, 3, 4)], [(1,), (4, 0), (3,), (2,)]])
def test_cutting_a_step_changes_nothing(store, cut):
    model = {"attention_dropout": 0.2}
    whole, all_at_once = gradients(guided(0.2, model), [batch_of(store)])
    parts, cut_up = gradients(guided(0.2, model), [batch_of(store, *rows) for rows in cut])
    assert cut_up.alignment == pytest.approx(all_at_once.alignment, rel=1e-6)
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-5, atol=1e-6)


def test_the_head_draws_no_random_number_and_links_that_are_not_there_cost_nothing(store, tmp_path):
    unlinked = write_store(tmp_path / "unlinked.arrow", with_links=False)
    (with_links, one), (without, other) = (
        gradients(guided(0.3, guided_alignment_weight=1e-12), [batch_of(each)]) for each in (store, unlinked)
    )
    assert other.alignment is None
    assert one.loss == other.loss
    for name, gradient in without.items():
        torch.testing.assert_close(with_links[name], gradient, rtol=1e-5, atol=1e-9)


def settings_of_lines(settings, tmp_path, **changes):
    """Return settings of a run whose words are linked with those in the same place, and none for each third pair."""
    lines = (tmp_path / "numbers.tsv").read_text(encoding="utf-8").splitlines()
    sources, targets = zip(*(line.split("\t") for line in lines), strict=True)
    links = [
        "" if number % 3 == 0 else " ".join(f"{n}-{n}" for n in range(len(source.split())))
        for number, source in enumerate(sources)
    ]
    for name, some in (("de", sources), ("en", targets), ("links", links)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    data = {"source": [str(tmp_path / "de")], "target": [str(tmp_path / "en")], "alignments": [str(tmp_path / "links")]}
    values = settings(train={"max_steps": 26, "checkpoint_every": 13, "validate_every": 26}, **changes)
    del values["data"]["pairs"]
    values["data"] |= data
    values["model"] |= {"num_decoder_layers": 3}
    return values


def test_guided_run_resumes_bit_for_bit_and_records_its_alignment_head(settings, tmp_path, capsys):
    values = settings_of_lines(settings, tmp_path)
    run = train_from_values(values).run
    assert "have links, which" in capsys.readouterr().err
    last = run / "checkpoints" / "step-00000026"
    expected = {name: read_weights(last / f"{name}.safetensors")[0] for name in ("model", "optimizer")}
    shutil.rmtree(last)
    assert train_from_values(values).step == 26
    for name, tensors in expected.items():
        torch.testing.assert_close(read_weights(last / f"{name}.safetensors")[0], tensors, rtol=0, atol=0)

    (record,) = (record for record in read_metrics(run / "metrics.jsonl") if record["split"] == "train")
    assert 0 < record["alignment"] < math.inf
    assert "Guided alignment" in (run / "report.html").read_text(encoding="utf-8")
    assert "| links | 200 | links of words |" in (run / "model" / "README.md").read_text(encoding="utf-8")

    head = AlignmentHead(1, 0, is_reading=True)
    bundle = load_bundle(run)
    assert (guided_head_of(bundle), alignment_head(bundle)) == (head, head)
    kept = json.loads((run / "model" / "alignment.json").read_text())
    assert {name: kept[name] for name in head._fields} == head._asdict()
    save_bundle(run / "model", bundle)  # without a file beside it
    assert alignment_head(load_bundle(run)) == head

    (tmp_path / "links").write_text("0-0\n" * 200, encoding="utf-8")
    with pytest.raises(CheckpointError, match=r"data\.alignments: .* bytes, the prepared data was made of"):
        train_from_values(values)


def test_guided_alignment_rejects_missing_layers_and_pairs_not_line_by_line(settings, tmp_path):
    with pytest.raises(ConfigError, match=r"guided_alignment_layer \(2\) counts from 0, .*give at most 1"):
        gather(Layers().with_("file", settings(model={"num_decoder_layers": 2}, train={"guided_alignment_layer": 2})))
    links = tmp_path / "links"
    links.write_text("0-0\n")
    with pytest.raises(DataError, match=r"files of links .*; source files: none; .*Only text line by line"):
        train_from_values(settings(data={"alignments": [str(links)]}))
