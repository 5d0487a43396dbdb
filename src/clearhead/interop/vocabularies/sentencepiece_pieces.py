"""Restriction of a sentencepiece model to some of its pieces, as the library's `SetVocabulary` does.

Some versions of the library lack that function, so the file itself is edited. It is a Protocol Buffers message whose
repeated first field is a piece with its name (1), score (2) and type (3; sentencepiece_model.proto).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

_NORMAL, _UNUSED = 1, 5
_VARINT, _LENGTH = 0, 2
_WIDTHS = {1: 8, 5: 4}
"""Bytes of a field in the fixed-width wire types."""
_PIECE, _NAME, _TYPE = 1, 1, 3


def only_pieces(model: bytes, kept: Collection[object]) -> bytes:
    """Return a model that segments text only into some pieces; single characters and special pieces stay.

    Args:
        model: Content of a `.model` file; an invalid file is returned unchanged, and the library then rejects it.
        kept: Names of the pieces to keep.
    """
    try:
        fields = list(_fields(model))
    except (IndexError, ValueError):
        return model
    return b"".join(
        _field(number, _marked(content, kept)) if number == _PIECE and kind == _LENGTH else whole
        for number, kind, content, whole in fields
    )


def _marked(piece: bytes, kept: Collection[object]) -> bytes:
    """Return a piece marked as normal if it is kept, and as unused otherwise."""
    fields = {number: content for number, _, content, _ in _fields(piece)}
    name, kind = fields.get(_NAME, b"").decode("utf-8", "replace"), int.from_bytes(fields.get(_TYPE, b"\1"), "little")
    wanted = _NORMAL if name in kept or len(name) == 1 else _UNUSED
    if kind not in (_NORMAL, _UNUSED) or kind == wanted:
        return piece
    others = b"".join(whole for number, _, _, whole in _fields(piece) if number != _TYPE)
    return others + bytes([_TYPE << 3 | _VARINT, wanted])


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield the number, wire type, content and complete bytes of every field.

    Raises:
        IndexError: If the message is truncated.
        ValueError: If a field has an unknown wire type.
    """
    at = 0
    while at < len(message):
        start = at
        tag, at = _varint(message, at)
        begin, kind = at, tag & 7
        if kind == _VARINT:
            end = _varint(message, at)[1]
        elif kind == _LENGTH:
            length, begin = _varint(message, at)
            end = begin + length
        elif kind in _WIDTHS:
            end = at + _WIDTHS[kind]
        else:
            raise ValueError(f"a field is coded in a way {kind} that is not known")
        if end > len(message):
            raise IndexError("the message breaks off")
        yield tag >> 3, kind, message[begin:end], message[start:end]
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return a varint (seven bits per byte), and the offset after it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _field(number: int, content: bytes) -> bytes:
    length, coded = len(content), bytearray([number << 3 | _LENGTH])
    while length >= 0x80:
        coded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*coded, length]) + content
