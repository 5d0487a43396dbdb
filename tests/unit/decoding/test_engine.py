from __future__ import annotations

import gzip
import threading

import pytest
import torch

from clearhead.config import DecodeConfig
from clearhead.decoding import Sampling, SearchOptions, decode, score
from clearhead.decoding.pytorch import engine as pytorch_engine
from clearhead.decoding.pytorch.engine import PyTorchEngine
from clearhead.decoding.pytorch.slots import SlotCache
from clearhead.decoding.pytorch.weights import PackedModel
from clearhead.errors import ConfigError, DeviceError
from clearhead.tokenizers import Tokenizer
from every_run import slow


def options(num_best=1, sampling=None, **settings):
    return SearchOptions(DecodeConfig(**{"extra_length": 5, **settings}), num_best=num_best, sampling=sampling)


def tokens(found):
    return [[hypothesis.tokens for hypothesis in hypotheses] for hypotheses in found]


@pytest.mark.parametrize(("beam_size", "number"), [slow(1, 60), (4, 20), slow(4, 60)])
def test_real_sentences_decode_alone_as_in_a_batch(make_sharp_model, data_dir, beam_size, number):
    with gzip.open(data_dir("multi30k") / "test2016.de.gz", "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    tokenizer = Tokenizer.train(lines[:200], vocab_size=1_503)
    model = make_sharp_model(vocab_size=tokenizer.vocab_size, num_decoder_layers=1)
    sources = tokenizer.encode_sources(lines[:number])
    together = decode(model, sources, options(beam_size=beam_size))
    alone = [decode(model, [source], options(beam_size=beam_size))[0] for source in sources]
    assert tokens(alone) == tokens(together)
    assert [h[0].log_prob for h in alone] == pytest.approx([h[0].log_prob for h in together], abs=1e-3)
    assert len({hypotheses[0].tokens for hypotheses in together}) > number // 2


@pytest.mark.parametrize(
    "search",
    [
        options(beam_size=1),
        options(beam_size=3, num_best=2),
        options(sampling=Sampling(seed=3), num_best=3),
    ],
    ids=["greedy", "beam", "sampling"],
)
@pytest.mark.parametrize("batch_tokens", [slow(1), 50, slow(10_000)])
def test_hypotheses_are_in_input_order_for_any_batch_tokens(make_sharp_model, make_sources, search, batch_tokens):
    model, sources = make_sharp_model(), make_sources((7, 2, 11, 3, 5, 13, 2))
    done = []
    config = search.config.model_copy(update={"batch_tokens": batch_tokens})
    found = decode(model, sources, SearchOptions(config, search.num_best, search.sampling), done.append)
    assert tokens(found) == [tokens(decode(model, [source], search))[0] for source in sources]
    assert all(len(hypotheses) == search.num_best for hypotheses in found)
    assert sum(done) == 7


@pytest.mark.parametrize("batch_factor", [1, 2])
def test_no_more_tokens_are_in_flight_than_allowed_and_no_fewer_than_there_is_room_for(
    make_sharp_model, make_sources, monkeypatch, batch_factor
):
    in_flight = []
    advance = SlotCache.advance

    def spy(lanes, *arguments):
        in_flight.append(list(lanes.source_lengths))
        return advance(lanes, *arguments)

    monkeypatch.setattr(SlotCache, "advance", spy)
    engine = PyTorchEngine(make_sharp_model())
    engine.batch_factor = batch_factor
    decode(engine, make_sources((5,) * 7 + (3,) * 9), options(beam_size=3, batch_tokens=30 // batch_factor))
    # Two sentences of five tokens and three beams are 30; so are three sentences of three tokens, and a little.
    assert max(3 * len(lengths) * max(lengths) for lengths in in_flight) == 30
    assert {len(lengths) for lengths in in_flight if max(lengths) == 3} == {1, 2, 3}
    assert len(in_flight) < 16 * 8  # sentences one by one


def test_a_beam_of_one_is_greedy_search_whatever_the_length_penalty(make_sharp_model, make_sources):
    model, sources = make_sharp_model(), make_sources((7, 2, 11, 3, 5))
    plain = decode(model, sources, options(beam_size=1, length_penalty=0.0))
    assert tokens(decode(model, sources, options(beam_size=1, length_penalty=2.0))) == tokens(plain)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_outputs_stay_within_the_source_length_and_the_extra_length(make_sharp_model, make_sources, beam_size):
    model = make_sharp_model()
    with torch.no_grad():
        model.source_embedding.weight[2].zero_()  # an end that is never likely
    lengths = (7, 2, 11)
    found = decode(model, make_sources(lengths), options(beam_size=beam_size, extra_length=3))
    for length, hypotheses in zip(lengths, found, strict=True):
        assert hypotheses[0].tokens[-1] == 2
        assert len(hypotheses[0].tokens) <= length + 3
    assert any(len(h[0].tokens) == length + 3 for length, h in zip(lengths, found, strict=True))


@pytest.mark.parametrize(
    "search",
    [options(beam_size=1), options(beam_size=5, num_best=5), options(sampling=Sampling(temperature=3.0))],
    ids=["greedy", "beam", "sampling"],
)
def test_scoring_the_output_returns_its_score(make_sharp_model, make_sources, search):
    model, sources = make_sharp_model(), make_sources((7, 2, 11, 3, 5))
    found = decode(model, sources, search)
    rows = [(source, h) for source, hypotheses in zip(sources, found, strict=True) for h in hypotheses]
    scores = score(model, [s for s, _ in rows], [list(h.tokens) for _, h in rows], batch_tokens=64)
    assert [h.log_prob for _, h in rows] == pytest.approx(scores, abs=1e-4)


def test_samples_are_ordered_by_log_prob(make_model, make_sources):
    found = decode(make_model(), make_sources((7, 2, 11)), options(num_best=7, sampling=Sampling()))
    for hypotheses in found:
        log_probs = [hypothesis.log_prob for hypothesis in hypotheses]
        assert log_probs == sorted(log_probs, reverse=True)
        assert len({hypothesis.tokens for hypothesis in hypotheses}) > 1


def test_decode_and_score_of_no_sentences_are_empty(make_model):
    assert decode(make_model(), [], options()) == []
    assert score(make_model(), [], [], batch_tokens=7) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_best": 0}, r"nbest \(0\) must be at least 1"),
        ({"num_best": 5, "beam_size": 3}, r"nbest \(5\) must not be more than the beam size \(3\); use --beam 5"),
    ],
)
def test_impossible_searches_are_refused(settings, message):
    with pytest.raises(ConfigError, match=message):
        options(**settings)


@pytest.mark.parametrize("error", [torch.OutOfMemoryError("CUDA out of memory"), MemoryError()])
def test_memory_errors_of_the_pytorch_engine_advise_fewer_batch_tokens(make_model, make_sources, monkeypatch, error):
    def fail(*_):
        raise error

    monkeypatch.setattr(SlotCache, "enter", fail)
    message = r"ran out of memory; lower decode.batch_tokens \(40\), for example --batch-tokens 10"
    with pytest.raises(DeviceError, match=message):
        decode(make_model(), make_sources((5,)), options(batch_tokens=40))


def test_an_engine_that_is_being_made_keeps_no_other_waiting(make_model, monkeypatch):
    making, go_on = threading.Event(), threading.Event()

    class Slow(PackedModel):
        def __init__(self, model, precision="fp32"):
            if threading.current_thread() is not threading.main_thread():
                making.set()
                go_on.wait(600.0)
            super().__init__(model, precision)

    monkeypatch.setattr(pytorch_engine, "PackedModel", Slow)
    slow, other = PyTorchEngine(make_model()), PyTorchEngine(make_model())
    thread = threading.Thread(target=lambda: slow.packed)
    thread.start()
    making.wait()
    assert other.packed.model is other.model
    assert "packed" not in vars(slow)  # and the other is not ready yet
    go_on.set()
    thread.join()
    assert slow.packed is slow.packed
