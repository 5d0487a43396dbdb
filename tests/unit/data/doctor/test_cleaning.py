from __future__ import annotations

import html
import random
from collections import Counter

import pytest
from corpus_text import pairs_of, rows_of, texts
from hypothesis import given
from hypothesis import strategies as st

from clearhead.data.doctor import KINDS
from clearhead.data.doctor.checks import without_entities
from clearhead.data.doctor.cleaning import DEFAULT_DROP, DROPPABLE, FIXABLE, Cleaning, partners
from clearhead.data.doctor.misalignment import ShiftedRows
from clearhead.errors import DataError
from clearhead.formats import SentencePair

CLEAN = [texts(number) for number in range(600)]
GERMAN, ENGLISH = texts(77_777)


def garbled(text: str) -> str:
    return text.encode().decode("cp1252")


def cleaned(rows, fix=FIXABLE, drop=DEFAULT_DROP):
    """Return what becomes of some rows behind a clean corpus: the new pair, or None, and the reasons."""
    cleaning = Cleaning(pairs_of([*CLEAN, *rows]), fix, drop)
    found = [((row.after.source, row.after.target) if row.after else None, row.reasons) for row in cleaning.cleaned()]
    assert found[: len(CLEAN)] == [(pair, ()) for pair in CLEAN]
    return found[len(CLEAN) :]


def test_mojibake_swapped_sides_and_entities_are_fixed():
    rows = [
        (garbled(GERMAN), ENGLISH),
        (texts(7_081)[1], texts(7_081)[0]),
        (texts(7_082)[0] + " &amp;amp; &#8211;", texts(7_082)[1] + " & &ndash;"),
        (garbled(texts(7_083)[0]) + " &quot;", texts(7_083)[1] + ' "'),
    ]
    assert cleaned(rows) == [
        ((GERMAN, ENGLISH), ("mojibake",)),
        (texts(7_081), ("swapped",)),
        ((texts(7_082)[0] + " & –", texts(7_082)[1] + " & –"), ("entities",)),
        ((texts(7_083)[0] + ' "', texts(7_083)[1] + ' "'), ("mojibake", "entities")),
    ]


def test_unfixable_mojibake_is_dropped_under_its_reason():
    assert cleaned([(GERMAN.replace("ß", "\ufffd"), ENGLISH)]) == [(None, ("mojibake",))]
    assert cleaned([(GERMAN.replace("ß", "\ufffd"), ENGLISH)], fix=(), drop=()) == [
        ((GERMAN.replace("ß", "\ufffd"), ENGLISH), ())
    ]


def test_pairs_are_dropped_for_the_kinds_that_are_named_and_for_no_others():
    rows = [("", ENGLISH), (GERMAN, GERMAN), (GERMAN, ENGLISH + " 17"), (GERMAN + " 18", ENGLISH + " 19")]
    assert cleaned(rows) == [
        (None, ("empty",)),
        (None, ("wrong_language",)),
        (rows[2], ()),
        (rows[3], ()),
    ]
    assert [reasons for _, reasons in cleaned(rows, (), ("numbers",))] == [(), (), (), ("numbers",)]


def test_duplicates_are_those_of_pairs_that_are_kept():
    rows = [(garbled(GERMAN), ENGLISH), (GERMAN, ENGLISH), (GERMAN, ENGLISH), CLEAN[3]]
    assert [after for after, _ in cleaned(rows)] == [(GERMAN, ENGLISH), None, None, None]
    # With garbled pairs dropped, the next one is the first of its kind.
    assert [after for after, _ in cleaned(rows, (), ("mojibake", "duplicate"))] == [None, (GERMAN, ENGLISH), None, None]


def test_shifted_rows_get_their_own_targets():
    sources, targets = map(list, zip(*CLEAN, strict=True))
    targets = [*targets[:200], "More than that.", *targets[200:399], *targets[400:]]  # one more, and later one less
    cleaning = Cleaning(pairs_of(list(zip(sources, targets, strict=True))), FIXABLE, ())
    rows = list(cleaning.cleaned())
    wrong = [n for n, row in enumerate(rows) if row.after and (row.after.source, row.after.target) != CLEAN[n]]
    assert wrong == []
    # The last source of the block has lost its target to the row before; rows at its ends are dropped if not certain.
    assert cleaning.changed["shifted"] == pytest.approx(199, abs=4)
    assert 1 <= cleaning.dropped["shifted"] <= 5
    assert cleaning.rows_out == 600 - cleaning.dropped.total()


@pytest.fixture(params=[True, False])
def has_encoder(request, monkeypatch) -> None:
    """Let the meanings be compared, then not."""
    if not request.param:
        monkeypatch.setattr("clearhead.data.doctor.meaning._encoder", lambda: None)


@pytest.mark.usefixtures("has_encoder")
@pytest.mark.parametrize(("start", "end"), [(90, 110), (90, 150), (0, 20), (180, 200)])
def test_right_pairs_with_a_comment_behind_their_targets_are_left_alone(start, end):
    comment = " (translated by hand, see the page for the rest of it)"
    rows = [(source, target + comment * (start <= n < end)) for n, (source, target) in enumerate(CLEAN[:200])]
    cleaning = Cleaning(pairs_of(rows), FIXABLE, DEFAULT_DROP)
    assert [(row.after, row.reasons) for row in cleaning.cleaned()] == [(pair, ()) for pair in pairs_of(rows)]


@pytest.mark.usefixtures("has_encoder")
@pytest.mark.parametrize("by_length", [True, False])
def test_right_pairs_that_are_numbered_differently_are_left_alone(by_length):
    clean = sorted(CLEAN[:300], key=lambda pair: len(pair[0])) if by_length else CLEAN[:300]
    for offset in (1, -1):
        rows = [
            (f"{n + 10}: {source}", f"{n + 10 + offset}: {target}") if 50 <= n < 150 else (source, target)
            for n, (source, target) in enumerate(clean)
        ]
        cleaning = Cleaning(pairs_of(rows), ("shifted",), ())
        assert [(row.after, row.reasons) for row in cleaning.cleaned()] == [(pair, ()) for pair in pairs_of(rows)]


CZECH = {
    "Pes": "A dog",
    "Kočka": "A cat",
    "Muž v červeném klobouku": "A man with a red hat",
    "Dívka": "A girl",
    "Skupina velmi starých lidí": "A group of very old people",
}
CZECH_ENDS = {
    "běží": "is running",
    "sedí na lavičce v parku": "is sitting on a bench in the park",
    "čeká na vlak": "is waiting for the train",
    "skáče přes plot u starého domu": "is jumping over the fence by the old house",
}


def test_rows_that_only_lengths_call_shifted_are_left_as_they_are():
    choose = random.Random(1)
    words = [
        (f"{subject} {end}.", f"{CZECH[subject]} {CZECH_ENDS[end]}.")
        for subject, end in zip(choose.choices([*CZECH], k=600), choose.choices([*CZECH_ENDS], k=600), strict=True)
    ]
    sources, targets = map(list, zip(*words, strict=True))
    targets[300:340] = ["More than that.", *targets[300:339]]
    pairs = pairs_of(list(zip(sources, targets, strict=True)))
    cleaning = Cleaning(pairs, FIXABLE, ())
    assert [row.after for row in cleaning.cleaned()] == pairs
    [block] = cleaning.unmended
    assert block.shift == 1
    assert cleaning.unchecked_lines()[-1] == (
        f"{block.rows} rows from f.tsv:{block.start + 1} to f.tsv:{block.start + block.rows} are left as they are: not "
        f"all of lengths, names and meanings show that the target is 1 row further down"
    )


def block(start: int, rows: int, shift: int) -> ShiftedRows:
    pair = SentencePair("", "", "f:1")
    return ShiftedRows(shift, rows, pair, "", "", 0.0, start)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([], [0, 0, 0, 0, 0, 0]),
        ([block(1, 2, 1)], [0, 1, 1, None, 0, 0]),
        ([block(2, 2, -1)], [0, None, -1, -1, 0, 0]),
        ([block(3, 3, 2)], [0, 0, 0, 2, None, None]),
        ([block(0, 2, -1)], [None, -1, 0, 0, 0, 0]),
        ([block(0, 2, 2), block(4, 2, -1)], [2, 2, None, None, None, -1]),
        ([block(0, 2, 1), block(2, 2, -1)], [1, 1, None, None, 0, 0]),
    ],
)
def test_no_target_has_two_sources(blocks, expected):
    found = [None if shift == -128 else shift for shift in partners(blocks, 6).tolist()]
    taken = [place + shift for place, shift in enumerate(found) if shift is not None]
    assert len(taken) == len({*taken})
    assert all(0 <= target < 6 for target in taken)
    assert found == expected


def test_references_are_resolved_a_bounded_number_of_times():
    assert without_entities(html.escape(html.escape("<a & b>"))) == "<a & b>"
    assert without_entities("&" + "amp;" * 1_000) == "&" + "amp;" * 997


def test_references_of_tabs_and_line_ends_become_spaces_which_every_file_can_keep():
    assert without_entities("a&#9;b&#10;c&#13;d&Tab;e&NewLine;f&#x2028;g&#160;h") == "a b c d e f g\xa0h"


def test_a_corpus_that_changes_in_between_is_refused():
    rows = pairs_of(CLEAN[:9])
    for change in (lambda: rows.append(rows[0]), lambda: rows.clear()):
        cleaning = Cleaning(rows, (), ())
        change()
        with pytest.raises(DataError, match="clean it when nothing writes to its files"):
            list(cleaning.cleaned())


TEXT = st.text(st.sampled_from("aß 7%<&;lt\ufffdÃ\x9fя語("), max_size=12)


@given(rows_of(TEXT, max_size=60), st.sets(st.sampled_from(FIXABLE)), st.sets(st.sampled_from(DROPPABLE)))
def test_every_row_is_written_or_dropped_for_one_reason(pairs, fix, drop):
    cleaning = Cleaning(pairs, fix, drop)
    found = list(cleaning.cleaned())
    assert [row.before for row in found] == pairs
    assert cleaning.rows_in == len(pairs) == cleaning.rows_out + cleaning.dropped.total()
    assert cleaning.rows_out == sum(row.after is not None for row in found)
    assert cleaning.dropped == Counter(row.reasons[0] for row in found if row.after is None)
    assert all(row.reasons for row in found if row.after != row.before)


def test_fixable_droppable_and_default_kinds_are_kinds_of_findings():
    assert {*FIXABLE} < {*DROPPABLE} == {*KINDS} - {"unequal_files", "leakage", "overlap"}
    assert {*DEFAULT_DROP} < {*DROPPABLE}
