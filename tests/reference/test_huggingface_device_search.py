"""The search that stays on a GPU finds what the plain searches find, for models of each kind of Hugging Face."""

from __future__ import annotations

import pytest
import torch
from huggingface_models import KINDS, as_ours, random_state

from clearhead.config import DecodeConfig
from clearhead.decoding import NO_PREFIX, PyTorchEngine, SearchOptions, decode
from clearhead.decoding.pytorch.plain_engine import PlainEngine
from clearhead.decoding.sentence import given_prefix
from every_run import slow

LENGTHS, LANGUAGES = (7, 1, 12, 3, 5), (11, 29)


@pytest.mark.parametrize("beam_size", [slow(1), 3])
@pytest.mark.parametrize(
    "kind",
    [
        *("marian", slow("marian with two vocabularies"), "marian that starts with padding"),
        *(slow("pegasus"), "bart", slow("bart that starts with its end"), slow("mbart")),
        *(slow("m2m100"), "m2m100 that starts with its end", slow("bert2bert"), "gpt2"),
        *("t5", slow("t5 that starts with padding"), slow("t5 1.1"), "mt5"),
    ],
)
def test_device_search_equals_plain_search(kind, beam_size):
    torch.manual_seed(7)
    model = as_ours(KINDS[kind].model_type, random_state(KINDS[kind].make()))
    for weight in model.decoder.parameters():
        if weight.dim() == 2:
            weight.data.mul_(2.0)  # so that no two hypotheses come near a tie
    config = model.config
    special = {config.pad_id, config.bos_id, config.eos_id, *LANGUAGES}
    words = torch.tensor([token for token in range(37) if token not in special])
    ends = [] if config.is_decoder_alone else [config.eos_id]
    sources = [[*words[torch.randint(len(words), (length,))].tolist(), *ends] for length in LENGTHS]
    options = SearchOptions(DecodeConfig(beam_size=beam_size, extra_length=15, min_length=5), num_best=beam_size)
    for has_language in [False] if config.is_decoder_alone else [False, True]:
        prefixes = [given_prefix((LANGUAGES[length % 2],), NO_PREFIX) for length in LENGTHS] if has_language else ()
        engine = PyTorchEngine(model)
        engine._stays_on_device = True
        found = decode(engine, sources, options, prefixes=prefixes)
        assert len(engine._idle) == 1
        expected = decode(PlainEngine(model), sources, options, prefixes=prefixes)
        assert [[one.tokens for one in row] for row in found] == [[one.tokens for one in row] for row in expected]
        for row, others in zip(found, expected, strict=True):
            assert [one.rank_score for one in row] == pytest.approx([one.rank_score for one in others], abs=1e-3)
        best = [row[0].tokens for row in found]
        assert len(set(best)) > 1
        if has_language:
            assert [tokens[0] for tokens in best] == [LANGUAGES[length % 2] for length in LENGTHS]
