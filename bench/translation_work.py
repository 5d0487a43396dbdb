"""What is translated, and by which weights: a trained model on text, or random weights on random ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.config.presets import paper_base
from clearhead.decoding import Shortlist
from clearhead.errors import DataError, ModelError
from clearhead.files import read_lines
from clearhead.files.tensors import model_tensors
from clearhead.model import Transformer
from clearhead.translation.translator import Translator
from conversion import comparable, padding_last

__all__ = ["CASES", "RandomCase", "Work", "random_work", "trained_work"]

TEXT = Path(__file__).parents[1].parent / "shared" / "data" / "multi30k" / "test2016.de.gz"


@dataclass(frozen=True)
class Work:
    """A model and sentences for it, both in the form of `conversion.comparable`."""

    name: str
    about: str
    config: ModelConfig
    tensors: dict[str, Tensor]
    sources: list[list[int]]
    extra_length: int
    """See `engines.Search`."""
    num_single: int
    """Sentences that are also translated one at a time, spread evenly over the others."""
    show: Callable[[list[int]], str]
    """From an output to what a reader sees of it."""
    shortlist: Shortlist | None
    """What `clearhead optimize` has learned; for random weights, one of the usual size."""
    has_random_weights: bool = False

    def singles(self) -> list[list[int]]:
        """Return the sentences for one at a time."""
        number = min(self.num_single, len(self.sources))
        return [self.sources[place * len(self.sources) // number] for place in range(number)]


@dataclass(frozen=True)
class RandomCase:
    """A model with random weights, and how much of what it translates."""

    config: ModelConfig
    length: int
    """Ids in a source, and in an output before its end."""
    num_sentences: int
    num_single: int
    about: str


PAPER_BASE = RandomCase(
    paper_base(vocab_size=32_000),
    length=30,
    num_sentences=64,
    num_single=8,
    about="6+6 layers, d_model 512, 8 heads, d_ff 2,048, post-norm, 32,000 pieces",
)
CASES: Mapping[str, RandomCase] = {
    "small": RandomCase(
        ModelConfig(vocab_size=8_000, d_model=256, d_ff=1_024, num_heads=4, num_encoder_layers=3, num_decoder_layers=3),
        length=14,
        num_sentences=1_000,
        num_single=50,
        about="3+3 layers, d_model 256, 4 heads, d_ff 1,024, post-norm, 8,000 pieces",
    ),
    "paper-base": PAPER_BASE,
    "paper-base-many": replace(PAPER_BASE, num_sentences=512, num_single=4),  # for a GPU
    "student": RandomCase(
        ModelConfig(
            vocab_size=32_000, d_model=256, d_ff=1_536, num_heads=8, num_encoder_layers=6, num_decoder_layers=2
        ),
        length=30,
        num_sentences=500,
        num_single=25,
        about="6+2 layers, d_model 256, 8 heads, d_ff 1,536, post-norm, 32,000 pieces",
    ),
    "toy": RandomCase(
        ModelConfig(vocab_size=211, d_model=32, d_ff=64, num_heads=2, num_encoder_layers=1, num_decoder_layers=2),
        length=7,
        num_sentences=70,
        num_single=3,
        about="1+2 layers, d_model 32, 2 heads, d_ff 64, 211 pieces; to see whether the benchmark runs",
    ),
}
"""Name to case. The lengths: Multi30k's in 8,000 pieces, and news. Bergamot's tiny models have the student's shape."""


def random_work(name: str) -> Work:
    """Return a case with random weights, whose outputs are as long as the limit allows, for an end token never wins."""
    case = CASES[name]
    torch.manual_seed(1)
    config = case.config
    tensors = model_tensors(Transformer(config))
    special = [config.pad_id, config.bos_id, config.eos_id]
    # A logit of zero is never among the best of thousands.
    tensors["source_embedding.weight"][special] = 0.0
    ids = torch.randint(len(special), config.vocab_size - 1, (case.num_sentences, case.length - 1)).tolist()
    sources = [[*row, config.eos_id] for row in ids]
    changed, weights = comparable(config, tensors)
    return Work(
        name,
        f"{case.about}; random weights and ids, all outputs {case.length} tokens and an end",
        changed,
        weights,
        sources,
        1,
        case.num_single,
        lambda tokens: " ".join(map(str, tokens)),
        Shortlist(
            np.arange(min(1_000, config.vocab_size), dtype=np.int32),
            torch.randint(config.vocab_size, (config.vocab_size, 20), dtype=torch.int32).numpy(),
        ),
        has_random_weights=True,
    )


def trained_work(directory: Path, source: Path | None) -> Work:
    """Return a trained model and the lines of a file.

    Args:
        directory: Of a model or a run.
        source: Lines to translate; Multi30k's test of 2016, German, if not given.

    Raises:
        ModelError: If the directory holds no model.
        DataError: If there is no text.
        ConfigError: If the model fits no form that all engines know.
    """
    if source is None and not TEXT.is_file():
        raise DataError("there is no text to translate: name a file in the model's source language with --source")
    translator = Translator.load(directory, device="cpu")
    bundle = translator.bundle
    config, tokenizer = bundle.model.config, bundle.tokenizer
    lines = [line for line in read_lines(str(source or TEXT)) if line.strip()]
    if not lines:
        raise DataError(f"{source} holds no text to translate")
    sources = tokenizer.encode_sources(lines)
    changed, weights = comparable(config, model_tensors(bundle.model))
    start = "; its start token's embedding is set to zero, for CTranslate2's sake" if config.norm == "post" else ""
    return Work(
        str(directory),
        f"{config.num_encoder_layers}+{config.num_decoder_layers} layers, d_model {config.d_model}, {config.num_heads} "
        f"heads, d_ff {config.d_ff:,}, {config.norm}-norm, {config.vocab_size:,} pieces; trained{start}; "
        f"{(source or TEXT).name}",
        changed,
        weights,
        [[padding_last(token, config) for token in ids] for ids in sources],
        bundle.decode.extra_length,
        50,
        lambda tokens: tokenizer.decode([padding_last(token, config) for token in tokens]),
        _learned_shortlist(translator),
    )


def _learned_shortlist(translator: Translator) -> Shortlist | None:
    try:
        learned = translator._learned_shortlist()
    except ModelError:
        return None
    config = translator.bundle.model.config
    renamed = np.array([padding_last(token, config) for token in range(config.vocab_size)], dtype=np.int32)
    # Minus one, which fills up the rows, stays.
    rows = np.where(learned.rows < 0, learned.rows, renamed[learned.rows])
    return Shortlist(renamed[learned.common], rows[renamed])
