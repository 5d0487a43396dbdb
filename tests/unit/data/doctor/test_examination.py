from __future__ import annotations

from dataclasses import replace

import pytest
from corpus_text import pairs_of, rows_of, texts
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.doctor import KINDS, examine, measure
from clearhead.data.doctor.examination import BITS
from clearhead.formats import SKIPS

CLEAN = [texts(number) for number in range(1_000)]


def counts(rows, **others):
    """Return how many pairs have what, of what was found."""
    return {finding.name: finding.count for finding in examine(rows, others or None).found()}


def among_clean(*rows: tuple[str, str]):
    """Return what is found of some rows that stand in the middle of a clean corpus."""
    return examine(pairs_of([*CLEAN[:500], *rows, *CLEAN[500:]]))


def test_clean_corpus_has_no_findings():
    result = examine(pairs_of(CLEAN))
    assert result.found() == []
    assert result.rows.pairs == result.without_findings == 1_000
    assert sum(result.source.characters.counts.values()) == 1_000
    assert {name for name, one in result.findings.items() if one.unchecked} == {"leakage", "overlap", "no_translation"}


TEN = "Die Zahl heißt eins zwei drei vier fünf."
EN = "The number is one two three four five."
FR = "Le numéro que nous avons choisi est un, deux, trois ou quatre."


@pytest.mark.parametrize(
    ("name", "source", "target", "detail"),
    [
        ("mojibake", TEN.replace("ß", "Ã\x9f"), EN, "Ã‹U+009F›"),
        ("mojibake", TEN, EN + " Itâ€™s", "â€™"),
        ("mojibake", TEN, EN + "\ufffd", "\ufffd"),
        ("wrong_language", EN, EN.replace("five", "six"), "the source"),
        ("wrong_language", TEN, TEN.replace("fünf", "acht"), "the target"),
        ("swapped", "The number is six.", "Die Zahl heißt acht.", "the source and the target"),
        ("other_language", FR, EN, "the source is in another language (fr)"),
        ("other_language", TEN, FR, "the target is in another language (fr)"),
        ("wrong_script", "Привет, как дела?", EN, "the source: 13 of CYRILLIC"),
        ("wrong_script", TEN, "これは日本語です", "the target: 5 of HIRAGANA, 3 of HAN"),
        ("empty", " \t\u00a0", EN, "the source"),
        ("empty", TEN, "", "the target"),
        ("empty", "", "", "both sides"),
        ("placeholders", TEN + " %s", EN + " %d", "the target lacks %s; the source lacks %d"),
        ("placeholders", TEN + " {n} {n}", EN + " {n}", "the target lacks {n}"),
        ("placeholders", TEN + " <b>x</b>", EN + " <b>x", "the target lacks </b>"),
        ("placeholders", TEN + " *so* ``f x``", EN, "the target lacks ``fx``"),
        ("identical", "Karl Johann Xaver", "Karl Johann Xaver", ""),
        ("length_ratio", TEN, EN * 6, "40 and 228 characters"),
        ("too_long", TEN * 76, EN * 80, "3,040 characters"),
        ("control_characters", TEN + "\x1b[0m", EN, "U+001B"),
        ("control_characters", TEN, EN + "\ue000\x85", "U+E000 U+0085"),
        ("invisible", TEN.replace("e", "\u00ade", 1), EN + "\ufeff", "U+00AD U+FEFF"),
        ("entities", TEN + " &amp; &#39;", EN + " &#39; &amp;", "&amp; &#39;"),
        ("numbers", TEN + " 1850", EN + " 1950", "the target lacks 1850; the source lacks 1950"),
        ("numbers", TEN + " 77 (7)", EN + " 77 (7) 88", "the source lacks 88"),
        ("brackets", TEN + " (eins)", EN + " (one", "the target has 1 more opened"),
        ("brackets", TEN + " eins]", EN + " [one]", "the source has 1 more closed"),
    ],
)
def test_each_kind_of_finding_is_found_with_its_detail(name, source, target, detail):
    result = among_clean((source, target))
    finding = result.findings[name]
    assert finding.count == 1
    [example] = finding.examples
    assert (example.origin, example.detail) == ("f.tsv:501", detail)
    assert result.without_findings == 1_000


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (TEN + " %s {n} <b>", EN + " <b> {n} %s"),
        (TEN + " 1.250,5 am 3. Mai 2016", EN + " 1,250.5 on May 3, 2016"),
        (TEN + " 50 % und 100%", EN + " 50% and 100 %"),
        (TEN + " a) eins :-)", EN + " one"),
        (TEN + " (a b 0)", EN + " (1-based)".replace("1", "0")),
        ("https://example.org/a", "https://example.org/a"),
        ("12:30", "12:30"),
        (TEN + "\u00a0» „Spaß“\t«", EN + " ’–"),
        ("Ja.", "That is right, sir."),
        (TEN + " Привет", EN + " Привет"),
        (TEN, EN),
        ("Guido van Rossum, Łukasz Langa, Benjamin Peterson", "Guido van Rossum, Łukasz Langa, Benjamin Peterson."),
        ("Bethuel, Horma, Ziklag, Kenan, Mahalaleel", "Bethuel, Horma, Ziklag, Cainan, Mahalalel"),
        ("C'est la vie mon ami, n'est-ce pas", "He said: c'est la vie mon ami, n'est-ce pas"),
    ],
)
def test_correct_pairs_have_no_findings(source, target):
    assert among_clean((source, target)).found() == []


def test_duplicates_and_several_targets_name_the_first_row():
    result = among_clean(CLEAN[7], (CLEAN[8][0], "The number is something else."), CLEAN[7])
    assert [one.detail for one in result.findings["duplicate"].examples] == ["first at f.tsv:8"] * 2
    assert [one.detail for one in result.findings["several_targets"].examples] == ["first at f.tsv:9"]
    assert {one.name: one.count for one in result.found()} == {"duplicate": 2, "several_targets": 1}


def test_the_first_row_is_named_in_its_own_file(monkeypatch):
    monkeypatch.setattr("clearhead.data.doctor.code_points.BATCH_PAIRS", 7)
    rows = [*pairs_of(CLEAN[:20], "a"), *pairs_of(CLEAN[20:40], "b"), *pairs_of([CLEAN[25], CLEAN[3]], "c")]
    found = examine(rows).findings["duplicate"].examples
    assert [(one.origin, one.detail) for one in found] == [("c:1", "first at b:6"), ("c:2", "first at a:4")]


def test_blank_pairs_are_no_duplicates_of_each_other():
    assert {one.name: one.count for one in among_clean(("", ""), ("", "")).found()} == {"empty": 2}


def test_shifted_rows_are_counted_and_shown_with_what_fits_better():
    sources, targets = zip(*CLEAN, strict=True)
    result = examine(pairs_of(list(zip(sources, [*targets[:400], "More.", *targets[400:-1]], strict=True))))
    [example] = result.findings["shifted"].examples
    assert result.findings["shifted"].count == pytest.approx(600, abs=4)
    assert result.without_findings == 1_000 - result.findings["shifted"].count
    [block] = result.shifted
    assert (result.kinds_of_pairs == BITS["shifted"]).nonzero()[0].tolist() == [
        *range(block.start, block.start + block.rows)
    ]
    line = int(example.origin.rpartition(":")[2])
    assert line == pytest.approx(401, abs=4)
    assert "1 row further down; this source fits better with: " + targets[line - 1] in example.detail


def test_leakage_is_of_either_side_whatever_its_case_and_punctuation():
    rows = pairs_of([*CLEAN[:300], (CLEAN[998][0].upper(), "Another one"), ("Noch was", CLEAN[999][1] + "!!")])
    valid, test = pairs_of(CLEAN[990:999], "v"), pairs_of([CLEAN[999], CLEAN[990]], "t")
    result = examine(rows, {"valid": valid, "test": test})
    overlap = {one.origin: one.detail for one in result.findings["overlap"].examples}
    assert overlap == {"t:2": "the source is at v:1 (valid); the target is at v:1 (valid)"}
    found = {one.origin: one.detail for one in result.findings["leakage"].examples}
    assert found == {
        "f.tsv:301": "the source is at v:9 (valid)",
        "f.tsv:302": "the target is at t:1 (test)",
    }
    assert {name: split.pairs for name, split in result.held_out.items()} == {"valid": 9, "test": 2}
    assert result.rows.read == 302


def test_scripts_and_lengths_common_in_the_corpus_are_not_findings():
    russian = [(source, "Это " + "число " * (number % 9 + 1)) for number, (source, _) in enumerate(CLEAN)]
    assert "wrong_script" not in counts(pairs_of(russian))
    long = [(source, target * 4) for source, target in CLEAN]
    assert counts(pairs_of(long)) == {}
    assert counts(pairs_of([*long, (CLEAN[0][0] + " ja", CLEAN[0][1][:5])])) == {"length_ratio": 1}


def test_languages_of_few_pairs_are_unchecked_without_eldc(monkeypatch):
    monkeypatch.setattr("clearhead.data.doctor.identification._identifier", lambda: None)
    result = examine(pairs_of([*CLEAN[:30], (EN, EN), (TEN, FR)]))
    missing = "eldc is not installed (pip install eldc)"
    unchecked = {name: one.unchecked for name, one in result.findings.items() if one.unchecked}
    assert unchecked["other_language"] == missing
    assert unchecked["wrong_language"] == f"there are too few pairs to learn from, and {missing}"
    assert unchecked["swapped"] == unchecked["wrong_language"]
    assert unchecked["shifted"] == "there are too few pairs to learn from"
    assert result.findings["wrong_language"].to_dict(31)["count"] is None
    result = examine(pairs_of([*CLEAN[:300], ("The number is six.", "Die Zahl heißt acht."), (TEN, FR)]))
    assert result.findings["swapped"].count == 1
    assert result.findings["other_language"].to_dict(302)["count"] is None


def test_few_pairs_are_enough_for_the_identifier():
    rows = [*CLEAN[:30], (EN + " They say so.", "That is what they say, and it is right."), (EN, TEN)]
    assert counts(pairs_of(rows)) == {"wrong_language": 1, "swapped": 1}


def test_a_third_of_a_corpus_in_a_third_language_leaves_it_open_and_a_fifth_of_it_does_not():
    french = [
        (f"Le numéro que nous avons choisi est {n}.", f"The number that we have chosen is {n}.") for n in range(99)
    ]
    found = examine(pairs_of([*CLEAN[:396], *french])).findings["other_language"]
    assert (found.count, found.unchecked) == (99, None)
    found = examine(pairs_of([*CLEAN[:198], *french])).findings["other_language"]
    assert found.unchecked == "no language has 75 % of the texts of the source (found: de 67 %, fr 33 %)"
    found = examine(pairs_of([("123", "456")] * 300)).findings["other_language"]
    assert found.unchecked == "the source has too few texts whose language is clear"


BOKMAL = (
    "Jeg vet ikke hva han heter, men jeg har sett ham her før.",
    "Hun kommer fra en liten bygd ved kysten.",
    "Vi skal spise middag sammen i kveld.",
    "Kan du si meg hvor jernbanestasjonen ligger?",
    "Det var ikke noe galt med bilen.",
)


def test_close_languages_need_more_evidence_for_other_language():
    norwegian = [(BOKMAL[n % 5], target) for n, (_, target) in enumerate(CLEAN[:300])]
    danish = [("Jeg har en hund.", EN), ("Vi skal hjem nu.", EN), ("Hvad er det?", EN)]
    result = examine(pairs_of([*norwegian, *danish]))
    assert (result.findings["other_language"].count, result.findings["other_language"].unchecked) == (0, None)


def test_both_sides_in_one_language_are_not_wrong_language():
    assert "wrong_language" not in counts(pairs_of([(source, source + " Ja.") for source, _ in CLEAN]))


TEXT = st.text(st.sampled_from("aß 7%{}<&;\n\t\u200b\ufffdÃ\x9fя語()\x07"), max_size=12)


@given(rows_of(TEXT, max_size=30))
def test_every_row_is_a_pair_or_none_for_one_reason(pairs):
    for result in (examine(pairs), measure(pairs)):
        values = result.to_dict()["rows"]
        assert values["read"] == len(pairs)
        assert values["pairs"] == sum(pair.defect is None and pair.skipped is None for pair in pairs)
        assert values["read"] == values["pairs"] + values["malformed"] + sum(values[reason] for reason in SKIPS)
    result = examine(pairs)
    assert 0 <= result.without_findings <= result.rows.pairs
    assert all(one.count >= len(one.examples) for one in result.findings.values())


def test_rows_that_are_no_pairs_are_named(tmp_path):
    rows = pairs_of(CLEAN[:3])
    torn = replace(rows[1], source="", target="", defect="there is no tab")
    result = examine([rows[0], torn, replace(rows[2], skipped="obsolete")])
    assert result.rows.examples == {"malformed": ["f.tsv:2: there is no tab"], "obsolete": ["f.tsv:3"]}


def test_an_empty_corpus_and_one_pair_have_a_report():
    assert examine([]).to_dict()["rows"]["read"] == 0
    assert examine(pairs_of(CLEAN[:1])).without_findings == 1


def test_a_huge_line_is_measured_whole_and_looked_at_in_part():
    huge = "eins " * 200_000
    result = among_clean((huge + "\x07", "one " * 200_000))
    assert {one.name for one in result.found()} == {"too_long"}
    assert result.to_dict()["source"]["characters"]["longest"] == 1_000_001


def test_half_a_surrogate_pair_is_a_control_character():
    assert {one.name for one in among_clean((TEN + "\ud800", EN)).found()} == {"control_characters"}


def test_surrogates_and_nul_do_not_prevent_language_identification():
    for text in (FR + "\ud800", FR + "\0"):
        assert among_clean((text, EN)).findings["other_language"].count == 1


def test_lengths_are_those_of_the_texts():
    values = measure(pairs_of([("a b", "x"), ("a  b c", "xy"), ("", "z" * 100)])).to_dict()
    assert values["source"]["words"] == {
        "total": 5,
        "shortest": 0,
        "median": 2,
        "p90": 3,
        "p99": 3,
        "longest": 3,
        "histogram": [[0, 0, 1], [1, 1, 0], [2, 2, 1], [3, 3, 1]],
    }
    assert values["target"]["characters"]["histogram"][-1] == [100, 109, 1]
    assert values["source"]["scripts"] == {"LATIN": 1.0}


def test_measure_reports_progress_in_rows():
    told = []
    measure(pairs_of(CLEAN * 3), told.append)
    assert sum(told) == 3_000


def test_every_finding_is_explained():
    for kind in KINDS.values():
        for words in (kind.title, kind.meaning, kind.why, kind.remedy):
            assert words
            assert not words.endswith(".")
