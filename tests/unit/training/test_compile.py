"""`train.compile`, in a process of its own: PyTorch's compiler does not work with the shape checks of a test run."""

from __future__ import annotations

from pathlib import Path

import pytest

from clearhead.training.log import read_metrics
from clearhead.translation.translator import Translator
from processes import finish, start
from small_runs import train_arguments


@pytest.mark.slow
def test_a_compiled_model_learns_what_the_plain_one_does(settings, tmp_path):
    losses, log = {}, tmp_path / "log.txt"
    for is_compiled in (False, True):
        values = settings(
            out=str(tmp_path / str(is_compiled)),
            model={"dropout": 0.0},
            # Steps of several shapes, in parts of several shapes.
            train={"max_steps": 25, "validate_every": 25, "checkpoint_every": 25, "compile": is_compiled},
        )
        arguments = [text.replace("=True", "=true").replace("=False", "=false") for text in train_arguments(values)]
        assert finish(start(arguments, log)) == 0, log.read_text()
        losses[is_compiled] = [record["nll"] for record in read_metrics(Path(values["out"]) / "metrics.jsonl")]
    assert len(losses[True]) == 2
    assert losses[True] == pytest.approx(losses[False], rel=1e-3)
    assert Translator.load(tmp_path / "True", device="cpu").translate(["eins zwei"])[0].text is not None
