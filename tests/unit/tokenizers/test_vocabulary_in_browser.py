"""A learned vocabulary in JavaScript makes the same ids of a text, and the same text of ids, as in Python."""

from __future__ import annotations

import json
import random

import pytest

from browsers import page_with_modules
from clearhead.text.placeholders import SIGNS
from clearhead.tokenizers import Tokenizer

pytestmark = pytest.mark.slow

PAGE = """
<script type="module">import { Vocabulary } from "./web/vocabulary.js"; window.Vocabulary = Vocabulary;</script>
"""
ODD = [
    "", " ", "  a  b   ", "a\x85b", "x\ufeffy\ufeff", "\u3000 全角　空白", "½²Ⅳ１２３ 12,345.6", "e\u0301 é",
    "🤦🏽‍♂️👩‍👩‍👧 \U0001f1e9\U0001f1ea", "don't I'LL we've 's", "a" * 200, "ha" * 90, "\t\r\x0b\x0c x", "</s> <pad>",
    f"{SIGNS[0]} a {SIGNS[1]}b{SIGNS[-1]}", "مرحبا بالعالم", "שָׁלוֹם", "नमस्ते दुनिया", "สวัสดีชาวโลก", "\u200b\u00a0\u2009.",
]  # fmt: skip


@pytest.mark.parametrize("placeholders", [False, True])
@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_ids_and_texts_are_those_of_python(browser, tmp_path, sentences, kind, placeholders):
    draw = random.Random(0)
    texts = [*sentences, *ODD, *("".join(draw.choices("".join(ODD), k=30)) for _ in range(300))]
    tokenizer = Tokenizer.train(texts, kind=kind, vocab_size=900, split_digits=placeholders, placeholders=placeholders)
    ids = tokenizer.encode_batch(texts)
    some = [draw.choices(range(tokenizer.vocab_size), k=8) for _ in range(300)]  # perhaps parts of a character
    ask = """([file, texts, ids]) => {
      const vocabulary = new Vocabulary(JSON.parse(file));
      return [texts.map((text) => vocabulary.encode(text)), ids.map((some) => vocabulary.decode(some))];
    }"""
    with page_with_modules(browser, tmp_path, PAGE, "window.Vocabulary") as page:
        found = page.evaluate(ask, [tokenizer.text, texts, [*ids, *some]])
    assert found == json.loads(json.dumps([ids, tokenizer.decode_batch([*ids, *some])]))
