from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import ConfigError, DataError
from clearhead.formats.json_document import MOST_DEPTH

TEXT = st.text('ab "\\/\n\t\u00e9\u2028犬😀{}[],:', max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


def changed(value):
    """Return a JSON value with every string marked that is no key; objects are lists of pairs."""
    match value:
        case str():
            return f"<{value}>"
        case tuple():
            return value[0], changed(value[1])
        case list():
            return [changed(part) for part in value]
    return value


@settings(max_examples=50)
@given(VALUES, st.booleans(), st.sampled_from([None, 1, "\t"]), st.sampled_from([",", " ,\r\n"]))
def test_every_string_that_is_a_value_is_replaced_and_nothing_else(read, fill, value, is_ascii, indent, comma):
    written = json.dumps(value, ensure_ascii=is_ascii, indent=indent, separators=(comma, " : "))
    found = fill(read("a.json", written), lambda text: f"<{text}>")
    pairs = {"object_pairs_hook": lambda pairs: pairs}
    assert json.loads(found, **pairs) == changed(json.loads(written, **pairs))


def test_layout_numbers_and_keys_that_are_there_twice_stay(read, fill, places):
    written = '\n{ "a" :"Hund" , "a": [ 1.50E+3,"Katze",true ,null],\r\n\t"Hund": {"": "a\\/\\"b\\u00e9"}}  \n'
    document = read("a.json", written)
    assert places(document) == [(2, "Hund"), (2, "Katze"), (3, 'a/"bé')]
    assert fill(document, {"Hund": 'do"g\n', "Katze": "猫"}) == (
        '\n{ "a" :"do\\"g\\n" , "a": [ 1.50E+3,"\\u732b",true ,null],\r\n\t"Hund": {"": "a\\/\\"b\\u00e9"}}  \n'
    )


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('["a"]', '["é"]'),
        ('["a", "\\u00fc"]', '["\\u00e9", "\\u00fc"]'),
        ('["a", "\\u00fc", "ö"]', '["é", "\\u00fc", "ö"]'),
        ('["a", "\\u0041\\u000a"]', '["é", "\\u0041\\u000a"]'),
    ],
)
def test_letters_are_written_as_the_file_writes_them(read, fill, written, expected):
    assert fill(read("a.json", written), {"a": "é"}) == expected


def test_byte_order_mark_and_utf16_are_kept(read, fill):
    assert fill(read("a.json", '\ufeff"a"'), {"a": "b"}) == '\ufeff"b"'
    document = read("a.json", '\ufeff["a"]'.encode("utf-16-le"))
    assert document.segments[0].text == "a"


def test_unpaired_surrogate_escapes_are_not_segments(read, places):
    assert places(read("a.json", '["\\ud83d", "\\ud83d\\ude00", "\\\\ud83d"]')) == [(1, "😀"), (1, "\\ud83d")]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("", "line 1: this is no JSON: a value is missing at the end of the file"),
        ('{"a":\n}', "line 2: this is no JSON: a value is missing, before '}'"),
        ('["a",\n]', "line 2: this is no JSON: a value is missing, before ']'"),
        ('["a"\n"b"]', "line 2: this is no JSON: a comma or the closing bracket is missing, before '\"b\"]'"),
        ("{'a': 1}", "line 1: this is no JSON: a key in quotation marks or } is missing, before \"'a': 1}\""),
        ('{"a": 1,}', "line 1: this is no JSON: a key in quotation marks is missing, before '}'"),
        ('{"a" 1}', "line 1: this is no JSON: a colon is missing, before '1}'"),
        ('["a"', "line 1: this is no JSON: a comma or the closing bracket is missing at the end of the file"),
        ('["a"}', "line 1: this is no JSON: a comma or the closing bracket is missing, before '}'"),
        ('["a\nb"]', "line 1: this is no JSON: a string is not closed on its line, or holds a wrong escape"),
        ('["\\x"]', "line 1: this is no JSON: a string is not closed on its line, or holds a wrong escape"),
        ("[1, 02]", "line 1: this is no JSON: a value is missing, before '02]'"),
        ("[NaN]", "line 1: this is no JSON: a value or ] is missing, before 'NaN]'"),
        ("[]\n[]", "line 2: this is no JSON: something follows the end of the JSON value, before '[]'"),
        ("// c\n[]", "line 1: this is no JSON: a value is missing, before '// c'"),
    ],
)
def test_invalid_json_is_rejected_with_its_line(read, directory, written, message):
    with pytest.raises(DataError) as caught:
        read("a.json", written)
    assert str(caught.value) == f"{directory / 'a.json'}, {message}"


def test_deep_nesting_is_refused(read):
    read("a.json", "[" * MOST_DEPTH + "]" * MOST_DEPTH)
    for written in ("[" * 100_000, '{"a":' * 100_000, "[" * (MOST_DEPTH + 1) + "]" * (MOST_DEPTH + 1)):
        with pytest.raises(DataError, match="line 1: the JSON is nested deeper than 500 levels"):
            read("a.json", written)


def test_placeholder_content_of_browser_extension_messages_is_not_a_segment(read):
    document = read("a.json", '{"m": "$n$ days", "placeholders": {"n": {"content": "$1"}}, "price": "$10"}')
    assert [one.text for one in document.segments] == ["$n$ days", "$10"]


CONFIG = """{
  "type": "button", "label": "Rent",
  "help.text": "Row", "help": {"text": ["Red", {"note": "Blue"}], "href": "/a"},
  "nested": [{"label": "Oar", "icon": "oar"}], "mylabel": "x"
}"""


@pytest.mark.parametrize(
    ("keys", "texts"),
    [
        (None, ["button", "Rent", "Row", "Red", "Blue", "/a", "Oar", "oar", "x"]),
        (["label"], ["Rent", "Oar"]),
        (["nested.label"], ["Oar"]),
        (["help.text"], ["Row", "Red", "Blue"]),
        (["help", "type"], ["button", "Red", "Blue", "/a"]),
        (["text.note"], ["Blue"]),
    ],
)
def test_keys_say_which_strings_are_text(read, fill, keys, texts):
    document = read("a.json", CONFIG, keys=keys)
    assert [one.text for one in document.segments] == texts
    if keys == ["label"]:
        assert fill(document, str.upper) == CONFIG.replace('"Rent"', '"RENT"').replace('"Oar"', '"OAR"')


@pytest.mark.parametrize(
    ("keys", "message"),
    [(["label", "lable"], "no string below the key 'lable'; --keys takes names"), ([], "no string below no key")],
)
def test_a_key_without_strings_is_refused(read, keys, message):
    with pytest.raises(ConfigError, match=message):
        read("a.json", CONFIG, keys=keys)
