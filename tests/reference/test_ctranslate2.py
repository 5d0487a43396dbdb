"""CTranslate2 finds, token for token, what our search finds, with our weights written as Hugging Face's and converted.

The conversion is the one of the benchmark (`bench/conversion.py`). With no length penalty both searches are exact: they
stop when no open hypothesis can win. At the length limit theirs return outputs without an end, ours end and pay for it.
With a length penalty CTranslate2 stops at the first `beam_size` hypotheses to end; what it then returns has the same
score here, as the end token counts in the length on both sides.
"""

from __future__ import annotations

import ctranslate2
import pytest
import torch
from test_huggingface_generation import LIMIT, chain, draw_sources

import conversion
from clearhead.config import ModelConfig
from clearhead.decoding.sampling import greedy_search
from clearhead.decoding.token_masks import AllowedTokens
from clearhead.files.tensors import load_tensors, model_tensors
from clearhead.model import Transformer
from every_run import slow
from plain_search import plain_search


@pytest.fixture(scope="module", params=["post", "pre"])
def models(request, tmp_path_factory):
    """Return our model, CTranslate2's translator of the same weights, and sources of different lengths."""
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(1)
    sizes = {"vocab_size": 37, "d_model": 52, "num_heads": 13, "d_ff": 104, "dropout": 0.0}
    layers = {"num_encoder_layers": 3, "num_decoder_layers": 2}
    config = ModelConfig(**sizes, **layers, norm=request.param, output_bias=True)
    made = Transformer(config)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.dim() == 1:
                weight.normal_(mean=float("norm.weight" in name), std=0.3)  # one that is forgotten shows
        chain(made, generator)
        # Our search forbids these two, CTranslate2's does not.
        made.output_proj.bias[[config.pad_id, config.bos_id]] = -30.0
    config, tensors = conversion.comparable(config, model_tensors(made))
    ours = Transformer(config).eval()
    load_tensors(ours, tensors, origin="the same weights")

    directory = tmp_path_factory.mktemp(request.param)
    conversion.write_huggingface(directory / "huggingface", config, tensors)
    converted = directory / "ctranslate2"
    conversion.write_ctranslate2(converted, directory / "huggingface", config, precision="float32")
    translator = ctranslate2.Translator(str(converted), compute_type="float32", inter_threads=1, intra_threads=1)
    return ours, translator, draw_sources(config, 23, generator)


def their_search(models, *, beam_size, alpha):
    ours, translator, sources = models
    config = ours.config
    names = {config.pad_id: "<pad>", config.bos_id: "<s>", config.eos_id: "</s>", 3: "<unk>"}
    pieces = [names.get(number, str(number)) for number in range(config.vocab_size)]
    found = translator.translate_batch(
        [[pieces[number] for number in source] for source in sources],
        beam_size=beam_size,
        length_penalty=alpha,
        min_decoding_length=0,  # else an output has at least one token beside its end
        max_decoding_length=LIMIT,
        return_end_token=True,
        return_scores=True,
    )
    outputs = [tuple(map(pieces.index, result.hypotheses[0])) for result in found]
    return outputs, [result.scores[0] for result in found]


def our_search(models, *, beam_size, alpha):
    ours, _, sources = models
    limits = [LIMIT] * len(sources)
    with torch.inference_mode():
        if beam_size == 1:
            allowed = AllowedTokens(ours.config, end_loops=False)  # theirs continues in a loop
            return greedy_search(ours, sources, max_lengths=limits, allowed=allowed)
        settings = {"beam_size": beam_size, "alpha": alpha, "length_penalty_form": "power", "end_loops": False}
        found = plain_search(ours, sources, max_lengths=limits, **settings)
        return [best for (best,) in found]


@pytest.mark.parametrize("beam_size", [slow(1), 5])
def test_the_converted_model_finds_the_same_tokens(models, beam_size):
    expected, _ = their_search(models, beam_size=beam_size, alpha=0.0)
    found = [hypothesis.tokens for hypothesis in our_search(models, beam_size=beam_size, alpha=0.0)]
    ended = [row for row, tokens in enumerate(expected) if len(tokens) < LIMIT]
    assert [found[row] for row in ended] == [expected[row] for row in ended]
    assert ended


def test_the_end_token_counts_in_the_length_that_divides_a_score(models):
    expected, scores = their_search(models, beam_size=5, alpha=0.6)
    found = our_search(models, beam_size=5, alpha=0.6)
    same = [row for row, best in enumerate(found) if best.tokens == expected[row] and len(best.tokens) < LIMIT]
    assert same
    assert [found[row].rank_score for row in same] == pytest.approx([scores[row] for row in same], abs=1e-4)
