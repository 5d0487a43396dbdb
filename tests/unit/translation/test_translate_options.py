from __future__ import annotations

from dataclasses import fields
from inspect import Parameter, signature

import pytest

from clearhead.errors import ConfigError
from clearhead.translation.options import TranslateOptions
from clearhead.translation.translator import Translator


def test_translate_options_are_the_arguments_of_translate():
    parameters = signature(Translator.translate).parameters.values()
    given = {one.name: one.default for one in parameters if one.kind is Parameter.KEYWORD_ONLY}
    assert given.pop("prefix") == ""  # the texts are given beside the options
    assert {one.name: one.default for one in fields(TranslateOptions)} == given


@pytest.mark.parametrize("name", [one.name for one in fields(TranslateOptions)])
def test_every_option_has_a_type(name):
    with pytest.raises(ConfigError, match=rf"{name} must be .*, not object"):
        TranslateOptions(**{name: object()})
