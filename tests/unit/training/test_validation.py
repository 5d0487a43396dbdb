"""Validation: the likelihood of every pair, BLEU of what the model writes, and which of two is better."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sacrebleu
import torch

from clearhead.bundle import load_bundle
from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.data.store import PairStore
from clearhead.evaluation.metrics import bleu
from clearhead.model.transformer import Transformer
from clearhead.tokenizer import Tokenizer
from clearhead.training.validation import Validation, is_better, validate
from clearhead.translator import Translator


@pytest.fixture
def parts(finished_run):
    data = open_prepared(finished_run / "data")
    bundle = load_bundle(finished_run)
    return bundle, data, Config.load(finished_run / "config.toml")


def test_likelihood_is_the_mean_over_all_target_tokens(parts):
    bundle, data, config = parts
    total, tokens = 0.0, 0
    for row in range(len(data.valid)):
        source, target = (
            torch.tensor(ids(row).copy()).long()[None] for ids in (data.valid.source_ids, data.valid.target_ids)
        )
        shifted = torch.cat([torch.tensor([[bundle.model.config.bos_id]]), target[:, :-1]], dim=1)
        log_probs = bundle.model(source, shifted).double().log_softmax(-1)
        total -= log_probs.gather(-1, target[..., None]).sum().item()
        tokens += target.numel()
    found = validate(bundle.model, data.valid, data.tokenizer, config)
    assert found.nll == pytest.approx(total / tokens, rel=1e-5)


@pytest.mark.parametrize("count", [3, 999])
def test_bleu_is_that_of_greedy_translations_of_the_first_pairs(parts, count, monkeypatch):
    bundle, data, config = parts
    model = Transformer(bundle.model.config).eval()  # untrained: it writes all sorts of tokens, each a word here
    monkeypatch.setattr(Tokenizer, "decode_batch", lambda _, batch: [" ".join(map(str, ids)) for ids in batch])
    sources = [data.valid.source(row) for row in range(len(data.valid))]
    translator = Translator(replace(bundle, model=model))
    greedy, wide = ([t.text for t in translator.translate(sources, beam_size=size)] for size in (1, 4))
    references = [" ".join(["other"] * row + text.split()[row:]) for row, text in enumerate(greedy)]
    monkeypatch.setattr(PairStore, "target", lambda _, row: references[row])
    config = config.model_copy(update={"train": config.train.model_copy(update={"validate_sentences": count})})

    def expected(texts, number):
        return sacrebleu.corpus_bleu(texts[:number], [references[:number]]).score

    scores = [expected(greedy, 3), expected(greedy, 999), expected(wide, 3), expected(wide, 999)]
    assert len({*scores, 0.0, 100.0}) == 6
    found = validate(model, data.valid, data.tokenizer, config)
    assert found.bleu == pytest.approx(expected(greedy, count))
    assert found.bleu_signature == bleu(greedy, references).signature


@pytest.mark.parametrize("mode", [True, False])
def test_the_model_is_in_the_mode_it_was_in(parts, mode):
    bundle, data, config = parts
    bundle.model.train(mode)
    first = validate(bundle.model, data.valid, data.tokenizer, config)
    assert bundle.model.training is mode
    assert validate(bundle.model, data.valid, data.tokenizer, config) == first  # without dropout


def test_perplexity_is_finite_whatever_the_loss():
    assert Validation(2.0, 0.0, "").ppl == pytest.approx(7.389, abs=1e-3)
    assert Validation(1e6, 0.0, "").ppl < float("inf")


@pytest.mark.parametrize(
    ("new", "old", "better"),
    [
        ((20.0, 3.0), (19.0, 2.0), True),
        ((19.0, 2.0), (20.0, 3.0), False),
        ((0.0, 2.0), (0.0, 3.0), True),
        ((0.0, 3.0), (0.0, 2.0), False),
        ((7.0, 2.0), (7.0, 2.0), False),
    ],
)
def test_bleu_ranks_and_likelihood_breaks_ties(new, old, better):
    assert is_better(*new, *old) is better
