"""What is read as JSON is a regular file, of bounded size and depth."""

from __future__ import annotations

import json

import pytest

from clearhead.errors import CheckpointError, DataError
from clearhead.files import parse_json, read_json, read_json_lines, read_text, require_regular


def nested(levels: int, kind: str) -> str:
    return '{"a":' * levels + "0" + "}" * levels if kind == "object" else "[" * levels + "0" + "]" * levels


@pytest.mark.parametrize("kind", ["object", "list"])
def test_parse_json_rejects_values_nested_deeper_than_32_levels(kind):
    assert parse_json(nested(31, kind)) == json.loads(nested(31, kind))
    for levels in (32, 33, 900, 1_000_000):
        with pytest.raises(ValueError, match="it is nested deeper than 32 levels"):
            parse_json(nested(levels, kind))


@pytest.mark.parametrize("text", ['"\\ud800"', '{"\\udfff": 1}', '[["\\ud83d"]]'])
def test_half_a_character_is_refused(text):
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        parse_json(text)
    assert parse_json('"\\ud83d\\ude00"') == "😀"


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"", "Expecting value"), (b"\xff", "can't decode"), (b"3", "must hold a JSON object"), (b"1" * 5_000, "digit")],
    ids=["empty", "bytes", "number", "digits"],
)
@pytest.mark.parametrize("error", [CheckpointError, DataError])
def test_read_json_raises_the_given_error_type_naming_the_file(tmp_path, content, reason, error):
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(error, match=rf"^{path} is damaged: .*{reason}"):
        read_json(path, error)


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    for path, reason in ((tmp_path / "absent", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(DataError, match=rf"^cannot read {path}: {reason}$"):
            read_json(path, DataError)


def test_size_is_bounded(tmp_path):
    path = tmp_path / "x"
    path.write_text("äö")
    assert read_text(path, most_bytes=4) == "äö"
    with pytest.raises(ValueError, match="it is larger than 3 bytes"):
        read_text(path, most_bytes=3)


def test_read_json_lines_yields_errors_in_place_of_invalid_lines(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_bytes(b'{"a": 1}\n\n \n[\xff]\n7')
    (first, one), (second, wrong), (third, seven) = read_json_lines(path)
    assert (first, one, second, third, seven) == (1, {"a": 1}, 4, 5, 7)
    assert isinstance(wrong, ValueError)


def test_require_regular_accepts_links_to_regular_files_only(tmp_path):
    (tmp_path / "file").write_text("x")
    (tmp_path / "link").symlink_to("file")
    require_regular(tmp_path / "link")
    (tmp_path / "null").symlink_to("/dev/null")
    with pytest.raises(OSError, match="it must be a regular file"):
        require_regular(tmp_path / "null")
