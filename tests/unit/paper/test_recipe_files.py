"""The recipes of examples/: every key is held to the paper, and they train."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from clearhead.config import Config
from clearhead.config.nested import flat
from clearhead.data.store import PairStore
from clearhead.training.layers import Layers
from commands import clearhead

EXAMPLES = Path(__file__).parents[3] / "examples"

BOTH = {
    "tokenizer.kind": "bpe",  # section 5.1
    "tokenizer.vocab_size": 37_000,
    "tokenizer.split_digits": False,
    "tokenizer.placeholders": False,
    "data.augment": False,
    "model.num_encoder_layers": 6,  # 3.1
    "model.num_decoder_layers": 6,
    "model.activation": "relu",  # 3.3
    "model.feed_forward_bias": True,
    "model.attention_bias": False,
    "model.norm": "post",  # 3.1
    "model.norm_kind": "layer",
    "model.tying": "three-way",  # 3.4
    "model.embedding_scale": True,
    "model.positions": "sinusoidal",  # 3.5
    "model.attention_dropout": 0.0,  # 5.4
    "model.feed_forward_dropout": 0.0,
    "train.batch_tokens": 25_000,  # 5.1
    "train.optimizer": "adam",  # 5.3
    "train.adam_betas": [0.9, 0.98],
    "train.adam_eps": 1e-9,
    "train.weight_decay": 0.0,
    "train.schedule": "noam",
    "train.warmup_steps": 4_000,
    "train.label_smoothing": 0.1,  # 5.4
    "train.clip_norm": 0.0,
    "train.patience": 1_000_000,
    "train.precision": "fp32",
    "decode.beam_size": 4,  # 6.1
    "decode.length_penalty": 0.6,
    "decode.length_penalty_form": "gnmt",
    "decode.extra_length": 50,
    "decode.end_loops": False,
}
OWN = {
    "paper-base": {
        "model.d_model": 512,  # Table 3
        "model.num_heads": 8,
        "model.d_ff": 2048,
        "model.dropout": 0.1,
        "train.max_steps": 100_000,  # 5.2
        "train.checkpoint_every": 10 * 60 * 10 // 4,  # 6.1: ten minutes, of 0.4 s a step (5.2)
        "train.average_last": 5,  # 6.1
    },
    "paper-big": {
        "model.d_model": 1024,
        "model.num_heads": 16,
        "model.d_ff": 4096,
        "model.dropout": 0.3,
        "train.max_steps": 300_000,
        "train.checkpoint_every": 10 * 60,  # of 1.0 s
        "train.average_last": 20,
        "train.keep_checkpoints": 20,
    },
}


@pytest.mark.parametrize("name", OWN)
def test_every_key_of_a_recipe_is_what_the_paper_says(name):
    written = tomllib.loads((EXAMPLES / f"{name}.toml").read_text(encoding="utf-8"))
    assert written.pop("preset") == name
    assert flat(written) == BOTH | OWN[name]
    own = {"out": "run", "data": {"source": ["a"], "target": ["b"], **written.pop("data")}}
    layers = Layers().with_("file", {**written, **own}).with_preset(name)
    read = layers.with_("fixed", {"model": {"vocab_size": 37_000}}).config
    assert isinstance(read, Config)
    assert (read.model.key_dim, read.model.value_dim) == (64, 64)
    assert read.train.keep_checkpoints >= read.train.average_last


@pytest.mark.parametrize("name", OWN)
def test_a_recipe_trains_and_its_checkpoints_are_averaged(name, tmp_path):
    for side, words in (("en", "one two three four five"), ("de", "eins zwei drei vier fünf")):
        lines = [" ".join([*words.split()[number % 5 :], str(number)]) for number in range(60)]
        (tmp_path / f"train.{side}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    small = [
        "tokenizer.vocab_size=300",
        "model.d_model=8",
        "model.d_ff=8",
        "model.num_heads=2",
        "train.batch_tokens=99",
    ]
    small += ["model.num_encoder_layers=1", "model.num_decoder_layers=1", "train.checkpoint_every=1"]
    files = [f"--{role}={tmp_path / f'train.{side}'}" for role, side in (("source", "en"), ("target", "de"))]
    options = [*files, "--max-steps=6", *(f"--set={one}" for one in [*small, "train.validate_sentences=1"])]
    assert clearhead("train", EXAMPLES / f"{name}.toml", f"--out={tmp_path / 'run'}", *options) == 0
    assert len(PairStore.open(tmp_path / "run" / "data" / "train.arrow")) > 0
    assert clearhead("average", tmp_path / "run", "--last=5", f"--out={tmp_path / 'model'}") == 0
    assert (tmp_path / "model" / "model.safetensors").is_file()


def test_the_small_run_of_the_page_changes_sizes_alone_and_starts(tmp_path):
    page = (EXAMPLES.parent / "docs" / "paper.md").read_text(encoding="utf-8").replace("\\\n", " ")
    (command,) = re.findall(r"^clearhead (train examples/paper-base\.toml --pairs .+)$", page, flags=re.MULTILINE)
    words = shlex.split(command)
    changed = dict(words[place + 1].split("=") for place, word in enumerate(words) if word == "--set")
    sizes = {"d_model", "d_ff", "num_heads", "num_encoder_layers", "num_decoder_layers"}
    assert {key for key in changed if key.startswith("model.")} == {f"model.{size}" for size in sizes}
    assert {key for key in changed if not key.startswith("model.")} == {
        "tokenizer.vocab_size",
        *(f"train.{key}" for key in ("batch_tokens", "warmup_steps", "checkpoint_every", "validate_every")),
    }
    here = {"examples/paper-base.toml": str(EXAMPLES / "paper-base.toml"), "runs/recipe": str(tmp_path / "run")}
    for name, numbers in (("train", range(60)), ("valid", range(60, 70))):
        here[f"runs/demo/corpus/{name}.tsv"] = str(tmp_path / f"{name}.tsv")
        (tmp_path / f"{name}.tsv").write_text("".join(f"{n} apples\t{n} Äpfel\n" for n in numbers), encoding="utf-8")
    assert clearhead(*(here.get(word, word) for word in words), "--max-steps=1", "--set=tokenizer.vocab_size=300") == 0
    assert (tmp_path / "run" / "model" / "model.safetensors").is_file()
