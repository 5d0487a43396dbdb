from __future__ import annotations

import pytest

from clearhead.data.doctor.mojibake import garbled

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


def test_what_was_lost_is_found():
    assert garbled("Gr\ufffd\ufffde") == "\ufffd\ufffd"
