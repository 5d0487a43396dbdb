"""Lines in capitals, in small letters or with stray spaces are read as the training text would have them."""

from __future__ import annotations

import pytest
from trained_text import counted

from clearhead.config import DecodeConfig
from clearhead.text.sentence_splitting import CutLine
from clearhead.tokenizers import Tokenizer
from clearhead.translation.normalization import Normalizer

TEXT = [
    "Ein Mann geht in Berlin.",
    "Der Mann und die Frau lesen.",
    "Die USA und Berlin.",
    "Im Haus liest ein Mann.",
] * 25


def statistics(lines, target="x"):
    return counted([(line, target) for line in lines], tokens=(3, 2))


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(TEXT, vocab_size=400)


@pytest.fixture(scope="module")
def familiar(tokenizer) -> Normalizer:
    return Normalizer(tokenizer, statistics(TEXT))


def read(familiar, line, config=DecodeConfig(), *about, **how):
    """Return what is read of a line, and whether its translation is put in capitals."""
    form = familiar(line, config, *about, **how)
    return form.text, form.in_capitals


@pytest.mark.parametrize(
    ("line", "form"),
    [
        ("EIN MANN GEHT IN BERLIN.", ("Ein Mann geht in Berlin.", True)),
        ("ein mann geht in berlin.", ("Ein Mann geht in Berlin.", False)),
        ("„EIN MANN“ LIEST IN BERLIN 12!", ("„Ein Mann“ liest in Berlin 12!", True)),
        ("die frau und die usa", ("Die Frau und die USA", False)),
        ("USA", ("USA", False)),
        ("MANN", ("Mann", True)),
        ("„MANN“", ("„Mann“", True)),
        ("IM", ("IM", False)),
        ("DER MANN GEHT. DIE FRAU LIEST.", ("Der Mann geht. Die Frau liest.", True)),
        ("der mann geht. die frau liest.", ("Der Mann geht. Die Frau liest.", False)),
        ("WTOとは何ですか。DVD", ("WTOとは何ですか。DVD", False)),
        ("EIN MANN `ABC`", ("Ein Mann `ABC`", True)),
        ("<b>EIN MANN</b> LIEST", ("<b>Ein Mann</b> liest", True)),
        ("<b>ein mann</b> liest", ("<b>Ein Mann</b> liest", False)),
        ("3 mann lesen", ("3 mann lesen", False)),
        ("3 MANN LESEN", ("3 Mann lesen", True)),
        ("{name} DIE FRAU LIEST", ("{name} die Frau liest", True)),
        ("EIN MANN & DIE FRAU, U.S.", ("Ein Mann & die Frau, U.S.", True)),
        ("EIN MANN LIEST ßßß", ("Ein Mann liest ßßß", True)),
        ("ein mann liest datei.txt", ("Ein Mann liest datei.txt", False)),
        ("{name} und die frau", ("{name} und die Frau", False)),
        ("EIN <B>MANN</B> %s LIEST", ("Ein <B>Mann</B> %s liest", True)),
        ("mann=1; f(haus) < g.haus", ("mann=1; f(haus) < g.haus", False)),
        ("fu\u0308r die frau", ("Für die Frau", False)),
        ("\ufeffEin Ma\u00adnn", ("Ein Mann", False)),
        ("İYİ BİR GÜN", ("İYİ BİR GÜN", False)),
        ("die frau 3 x 4", ("Die Frau 3 x 4", False)),
        ("Ein Mann", ("Ein Mann", False)),
        ("ein Mann", ("ein Mann", False)),
        ("  Ein   Mann  ", ("Ein Mann", False)),
        ("  EIN   MANN", ("Ein Mann", True)),
        ("EIN MANN %S", ("Ein Mann %S", True)),
        ("ein mann auf http://berlin", ("Ein Mann auf http://berlin", False)),
        ("\tEin\u00a0Mann\u3000", ("Ein Mann", False)),
        (
            "Ein  Mann ``a  b``  liest <a  title='x\u00a0 y'> .",
            ("Ein Mann ``a  b`` liest <a  title='x\u00a0 y'> .", False),
        ),
        ("犬です。", ("犬です。", False)),
        ("12:30", ("12:30", False)),
        ("   ", ("   ", False)),
        ("", ("", False)),
    ],
)
def test_a_line_is_brought_to_the_form_of_the_training_text(familiar, line, form):
    assert read(familiar, line) == form


def test_normalizer_keeps_forms_that_are_not_rare_in_the_training_text(tokenizer):
    lines = [*TEXT, "EIN MANN", "EIN MANN"]
    assert read(Normalizer(tokenizer, statistics(lines)), "DIE FRAU") == ("DIE FRAU", False)
    assert read(Normalizer(tokenizer, statistics(lines)), "die frau") == ("Die Frau", False)
    lines = [*TEXT, "ein mann", "ein mann"]
    assert read(Normalizer(tokenizer, statistics(lines)), "die frau") == ("die frau", False)
    lines = [*TEXT, "Ein  Mann", "Ein  Mann"]
    assert read(Normalizer(tokenizer, statistics(lines)), "Die  Frau") == ("Die  Frau", False)


def test_normalizer_does_not_capitalize_if_training_lines_are_lower_case(tokenizer):
    text = [line.lower() for line in TEXT]
    found = read(Normalizer(Tokenizer.train(text, vocab_size=400), statistics(text)), "EIN MANN LIEST.")
    assert found == ("ein mann liest.", True)


def test_case_is_kept_for_turkish_keep_case_and_familiar_off(familiar, tokenizer):
    line = "EIN MANN LIEST."
    assert read(familiar, line, DecodeConfig(source_lang="tr")) == (line, False)
    assert read(familiar, line, DecodeConfig(source_lang="de"), "tr") == (line, False)
    assert read(familiar, line, DecodeConfig(source_lang="tur_Latn")) == (line, False)
    assert read(familiar, line, DecodeConfig(source_lang="de"), "de") == ("Ein Mann liest.", True)
    assert read(familiar, line, DecodeConfig(familiar=False)) == (line, False)
    assert read(familiar, f"  {line}", keep_case=True) == (line, False)
    into_turkish = Normalizer(tokenizer, statistics(TEXT, target="Bir adam okuyor, kız da."))
    assert read(into_turkish, line) == (line, False)  # what it writes is not known but by its letters
    assert read(into_turkish, line, DecodeConfig(), "de") == ("Ein Mann liest.", True)


def test_between_sentences_the_white_space_of_the_line_stays(familiar):
    form = familiar(" DER  MANN GEHT.\t DIE FRAU\u00a0LIEST. ", DecodeConfig(source_lang="de"))
    assert form.text == "Der Mann geht. Die Frau liest."
    assert form.cut == CutLine(("Der Mann geht.", "Die Frau liest."), ("\t ",))


def test_normalizer_without_statistics_keeps_every_line(tokenizer):
    for line in ("EIN MANN", "ein mann", "Ein  Mann"):
        assert read(Normalizer(tokenizer, None), line) == (line, False)


def test_the_unicode_form_is_that_of_the_training_text_also_without_statistics_and_for_lines_as_they_are(tokenizer):
    assert read(Normalizer(tokenizer, None), "fu\u0308r\u200b") == ("für", False)
    assert read(Normalizer(tokenizer, statistics(TEXT)), "FU\u0308R", DecodeConfig(familiar=False)) == ("FÜR", False)


def test_sentences_keep_the_bytes_of_the_line(familiar):
    line = "\ufeff Er ging fu\u0308r immer.\u200b\u3000\u00adDie Frau\u00a0las.\u2060\t"
    form = familiar(line, DecodeConfig(source_lang="de"))
    assert form.cut == CutLine(("Er ging für immer.", "Die Frau las."), ("\u3000",))
    assert form.original == ("\ufeff Er ging fu\u0308r immer.\u200b", "\u00adDie Frau\u00a0las.\u2060")
    assert form.whole == line.rstrip()


def test_sentences_without_space_between_them_keep_their_marks(familiar):
    form = familiar("犬だ。\u200b猫だ。", DecodeConfig(source_lang="ja"))
    assert (form.cut.sentences, form.original) == (("犬だ。", "猫だ。"), ("犬だ。\u200b", "猫だ。"))


def test_a_line_of_marks_alone_stays(familiar):
    form = familiar("\u200b\ufeff", DecodeConfig())
    assert (form.text, form.whole) == ("\u200b\ufeff", "\u200b\ufeff")
