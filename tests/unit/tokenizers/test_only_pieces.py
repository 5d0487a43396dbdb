"""A SentencePiece model restricted to some pieces encodes with these, single characters and special pieces."""

from __future__ import annotations

import base64
import random
import sys

import pytest
import sentencepiece

from clearhead.errors import ModelError
from clearhead.tokenizers.subword_encoders import only_pieces, sentencepiece_pieces
from sentencepiece_models import sentencepiece_model

TEXT = ["ein Hund rennt über die Wiese", "zwei Hunde <sep> bellen", "der Mann liest", "日本語の本", "😀 lacht"] * 9


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request) -> bytes:
    return sentencepiece_model(TEXT, 400, request.param, byte_fallback=True, user_defined_symbols=["<sep>"])


def processor(model: bytes) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_proto=model)


def test_text_is_encoded_with_kept_pieces_characters_and_special_pieces(model):
    before = processor(model)
    names = [before.id_to_piece(number) for number in range(before.get_piece_size())]
    kept = set(random.Random(2).sample(names, len(names) // 2))
    after = processor(only_pieces(model, kept))
    assert [after.id_to_piece(number) for number in range(after.get_piece_size())] == names
    used = {piece for line in after.encode(TEXT, out_type=str) for piece in line}
    assert "<sep>" in used
    assert {piece for piece in used - kept if len(piece) > 1} <= {"<sep>"}
    lost = {piece for line in before.encode(TEXT, out_type=str) for piece in line} - used
    assert lost
    assert after.decode(after.encode(TEXT)) == TEXT
    # Pieces that were left out return.
    assert processor(only_pieces(only_pieces(model, kept), names)).encode(TEXT) == before.encode(TEXT)


def test_all_pieces_are_the_model_itself_and_noise_stays_noise(model):
    before = processor(model)
    assert only_pieces(model, {before.id_to_piece(number) for number in range(before.get_piece_size())}) == model
    for noise in (b"\x0a", b"\x0a\x05ab", b"\x0a\x03\x0a\x01\xff", b"\xff" * 9, model[:-7], bytes(range(256))):
        assert only_pieces(noise, set()) == noise


@pytest.mark.parametrize("module", ["google.protobuf.message", "sentencepiece.sentencepiece_model_pb2"])
def test_a_missing_protobuf_is_named(monkeypatch, module):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ModelError, match="needs a protobuf that fits SentencePiece: pip install --upgrade protobuf"):
        only_pieces(b"", set())


@pytest.mark.parametrize(
    "content",
    [b"\x0a" + b"\x80" * 1_000_000 + b"\x01", b"\x0a\x10abc", b"\x0a\x03\x0a\x01", b"\x0b" * 100_000, b"\x0a\x00" * 9],
    ids=["endless number", "cut", "field cut", "groups", "empty pieces"],
)
def test_a_damaged_model_is_refused_by_the_library(content):
    with pytest.raises(ValueError, match=r"."):
        sentencepiece_pieces(base64.b64encode(content).decode())
