"""How good a model is on the validation pairs: loss, and BLEU of what it really writes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import Config, DecodeConfig
from clearhead.data.batches import valid_batches
from clearhead.data.store import PairStore
from clearhead.decoding import SearchOptions, decode
from clearhead.evaluation.metrics import bleu
from clearhead.model.transformer import Transformer
from clearhead.tokenizer import Tokenizer
from clearhead.weights import load_tensors

__all__ = ["Validation", "is_better", "perplexity", "validate", "validate_weights"]


@dataclass(frozen=True, slots=True)
class Validation:
    """Result of one validation."""

    nll: float
    """Negative log-likelihood per target token, without smoothing, in nats."""
    bleu: float
    """sacreBLEU of greedy translations."""
    bleu_signature: str

    @property
    def ppl(self) -> float:
        """Perplexity per subword token; not comparable between tokenizers."""
        return perplexity(self.nll)


def perplexity(nll: float) -> float:
    """Return e to the negative log-likelihood per token, and a finite number however bad that is."""
    return math.exp(min(nll, 700.0))


@torch.inference_mode()
def validate(model: Transformer, pairs: PairStore, tokenizer: Tokenizer, config: Config) -> Validation:
    """Measure a model; it is in evaluation mode meanwhile, and in the mode it was in afterwards.

    Args:
        model: The model.
        pairs: Validation pairs.
        tokenizer: The model's tokenizer.
        config: `train.micro_batch_tokens`, `train.validate_sentences` and `decode.extra_length` count.
    """
    was_training = model.training
    model.eval()
    try:
        return Validation(_nll(model, pairs, config), *_bleu(model, pairs, tokenizer, config))
    finally:
        model.train(was_training)


def validate_weights(
    weights: Mapping[str, Tensor], pairs: PairStore, tokenizer: Tokenizer, config: Config, device: torch.device
) -> Validation:
    """Measure weights in a model made for it: what is published is another one, on the CPU."""
    model = Transformer(config.model)  # weights drawn for nothing, as in `load_bundle`
    load_tensors(model, weights, origin="the weights")
    return validate(model.to(device), pairs, tokenizer, config)


def is_better(bleu: float, nll: float, than_bleu: float, than_nll: float) -> bool:
    """Rank by BLEU; equal BLEU, as in the first steps when it is 0, by likelihood."""
    return (bleu, -nll) > (than_bleu, -than_nll)


def _nll(model: Transformer, pairs: PairStore, config: Config) -> float:
    device = model.device
    total, tokens = 0.0, 0
    for batch in valid_batches(
        pairs, config.train.micro_batch_tokens, pad_id=model.config.pad_id, bos_id=model.config.bos_id
    ):
        target = batch.target_out.to(device)
        is_token = target != model.config.pad_id
        states = model.states(batch.target_in.to(device), *model.encode(batch.source.to(device)))[is_token]
        for part, truth in zip(states.split(1_024), target[is_token].split(1_024), strict=True):
            total += functional.cross_entropy(model.output_proj(part), truth, reduction="sum").item()
        tokens += batch.num_target_tokens
    return total / tokens


def _bleu(model: Transformer, pairs: PairStore, tokenizer: Tokenizer, config: Config) -> tuple[float, str]:
    rows = range(min(len(pairs), config.train.validate_sentences))
    options = SearchOptions(DecodeConfig(beam_size=1, extra_length=config.decode.extra_length))
    found = decode(model, [pairs.source_ids(row).tolist() for row in rows], options)
    texts = tokenizer.decode_batch([hypotheses[0].tokens for hypotheses in found])
    metric = bleu(texts, [pairs.target(row) for row in rows])
    return metric.score, metric.signature
