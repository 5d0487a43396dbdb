"""Validation: the likelihood of every pair, BLEU of what the model writes, and which of two is better."""

from __future__ import annotations

from dataclasses import replace

import pytest
import sacrebleu
import torch

from clearhead.bundle import load_bundle
from clearhead.config import Config
from clearhead.data.prepare import open_prepared
from clearhead.data.store import PairStore, StoreWriter
from clearhead.decoding import decode
from clearhead.evaluation.metrics import bleu, chrf, judge
from clearhead.model.transformer import Transformer
from clearhead.text.languages import split_tag
from clearhead.tokenizers import Tokenizer
from clearhead.training.checkpoints import Best
from clearhead.training.validation import Validation, is_better, perplexity, validate
from clearhead.translation.translator import Translator


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
    translator = Translator(replace(bundle, weights=model))
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
    assert found.chrf == pytest.approx(sacrebleu.corpus_chrf(greedy[:count], [references[:count]]).score)
    assert found.chrf_signature == chrf(greedy, references).signature


def test_validate_decodes_the_tokens_the_published_model_would_read(make_model_dir, tmp_path, monkeypatch):
    limits = {"target_lang": "fr", "max_input_tokens": 9}
    bundle = load_bundle(make_model_dir(language_tags=("de", "fr"), decode=limits))
    lines = ["Ein Hund rennt.", "<2de> Two dogs.", "Zwei Männer sitzen auf einer Bank. " * 3]
    tokenizer = bundle.tokenizer
    with StoreWriter(tmp_path / "valid.arrow") as store:
        for line in lines:  # as training keeps them: only a line's own tag, and nothing is cut
            parts = [split_tag(line, tokenizer.language_tags)]
            store.append(line, "x", *tokenizer.encode_parts(parts), *tokenizer.encode_targets(["x"]))
    read = []
    monkeypatch.setattr(
        "clearhead.training.validation.decode",
        lambda _, ids, *rest, prefixes: read.append((ids, prefixes)) or decode(_, ids, *rest, prefixes=prefixes),
    )
    monkeypatch.setattr(type(tokenizer), "given", lambda self, language: {"fr": (11,), "de": (12, 13)}[language])
    config = Config.from_dict({"out": "run", "decode": limits}, origin="test")
    validate(bundle.model, PairStore.open(tmp_path / "valid.arrow"), tokenizer, config)
    expected = tokenizer.encode_sources(lines, "fr")
    assert max(map(len, expected)) > 9
    [(ids_read, prefixes)] = read
    assert ids_read == [ids if len(ids) <= 9 else [*ids[:8], tokenizer.eos_id] for ids in expected]
    assert [prefix.tokens for prefix in prefixes] == [(11,), (12, 13), (11,)]  # what an imported model is told


def test_translations_are_valid_utf8_as_those_of_the_translator(make_bundle, tmp_path, monkeypatch):
    bundle = make_bundle()
    tokenizer, lines = bundle.tokenizer, [f"Ein Hund {number}." for number in range(9)]
    with StoreWriter(tmp_path / "valid.arrow") as store:
        for line in lines:
            store.append(line, "x", *tokenizer.encode_sources([line]), *tokenizer.encode_targets(["x"]))
    judged = []
    monkeypatch.setattr(
        "clearhead.training.validation.judge", lambda texts, *rest: judged.append(texts) or judge(texts, *rest)
    )
    config = Config.from_dict({"out": "run", "decode": {"extra_length": 5}}, origin="test")
    validate(bundle.model, PairStore.open(tmp_path / "valid.arrow"), tokenizer, config)
    expected = [one.text for one in Translator(bundle).translate(lines, beam_size=1, raw=True)]
    assert set(map(tuple, judged)) == {tuple(expected)}


@pytest.mark.parametrize("mode", [True, False])
def test_validate_restores_the_training_mode(parts, mode):
    bundle, data, config = parts
    bundle.model.train(mode)
    first = validate(bundle.model, data.valid, data.tokenizer, config)
    assert bundle.model.training is mode
    assert validate(bundle.model, data.valid, data.tokenizer, config) == first  # without dropout


def test_perplexity_is_finite_whatever_the_loss():
    assert perplexity(2.0) == pytest.approx(7.389, abs=1e-3)
    assert perplexity(1e6) < float("inf")


@pytest.mark.parametrize(
    ("new", "old", "better"),
    [
        # chrF, BLEU, negative log-likelihood
        ((41.0, 0.0, 3.0), (40.0, 5.0, 2.0), True),
        ((40.0, 5.0, 2.0), (41.0, 0.0, 3.0), False),
        ((40.0, 0.0, 2.0), (40.0, 0.0, 3.0), True),
        ((40.0, 5.0, 3.0), (40.0, 0.0, 2.0), False),
        ((40.0, 5.0, 2.0), (40.0, 5.0, 2.0), False),
    ],
)
def test_chrf_ranks_and_likelihood_breaks_ties(new, old, better):
    def best(chrf, bleu, nll):
        return Best(10, bleu, nll, chrf, "a1")

    assert is_better(best(*new), best(*old)) is better
    assert is_better(Validation(new[2], new[1], "", new[0], ""), best(*old)) is better


@pytest.mark.parametrize(
    ("signature", "words"),
    [
        ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", "BLEU 31.42, chrF 52.10"),
        ("nrefs:1|case:mixed|eff:no|tok:char|smooth:exp|version:2.6.0", "BLEU (char) 31.42, chrF 52.10"),
    ],
)
def test_an_unusual_tokenization_is_named_beside_the_score(signature, words):
    assert Validation(2.0, 31.42, signature, 52.1, "").scores == words
