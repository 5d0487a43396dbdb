"""Validation of a model: loss on validation pairs, BLEU and chrF of greedy translations; which weights are better."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from clearhead.config import Config, DecodeConfig
from clearhead.data.batches import valid_batches
from clearhead.data.prepare import Prepared
from clearhead.data.store import PairStore
from clearhead.decoding import SearchOptions, cut_sources, decode, given_prefix
from clearhead.evaluation.metrics import judge
from clearhead.files import json_sha256
from clearhead.files.tensors import load_tensors
from clearhead.kernels.plain_code import plain_code
from clearhead.model.transformer import Transformer
from clearhead.text.languages import split_tag
from clearhead.text.placeholder_masking import protect
from clearhead.tokenizers import Vocabulary
from clearhead.training.distributed import Workers
from clearhead.training.own_parts import NO_OWN_PARTS, OwnParts
from clearhead.translation.search import Engines


@dataclass(frozen=True, slots=True)
class Validation:
    """Result of one validation."""

    nll: float
    """Negative log-likelihood per target token, without smoothing, in nats."""
    bleu: float
    """BLEU of greedy translations, in percent."""
    bleu_signature: str
    chrf: float
    """chrF of the same translations, in percent."""
    chrf_signature: str
    general: Validation | None = None
    """Validation on general text, if any is configured."""

    @property
    def ppl(self) -> float:
        """Perplexity per subword token; not comparable between tokenizers."""
        return perplexity(self.nll)

    @property
    def scores(self) -> str:
        """The metrics as text, such as `BLEU 31.42, chrF 52.10`."""
        return f"{self.bleu_title} {self.bleu:.2f}, chrF {self.chrf:.2f}"

    @property
    def record(self) -> dict[str, float]:
        """The numbers of the training log."""
        record = {"nll": self.nll, "ppl": self.ppl, "bleu": self.bleu, "chrf": self.chrf}
        if (general := self.general) is None:
            return record
        return {**record, "general_nll": general.nll, "general_bleu": general.bleu, "general_chrf": general.chrf}

    @property
    def bleu_title(self) -> str:
        """The name of BLEU, with its tokenization unless it is `13a`."""
        tokenization = re.search(r"\btok:([^|]+)", self.bleu_signature)
        return f"BLEU ({tokenization[1]})" if tokenization and tokenization[1] != "13a" else "BLEU"


def perplexity(nll: float) -> float:
    """Return e to the power of the negative log-likelihood per token, limited to a finite number."""
    return math.exp(min(nll, 700.0))


class Quality(Protocol):
    """Scores that rank weights, of a `Validation` or of a checkpoint's record of one."""

    @property
    def nll(self) -> float:
        """Negative log-likelihood per target token, in nats."""

    @property
    def chrf(self) -> float:
        """Corpus chrF of greedy translations, in percent."""


@torch.inference_mode()
def validate(
    model: Transformer, pairs: PairStore, tokenizer: Vocabulary, config: Config, workers: Workers | None = None
) -> Validation:
    """Validate a model in evaluation mode, and restore its mode afterwards.

    Args:
        model: The model.
        pairs: Validation pairs.
        tokenizer: Tokenizer of the model.
        config: Settings, of which `train.micro_batch_tokens`, `train.validate_sentences` and `decode` apply; beam size
            and precision are fixed.
        workers: Workers that each measure a share of the pairs and all get the result; None if this process is the only
            one.
    """
    was_training = model.training
    workers = workers or Workers()
    model.eval()
    try:
        with plain_code(config.train.plain):
            metrics = judge(*_translated(model, pairs, tokenizer, config, workers)).metrics
            nll = _nll(model, pairs, config, workers)
        bleu, chrf = metrics["bleu"], metrics["chrf"]
        return Validation(nll, bleu.score, bleu.signature, chrf.score, chrf.signature)
    finally:
        model.train(was_training)


def measure(model: Transformer, data: Prepared, config: Config, workers: Workers | None = None) -> Validation:
    """Validate a model on a run's validation pairs and on its general text, if any; see `validate`."""
    validation = validate(model, data.valid, data.tokenizer, config, workers)
    if data.general is None:
        return validation
    return replace(validation, general=validate(model, data.general, data.tokenizer, config, workers))


def validate_weights(
    weights: Mapping[str, Tensor],
    data: Prepared,
    config: Config,
    device: torch.device,
    workers: Workers | None = None,
    own: OwnParts = NO_OWN_PARTS,
) -> Validation:
    """Validate weights in a new model; the published one is a separate model on the CPU."""
    return measure(with_weights(weights, config, device, own), data, config, workers)


def with_weights(
    weights: Mapping[str, Tensor], config: Config, device: torch.device, own: OwnParts = NO_OWN_PARTS
) -> Transformer:
    """Return a new model with these weights."""
    model = own.make_model(config.model)  # overwritten random weights, as in `load_bundle`
    load_tensors(model, weights, origin="the weights")
    return model.to(device)


def measured_on(report: Mapping[str, Any], sentences: int, decode: DecodeConfig) -> str:
    """Return a fingerprint of what scores are measured on; only scores with the same one can be compared.

    Args:
        report: Report of the prepared data, which holds the checksum of the validation text.
        sentences: The setting `train.validate_sentences`.
        decode: Settings, of which those count that change greedy translations.
    """
    valid = report["checksums"]["valid.arrow"], report["tokenizer"]["sha256"], report["valid"]["kept"]
    how = decode.model_dump(mode="json", exclude={"beam_size", "precision", "batch_tokens"})
    return json_sha256([*valid, min(sentences, report["valid"]["kept"]), how])


def is_better(now: Quality, best: Quality) -> bool:
    """Return whether `now` ranks above `best`: by chrF, and with equal chrF by likelihood.

    chrF counts characters, so it improves from the first correct words and in every script, while BLEU stays at 0 until
    whole phrases are right. Unlike likelihood, chrF does not fall when a model only becomes overconfident
    (docs/recipes.md).
    """
    return (now.chrf, -now.nll) > (best.chrf, -best.nll)


def _nll(model: Transformer, pairs: PairStore, config: Config, workers: Workers) -> float:
    device = model.device
    total, tokens = 0.0, 0
    batches = valid_batches(
        pairs, config.train.micro_batch_tokens, pad_id=model.config.pad_id, bos_id=model.config.bos_id
    )
    for batch in islice(batches, workers.rank, None, workers.count):
        target = batch.target_out.to(device)
        is_token = target != model.config.pad_id
        states = model.states(batch.target_in.to(device), *model.encode(batch.source.to(device)))[is_token]
        for part, truth in zip(states.split(1_024), target[is_token].split(1_024), strict=True):
            total += functional.cross_entropy(model.output_proj(part), truth, reduction="sum").item()
        tokens += batch.num_target_tokens
    total, all_tokens = workers.sums(total, tokens)
    return total / all_tokens


def _translated(
    model: Transformer, pairs: PairStore, tokenizer: Vocabulary, config: Config, workers: Workers
) -> tuple[list[str], list[str]]:
    """Return greedy translations of the validation sources, and references.

    A source is one segment, as it was prepared: the published model also normalizes its Unicode form, keeps list
    markers and splits sentences. With language tags, a line that names no language is read without one, as in training,
    unless the setting `target_lang` is given. The published model would require a language.
    """
    all_rows = range(min(len(pairs), config.train.validate_sentences))
    rows = workers.own(all_rows)
    languages, asked = tokenizer.language_tags, config.decode.target_lang
    parts = [split_tag(pairs.source(row), languages) for row in rows]
    parts = [(language or asked, text) for language, text in parts]
    numbers = config.decode.protect_numbers
    protected = [protect(text, tokenizer.num_placeholders, with_numbers=numbers) for _, text in parts]
    read = [(language, line.text) for (language, _), line in zip(parts, protected, strict=True)]
    sources = tokenizer.encode_parts(read, config.decode.source_lang)
    prefixes = [given_prefix(tokenizer.given(language)) for language, _ in parts]
    greedy = config.decode.model_copy(update={"beam_size": 1, "precision": "fp32"})
    engine = Engines(lambda: model, tokenizer, is_plain=config.train.plain).of(greedy.precision)
    groups = decode(engine, cut_sources(model.config, greedy, sources), SearchOptions(greedy), prefixes=prefixes)
    written = tokenizer.decode_batch([hypotheses[0].tokens for hypotheses in groups])
    texts = [line.restored(text) for line, text in zip(protected, written, strict=True)]
    return workers.gathered(texts), [pairs.target(row) for row in all_rows]
