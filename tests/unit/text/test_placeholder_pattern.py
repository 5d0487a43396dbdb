from __future__ import annotations

import re
import subprocess
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from clearhead.text import placeholders
from clearhead.text.placeholders import change_words, find_placeholders, has_words, placeholder, words_alone

SIGNS = "ab1 .,(/%{}$#@<>&;:`|*=_\\-'\u20e3\ufe0f\u200d"
TEXTS = st.text(st.one_of(st.sampled_from(SIGNS), st.characters()), max_size=12)


@given(TEXTS)
@example("1\ufe0f\u20e3")
@example("\U0001f1e9\U0001f1ea")
@example("a://b")
@example("a.b@c.d")
@example("U.S.")
@example("a.bc")
@example("f(x)")
@example("/a")
@example("--a")
@example("-a")
def test_a_text_that_is_not_searched_has_nothing_to_find(text):
    assert [found.span() for found in find_placeholders(text)] == [m.span() for m in placeholder().finditer(text)]
    kept = re.compile(placeholders._KEPT, re.VERBOSE)
    assert words_alone(text) == kept.sub(" ", text)
    parts = kept.split(text)
    assert change_words(text, str.upper) == "".join(
        part if index % 2 else part.upper() for index, part in enumerate(parts)
    )


@pytest.mark.parametrize("text", ["--help", "-n", "-n, --dry-run", "--max-minutes 20", "<b>--help</b> -o=2"])
def test_options_of_a_command_are_no_words(text):
    assert not has_words(text)


@pytest.mark.parametrize("text", ["--Ja", "--nein.", "- ja", "-Ja", "a --b c", "wort--wort", "-- und"])
def test_a_dash_before_a_word_is_no_option(text):
    assert has_words(text)


def test_a_plain_text_compiles_no_long_pattern():
    program = """
from clearhead.text import placeholders
assert placeholders.has_words("Ein Hund, 3 Katzen und (vielleicht) ein Pferd.")
assert not list(placeholders.find_placeholders("Ein Hund."))
print(placeholders.placeholder.cache_info().misses + placeholders._kept.cache_info().misses)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "0\n"
