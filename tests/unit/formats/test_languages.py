from __future__ import annotations

import pytest
from babel import Locale, localedata
from babel.core import get_global

from clearhead.formats import language_in_name
from clearhead.text.languages import LOCALES, codes_by_name, is_two_letter_code, usual_code


@pytest.mark.parametrize(
    ("path", "language"),
    [
        *(("train.de", "de"), ("a.b/train.raw.en.gz", "en"), ("TRAIN.DE.zst", "de"), ("news.ja.xz", "ja")),
        *(
            ("train.txt", None),
            ("train.xx", None),
            ("de", None),
            ("train.deu", None),
            ("-", None),
            ("a.de/train", None),
        ),
    ],
)
def test_the_language_is_what_the_name_ends_in(path, language):
    assert language_in_name(path) == language


def test_codes_and_names_are_those_of_babel():
    names = {name.casefold(): code for locale in LOCALES for code, name in Locale.parse(locale).languages.items()}
    aliases = {alias: code for alias, code in get_global("language_aliases").items() if alias.isalpha()}
    codes = {*Locale.parse("en").languages, *names.values()}
    assert codes_by_name() == names | aliases | {code: code for code in codes}
    assert {alias: usual_code(alias) for alias in aliases} == aliases
    letters = "abcdefghijklmnopqrstuvwxyz"
    pairs = [first + second for first in letters for second in letters]
    assert [one for one in pairs if is_two_letter_code(one)] == [one for one in pairs if localedata.exists(one)]
