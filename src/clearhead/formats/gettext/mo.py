"""Compiled gettext catalogues (`.mo`), which `msgfmt` makes from a `.po`, as sentence pairs.

See https://www.gnu.org/software/gettext/manual/html_node/MO-Files.html. The parser is our own, because Babel 2.18
decodes the header before it knows the declared encoding, and polib 1.2 truncates a text at the end of the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from clearhead.errors import DataError
from clearhead.formats.gettext.catalogue import Message, charset_of, open_catalogue
from clearhead.formats.pair import PairFile, Wanted

BYTE_ORDERS = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}
"""First bytes of a file, and the byte order of its numbers."""


def open_mo(path: str, wanted: Wanted) -> PairFile:
    """Open a compiled catalogue of sentence pairs; it contains no fuzzy, obsolete or untranslated messages.

    Args:
        path: The file; `.gz`, `.xz` and `.zst` are decompressed. The origin of a pair is the number of its message.
        wanted: Requested languages, see `open_catalogue`.

    Raises:
        ConfigError: If the catalogue does not have the requested languages.
        DataError: If the file is damaged, cannot be read, is larger than 200 MB, or is not in its declared encoding.
    """
    return open_catalogue(path, wanted, "compiled gettext catalogue", _messages)


def _messages(data: bytes, name: str) -> Iterator[Message]:
    order = BYTE_ORDERS.get(data[:4])
    if order is None:
        raise DataError(f"{name} does not begin as a compiled gettext catalogue does; is it a .po?")
    charset = ""
    for number, (source, target) in enumerate(_raw(data, order, name), start=1):
        if number == 1:  # messages are sorted by source, and the header's is empty
            header = Message(number, source.decode("latin-1"), [target.decode("latin-1")])
            charset = charset_of(header, name) or "UTF-8"
        try:
            words, forms = source.decode(charset), target.decode(charset)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, message {number}: byte 0x{error.object[error.start]:02x} is not valid {charset}, the "
                f"encoding that its header declares; make it again from its .po"
            ) from None
        context, separator, rest = words.rpartition("\x04")
        singular, is_plural, plural = rest.partition("\0")
        yield Message(
            number,
            singular,
            forms.split("\0") if is_plural else [forms],
            plural=plural if is_plural else None,
            context=context if separator else None,
        )


def _raw(data: bytes, order: str, name: str) -> Iterator[tuple[bytes, bytes]]:
    """Yield sources and translations as stored."""
    room = len(data)
    try:
        version, count, sources, targets = struct.unpack_from(f"{order}4I", data, 4)
        if version >> 16 > 1:
            raise DataError(f"{name} is of version {version >> 16} of its format, and versions 0 and 1 are known")
        for place in range(0, 8 * count, 8):
            pair = []
            for table in (sources, targets):
                length, start = struct.unpack_from(f"{order}2I", data, table + place)
                room -= length
                # Overlapping texts, which `msgfmt` never writes, could fill any amount of memory.
                if start + length > len(data) or room < 0:
                    raise EOFError
                pair.append(data[start : start + length])
            yield pair[0], pair[1]
    except (struct.error, EOFError):
        raise DataError(
            f"{name} is damaged: its texts do not lie where it says, or it is cut off; make it again from its .po"
        ) from None
