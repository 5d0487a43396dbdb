"""Lines in capitals, in small letters or with stray spaces are read as the training text would have them."""

from __future__ import annotations

import pytest

from clearhead.config import DecodeConfig
from clearhead.familiar import Familiar, Form
from clearhead.line_statistics import LineCounter
from clearhead.tokenizer import Tokenizer

TEXT = [
    "Ein Mann geht in Berlin.",
    "Der Mann und die Frau lesen.",
    "Die USA und Berlin.",
    "Im Haus liest ein Mann.",
] * 25


def statistics(lines):
    counter = LineCounter()
    for line in lines:
        counter.add(line, "x", 3, 2)
    return counter.statistics()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXT, vocab_size=400)


@pytest.fixture(scope="module")
def familiar(tokenizer) -> Familiar:
    return Familiar(tokenizer, statistics(TEXT))


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("EIN MANN GEHT IN BERLIN.", Form("Ein Mann geht in Berlin.", in_capitals=True)),
        ("ein mann geht in berlin.", Form("Ein Mann geht in Berlin.")),
        ("„EIN MANN“ LIEST IN BERLIN 12!", Form("„Ein Mann“ liest in Berlin 12!", in_capitals=True)),
        ("die frau und die usa", Form("Die Frau und die USA")),
        ("USA", Form("USA")),
        ("MANN", Form("MANN")),
        ("DER MANN GEHT. DIE FRAU LIEST.", Form("Der Mann geht. Die Frau liest.", in_capitals=True)),
        ("der mann geht. die frau liest.", Form("Der Mann geht. Die Frau liest.")),
        ("WTOとは何ですか。DVD", Form("WTOとは何ですか。DVD")),
        ("EIN MANN `ABC`", Form("EIN MANN `ABC`")),
        ("ein mann liest datei.txt", Form("ein mann liest datei.txt")),
        ("fu\u0308r den mann", Form("fu\u0308r den mann")),
        ("İYİ BİR GÜN", Form("İYİ BİR GÜN")),
        ("die frau 3 x 4", Form("Die Frau 3 x 4")),
        ("Ein Mann", Form("Ein Mann")),
        ("ein Mann", Form("ein Mann")),
        ("  Ein   Mann  ", Form("Ein Mann")),
        ("  EIN   MANN", Form("Ein Mann", in_capitals=True)),
        ("EIN MANN %S", Form("EIN MANN %S")),
        ("ein mann auf http://berlin", Form("ein mann auf http://berlin")),
        ("犬です。", Form("犬です。")),
        ("12:30", Form("12:30")),
        ("   ", Form("   ")),
        ("", Form("")),
    ],
)
def test_a_line_is_brought_to_the_form_of_the_training_text(familiar, line, form):
    assert familiar(line, DecodeConfig()) == form


def test_what_is_not_rare_in_the_training_text_stays(tokenizer):
    lines = [*TEXT, "EIN MANN", "EIN MANN"]
    assert Familiar(tokenizer, statistics(lines))("DIE FRAU", DecodeConfig()) == Form("DIE FRAU")
    assert Familiar(tokenizer, statistics(lines))("die frau", DecodeConfig()) == Form("Die Frau")
    lines = [*TEXT, "ein mann", "ein mann"]
    assert Familiar(tokenizer, statistics(lines))("die frau", DecodeConfig()) == Form("die frau")
    lines = [*TEXT, "Ein  Mann", "Ein  Mann"]
    assert Familiar(tokenizer, statistics(lines))("Die  Frau", DecodeConfig()) == Form("Die  Frau")


def test_where_lines_in_small_letters_are_usual_no_sentence_gets_a_capital(tokenizer):
    text = [line.lower() for line in TEXT]
    found = Familiar(Tokenizer.train(text, vocab_size=400), statistics(text))("EIN MANN LIEST.", DecodeConfig())
    assert found == Form("ein mann liest.", in_capitals=True)


@pytest.mark.parametrize("languages", [{"source_lang": "tr"}, {"target_lang": "tr"}, {"familiar": False}])
def test_letters_stay_where_case_is_another_thing_or_nobody_wants_it(familiar, languages):
    assert familiar("EIN MANN LIEST.", DecodeConfig(**languages)) == Form("EIN MANN LIEST.")


def test_where_the_training_lines_are_not_known_every_line_stays(tokenizer):
    for line in ("EIN MANN", "ein mann", "Ein  Mann"):
        assert Familiar(tokenizer, None)(line, DecodeConfig()) == Form(line)
