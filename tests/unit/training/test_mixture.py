"""Runs on a mixture of files: weights that are no whole numbers, and a temperature."""

from __future__ import annotations

import numpy as np
import pytest

from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.training.distributed import Workers
from clearhead.training.run import train_from_values
from clearhead.training.steps import PaddedBatches
from small_runs import QUICK, assert_same_weights, numbers, tiny_settings, write_tsv

SAME = {"schedule": "constant", "optimizer": "adam"}
"""Settings that do not depend on the number of steps."""


@pytest.fixture
def mixed(tmp_path):
    """Return a function that trains on 150 and 40 pairs in two files."""
    pairs = numbers()
    files = [write_tsv(tmp_path / "large.tsv", pairs[:150]), write_tsv(tmp_path / "small.tsv", pairs[150:190])]
    valid = write_tsv(tmp_path / "valid.tsv", pairs[190:])
    data = {"pairs": list(map(str, files)), "valid_pairs": [str(valid)], "augment": False}

    def run(name, steps, **changes):
        train = {**QUICK, **SAME, "max_steps": steps}
        values = {"out": str(tmp_path / name), "train": train, "data": {**data, **changes}}
        return train_from_values(tiny_settings(tmp_path, values)).run

    return run


@pytest.mark.parametrize("changes", [{"weights": [0.3, 2.5]}, {"temperature": 5.0}])
def test_a_resumed_run_on_a_mixture_equals_the_uninterrupted_one(mixed, changes):
    whole = mixed("whole", 20, **changes)
    mixed("parts", 4, **changes)
    parts = mixed("parts", 20, **changes)
    assert open_prepared(whole / "data").order(Config.load(whole / "config.toml").train).batches_per_epoch < 20
    for run in (whole, parts):
        assert len(list((run / "checkpoints").iterdir())) > 1
    assert_same_weights(*(run / "checkpoints" / "step-00000020" for run in (parts, whole)))


def test_epochs_have_the_pairs_that_weights_and_temperature_ask_for(mixed):
    roots = np.array([150**0.2, 40**0.2])
    expected = {
        "weighted": ({"weights": [0.3, 2.5]}, [45, 100]),
        "tempered": ({"temperature": 5.0}, (190 * roots / roots.sum()).round()),
        "both": ({"temperature": 5.0, "weights": [1, 0.5]}, (190 * roots / roots.sum() * [1, 0.5]).round()),
    }
    for name, (changes, counts) in expected.items():
        run = mixed(name, 4, **changes)
        config, data = Config.load(run / "config.toml"), open_prepared(run / "data")
        order = data.order(config.train)
        of_workers = [
            [PaddedBatches(data.train, order, config, Workers(rank, count)) for rank in range(count)]
            for count in (1, 2)
        ]
        for epoch in (0, 3):
            steps = range(epoch * order.batches_per_epoch, (epoch + 1) * order.batches_per_epoch)
            seen = [
                [[row for worker in workers for part in worker.of_step(step)[0] for row in part.rows] for step in steps]
                for workers in of_workers
            ]
            assert [sorted(rows) for rows in seen[0]] == [sorted(rows) for rows in seen[1]]
            rows = np.concatenate(seen[0])
            assert [(rows < 150).sum(), (rows >= 150).sum()] == list(counts)
    plain = mixed("plain", 4)
    assert "weights" not in open_prepared(plain / "data").report
