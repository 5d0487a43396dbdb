"""Terminologies: what is read from a table, and where terms and their forms are found."""

from __future__ import annotations

import re

import pytest
from steps import assert_linear

from clearhead.errors import DataError
from clearhead.text.placeholders import find_placeholders
from clearhead.translation.terminology import FoundTerm, Term, Terms, forms_in

DOG, HOT_DOG, US = Term("dog", ("Hund", "Hunde")), Term("hot dog", ("Hotdog",)), Term("US", ("USA",))
CAR, AUTOMOBILE = Term("car", ("Wagen", "Auto")), Term("automobile", ("Wagen", "Automobil"))


def test_a_table_has_forms_in_columns_and_behind_bars_and_comments(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("# ours\n\ndog\tHund\tHunde | Hunden\nhot dog\tHotdog\ndog\tHund\tKöter\n", encoding="utf-8")
    terms = Terms.load(path)
    assert terms.terms == (Term("dog", ("Hund", "Hunde", "Hunden", "Köter")), HOT_DOG)
    assert len(terms) == 2


def test_bad_lines_are_named(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\ndog Hund\n\tHund\ncat\t\n", encoding="utf-8")
    expected = (
        f"{path}:2: no tab; a line is a term, a tab, and its translation; {path}:3: there is no term; "
        f"{path}:4: no translation of 'cat'"
    )
    with pytest.raises(DataError, match=re.escape(expected)):
        Terms.load(path)
    path.write_text("# nothing\n", encoding="utf-8")
    with pytest.raises(DataError, match="has no terms"):
        Terms.load(path)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A dog, a Dog and a DOG; dogs", ["dog", "Dog", "DOG"]),
        ("a hot  dog", ["hot  dog"]),
        ("a hot cat", []),
        ("the US and us, USA", ["US"]),
        ("{dog} <dog a='b'> %(dog)s dog-house", ["dog"]),
        ("a_dog", []),
        ("hot", []),
    ],
)
def test_terms_are_found_at_the_borders_of_words_the_longest_first(text, expected):
    assert [found.text for found in Terms([DOG, HOT_DOG, US]).found_in(text)] == expected


def test_a_capital_letter_is_all_in_capitals_too():
    assert [found.text for found in Terms([Term("Hund", ("dog",))]).found_in("hund Hund HUND")] == ["Hund", "HUND"]


def test_found_in_with_any_case_ignores_the_case_of_terms():
    terms = Terms([Term("iPhone", ("iPhone",)), US])
    assert [found.text for found in terms.found_in("an iphone of the us")] == []
    assert [found.text for found in terms.found_in("an iphone of the us", any_case=True)] == ["iphone", "us"]


def test_words_of_scripts_without_spaces_are_found_within_text():
    (found,) = Terms([Term("犬", ("dog",))]).found_in("白い犬が走る。")
    assert found.text == "犬"
    assert forms_in([FoundTerm("dog", Term("dog", ("犬",)))], "白い犬が走る。") == ["犬"]


@pytest.mark.parametrize(
    ("terms", "text", "expected"),
    [
        ([DOG], "Der Hund.", ["Hund"]),
        ([DOG], "Die Hundehütte.", [""]),
        ([DOG, DOG], "Hunde und ein Hund", ["Hunde", "Hund"]),
        ([DOG, DOG], "Hunde", ["Hunde", ""]),
        ([Term("a", ("x", "y")), Term("b", ("x",))], "y x", ["y", "x"]),
        ([Term("a", ("x", "y")), Term("b", ("x",))], "x", ["", "x"]),
        ([CAR, AUTOMOBILE, CAR], "Wagen Wagen Auto", ["Wagen", "Wagen", "Auto"]),
        ([Term("red", ("rot",))], "Rot ist rot.", ["Rot"]),
        ([Term("dog", ("Hund",))], "hund HUND", [""]),
        ([HOT_DOG, Term("dog", ("Hot dog",))], "Hot  dog", ["", "Hot  dog"]),
    ],
)
def test_forms_are_found_each_for_one_term(terms, text, expected):
    assert forms_in([FoundTerm(term.source, term) for term in terms], text) == expected


@pytest.mark.parametrize(
    ("source", "form", "text", "expected"),
    [
        ("dog", "Hund", "/Katze/Hund bellt/", "Hund"),
        ("dog", "Hund", "Hund.jpg", "Hund"),
        ("dog {Hund}", "Hund", "{Hund}", ""),
        ("dog", "README.md", "Lies README.md", "README.md"),
        ("dog README.md", "README.md", "Lies README.md", "README.md"),
    ],
)
def test_only_a_placeholder_of_the_source_hides_the_words_in_it(source, form, text, expected):
    codes = {code[0] for code in find_placeholders(source)}
    assert forms_in([FoundTerm("dog", Term("dog", (form,)))], text, codes) == [expected]


def test_many_forms_of_many_occurrences_take_work_proportional_to_both_together():
    def find(count):
        term = Term("a", tuple(f"form{number}" for number in range(count)))
        found = Terms([term]).found_in("a " * count)
        assert forms_in(found, "form1 Form2 none " * count) == ["form1", "Form2"] * (count // 2)

    assert_linear(find, 20)


def test_terms_that_begin_alike_are_found_without_comparing_each():
    def find(count):
        terms = Terms([Term(f"a {number}", ("x",)) for number in range(count)])
        assert terms.found_in("a b " * count) == []

    assert_linear(find, 50)
