"""Numbers in another notation are the same; missing and invented ones are found."""

from __future__ import annotations

import pytest

from clearhead.text.number_differences import invented_numbers, missing_numbers


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("1.250,5 km", "1,250.5 km"),
        ("1,50 Euro", "1.5 euros"),
        ("1,5 Euro", "1.50 euros"),
        ("1.250,50 Euro", "1250.5 euros"),
        ("12,00 Euro", "12 euros"),
        ("1 250 km", "1250 km"),
        ("1250 km", "1 250 km"),
        ("3.10.2020", "October 3, 2020"),
        ("12 Hunde", "a dozen dogs"),
        ("20 Uhr", "8 pm"),
        ("8 pm in room 5", "20 Uhr in Raum 5"),
        ("um 20:15 Uhr", "at 8:15 pm"),
        ("007", "7"),
        ("007", "seven"),
        ("1 000 000 000 000 000 000", "1,000,000,000,000,000,000"),
        ("٢٠١٦", "2016"),
        ("1,000.5 km", "١٬٠٠٠٫٥ km"),
        ("１，０００", "1 000"),
        ("no number", "2016"),
        ("1" * 5_000, "1" * 5_000),
    ],
)
def test_numbers_in_another_notation_are_not_flagged(source, text):
    assert missing_numbers(source, text) == []


@pytest.mark.parametrize(
    ("source", "text", "missing"),
    [
        ("Im Jahr 2016", "In 2018", ["2016"]),
        ("1.250 Hunde", "125 dogs", ["1.250"]),
        ("1.000 Hunde", "1 dog", ["1.000"]),
        ("1.000 Hunde", "1.00 dogs", ["1.000"]),
        ("1.001 Hunde", "1 dog", ["1.001"]),
        ("5.000.000 Hunde", "5,000 dogs", ["5.000.000"]),
        ("45 Jahre", "years", ["45"]),
        ("Zug 7", "train 9", ["7"]),
        ("20 cm", "8 to 9 inches", []),
        ("30 kg", "70 lbs", ["30"]),
        ("Zug 7", "train 17", ["7"]),
        ("45 Hunde", "14 dogs and 5 cats", ["45"]),
        ("2016", "In 12016", ["2016"]),
        ("1250 5", "5 1,250", []),
        ("Gleis " + "0" * 5_000 + "7", "platform 9", ["0" * 5_000 + "7"]),
        ("1880 und 1990 und 1880", "then", ["1880", "1990"]),
        ("12,50 Euro", "125 euros", ["12,50"]),
        ("1,50 Euro", "1.6 euros", ["1,50"]),
        ("3.5.2016 und ٢٠١٧", "May 3, 2018", ["3.5.2016", "٢٠١٧"]),
    ],
)
def test_a_number_that_is_gone_or_another_is_missing(source, text, missing):
    assert missing_numbers(source, text) == missing


@pytest.mark.parametrize(
    ("source", "text", "invented"),
    [
        ("Der Zug fährt.", "The train of 2016 leaves.", ["2016"]),
        ("1.250 Plätze am 3.5.2016", "1,250 seats on May 3, 2016", []),
        ("zwölf Hunde", "12 dogs", []),  # it may be in words
        ("30 kg", "66 lbs and 66 lbs", ["66"]),
        ("5", "5 and 5.000", ["5.000"]),
    ],
)
def test_a_number_that_the_source_lacks_is_invented(source, text, invented):
    assert invented_numbers(source, text) == invented
