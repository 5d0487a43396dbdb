"""Languages: their codes, names and plural forms, the tags that name one in a line, and the scripts of letters.

Codes, names, plural forms and direction are of Unicode CLDR: a table (`languages.json`) that `docs/generate.py` makes
from Babel, whose data takes 32 MB; Babel itself is needed only for the built-in corpus and for English names
(`english_name`).

A tag at the start of a source line names the target language, such as `<2de>`. It is a token of the vocabulary and not
part of the text (Johnson et al. 2017; the paper translates into one language). `>>de<<`, as OPUS-MT's models are told
the language, is the same tag.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

_WIDTHS = {"FULLWIDTH", "HALFWIDTH"}
_SCRIPTS = {"CJK": "HAN", "IDEOGRAPHIC": "HAN", "KATAKANA-HIRAGANA": "KATAKANA", "HENTAIGANA": "HIRAGANA"}
"""First words of Unicode names that differ from the name of the script."""

_CHINESE_AND_JAPANESE = {
    "HAN": "\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u31c0-\u31ef\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "HIRAGANA": "\u3040-\u309f\U0001b000-\U0001b16f",
    "KATAKANA": "\u30a0-\u30ff\u31f0-\u31ff\uff66-\uff9f\U0001aff0-\U0001afff",
    "BOPOMOFO": "\u3100-\u312f\u31a0-\u31bf",
}
_OTHERS_WITHOUT_SPACES = {
    "THAI": "\u0e00-\u0e7f",
    "LAO": "\u0e80-\u0eff",
    "TIBETAN": "\u0f00-\u0fff",
    "MYANMAR": "\u1000-\u109f\ua9e0-\ua9ff\uaa60-\uaa7f\U000116d0-\U000116ff",
    "KHMER": "\u1780-\u17ff\u19e0-\u19ff",
}
CHINESE_AND_JAPANESE = frozenset(_CHINESE_AND_JAPANESE)
"""Scripts without spaces between sentences either; a line may be broken between any two of their letters."""
WITHOUT_SPACES = CHINESE_AND_JAPANESE.union(_OTHERS_WITHOUT_SPACES)
"""Scripts without spaces between words."""
CHINESE_AND_JAPANESE_LETTERS = "".join(_CHINESE_AND_JAPANESE.values())
"""Ranges of the characters of `CHINESE_AND_JAPANESE`, for a set in a regular expression."""
LETTERS_WITHOUT_SPACES = CHINESE_AND_JAPANESE_LETTERS + "".join(_OTHERS_WITHOUT_SPACES.values())
"""Ranges of the characters of `WITHOUT_SPACES`."""
CHINESE_AND_JAPANESE_MARKS = "\u3001-\u303f\uff00-\uff65"
"""Ranges of the punctuation of Chinese and Japanese, and of the full-width forms."""


@lru_cache(maxsize=10_000)  # a text repeats few letters
def script_of(letter: str) -> str | None:
    """Return the script of a letter, from its Unicode name, such as `LATIN`; None for other characters.

    >>> script_of("ß"), script_of("語"), script_of("カ"), script_of("ﾊ"), script_of("7")
    ('LATIN', 'HAN', 'KATAKANA', 'KATAKANA', None)
    """
    if unicodedata.category(letter)[0] != "L":
        return None
    words = unicodedata.name(letter, "UNNAMED").split()
    first = words[1] if words[0] in _WIDTHS else words[0]
    return _SCRIPTS.get(first, first)


def count_scripts(texts: Iterable[str]) -> Counter[str]:
    """Return the number of letters of each script in the texts.

    >>> count_scripts(["Пётр I."])
    Counter({'CYRILLIC': 4, 'LATIN': 1})
    """
    characters: Counter[str] = Counter()
    for text in texts:
        characters.update(text)
    scripts: Counter[str] = Counter()
    for character, count in characters.items():
        if script := script_of(character):
            scripts[script] += count
    return scripts


LANGUAGE = r"[^\s<>]+"
"""Pattern of the name of a language."""

TAG = re.compile(rf"\s*(?:<2(?P<ours>{LANGUAGE})>|>>(?P<marian>{LANGUAGE})<<) ?")
CODE = re.compile(r"[a-z]{2,3}(_\w+)?")
"""What an unknown name in `>>` and `<<` must look like to be a language; another, such as `>>Note<<`, is text."""


def language_tag(language: str) -> str:
    """Return the tag that requests a translation into `language`.

    >>> language_tag("de")
    '<2de>'
    """
    return f"<2{language}>"


def tagged_language(token: str) -> str | None:
    """Return the language of a tag token, or None for another token."""
    return token[2:-1] if token.startswith("<2") and token.endswith(">") else None


def split_tag(text: str, languages: Collection[str]) -> tuple[str | None, str]:
    """Split a leading language tag off a source line, with the white space before it and one space after it.

    Anything of the form of a tag is one, even if its language is unknown: `<2`, a name that begins with a letter, `>`;
    or `>>`, a code of two or three letters, `<<`. If there are no languages, there are no tags, and everything is text.

    >>> split_tag("<2de> Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", ["de", "fr"])
    ('xx', 'Good morning')
    >>> split_tag(">>de<< Good morning", ["de", "fr"])
    ('de', 'Good morning')
    >>> split_tag("<2xx> Good morning", [])
    (None, '<2xx> Good morning')
    """
    match = TAG.match(text) if languages else None
    if match is None:
        return None, text
    name = match["ours"] or match["marian"]
    is_like_one = name[0].isalpha() if match["ours"] else CODE.fullmatch(name)
    return (name, text[match.end() :]) if name in languages or is_like_one else (None, text)


LOCALES = ("en", "de", "fr", "es", "it", "pt", "nl", "pl", "cs", "sv", "tr", "ja")
"""Languages of the built-in corpus; the names of all languages in these are known."""


def is_two_letter_code(language: str) -> bool:
    """Return whether a text is the ISO 639-1 code of a language, in small letters.

    >>> is_two_letter_code("de"), is_two_letter_code("xx"), is_two_letter_code("deu")
    (True, False, False)
    """
    return language in _table()["two_letter_codes"]


def usual_code(code: str) -> str:
    """Return the code that CLDR uses instead of another code of a language, possibly with a country.

    >>> usual_code("deu"), usual_code("swc"), usual_code("yue")
    ('de', 'sw_CD', 'yue')
    """
    return str(_table()["aliases"].get(code, code))


def english_name(code: str) -> str | None:
    """Return the English name of a language, or None if its code is unknown.

    >>> english_name("de"), english_name("pt-BR"), english_name("x1")
    ('German', 'Portuguese (Brazil)', None)
    """
    from babel import Locale, UnknownLocaleError

    try:
        return Locale.parse(code.replace("_", "-"), sep="-").get_display_name("en")
    except (UnknownLocaleError, ValueError):
        return None


def plural_forms(language: str) -> str:
    """Return the rule of a language's plural forms as gettext writes it; empty if it is unknown.

    >>> plural_forms("de-AT"), plural_forms("pt_BR"), plural_forms("ja"), plural_forms("xx")
    ('nplurals=2; plural=(n != 1);', 'nplurals=2; plural=(n > 1);', 'nplurals=1; plural=0;', '')
    """
    rules: dict[str, str] = _table()["plural_forms"]
    return next((rules[code] for code in _shortened(language) if code in rules), "")


def is_right_to_left(language: str) -> bool:
    """Return whether a language is written from right to left.

    >>> is_right_to_left("ar-EG"), is_right_to_left("pa_Arab"), is_right_to_left("pa"), is_right_to_left("de")
    (True, True, False, False)
    """
    return not set(_table()["right_to_left"]).isdisjoint(_shortened(language))


def _shortened(language: str) -> Iterator[str]:
    """Yield a language with region and script, in the form of CLDR, and without them."""
    parts = language.replace("-", "_").split("_")
    parts = [usual_code(parts[0].lower()), *(part.title() if len(part) > 2 else part.upper() for part in parts[1:])]
    return ("_".join(parts[:length]) for length in range(len(parts), 0, -1))


def is_known_language(language: str) -> bool:
    """Return whether CLDR has a name for a language, possibly with script, region or a variant of gettext.

    >>> [is_known_language(code) for code in ("pt-BR", "deu", "swc", "sr@latin", "xx")]
    [True, True, True, True, False]
    """
    *_, alone = _shortened(language.partition("@")[0])
    return alone.partition("_")[0] in _table()["names"]


@cache
def codes_by_name() -> dict[str, str]:
    """Return a mapping from codes and casefolded names of languages to codes.

    >>> codes = codes_by_name()
    >>> codes["german"], codes["deutsch"], codes["deu"], codes["de"]
    ('de', 'de', 'de', 'de')
    """
    names: dict[str, str] = _table()["names"]
    codes = {name: code for code, all_names in names.items() for name in all_names.split("; ")}
    return codes | _table()["aliases"] | dict(zip(names, names, strict=True))


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
    return table
