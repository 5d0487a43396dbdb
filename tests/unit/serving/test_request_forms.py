"""Forms with a file: their fields as browsers send them, and their limits."""

from __future__ import annotations

import pytest

from clearhead.serving.forms import FormFile, parse_multipart
from clearhead.serving.http_errors import HTTPError

KIND = "multipart/form-data; boundary=B"
FIELD = '--B\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
FILE = '--B\r\nContent-Disposition: form-data; name="file"; filename="%s"\r\nContent-Type: text/plain\r\n\r\n%s\r\n'


def test_fields_and_file_are_found():
    form = FIELD % ("q", "犬\r\n--C") + FILE % ("ä.txt", "\r\n\r--") + FIELD % ("q", "") + "--B--"
    assert parse_multipart(KIND, form.encode()) == [
        ("q", "犬\r\n--C"),
        ("file", FormFile("ä.txt", b"\r\n\r--")),
        ("q", ""),
    ]


def test_the_beginning_of_a_form_has_its_complete_fields():
    form = (FIELD % ("a", "1") + FIELD % ("b", "2")).encode()
    assert parse_multipart(KIND, form[:-3], is_whole=False) == [("a", "1")]


@pytest.mark.parametrize(
    ("kind", "form", "message"),
    [
        ("multipart/form-data", "", "cannot be read"),
        (KIND, FIELD % ("a", "1"), "cannot be read"),  # without its end
        (KIND, "--C\r\n", "cannot be read"),
        (KIND, "--B\r\nX: y\r\n\r\n\r\n--B--\r\n", "cannot be read"),
        (KIND, FIELD % ("a", "\udcff") + "--B--\r\n", "cannot be read"),
        (KIND, FILE % ("a", "") * 2 + "--B--\r\n", "more than one file"),
        (KIND, FIELD % ("a", "") * 1_001 + "--B--\r\n", "more than 1,000 fields"),
        (KIND, FIELD % ("a", "x" * 600_000) * 2 + "--B--\r\n", "more than 1,048,576 bytes"),
    ],
)
def test_malformed_and_oversized_forms_are_refused(kind, form, message):
    with pytest.raises(HTTPError) as refused:
        parse_multipart(kind, form.encode(errors="surrogateescape"))
    assert (refused.value.status, message in refused.value.message) == (400, True)
