"""Repaired memory matches: what is replaced, what is too unclear to replace, and where the result is used."""

from __future__ import annotations

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.formats.document_files import read_document
from clearhead.text.word_links import parts_of_words
from clearhead.translation.documents import fillings, translate_document
from clearhead.translation.match_repair import EXACT_FROM, MatchRepairer, repair_of
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.parts import translate_parts
from clearhead.translation.result import MemoryMatch
from clearhead.translation.terminology import Term, Terms
from clearhead.translation.translator import Translator


def exactly(line, source, target, language="de"):
    repair = repair_of(line, source, target, language)
    return None if repair is None or repair.needs_model else repair.applied(line)


@pytest.mark.parametrize(
    ("line", "source", "target", "expected"),
    [
        ("Page 17 of the book", "Page 5 of the book", "Seite 5 des Buches", "Seite 17 des Buches"),
        ("It costs 3.5 euros", "It costs 2.5 euros", "Es kostet 2,5 Euro", "Es kostet 3,5 Euro"),
        ("New in 3.14, see %s", "New in 3.9, see %d", "Siehe %d, neu in 3.9", "Siehe %s, neu in 3.14"),
        ("4 of 4 dogs", "3 of 3 dogs", "3 von 3 Hunden", "4 von 4 Hunden"),
        ("from 9 to 2 dogs", "from 2 to 9 dogs", "von 2 bis 9 Hunde", "von 9 bis 2 Hunde"),
        ("Open <b>it</b>", "Open <b>it</b>.", "Öffne <b>es</b>.", "Öffne <b>es</b>"),
        ("at 08:15 in Bonn", "at 20:45 in Bonn", "um 20:45 in Bonn", "um 08:15 in Bonn"),
    ],
)
def test_numbers_and_placeholders_are_replaced_where_the_translation_has_them(line, source, target, expected):
    assert exactly(line, source, target) == expected


@pytest.mark.parametrize(
    ("line", "source", "target"),
    [
        ("from 3 to 4 dogs", "from 3 to 3 dogs", "von 3 bis 3 Hunden"),  # which of the two is not known
        ("5 and 7 dogs", "3 and 3 dogs", "3 und 3 Hunde"),
        ("2 dogs", "1 dog", "1 Hund"),
        ("2 sheep run", "1 sheep run", "1 Schaf rennt"),  # one number differs, and the plural
        ("12 dogs bark", "3 dogs bark", "drei Hunde bellen"),  # spelled
        ("1,500.5 km here", "1,2 km here", "1,2 km hier"),
        ("%s and %s", "%s and %d", "%s und %d, %d"),
        ("Save %s", "Save it", "Speichern"),
        ("a dog, a cat", "a dog and a cat", "ein Hund und eine Katze"),
        ("a big dog", "a dog", "ein Hund"),
        ("see :ref:`a <b>`", "see :ref:`c <d>`", "siehe :ref:`c`"),
        ("due 03/04/2025", "due 01/01/2024", "fällig 01.01.2024"),  # whether the day comes first is not known
        ("2 <b>sheep</b> run", "1 <b>sheep</b> run", "1 <b>Schaf</b> rennt"),
        ("2 “sheep”", "1 “sheep”", "1 „Schaf“"),
        ("Sheep: 2", "Sheep: 1", "1 Schaf"),  # counted in the translation alone
        ("7 of us", "3 of us", "3'ün bizim"),
        ("Is it here", "Is it here?", "¿Está aquí?"),
        (f"{'9' * 5_000} dogs bark", f"{'8' * 5_000} dogs bark", f"{'8' * 5_000} Hunde bellen"),
    ],
)
def test_ambiguous_differences_are_not_repaired(line, source, target):
    assert exactly(line, source, target) is None


@pytest.mark.parametrize(
    ("language", "line", "source", "target", "expected"),
    [
        ("fr", "2.5 million here", "1.5 million here", "1,5 million ici", None),  # millions
        ("fr", "3.5 million here", "2.5 million here", "2,5 millions ici", "3,5 millions ici"),
        ("pl", "1,005 dogs here", "1,002 dogs here", "1 002 psy tutaj", None),  # psów
        ("de", "due 03/05/2025", "due 02/04/2024", "fällig 02.04.2024", "fällig 03.05.2025"),
    ],
)
def test_numbers_of_several_parts_keep_the_plural_form_and_the_order(language, line, source, target, expected):
    assert exactly(line, source, target, language) == expected


@pytest.mark.parametrize(("language", "expected"), [("de", "5 Hunde hier"), ("pl", None), ("", None)])
def test_a_number_keeps_the_plural_form_of_the_language(language, expected):
    assert exactly("5 dogs here", "2 dogs here", "2 Hunde hier", language) == expected


def links_by_hand(pairs):
    """Return links as an aligner, from words that belong together by hand."""

    def align(sources, targets):
        found = []
        for source, target in zip(sources, targets, strict=True):
            words = [[text[start:end] for start, end in parts_of_words(text)] for text in (source, target)]
            found.append([(x, y) for x, left in enumerate(words[0]) for y, right in enumerate(words[1])
                          if (left, right) in pairs])  # fmt: skip
        return found

    return align


PAIRS = {("The", "Der"), ("The", "Die"), ("dog", "Hund"), ("cat", "Katze"), ("wolf", "Wolf"), ("runs", "rennt")}
MATCH = MemoryMatch("The dog runs.", "Der Hund rennt.", 0.75)


@pytest.mark.parametrize(
    ("line", "made", "expected"),
    [
        ("The wolf runs.", "Der Wolf rennt.", "Der Wolf rennt."),
        ("The wolf runs!", "Der Wolf rennt !", "Der Wolf rennt !"),
        ("The dog runs!", "Der Hund läuft!", "Der Hund rennt!"),
        ("The wolf runs", "Der Wolf rennt", "Der Wolf rennt"),
        ("The cat runs.", "Die Katze rennt.", None),  # another article
        ("The wolf runs.", "Der graue Wolf rennt.", None),  # other neighbours
        ("The wolf runs.", "Der Wolf Wolf rennt Wolf.", None),  # linked to words apart
        ("The wolf runs.", "Der Fuchs rennt.", None),  # linked to nothing
        ("The dog runs!", "Der Hund läuft.", None),  # the model wrote another mark
    ],
)
def test_a_word_and_an_end_mark_are_those_of_the_model(line, made, expected):
    repairer = MatchRepairer(0.6, "de", align=links_by_hand(PAIRS))
    assert repairer(line, MATCH).repaired is None or line == "The dog runs"
    found = repairer.by_model(line, MATCH, made)
    assert (found.repaired, found.is_reused) == (expected, expected is not None)


def test_words_are_repaired_on_request_only_and_not_without_alignment():
    def refusing(sources, targets):
        raise DataError("too long")

    arguments = "The wolf runs.", MATCH, "Der Wolf rennt."
    for repairer in (
        MatchRepairer(None, align=links_by_hand(PAIRS)),
        MatchRepairer(0.76, align=links_by_hand(PAIRS)),
        MatchRepairer(0.6),
        MatchRepairer(0.6, align=refusing),
    ):
        assert repairer.by_model(*arguments) == MATCH
    with pytest.raises(ConfigError, match=r"reuse_from \(1.5\) must be above 0 and at most 1"):
        MatchRepairer(1.5)


def test_a_repaired_translation_has_the_terms_of_the_line():
    match = MemoryMatch("The dog has 3 legs.", "Der Hund hat 3 Beine.", 0.8)
    for form, repaired in (("Hund", "Der Hund hat 4 Beine."), ("Köter", None)):
        repairer = MatchRepairer(language="de", terms=Terms([Term("dog", (form,))]))
        assert repairer("The dog has 4 legs.", match).repaired == repaired


MEMORY = TranslationMemory([("Read page 5 of %s once more.", "Lies noch Seite 5 von %s."), ("Go.", "Los."), ("b", "B")])


def test_a_translator_repairs_from_the_given_similarity_and_flags_it(make_bundle):
    translator, lines = Translator(make_bundle()), ["Read page 7 of %d once more.", "Go.", "b"]
    (first, *others) = translator.translate(lines, memory=MEMORY.match)
    assert first.memory.similarity == 0.75 == EXACT_FROM
    assert (first.text, first.score, first.tokens) == ("Lies noch Seite 7 von %d.", None, ())
    assert [(flag.kind, flag.detail) for flag in first.warnings] == [("repaired", f"75 %: {first.memory.source}")]
    assert [one.warnings for one in others] == [(), ()]
    (plain, *_) = translator.translate(lines, memory=MEMORY.match, reuse_from=1.0)
    assert (plain.memory.is_reused, plain.memory.repaired) == (False, None)
    assert plain.text == translator.translate(lines)[0].text
    streamed = [part for group in translate_parts(translator, lines, memory=MEMORY.match) for part in group]
    assert [part.text for part in streamed] == ["Lies noch Seite 7 von %d.", "Los.", "B"]
    with pytest.raises(ConfigError, match="reuse_from"):
        translator.translate([], memory=MEMORY.match, reuse_from=-0.5)


CATALOGUE = """msgid "One"
msgstr ""

msgid "Go."
msgstr ""

msgid "Two"
msgstr ""

#, c-format
msgid "Read page 7 of %d now."
msgstr ""
"""


def test_a_document_has_repaired_matches_and_those_between_the_same_segments(make_bundle, tmp_path):
    path = tmp_path / "a.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    pairs = [("One", "Eins"), ("Go.", "Los."), ("Two", "Zwei"), ("Go.", "Geh."), ("Read page 5 of %d now.", "%d: 5")]
    document, memory = read_document(str(path)), TranslationMemory(pairs)
    assert memory.match("Go.").target == "Geh."
    translated = translate_document(Translator(make_bundle()), document, memory=memory.match)
    assert [each.translation.text for each in translated] == ["Eins", "Los.", "Zwei", "%d: 7"]
    written = document.filled(fillings(translated)).decode()
    assert "# translation memory, 85 %: repaired: Read page 5 of %d now. -> %d: 5" in written
