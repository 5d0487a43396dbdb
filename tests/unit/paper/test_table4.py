"""Table 4: the printed scores, what the text says of them, and the weights of its model."""

from __future__ import annotations

import json

import pytest

from clearhead.paper import table4 as module
from clearhead.paper.table4 import table4

PRINTED = """
  parser                          training                    F1
  ------------------------------  ------------------------  ----
  Vinyals & Kaiser et al. (2014)  WSJ only, discriminative  88.3
  Petrov et al. (2006)            WSJ only, discriminative  90.4
  Zhu et al. (2013)               WSJ only, discriminative  90.4
  Dyer et al. (2016)              WSJ only, discriminative  91.7
  Transformer (4 layers)          WSJ only, discriminative  91.3
  Zhu et al. (2013)               semi-supervised           91.3
  Huang & Harper (2009)           semi-supervised           91.3
  McClosky et al. (2006)          semi-supervised           92.1
  Vinyals & Kaiser et al. (2014)  semi-supervised           92.1
  Transformer (4 layers)          semi-supervised           92.7
  Luong et al. (2015)             multi-task                93.0
  Dyer et al. (2016)              generative                93.3
"""


def test_every_printed_row_is_shown_and_bears_out_the_text():
    part = table4()
    assert part.failures == []
    assert PRINTED in part.text
    assert part.data["printed"][4] == {
        "parser": "Transformer (4 layers)",
        "training": "WSJ only, discriminative",
        "f1": 91.3,
    }
    json.dumps(part.data)


def test_its_weights_are_those_worked_out_by_hand():
    d, d_ff, norm, layers = 1024, 2048, 2 * 1024, 4
    feed_forward = 2 * d * d_ff + d_ff + d
    for wide, rows_of_tokens, found in zip((d, 512, d), (1, 1, 3), table4().data["parameters"].values(), strict=True):
        attention = 4 * d * wide  # W^Q, W^K, W^V and W^O
        stacks = layers * (attention + feed_forward + 2 * norm) + layers * (2 * attention + feed_forward + 3 * norm)
        assert found == [stacks + rows_of_tokens * d * vocabulary for vocabulary in (16_000, 32_000)]


@pytest.mark.parametrize(
    ("place", "score", "failing"),
    [
        (1, 91.3, "6.3: on the Wall Street Journal alone it is above the BerkeleyParser"),
        (2, 91.4, "6.3: with the same training only Dyer et al."),
        (7, 92.8, "6.3: with the same training only Dyer et al."),
        (10, 92.6, "of all, two are above 92.7"),
    ],
)
def test_a_table_that_does_not_bear_out_the_text_is_caught(monkeypatch, place, score, failing):
    rows = list(module.PAPER_TABLE_4)
    rows[place] = (*rows[place][:2], score)
    monkeypatch.setattr(module, "PAPER_TABLE_4", tuple(rows))
    assert any(failure.startswith(failing) for failure in table4().failures)
