"""The page of `clearhead serve` counts words as Python does."""

from __future__ import annotations

import re
import sys
from importlib.resources import files

from clearhead.text import word_links


def test_the_same_characters_are_words_of_their_own():
    script = (files("clearhead") / "pages" / "translate" / "words.js").read_text(encoding="utf-8")
    declared = script.partition("UNSPACED =")[2].partition(";")[0]
    ranges = "".join(re.findall('"([^"]+)"', declared))
    ranges = re.sub(r"\\u\{?([0-9a-f]+)\}?", lambda found: chr(int(found[1], 16)), ranges)
    characters = "".join(map(chr, range(sys.maxunicode + 1)))
    assert re.findall(f"[{ranges}]", characters) == re.findall(f"[{word_links._UNSPACED}]", characters)
