"""A reader who follows `Transformer.forward` through the folder of the model opens few files."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import clearhead.model

ROOM = Path(clearhead.model.__file__).parent


@pytest.mark.parametrize("is_training", [False, True])
def test_following_forward_takes_nine_files(make_model, make_batch, is_training):
    model = make_model(norm="post").train(is_training)
    source, target = make_batch(model.config)
    opened = set()

    def note(frame, event, argument):
        opened.add(Path(frame.f_code.co_filename))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        model(source, target)
    finally:
        sys.setprofile(before)
    assert sorted(path.stem for path in opened if path.parent == ROOM) == [
        *("attention", "decoder", "embeddings", "encoder", "feed_forward"),
        *("masks", "positions", "residual", "transformer"),
    ]
