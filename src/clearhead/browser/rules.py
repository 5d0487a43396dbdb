"""The constants of Python that the modules of a page have in common with it: `web/rules.js`, written from them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from clearhead.browser import engine
from clearhead.browser.text import javascript_pattern
from clearhead.config import DecodeConfig
from clearhead.decoding import repetition, utf8
from clearhead.inspection import head_statistics, tokens
from clearhead.kernels import structs
from clearhead.pages import constants_module
from clearhead.text import (
    languages,
    line_statistics,
    lines,
    number_differences,
    placeholder_masking,
    placeholders,
    quality_flags,
    sentence_splitting,
    unicode_forms,
    word_links,
)
from clearhead.tokenizers import learned, spans
from clearhead.translation import normalization

RULES = "web/rules.js"
"""The module, which is no file."""

_CONSTANTS: dict[ModuleType, tuple[str, ...]] = {
    engine: ("FORMS",),
    head_statistics: ("DIAGONAL_WIDTH",),
    languages: ("TAG", "CODE", "CHINESE_AND_JAPANESE", "WITHOUT_SPACES"),
    learned: ("LONGEST_WORD",),
    line_statistics: (
        *("RATIO_FLOOR", "MOST_SENTENCES", "COPY_WINDOW", "COPY_STRIDE", "LEAST_WINDOWS", "COPIED_SHARE"),
        *("CASED_WORDS", "WITHOUT_CAPITAL"),
    ),
    lines: ("LINE_BREAK",),
    normalization: ("CASED_WORD", "SINGLE_WORD", "OTHER_I", "MOST_WORDS", "LONGEST_CASED"),
    number_differences: ("LARGEST_SPELLED", "MOST_RUNS", "MOST_DECIMALS", "GROUP", "NUMBER"),
    placeholder_masking: ("MARKS",),
    placeholders: ("INVISIBLE", "NUM_ALONE", "NUM_PAIRS", "SIGNS", "STATEMENT_SIGNS"),
    quality_flags: ("RATIO_MARGIN", "MOST_SHOWN", "LONGEST_UNIT", "REPEATED", "REPEATED_A_LITTLE"),
    repetition: ("LOOP_TOKENS", "LOOP_TIMES"),
    sentence_splitting: ("INITIAL", "ORDINAL", "DASH", "SAID", "BEGINNING", "NEAR"),
    spans: ("FARTHEST",),
    tokens: ("SPACES", "LONGEST_SHOWN"),
    structs: ("CACHE_LINE",),
    unicode_forms: ("JAMO",),
    utf8: ("NUM_STATES", "NUM_ROOMS"),
    word_links: ("UNLOOKED", "NEARLY"),
}
"""The names of the constants, which JavaScript has too."""


def rules() -> dict[str, Any]:
    """Return the value of each constant by its name, as JSON values; of a pattern, the source for JavaScript."""
    [most_beams] = (bound.le for bound in DecodeConfig.model_fields["beam_size"].metadata if hasattr(bound, "le"))
    return {"MOST_BEAMS": most_beams, **dict(_values())}


def _values() -> Iterator[tuple[str, Any]]:
    for module, names in _CONSTANTS.items():
        for name in names:
            match getattr(module, name):
                case re.Pattern() as pattern:
                    yield name, javascript_pattern(pattern)
                case frozenset() as members:
                    yield name, sorted(members)
                case value:
                    yield name, value


def rules_module() -> str:
    """Return the text of `web/rules.js`."""
    return constants_module("RULES", rules())
