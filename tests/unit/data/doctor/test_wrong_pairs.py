from __future__ import annotations

from corpus_text import pairs_of, texts

from clearhead.data.doctor import KINDS
from clearhead.data.doctor.wrong_pairs import LEAST_SHARE, WORDS, count_wrong, wrong_lines, wrong_share

CLEAN = [texts(number) for number in range(1_000)]
SWAPPED = [texts(number)[::-1] for number in range(7_000, 7_030)]
GARBLED = [tuple(text.encode().decode("cp1252") for text in texts(number)) for number in range(8_000, 8_020)]
FRENCH = [(f"Le numéro que nous avons choisi n'est pas le {n}, mais un autre.", texts(9_000 + n)[1]) for n in range(10)]


def counted(rows, is_multilingual=False):
    return count_wrong(pairs_of(rows), is_multilingual=is_multilingual)


def among_clean(rows):
    """Return rows spread over a clean corpus."""
    step = len(CLEAN) // len(rows)
    return [pair for place, row in enumerate(rows) for pair in (*CLEAN[place * step : (place + 1) * step], row)]


def test_wrong_lines_of_a_clean_corpus_are_empty():
    found = counted([*CLEAN, *CLEAN, ("", ""), ("Zahl 1", "number 2")])
    assert found == {"examined": 2_002, "wrong": 0, "findings": {}}
    assert wrong_lines(found, 2_002) == []


def test_wrong_lines_name_the_findings_and_the_settings_that_fix_them():
    found = counted(among_clean([*SWAPPED, *GARBLED, *FRENCH]))
    assert found == {
        "examined": 1_020,
        "wrong": 60,
        "findings": {"swapped": 30, "mojibake": 20, "other_language": 10},
    }
    first, second = wrong_lines(found, 1_020)
    assert first == (
        "about 5.9 % of the training pairs look wrong: 30 with source and target exchanged, 20 garbled, 10 with a side "
        "in a third language"
    )
    assert second.endswith("and so does --set data.fix=swapped,mojibake --set data.drop=other_language")


def test_a_pair_with_two_findings_is_wrong_once():
    both = [(SWAPPED[n][0], GARBLED[n][0]) for n in range(10)]
    found = counted(among_clean(both))
    assert found["wrong"] == 10
    assert sum(found["findings"].values()) == 20


def test_wrong_lines_below_least_share_are_empty():
    found = {"examined": 1_000, "wrong": 9, "findings": {"swapped": 9}}
    assert wrong_share(found) < LEAST_SHARE
    assert wrong_lines(found, 1_000) == []
    assert len(wrong_lines(found | {"wrong": 10}, 1_000)) == 2


def test_languages_mean_nothing_in_text_of_several():
    rows = among_clean([*SWAPPED, *GARBLED, *FRENCH])
    assert counted(rows, is_multilingual=True)["findings"] == {"mojibake": 20}
    tagged = [(f"<2{'de' if place % 2 else 'en'}> {source}", target) for place, (source, target) in enumerate(rows)]
    assert counted(tagged)["findings"] == {"mojibake": 20}
    assert "swapped" in counted([(f"<2en> {source}", target) for source, target in rows])["findings"]  # of one language


def test_the_text_says_how_many_pairs_were_examined():
    found = counted([*SWAPPED[:10], *CLEAN[:390]])
    assert wrong_lines(found, 1_010)[0].startswith("about 2.5 % of the training pairs look wrong of 400 that were")


def test_kinds_of_wrong_pairs_are_serious_findings():
    assert {KINDS[name].severity for name in WORDS} == {"serious"}
