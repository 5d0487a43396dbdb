"""A translator on a GPU gives what it gives on the CPU."""

from __future__ import annotations

import pytest

import clearhead as ch
from clearhead.translation.translator import Translator

GPU = "cuda"

pytestmark = pytest.mark.gpu


@pytest.fixture
def directory(make_model_dir):
    return make_model_dir()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_translations_and_their_scores_are_those_of_the_cpu(directory, sentences, beam_size):
    lines = [*sentences, "", sentences[0]]
    on_cpu, on_gpu = (Translator.load(directory, device=device) for device in ("cpu", GPU))
    assert {weight.device.type for weight in on_gpu.bundle.model.parameters()} == {GPU}
    expected, found = (translator.translate(lines, beam_size=beam_size) for translator in (on_cpu, on_gpu))
    for right, ours in zip(expected, found, strict=True):
        assert (ours.source, ours.text, ours.tokens) == (right.source, right.text, right.tokens)
        assert (ours.source_truncated, ours.output_truncated) == (right.source_truncated, right.output_truncated)
        assert ours.score == pytest.approx(right.score, rel=1e-6)
    texts = [translation.text for translation in found]
    assert on_gpu.score(lines, texts) == pytest.approx(on_cpu.score(lines, texts), rel=1e-6)


def test_auto_takes_the_gpu(directory):
    assert Translator.load(directory).bundle.model.device.type == GPU


def test_bf16_gives_a_line_for_every_line_with_the_score_of_the_cpu(directory, sentences):
    on_cpu, on_gpu = (Translator.load(directory, device=device) for device in ("cpu", GPU))
    found = on_gpu.translate(sentences, precision="bf16")
    assert [translation.source for translation in found] == list(sentences)
    right = on_cpu.score(sentences, [translation.text for translation in found])
    assert [translation.score for translation in found] == pytest.approx(right, rel=1e-6)


def test_attention_weights_on_gpu_equal_those_on_cpu(directory, sentences):
    on_cpu, on_gpu = (ch.explain(Translator.load(directory, device=device), sentences[0]) for device in ("cpu", GPU))
    for name in ("encoder", "decoder", "cross"):
        assert getattr(on_gpu, name) == pytest.approx(getattr(on_cpu, name), abs=1e-4)
