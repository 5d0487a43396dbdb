from __future__ import annotations

import random

import pytest
from sacrebleu.metrics.chrf import CHRF

from clearhead.decoding import expected_chrf
from clearhead.decoding.batched_sampling import chrf_of_pairs

ODD = [
    "",
    " ",
    "a",
    "aa",
    "aaa aaa aaa",
    "ab ab",
    "baba",
    "犬が走る。",
    "a\u00a0b",
    "A dog runs.",
    "A  dog\truns.",
    "\n",
]


def random_texts(count, seed=1):
    draw = random.Random(seed)
    return ["".join(draw.choices("ab c", k=draw.randrange(25))) for _ in range(count)]


@pytest.mark.parametrize("texts", [ODD, random_texts(23), ["x"], ["", " "]], ids=["odd", "random", "one", "empty"])
def test_every_pair_has_the_chrf_of_sacrebleu(texts):
    metric, found = CHRF(), chrf_of_pairs(texts)
    for row, text in zip(found.tolist(), texts, strict=True):
        assert row == pytest.approx([metric.sentence_score(text, [other]).score for other in texts], abs=1e-9)


def test_the_mean_is_over_the_others_as_often_as_they_were_drawn():
    metric, samples = CHRF(), [*random_texts(5), *random_texts(3), *ODD[:9], "baba", "", "aa"]
    for place, (utility, text) in enumerate(zip(expected_chrf(samples), samples, strict=True)):
        others = samples[:place] + samples[place + 1 :]
        scores = [metric.sentence_score(text, [other]).score for other in others]
        assert utility == pytest.approx(sum(scores) / len(scores), abs=1e-9)
