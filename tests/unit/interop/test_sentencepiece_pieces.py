"""A model that is kept to some pieces encodes as its library does with the same pieces marked as unused."""

from __future__ import annotations

import io
import random

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from clearhead.interop.vocabularies.sentencepiece_pieces import only_pieces

TEXT = ["ein Hund rennt über die Wiese", "zwei Hunde bellen", "der Mann liest ein Buch", "日本語の本", "😀 lacht"] * 9


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def model(request) -> bytes:
    file = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT),
        model_writer=file,
        vocab_size=400,
        hard_vocab_limit=False,
        model_type=request.param,
        byte_fallback=True,
        user_defined_symbols=["<sep>"],
        minloglevel=2,
    )
    return file.getvalue()


def test_encoding_is_that_of_the_library(model):
    proto = sentencepiece_model_pb2.ModelProto.FromString(model)
    names = [piece.piece for piece in proto.pieces]
    kept = set(random.Random(2).sample(names, len(names) // 2))
    for piece in proto.pieces:
        if piece.type in (piece.NORMAL, piece.UNUSED):  # neither bytes nor what has a meaning of its own
            piece.type = piece.NORMAL if piece.piece in kept or len(piece.piece) == 1 else piece.UNUSED
    ours = only_pieces(model, kept)
    read = sentencepiece_model_pb2.ModelProto.FromString(ours)
    assert [(one.piece, one.score, one.type) for one in read.pieces] == [
        (one.piece, one.score, one.type) for one in proto.pieces
    ]
    assert (read.trainer_spec, read.normalizer_spec) == (proto.trainer_spec, proto.normalizer_spec)
    theirs = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
    encoded = sentencepiece.SentencePieceProcessor(model_proto=ours).encode(TEXT, out_type=str)
    assert encoded == theirs.encode(TEXT, out_type=str)
    assert encoded != sentencepiece.SentencePieceProcessor(model_proto=model).encode(TEXT, out_type=str)


def test_all_pieces_are_the_model_itself_and_noise_stays_noise(model):
    names = [piece.piece for piece in sentencepiece_model_pb2.ModelProto.FromString(model).pieces]
    assert only_pieces(model, set(names)) == model
    for noise in (b"", b"\x0a", b"\x0a\x05ab", b"\xff" * 9, model[:-7], bytes(range(256)), b"\x0b\x0c"):
        assert only_pieces(noise, set()) == noise or noise == model[:-7]
