"""Markers at the beginning of a line are told from numbers, signs and words."""

from __future__ import annotations

import pytest

from clearhead.text.list_markers import list_marker


@pytest.mark.parametrize(
    "marker",
    [
        "- ",
        "* ",
        "• ",
        "– ",
        "> ",
        ">> ",
        "> > ",
        "> - ",
        "a) ",
        "(b) ",
        "iv) ",
        "1) ",
        "(12) ",
        "1. ",
        "  - ",
        "-\t",
        "1. a) ",
    ],
)
def test_markers_have_words_behind(marker):
    assert list_marker(f"{marker}Open the file.") == marker
    assert list_marker(f"{marker}½ Tasse") == marker
    assert list_marker(marker) == list_marker(f"{marker}12,50 €") == ""


@pytest.mark.parametrize(
    "text",
    [
        "-5 °C am Morgen",
        "*Ein* Hund",
        "1.250 Hunde",
        "12. März 2004",
        "1. Mai ist Feiertag.",
        "3. května",
        "3. 5. 2016 war es",
        "A dog",
        "a dog",
        "dog) ",
        ">50 Hunde",
        "2016. Ein Jahr",
        "(c) 2016",
        "Ein Hund - eine Katze",
    ],
)
def test_numbers_signs_and_words_are_no_markers(text):
    assert list_marker(text) == ""


@pytest.mark.parametrize("text", ["1. Öffnen Sie", "1. Maiskolben kaufen", "2. 開く", "3. „Ja“ sagen", "4. %s öffnen"])
def test_a_number_with_a_full_stop_is_a_marker_before_a_beginning_of_a_sentence(text):
    assert list_marker(text) == text[:3]
