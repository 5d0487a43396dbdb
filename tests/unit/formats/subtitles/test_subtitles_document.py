from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.errors import DataError

FIRST, SECOND = "00:00:01,000 --> 00:00:02,500", "00:00:03,000 --> 00:00:04,000 X1:10 X2:20"
WORDS = st.lists(st.sampled_from(["Ein", "Hund", "rennt.", "犬", "…"]), min_size=1, max_size=4).map(" ".join)
CUES = st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), st.integers(1, 3)), min_size=1, max_size=5)


@settings(max_examples=50)
@given(
    CUES, st.sampled_from(["\n", "\r\n", "\r", "\r\r\n"]), st.sampled_from(["", "\ufeff"]), st.booleans(), st.booleans()
)
def test_translations_are_filled_into_their_cues(read, fill, cues, line_end, mark, is_webvtt, ends):
    head = ["WEBVTT", ""] if is_webvtt else []
    for number, (lines, blanks) in enumerate(cues, start=1):
        head += [str(number), f"00:0{number}:00,000 --> 00:0{number}:01,000", *lines, *[""] * blanks]
    written = mark + line_end.join(head).rstrip("\r\n") + line_end * ends
    name = "a.vtt" if is_webvtt else "a.srt"
    document = read(name, written)
    assert len(document.segments) == len(cues)
    wanted = [f"two words {number}" for number in range(len(cues))]
    new = iter(wanted)
    found = fill(document, lambda text: next(new))
    assert [segment.text for segment in read(name, found).segments] == wanted
    assert found.count("-->") == len(cues)
    timings = [line for line in written.split(line_end) if "-->" in line]
    assert [line for line in found.split(line_end) if "-->" in line] == timings


def test_a_cue_is_a_segment_and_all_else_stays(read, fill, places):
    written = f"\ufeff1\r\n{FIRST}\r\nEin Hund\r\nrennt.\r\n\r\n 2 \r\n{SECOND}\r\n  Zwei Hunde. \r\n\r\n\r\n"
    document = read("a.srt", written)
    assert places(document) == [(3, "Ein Hund rennt."), (8, "Zwei Hunde.")]
    assert fill(document, {"Ein Hund rennt.": "A dog runs.", "Zwei Hunde.": "Two dogs."}) == (
        f"\ufeff1\r\n{FIRST}\r\nA dog\r\nruns.\r\n\r\n 2 \r\n{SECOND}\r\n  Two dogs. \r\n\r\n\r\n"
    )


def test_notes_styles_and_settings_of_webvtt_stay(read, fill, places):
    written = (
        "WEBVTT - title\nKind: captions\n\nNOTE\nEin Satz.\nNoch --> einer.\n\nSTYLE\n::cue { color: red }\n\n"
        "REGION\nid:fred\n\nNOTE ein Satz\n\n"
        "intro\n01:00.000 --> 01:02.000 align:start line:0\nRock &amp; Roll &lt;3\n\n"
        "01:03.000 --> 01:04.000\n<v.loud Mary>Ein <b>Hund</b> &amp; mehr\n"
    )
    document = read("a.vtt", written)
    assert places(document) == [(18, "Rock & Roll <3"), (21, "Ein <g1>Hund</g1> & mehr")]
    new = {"Rock & Roll <3": "A & B < C", "Ein <g1>Hund</g1> & mehr": "A <g1>dog</g1> & more"}
    assert fill(document, new) == written.replace("Rock &amp; Roll &lt;3", "A &amp; B &lt; C").replace(
        "Ein <b>Hund</b> &amp; mehr", "A <b>dog</b> &amp; more"
    )


@pytest.mark.parametrize(
    ("lines", "text", "translation", "expected"),
    [
        # Markup around
        ("<i>Ein Hund\nrennt.</i>", "Ein Hund rennt.", "A dog runs.", "<i>A dog\nruns.</i>"),
        ("<i>Ein Hund</i>\n<i>rennt.</i>", "Ein Hund rennt.", "A dog runs.", "<i>A dog</i>\n<i>runs.</i>"),
        ("{\\an8}<I><b>Ja.</b></i>", "Ja.", "Yes.", "{\\an8}<I><b>Yes.</b></i>"),
        ("<i>\nJa.\n</i>", "Ja.", "Yes.", "<i>\nYes.\n</i>"),
        ('<font color="red">Ja.</font>', "Ja.", "Yes.", '<font color="red">Yes.</font>'),
        # Markup within
        (
            "<i>Ja</i> und <i>nein</i>",
            "<g1>Ja</g1> und <g2>nein</g2>",
            "<g2>no</g2> and <g1>yes</g1>",
            "<i>no</i> and <i>yes</i>",
        ),
        ("<i>Ja</i>, ja", "<g1>Ja</g1>, ja", "Yes, <g1>yes", "Yes, <i>yes</i>"),
        ("<i>Ja", "Ja", "Yes", "<i>Yes"),
        ("Am {\\i1}Montag{\\i0} im {\\c&H00FF00&}Mai", "Am <g1>Montag</g1> im <x2/>Mai", None, None),
        ("Ein <font color='#ff0000'>Hund</font> <3", "Ein <g1>Hund</g1> <3", None, None),
        ("<i>Ein Hund</i>\n<i>rennt <b>weg</b>.</i>", "Ein Hund rennt <g1>weg</g1>.", None, None),
        ("{\\i1}Ja, <b>ja\nja", "Ja, <x1/>ja ja", "Yes, <x1/>yes yes", "{\\i1}Yes,\n<b>yes yes"),
        # Speakers
        ("- Ja.\n- Nein.", "- Ja.\n- Nein.", "- Yes.\n- No.", "- Yes.\n- No."),
        ("- Ja, ein\nHund.\n- Nein.", "- Ja, ein Hund.\n- Nein.", "- Yes, a dog.\n- No.", "- Yes, a dog.\n- No."),
        ("- <i>Ja.\n- Nein.</i>", "- <x1/>Ja.\n- Nein.", "- <x1/>Yes.\n- No.", "- <i>Yes.\n- No.</i>"),
        ("<i>- Ja.</i>\n{\\i1}- Nein.", "- Ja.\n- Nein.", "- Yes.\n- No.", "<i>- Yes.</i>\n{\\i1}- No."),
        ("- <b>Ja</b>.\n- Nein.", "- <g1>Ja</g1>.\n- Nein.", "Yes.", "<b>Yes.</b>"),
        ("- Ja.\n- <b>Nein</b>!", "- Ja.\n- <g1>Nein</g1>!", "a\nb\nc", "a\n<b>b\nc</b>"),
        ("MARY: Ja.\n>> TOM: Nein,\nnein.", "MARY: Ja.\n>> TOM: Nein, nein.", "A: b\nc", "A: b\nc"),
        ("Ja.\nDR. LÖW:\nNein.", "Ja.\nDR. LÖW: Nein.", "Yes.\nDR. LÖW: No.", "Yes.\nDR. LÖW: No."),
        ("Ja\nMary: nein\nUM 10:30\n12: x", "Ja Mary: nein UM 10:30 12: x", None, None),
        # Lines: as many as before, two where one is too narrow
        ("Ja,\nein Hund.", "Ja, ein Hund.", "Yes.", "Yes."),
        ("Ja.", "Ja.", "x" * 20 + " " + "y" * 21, "x" * 20 + " " + "y" * 21),
        ("Ja.", "Ja.", "x" * 20 + " " + "y" * 22, "x" * 20 + "\n" + "y" * 22),
        ("z" * 50, "z" * 50, "x" * 20 + " " + "y" * 22, "x" * 20 + " " + "y" * 22),
        ("a\nb", "a b", " ".join(["x" * 30] * 6), "\n".join([" ".join(["x" * 30] * 3)] * 2)),
        ("犬が\n走る。", "犬が走る。", "猫です。", "猫で\nす。"),
        ("Ja\nja", "Ja ja", "oui\u00a0! oui\u00a0!", "oui\u00a0!\noui\u00a0!"),
        # Nothing in a translation begins a cue or ends one
        ("Ja.", "Ja.", "a\n\nb", "a\nb"),
        ("Ja.", "Ja.", "00:00:01,000 --> 00:00:02,000", "00:00:01,000 -> 00:00:02,000"),
        ("Ja.", "Ja.", "", ""),
    ],
)
def test_lines_and_markup_of_a_cue(read, fill, lines, text, translation, expected):
    document = read("a.srt", f"1\n{FIRST}\n{lines}\n")
    assert [segment.text for segment in document.segments] == [text]
    if translation is None:  # a translation that is its source changes nothing
        translation, expected = text, lines
    assert fill(document, {text: translation}) == f"1\n{FIRST}\n{expected}\n"


def test_a_line_end_is_in_no_tag_and_tags_have_no_width(read, fill):
    bold, red = "<b>", '<font color="#ff0000" size="large">'
    document = read("a.srt", f"1\n{FIRST}\nx {bold}y</b> {red}z</font>\n")
    (segment,) = document.segments
    assert segment.text == "x <g1>y</g1> <g2>z</g2>"
    # 42 columns are seen, and fit on a line; 43 do not.
    short = f"{'a' * 20} <g1>b b</g1> <g2>{'c' * 17}</g2>"
    assert fill(document, {segment.text: short}) == (f"1\n{FIRST}\n{'a' * 20} {bold}b b</b> {red}{'c' * 17}</font>\n")
    long = f"{'a' * 20} <g1>b b</g1> <g2>{'c' * 18}</g2>"
    assert fill(document, {segment.text: long}) == (f"1\n{FIRST}\n{'a' * 20} {bold}b\nb</b> {red}{'c' * 18}</font>\n")


@pytest.mark.parametrize(
    ("lines", "text", "translation", "expected"),
    [
        (
            "A <c.red>b</c> <lang fr>c</lang> d",
            "A <g1>b</g1> <g2>c</g2> d",
            "<g2>c</g2> <g1>b</g1>",
            "<lang fr>c</lang> <c.red>b</c>",
        ),
        ("A <00:01.500>b <00:01.700>c", "A <x1/>b <x2/>c", "a <x1/>B <x2/>C", "a <00:01.500>B <00:01.700>C"),
        ("<00:01.500>A b", "A b", "C d", "<00:01.500>C d"),
        ("Ja. <v Mary Ann>Nein", "Ja. <x1/>Nein", "Yes. <x1/>No", "Yes. <v Mary Ann>No"),
        ("<v Bob>Ja.\n<v Ann>Nein.", "Ja.\nNein.", "Yes.\nNo.", "<v Bob>Yes.\n<v Ann>No."),
        (
            "<v Bob>Ja\nja.</v>\n<i><v.low Ann>Ja",
            "Ja ja.\nJa",
            "Yes yes.\nYes",
            "<v Bob>Yes yes.</v>\n<i><v.low Ann>Yes",
        ),
        ("- Ja.\n<v Ann>Nein\n<c>nie</c> so.", "- Ja.\nNein <g1>nie</g1> so.", "-\nn", "-\n<v Ann><c>n</c>"),
        ("<v Mary\nAnn>Ja", "Ja", "Yes", "<v Mary\nAnn>Yes"),
        ("Ja.\n&gt;&gt; Nein.", "Ja.\n>> Nein.", "Yes.\n>> No.", "Yes.\n&gt;&gt; No."),
        ("<vx>Ja\n<vx>ja", "Ja ja", "Yes, yes", "<vx>Yes,\n<vx>yes"),
        (
            "Ja &amp; <b>nein&nbsp;</b>x",
            "Ja & <g1>nein\xa0</g1>x",
            "<g1>a\xa0</g1>--> < &",
            "<b>a&nbsp;</b>--&gt; &lt; &amp;",
        ),
        ("x &#" + "9" * 5_000 + ";", "x \ufffd", "y", "y"),
    ],
)
def test_markup_and_voices_of_webvtt(read, fill, lines, text, translation, expected):
    document = read("a.vtt", f"WEBVTT\n\n{FIRST.replace(',', '.')}\n{lines}\n")
    assert [segment.text for segment in document.segments] == [text]
    assert fill(document, {text: translation}) == f"WEBVTT\n\n{FIRST.replace(',', '.')}\n{expected}\n"


def test_times_in_a_note_or_a_style_are_not_refused(read, places):
    note = "NOTE\nThe cue 00:10 --> 00:12 comes later\n00:00:03,000 -> 00:00:04,000\n"
    style = "STYLE\n::cue { content: '1:0 --> 2:0' }\n"
    head = "WEBVTT\nX-TIMES: 1:00 --> 2:00\n"
    cue = f"{FIRST.replace(',', '.')}\nEins.\n"
    assert places(read("a.vtt", f"{head}\n{style}\n{note}\n{cue}\n{note}\n{cue}")) == [(12, "Eins."), (19, "Eins.")]
    with pytest.raises(DataError, match="line 7: '1:00 --> 2:00' is meant as the times"):
        read("a.vtt", f"WEBVTT\n\n{note}\n1:00 --> 2:00\nJa.\n")


def test_files_as_they_are_found(read, places):
    # No blank line between cues, no number, no text, text behind a blank line, and nothing at the end.
    written = (
        f"\n\n1\n{FIRST}\nEins.\n2\n{SECOND}\n\n{FIRST}\nDrei.\n\nNoch drei.\n\n4\n{FIRST}\n<i></i>\n\n5\n{FIRST}\n5"
    )
    assert places(read("a.srt", written)) == [(5, "Eins."), (10, "Drei."), (12, "Noch drei."), (20, "5")]
    assert places(read("a.srt", "")) == places(read("a.srt", " \n")) == places(read("a.vtt", "WEBVTT")) == []
    assert places(read("a.vtt", f"WEBVTT\n\n{FIRST}\nEins.\n\nKein Text.\n")) == [(4, "Eins.")]
    assert places(read("a.vtt", f"WEBVTT\n\n{FIRST}\n\nNOTE Kein Text.\n")) == []
    assert places(read("a.srt", "Titel\n\n1\n00:00:01:000 --> 0:00:02.5\nEins.\n")) == [(5, "Eins.")]


@pytest.mark.parametrize(
    ("name", "written", "message"),
    [
        ("a.srt", "Ein Hund.\n", "has 1 lines, and none with times, such as"),
        (
            "a.srt",
            f"1\n{FIRST}\nJa.\n\n2\n00:00:03,000 -> 00:00:04,000\nNein.\n",
            "line 6: .* is meant as the times of a cue",
        ),
        ("a.srt", f"1\n{FIRST}\nJa.\n\n2\n00:00:03,000 --> end\nNein.\n", "line 6: '00:00:03,000 --> end' is meant as"),
        ("a.vtt", "00:01.000 --> 00:02.000\nJa.\n", "line 1: a .vtt begins with WEBVTT"),
        ("a.vtt", "WEBVTTX\n", "line 1: a .vtt begins"),
        ("a.vtt", "", "line 1: a .vtt begins"),
        ("a.vtt", "WEBVTT\n\n1:00 --> 2:00\nJa.\n", "line 3: .* is meant as the times of a cue"),
    ],
)
def test_damaged_srt_and_vtt_files_are_rejected_with_their_line(read, name, written, message):
    with pytest.raises(DataError, match=f"{name},? {message}"):
        read(name, written)


def test_markup_without_end_costs_no_time(read):
    for lines in ("<i>" * 4_000 + "a" + "</i>" * 4_000, "<" + "a" * 200_000, "{\\" * 50_000, " " * 200_000 + "a"):
        read("a.srt", f"1\n{FIRST}\n{lines}\n")
