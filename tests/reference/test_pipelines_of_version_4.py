"""`clearhead.pipeline` on a directory of transformers says what their model does, as their pipeline of version 4."""

from __future__ import annotations

import pytest
import torch
from published import read_model, read_tokenizer

import clearhead as ch
from every_run import slow

TEXTS = ["Ein Hund rennt.", "On May 5, 2014", "two dogs"]
SEARCH = {"num_beams": 3, "early_stopping": "never", "max_new_tokens": 60, "length_penalty": 1.0}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "task", "languages"),
    [
        ("mbart", "translation", {}),
        slow("marian", "translation_en_to_de", {}),
        slow("t5", "translation_en_to_de", {}),
        slow("mbart-50", "translation_en_to_ja", {}),
        slow("nllb", "translation", {"src_lang": "eng_Latn", "tgt_lang": "deu_Latn"}),
    ],
)
def test_a_directory_of_theirs_gives_what_their_pipeline_gave(directories, name, task, languages):
    published = directories(name)
    tokenizer, model = read_tokenizer(published.directory), read_model(published.directory)
    begun = {}
    prefix = (getattr(model.config, "task_specific_params", None) or {}).get(task, {}).get("prefix", "")
    if name in ("mbart-50", "nllb"):
        tokenizer.src_lang, target = ("en_XX", "ja_XX") if name == "mbart-50" else languages.values()
        begun = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(target)}
    elif name == "mbart":
        tokenizer.src_lang = published.source_lang
        languages = {"src_lang": published.source_lang}
    pipe = ch.pipeline(task, model=published.directory, device="cpu", **languages)
    for text in TEXTS:
        with torch.inference_mode():
            ids = model.generate(**tokenizer([prefix + text], return_tensors="pt"), **SEARCH, **begun)
        expected = tokenizer.decode(ids[0], skip_special_tokens=True)
        expected = expected.strip() if published.is_converted else expected
        assert expected
        assert pipe(text, num_beams=3, length_penalty=1.0) == [{"translation_text": expected}]
