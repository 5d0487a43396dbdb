"""`train.compile`, in a process of its own: PyTorch's compiler does not work with the shape checks of a test run."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.config import ModelConfig
from clearhead.config.presets import TABLE3
from clearhead.model import Transformer
from clearhead.training.log import read_metrics
from clearhead.translation.translator import Translator
from processes import call, finish, start
from small_runs import train_arguments

SMALL = {"vocab_size": 97, "d_model": 64, "d_ff": 48, "num_encoder_layers": 2, "num_decoder_layers": 1}
VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "rotary, dropout": {"positions": "rotary", "norm": "pre", "attention_dropout": 0.1, "feed_forward_dropout": 0.1},
    "relative, gated": {"positions": "relative", "norm_kind": "rms", "gated": True, "activation": "silu"},
    "without encoder": {"num_encoder_layers": 0, "tying": "decoder", "positions": "learned"},
}
PRESETS = {
    name: {key: value for key, value in values.get("model", {}).items() if key not in SMALL}
    for name, values in TABLE3.items()
}


def trace_training(settings: dict[str, Any]) -> None:
    """Compile the forward pass of a training step for two shapes; a break of its graph raises."""
    model = Transformer(ModelConfig(**{**SMALL, **settings})).train()
    has_encoder = model.config.num_encoder_layers > 0
    compiled = torch.compile(lambda source, target: model(source, target).sum(), fullgraph=True, backend="eager")
    for source, target in ((7, 5), (11, 6)):
        ids = torch.randint(3, 97, (2, source)) if has_encoder else None
        compiled(ids, torch.randint(3, 97, (2, target))).backward()


@pytest.mark.parametrize(
    "settings",
    [*VARIANTS.values(), *(pytest.param(values, marks=pytest.mark.slow) for values in PRESETS.values())],
    ids=[*VARIANTS, *PRESETS],
)
def test_compiled_forward_pass_is_one_graph(settings):
    assert call(partial(trace_training, settings)) == 0


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
