"""The public face: every name it lists can be had, and nothing heavy is loaded before it is asked for."""

from __future__ import annotations

import importlib

import pytest

import clearhead


@pytest.mark.parametrize("name", clearhead.__all__)
def test_every_public_name_resolves(name):
    value = getattr(clearhead, name)
    home = clearhead._HOMES.get(name)
    expected = (
        importlib.import_module("clearhead.config.presets")
        if home is None
        else getattr(importlib.import_module(home), name)
    )
    assert value is expected


def test_every_public_name_has_a_home_and_every_home_a_public_name():
    assert {*clearhead._HOMES, "presets"} == set(clearhead.__all__)


def test_dir_lists_the_public_names():
    assert set(clearhead.__all__) <= set(dir(clearhead))
    assert "__version__" in dir(clearhead)


def test_other_names_are_refused_by_name():
    with pytest.raises(AttributeError, match="module 'clearhead' has no attribute 'Transfromer'"):
        clearhead.Transfromer  # noqa: B018
