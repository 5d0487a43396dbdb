"""A sentencepiece model that spells in some of its pieces alone, as its library's `SetVocabulary` makes it.

Not every version of the library has that function, so it is done to the file: a message of Protocol Buffers whose first
field, again and again, is a piece with its name (1), its score (2) and its type (3; sentencepiece_model.proto).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

__all__ = ["only_pieces"]

_NORMAL, _UNUSED = 1, 5
_VARINT, _LENGTH = 0, 2
_WIDTHS = {1: 8, 5: 4}
"""Ways to code a field that have a fixed number of bytes."""
_PIECE, _NAME, _TYPE = 1, 1, 3


def only_pieces(model: bytes, kept: Collection[object]) -> bytes:
    """Return a model that never spells in other pieces; single characters and what has a meaning of its own stay.

    Args:
        model: The bytes of a `.model` file; bytes that are none come back as they are, for its library to refuse.
        kept: Names of the pieces.
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
    """Return a piece that is used if it is kept, and else is not."""
    fields = {number: content for number, _, content, _ in _fields(piece)}
    name, kind = fields.get(_NAME, b"").decode("utf-8", "replace"), int.from_bytes(fields.get(_TYPE, b"\1"), "little")
    wanted = _NORMAL if name in kept or len(name) == 1 else _UNUSED
    if kind not in (_NORMAL, _UNUSED) or kind == wanted:
        return piece
    others = b"".join(whole for number, _, _, whole in _fields(piece) if number != _TYPE)
    return others + bytes([_TYPE << 3 | _VARINT, wanted])


def _fields(message: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield number, kind of coding and content of every field, and all its bytes.

    Raises:
        IndexError: If the message breaks off.
        ValueError: If a field is coded in no known way.
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
    """Return a number that is coded in seven bits a byte, and where it ends."""
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
