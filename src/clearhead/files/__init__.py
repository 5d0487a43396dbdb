"""Files: safe reading of text and JSON, streams of lines, hashes, and atomic writing of files and directories."""

from clearhead.files.reading import (
    MOST_JSON_BYTES,
    file_sha256,
    json_sha256,
    os_error_as,
    parse_json,
    read_json,
    read_json_lines,
    read_text,
    require_regular,
)
from clearhead.files.streams import display_name, open_output, read_lines, some_names
from clearhead.files.writing import (
    blocked_by,
    is_leftover,
    is_standard_output,
    is_utf8,
    new_directory,
    new_file,
    remove_leftovers,
    standing,
    write_json,
    write_text,
)

__all__ = [
    "MOST_JSON_BYTES",
    "blocked_by",
    "display_name",
    "file_sha256",
    "is_leftover",
    "is_standard_output",
    "is_utf8",
    "json_sha256",
    "new_directory",
    "new_file",
    "open_output",
    "os_error_as",
    "parse_json",
    "read_json",
    "read_json_lines",
    "read_lines",
    "read_text",
    "remove_leftovers",
    "require_regular",
    "some_names",
    "standing",
    "write_json",
    "write_text",
]
