"""Cleaning: every pair is accounted for, each reason drops what it says and nothing else."""

from __future__ import annotations

import tracemalloc
from itertools import chain, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearhead.config import DataConfig
from clearhead.data.clean import REASONS, CleaningReport, clean, key_digest, normalized_key
from clearhead.formats import SKIPS, SentencePair, read_parallel

LONG = "ein Wort " * 20


def cleaned(texts, *, forbidden=(), tags=(), **settings):
    pairs = [SentencePair(source, target, f"f:{line}") for line, (source, target) in enumerate(texts, start=1)]
    report = CleaningReport()
    keys = {key_digest(text) for text in forbidden}
    kept = list(clean(pairs, DataConfig(**settings), forbidden=keys, report=report, language_tags=tags))
    report.check()
    return [(pair.source, pair.target) for pair in kept], {k: n for k, n in report.dropped.items() if n}, report


@pytest.mark.parametrize(
    ("source", "target", "reason"),
    [
        ("", "b", "empty"),
        ("a", " \t\u2003", "empty"),
        ("x" * 3_001, "x" * 3_001, "too_many_characters"),
        ("x" * 1_000_003, "x", "too_many_characters"),
        ("x" * 121, "short", "length_ratio"),
        ("x" * 20, "y" * 121, "length_ratio"),
        ("y" * 25, "x" * 151, "length_ratio"),
        ("Ein Mann.", "x", "leakage"),
        ("x", "ein MANN", "leakage"),
    ],
)
def test_bad_pair_is_dropped_for_its_reason(source, target, reason):
    kept, dropped, report = cleaned([("gut", "good"), (source, target)], forbidden=["Ein Mann!"])
    assert kept == [("gut", "good")]
    assert dropped == {reason: 1}
    assert report.examples[reason] == ["f:2"]


@pytest.mark.parametrize(
    ("source", "target"),
    [("x" * 3_000, "y" * 3_000), ("x" * 120, "y"), ("x" * 150, "y" * 25), ("Ein Mann geht.", "Ein Hund.")],
)
def test_pair_at_the_limit_is_kept(source, target):
    assert cleaned([(source, target)], forbidden=["Ein Mann!"])[0] == [(source, target)]


def test_text_is_kept_as_it_is():
    texts = [("  zwei  Leerzeichen ", "ﬁ\u00a0A\u0308"), ("\tx\r", " y")]
    assert cleaned(texts)[0] == texts


def test_only_the_very_same_pair_is_a_duplicate():
    texts = [("a", "b"), ("a", "B"), ("a ", "b"), ("b", "a"), ("a", "b"), ("ab", "c"), ("a", "bc"), ("a", "b")]
    kept, dropped, report = cleaned(texts)
    assert kept == [texts[i] for i in (0, 1, 2, 3, 5, 6)]
    assert dropped == {"duplicate": 2}
    assert report.examples["duplicate"] == ["f:5", "f:8"]
    assert cleaned(texts, drop_duplicates=False)[0] == texts


def test_first_reason_in_order_is_the_one_that_counts():
    of_the_file = ["malformed", *SKIPS]
    assert list(REASONS)[: len(of_the_file)] == of_the_file
    assert list(REASONS)[len(of_the_file) :][:4] == ["empty", "unknown_tag", "too_many_characters", "length_ratio"]
    texts = [("", LONG * 30), ("<2xx>" + LONG * 30, "a"), (LONG * 30, "a"), (LONG, "a"), (LONG, LONG), (LONG, LONG)]
    _, dropped, _ = cleaned(texts, forbidden=[LONG], tags=("de",))
    others = {"too_many_characters": 1, "length_ratio": 1, "leakage": 1, "duplicate": 1}
    assert dropped == {"empty": 1, "unknown_tag": 1, **others}


def test_rows_with_a_defect_and_skipped_pairs_are_dropped_under_their_reason():
    pairs = [
        SentencePair("", "", "f:1", defect="there is no tab"),
        SentencePair("", "", "f:2"),
        SentencePair("a", "b", "f:3"),
        SentencePair("a", "b", "f:4", skipped="unfinished"),
        SentencePair("a", "", "f:5", skipped="untranslated"),
    ]
    report = CleaningReport()
    assert [pair.origin for pair in clean(pairs, DataConfig(), forbidden=set(), report=report)] == ["f:3"]
    report.check()
    dropped = {reason: count for reason, count in report.dropped.items() if count}
    assert dropped == {"malformed": 1, "empty": 1, "unfinished": 1, "untranslated": 1}
    assert report.read == 5
    assert "           1 dropped: malformed, the row of its file is no pair (f:1)" in report.lines()


def test_language_tag_is_not_text():
    tags = ("de", "fr")
    texts = [("<2de> ", "a"), ("<2de> Good day", "Guten Tag"), ("<2fr> Good day", "Bonjour"), ("<2fr> Evening", "z")]
    kept, dropped, _ = cleaned(texts, forbidden=["good day!"], tags=tags)
    assert kept == [("<2fr> Evening", "z")]
    assert dropped == {"empty": 1, "leakage": 2}


def test_kept_pairs_know_their_language_and_where_their_text_begins():
    pairs = [SentencePair("<2de>  Good day", "Guten Tag", "f:1"), SentencePair("Hello", "Hallo", "f:2")]
    kept = list(clean(pairs, DataConfig(), forbidden=set(), report=CleaningReport(), language_tags=("de",)))
    assert [(pair.source, pair.language, pair.text) for pair in kept] == [
        ("<2de>  Good day", "de", " Good day"),
        ("Hello", None, "Hello"),
    ]


def test_a_pair_with_an_unknown_language_tag_is_dropped_and_shown():
    texts = [("<2de> Good day", "Guten Tag"), ("<2DE> Good day", "Guten Tag"), ("Day <2xx>", "Tag"), ("a", "<2xx> b")]
    kept, dropped, report = cleaned(texts, tags=("de", "fr"))
    assert kept == [texts[0], *texts[2:]]
    assert dropped == {"unknown_tag": 1}
    line = (
        "dropped: unknown_tag, the source starts with a language tag that tokenizer.language_tags does not name (f:2)"
    )
    assert line in "\n".join(report.lines())


def test_without_language_tags_everything_is_text():
    texts = [("<2de> Good day", "Guten Tag"), ("<2xx>", "x")]
    assert cleaned(texts)[0] == texts


def test_same_sentence_with_two_language_tags_is_not_a_duplicate():
    texts = [("<2de> Taxi", "Taxi"), ("<2fr> Taxi", "Taxi")]
    assert cleaned(texts, tags=("de", "fr"))[0] == texts


def test_at_most_three_examples_are_kept_of_each_reason():
    _, dropped, report = cleaned([("", "x")] * 7)
    assert dropped == {"empty": 7}
    assert report.examples["empty"] == ["f:1", "f:2", "f:3"]


def test_report_is_printed_with_reasons_and_examples():
    _, _, report = cleaned([("a", "b"), ("", "b"), ("c", "d")])
    report.hold_out()
    text = "\n".join(report.lines())
    for part in ("3 pairs read", "1 kept", "1 held out", "1 dropped: empty, a side is blank (f:2)"):
        assert part in text
    assert "leakage" not in text
    assert report.to_dict() == {
        "read": 3,
        "kept": 1,
        "held_out": 1,
        "dropped": {**dict.fromkeys(REASONS, 0), "empty": 1},
        "examples": {"empty": ["f:2"]},
    }


def test_pair_missing_from_the_counts_is_noticed():
    with pytest.raises(AssertionError, match="3 pairs read, but 2 accounted for"):
        CleaningReport(read=3, kept=2).check()


def test_captions_are_all_accounted_for(data_dir):
    captions = data_dir("multi30k")
    pairs = islice(read_parallel([str(captions / "train.de.gz")], [str(captions / "train.en.gz")]), 1_499)
    report = CleaningReport()
    forbidden = {key_digest("Two young, White males are outside near many bushes.")}
    kept = sum(1 for _ in clean(pairs, DataConfig(max_characters=150), forbidden=forbidden, report=report))
    assert report.read == 1_499
    assert kept == report.kept == 1_499 - sum(report.dropped.values())
    assert report.dropped["leakage"] == 1
    assert 0 < report.dropped["too_many_characters"] < 100


@given(st.lists(st.tuples(st.text("ab ", max_size=3), st.text("ab ", max_size=3)), max_size=30))
def test_every_pair_is_kept_or_dropped_once(texts):
    kept, dropped, report = cleaned(texts, forbidden=["b"])
    assert len(kept) + sum(dropped.values()) == report.read == len(texts)
    assert len(set(kept)) == len(kept)
    assert all(source.strip() not in ("", "b") and target.strip() not in ("", "b") for source, target in kept)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Ein Hund, der rennt!", "ein  hund der rennt"),
        ("Ｆｕｌｌ １２", "full 12"),
        ("Straße", "STRASSE"),
        ("e\u0301te\u0301", "été"),
        ("don’t_stop", "don't stop"),
        (" ?! ", "?!"),
    ],
)
def test_keys_agree_up_to_case_width_and_punctuation(one, other):
    assert normalized_key(one) == normalized_key(other)
    assert key_digest(one) == key_digest(other)


@pytest.mark.parametrize(
    ("one", "other"), [("Hund 1", "Hund 2"), ("कि", "की"), ("été", "ete"), (":-)", ":-("), ("日本", "日木")]
)
def test_keys_differ_where_letters_digits_or_marks_do(one, other):
    assert normalized_key(one) != normalized_key(other)
    assert len(key_digest(one)) == 16


def test_duplicates_are_found_in_little_memory():
    count = 2**16 - 3
    made = (SentencePair(f"{number} a", f"{number} b", f"f:{number}") for number in range(count))
    repeated = (SentencePair(f"{number} a", f"{number} b", "g:1") for number in (0, 999, 1_000, count - 1))
    report = CleaningReport()
    tracemalloc.start()
    try:
        kept = sum(1 for _ in clean(chain(made, repeated), DataConfig(), forbidden=set(), report=report))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (kept, report.dropped["duplicate"]) == (count, 4)
    assert peak < 60 * count  # 46; a set of digests takes 81
