from __future__ import annotations

import pytest

from clearhead.data.doctor import mojibake
from clearhead.data.doctor.mojibake import garbled, repaired_text

CLEAN = [
    "Schöne Grüße aus Köln, sagte er: „Spaß“ – und ging.",
    "« Voilà…» dit-elle à l’été, où ça?",
    "São Paulo não é «capital»; ÀÂÃÄÅ, Ânimo!",
    "Ça coûte 5 €, n’est-ce pas… « CAFÉ»",
    "Привет, мир! Ελληνικά — עברית العربية 日本語です。",
    "Größe: 3 × 4 m², 20 °C; ©2016 ® “quoted”",
    "Emoji 😀 and ❤️",
    "Ångström, Æble, Øl, Ärger",
    "Tiếng Việt có dấu: Ấ ậ ỡ",
    "”KAIKKI ON HYVÄ”, «ATÉ AMANHÃ», BLÅ… HYVÄ— JO, PÅ\xa0VÄG",
]


@pytest.mark.parametrize("text", CLEAN)
def test_clean_text_is_left_alone(text):
    assert garbled(text) == ""


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252"])
@pytest.mark.parametrize("text", ["schön", "l’été", "“quoted” – so", "naïve", "czy łódź", "20 °C", "❤ 😀", "¿Qué?"])
def test_utf8_read_in_another_encoding_is_found(text, encoding):
    wrong = text.encode("utf-8").decode(encoding, errors="replace")
    assert garbled(wrong)
    assert garbled(wrong.encode("utf-8").decode("latin-1"))  # twice


@pytest.mark.parametrize("text", ["Привет, мир", "Ελληνικά", "日本語です", "שלום עולם"])
def test_utf8_of_other_scripts_is_found(text):
    assert garbled(text.encode("utf-8").decode("latin-1"))


@pytest.mark.parametrize("text", ["SCHÖN", "BLÅKLOCKA", "Óscar", "cœur", "są tu", "à la", "ŠKODA", "Í"])
def test_a_letter_that_was_garbled_to_a_capital_and_punctuation_is_found(text):
    assert repaired_text(windows(text)) == text
    assert garbled(windows(text))


CODE_PAGES = ["cp1250", "cp1257", "cp437", "cp850", "mac_roman"]
SENTENCES = [
    "Er war schön und groß.",
    "L'école est fermée à midi, voilà.",
    "Příliš žluťoučký kůň úpěl ďábelské ódy.",
    "Zażółć gęślą jaźń – „tak“.",
    "“It’s” so…",
    "Füße und Übermut",
]


@pytest.mark.parametrize("page", CODE_PAGES)
@pytest.mark.parametrize("text", SENTENCES)
def test_utf8_read_in_an_older_code_page_is_found_and_mended(text, page):
    wrong = "".join(bytes([byte]).decode(page, errors="ignore") or chr(byte) for byte in text.encode("utf-8"))
    assert garbled(wrong)
    assert repaired_text(wrong) in (text, None)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("schĂ¶n", "schön"),
        ("schĆ¶n", "schön"),
        ("sch├╢n", "schön"),
        ("sch├Ân", "schön"),
        ("sch√∂n", "schön"),
        ("it‚Äôs", "it’s"),
        ("itΓÇÖs", "it’s"),
        ("kĹŻĹ\x88", "kůň"),
        ("Привет".encode().decode("cp437"), "Привет"),
    ],
)
def test_a_text_of_one_code_page_is_mended(wrong, text):
    assert repaired_text(wrong) == text


@pytest.mark.parametrize(
    "text",
    [
        "d’été, l’école, «É», »Über« und “Ärger”",
        "PÍŠŤALA, CAFÉ”, NESTLÉ®, RĂŞINĂ, ÎNCĂ… NÍŽE, RĪGĀ»",
        "├── src\n│   └── main.c ┬─┐ ├┤",
        "√π ≈ 1,77; ƒ(x) = √2 ¬ p; 50 ƒ",
        "Ă, Â, Î, Ș, Ț; Č, Ć i Đ; Ł—Ś",
        "Γεια σου Κόσμε; ΓΑΜΑ «Γ»",
        "Thành phố Hồ Chí Minh, ĂN CƠM",
    ],
)
def test_spelling_and_drawings_are_not_taken_for_code_pages(text):
    for part in (text, *text.split()):
        assert garbled(part) == ""


def test_replacement_characters_are_garbled():
    assert garbled("Gr\ufffd\ufffde") == "\ufffd\ufffd"


def windows(text: str) -> str:
    """Return a text whose UTF-8 was read as Windows-1252, where that has a character, as programs do."""
    return "".join(bytes([byte]).decode("cp1252", errors="ignore") or chr(byte) for byte in text.encode("utf-8"))


@pytest.mark.parametrize("text", [*CLEAN, "午後 に 彼女 は 来 て", "Šest mužů à la mode"])
def test_text_that_was_garbled_whole_is_mended_whatever_it_says(text):
    for wrong in (windows(text), text.encode("utf-8").decode("latin-1"), windows(windows(text))):
        assert garbled(wrong)
        assert repaired_text(wrong) == text


def test_a_space_that_was_half_a_letter_is_mended_where_all_of_the_text_shows_it():
    assert repaired_text("Å est mužů".replace("ž", "Å¾").replace("ů", "Å¯")) == "Šest mužů"
    assert repaired_text("voilÃ  l'Ã©tÃ©") == "voilà l'été"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("„So“ schÃ¶n – l’été", "„So“ schön – l’été"),
        ("„So“ schÃ¶n – cafÃ", None),
        ("„So“ schÃ¶n – lâ€", None),
        ("schÃ¶n – \ufffd", None),
        ("„So“ schÃ¶n, é…»", None),
    ],
)
def test_a_text_that_is_partly_garbled_is_mended_only_where_that_is_certain(text, expected):
    assert garbled(text)
    assert repaired_text(text) == expected


@pytest.mark.parametrize("text", ["ÃƒÂ", "Ã", "â€", "Ã¶", "schÃ¶n „so“ "])
def test_mending_a_text_twice_as_long_decodes_twice_as_much(text, monkeypatch):
    decode, sizes = mojibake._as_utf8, []
    monkeypatch.setattr(mojibake, "_as_utf8", lambda text: sizes.append(len(text)) or decode(text))

    def work(times):
        sizes.clear()
        repaired_text(text * times)
        return sum(sizes) + len(sizes)

    assert work(4_000) <= 2.2 * work(2_000) <= 2.2**2 * work(1_000)
