"""Search settings of transformers as ours."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from clearhead.config import ModelConfig
from clearhead.interop.huggingface import reader


@pytest.mark.parametrize(("forced", "language"), [(0, "de"), (1, "en"), (7, None), (None, None), ([0], "de")])
def test_the_forced_token_tells_the_language_also_if_its_id_is_0(tmp_path, forced, language):
    tokenizer = SimpleNamespace(languages={"de": 0, "en": 1}, language_tags={"de": 0, "en": 1})
    config = ModelConfig(vocab_size=20, bos_id=3, eos_id=4, pad_id=5)
    generation = {"forced_bos_token_id": forced}
    assert reader._decode(Path(tmp_path), config, generation, tokenizer, None, None).target_lang == language
