"""Forms with a file (multipart/form-data), parsed by python-multipart: text fields, and at most one file."""

from __future__ import annotations

import time
from dataclasses import dataclass

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from clearhead.serving.http_errors import HTTPError, bad_request

MAX_FIELDS = 1_000
MULTIPART = "multipart/form-data"
URLENCODED = frozenset({"application/x-www-form-urlencoded", ""})
"""Content types of forms without parts."""
_MAX_FIELD_BYTES = 1_048_576
"""Size limit of all fields together; only a file may be larger."""

_SLICE, _PAUSE_SECONDS = 65_536, 0.0005
"""Bytes that are parsed between two pauses, in which the event loop runs."""


@dataclass(frozen=True, slots=True)
class FormFile:
    """A file of a form."""

    name: str
    data: bytes


def unreadable_form() -> HTTPError:
    """Return the error for a form that cannot be parsed."""
    return bad_request("the form cannot be read; send JSON, or a form in UTF-8")


def parse_multipart(content_type: str, body: bytes, *, is_whole: bool = True) -> list[tuple[str, str | FormFile]]:
    """Return the fields of a form in their order; of the beginning of one, those that are complete.

    Args:
        content_type: Value of the header `Content-Type`, which names the boundary.
        body: The form.
        is_whole: Whether the body is complete.

    Raises:
        HTTPError: If the form is invalid, or has too many or too large fields, or two files.
    """
    form = _Form()
    try:
        boundary = parse_options_header(content_type)[1][b"boundary"]
        parser = MultipartParser(
            boundary,
            {
                "on_part_begin": form.begin_part,
                "on_header_field": form.add_header_name,
                "on_header_value": form.add_header_value,
                "on_header_end": form.end_header,
                "on_part_data": form.add_data,
                "on_part_end": form.end_part,
                "on_end": form.end,
            },
        )
        for begin in range(0, len(body), _SLICE):
            if begin and is_whole:
                time.sleep(_PAUSE_SECONDS)
            parser.write(body[begin : begin + _SLICE])
    except (FormParserError, KeyError, ValueError):
        raise unreadable_form() from None
    if is_whole and not form.is_ended:
        raise unreadable_form()
    return form.items


class _Form:
    """Collects what the parser finds."""

    def __init__(self) -> None:
        self.items: list[tuple[str, str | FormFile]] = []
        self.is_ended = False
        self._num_field_bytes = self._num_files = 0

    def begin_part(self) -> None:
        if len(self.items) >= MAX_FIELDS:
            raise bad_request(f"the form has more than {MAX_FIELDS:,} fields")
        self._header, self._value, self._data = bytearray(), bytearray(), bytearray()
        self._name: bytes | None = None
        self._file_name: bytes | None = None

    def add_header_name(self, data: bytes, start: int, end: int) -> None:
        self._header += data[start:end]

    def add_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def end_header(self) -> None:
        if self._header.lower() == b"content-disposition":
            options = parse_options_header(bytes(self._value))[1]
            self._name, self._file_name = options.get(b"name"), options.get(b"filename")
            self._num_files += self._file_name is not None
            if self._num_files > 1:
                raise bad_request("the form has more than one file")
        self._header, self._value = bytearray(), bytearray()

    def add_data(self, data: bytes, start: int, end: int) -> None:
        self._data += data[start:end]
        if self._file_name is None:
            self._num_field_bytes += end - start
            if self._num_field_bytes > _MAX_FIELD_BYTES:
                raise bad_request(f"the fields of the form have more than {_MAX_FIELD_BYTES:,} bytes")

    def end_part(self) -> None:
        if self._name is None:
            raise unreadable_form()
        file, data = self._file_name, bytes(self._data)
        value = data.decode() if file is None else FormFile(file.decode(errors="replace"), data)
        self.items.append((self._name.decode(), value))

    def end(self) -> None:
        self.is_ended = True
