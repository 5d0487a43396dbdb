"""Subtitles: cues that belong together by time are pairs, the others are counted, and broken times are named."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from written_files import written

from clearhead.errors import DataError
from clearhead.formats import SentencePair, read_parallel
from clearhead.formats.subtitles.pairs import read_subtitles


def clock(seconds: float) -> str:
    return f"00:{int(seconds) // 60:02}:{int(seconds) % 60:02},{round(seconds % 1 * 1000):03}"


def srt(*cues: tuple[float, float, str]) -> str:
    return "".join(f"{n}\n{clock(a)} --> {clock(b)}\n{text}\n\n" for n, (a, b, text) in enumerate(cues, start=1))


def paired(tmp_path: Path, source: str, target: str) -> list[tuple[str, str, str | None]]:
    a, b = written(tmp_path / "a.srt", source), written(tmp_path / "b.srt", target)
    return [(pair.source, pair.target, pair.skipped) for pair in read_parallel([a], [b])]


TIMES = [f"00:00:0{second},000 --> 00:00:0{second + 1},000" for second in range(7)]

SRT = (
    "\ufeff1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Guten</i> Morgen,\r\n"
    '{\\an8}<font color="#fff">Herr</font> Meyer.\r\n'
    "\r\n2\r\n00:00:03.5 --> 00:00:05.000 X1:10 X2:20\r\n- 3 < 4 & 5 > 4\r\n"
)
VTT = """WEBVTT - in English
Kind: captions

STYLE
::cue { color: red }

NOTE
a word to the editor

REGION
id:fred

first
00:01.000 --> 00:02.500 align:start position:10%
<v Bob><b.loud>Good</b> morning,
Mr <00:00:02.000>Meyer.

NOTE later

00:00:03.500 --> 00:00:05.000
- 3 &lt; 4 &amp; 5 &gt;&nbsp;4
"""


def test_subrip_beside_webvtt_without_tags_notes_and_styles(tmp_path):
    source, target = written(tmp_path / "a.srt", SRT), written(tmp_path / "b.vtt", VTT)
    assert list(read_parallel([source], [target])) == [
        SentencePair("Guten Morgen, Herr Meyer.", "Good morning, Mr Meyer.", f"{source}:2"),
        SentencePair("- 3 < 4 & 5 > 4", "- 3 < 4 & 5 > 4", f"{source}:7"),
    ]
    assert [pair.origin for pair in read_parallel([target], [source])] == [f"{target}:14", f"{target}:20"]


def test_compressed_subtitles_and_the_other_direction_are_read(tmp_path):
    source = str(tmp_path / "a.srt.gz")
    Path(source).write_bytes(gzip.compress(srt((1, 2, "eins")).encode()))
    target = written(tmp_path / "b.srt", srt((1, 2, "one")))
    assert list(read_parallel([source], [target], swap=True)) == [SentencePair("one", "eins", f"{source}:2")]


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # One beside two that share its time, on either side; and one of them is longer than it.
        ([(0, 6, "a b")], [(0, 3, "1"), (3, 6, "2")], [("a b", "1 2", None)]),
        ([(0, 3, "a"), (3, 6, "b")], [(0, 6, "1 2")], [("a b", "1 2", None)]),
        ([(0, 2, "a"), (2, 5, "b")], [(0, 3, "1"), (3, 5, "2")], [("a", "1", None), ("b", "2", None)]),
        # Half of the shorter one is enough, a millisecond less is not.
        ([(0, 2, "a")], [(1, 4, "1")], [("a", "1", None)]),
        ([(0, 2, "a")], [(1.001, 4, "1")], [("a", "", "unpaired"), ("", "1", "unpaired")]),
        # Nothing on the other side; in the order of time.
        (
            [(5, 6, "b"), (0, 1, "a")],
            [(5, 6, "2"), (3, 4, "x")],
            [("a", "", "unpaired"), ("", "x", "unpaired"), ("b", "2", None)],
        ),
        # Cues that roll, each over half of the last one: each has its own partner, none is chained to the next.
        (
            [(0, 4, "a"), (2, 6, "b"), (4, 8, "c")],
            [(0, 4, "1"), (2, 6, "2"), (4, 8, "3")],
            [("a", "1", None), ("b", "2", None), ("c", "3", None)],
        ),
        # Not sorted, and two at once.
        ([(4, 6, "b"), (0, 2, "a")], [(0, 2, "1"), (0, 2, "2"), (4, 6, "3")], [("a", "1 2", None), ("b", "3", None)]),
        # Without duration, and without text.
        ([(1, 1, "a")], [(0, 2, "1")], [("a", "1", None)]),
        ([(0, 2, "<i></i>")], [(0, 2, "1")], [("", "1", None)]),
        ([], [(0, 2, "1")], [("", "1", "unpaired")]),
        ([], [], []),
    ],
)
def test_cues_are_paired_by_time(tmp_path, source, target, expected):
    assert paired(tmp_path, srt(*source), srt(*target)) == expected


def test_lines_and_cues_of_japanese_are_joined_without_a_space(tmp_path):
    source = srt((1, 2, "船は正午に\n <i>出発</i>します。"), (2, 3, "切符は\nABC"))
    target = srt((1, 3, "The boat leaves\nat noon."))
    assert paired(tmp_path, source, target) == [("船は正午に出発します。切符は ABC", "The boat leaves at noon.", None)]


def test_every_cue_is_in_one_pair_however_the_files_are_shifted(tmp_path):
    for shift in (0, 0.4, 1.0, 1.5, 2.0, 7.0):
        source = [(2 * n, 2 * n + 2, f"a{n}") for n in range(40)]
        target = [(2 * n + shift, 2 * n + 2 + shift, f"b{n}") for n in range(40)]
        pairs = paired(tmp_path, srt(*source), srt(*target))
        assert sorted(" ".join(source for source, _, _ in pairs).split()) == sorted(text for *_, text in source)
        assert sorted(" ".join(target for _, target, _ in pairs).split()) == sorted(text for *_, text in target)
        assert max(len(source.split()) + len(target.split()) for source, target, _ in pairs) <= 4


def test_files_without_blank_lines_without_numbers_and_with_blank_lines_within_are_read(tmp_path):
    tight = f"1\n{TIMES[1]}\neins\n2\n{TIMES[3]}\n1984\n3\n{TIMES[5]}\n"
    loose = f"{TIMES[1]}\none\n\n{TIMES[3]}\n1984\n\nwas\n\n{TIMES[5]}\n"
    assert paired(tmp_path, tight, loose) == [("eins", "one", None), ("1984", "1984 was", None), ("", "", None)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\n00:00:01,000 -> 00:00:02,000\nx\n",
            r"line 2: '00:00:01,000 -> 00:00:02,000' is meant as the times of a cue",
        ),
        ("1\n00:00:01,000 --> 00:00:0x,000\nx\n", "line 2: .* is not written as 00:00:01,500 --> 00:00:04,000"),
        ("1\n00:00:01,000 00:00:02,000\nx\n", "line 2: .* is meant as"),
        ("1\n00:01:02 --> 00:01:03\nx\n", "line 2: .* is meant as"),
        ("1\n00:00:03,000 --> 00:00:02,000\nx\n", "line 2: the cue ends before it begins"),
        ("Film\n\n1\n00:00:01,000 --> 00:00:02,000\nx\n", "line 4: the text before these times, the first"),
        ("just\ntext\n", "has 2 lines, and none with times, such as 00:00:01,500 --> 00:00:04,000"),
    ],
)
def test_broken_cues_are_rejected_with_their_line(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"a\.srt,? {message}"):
        paired(tmp_path, text, srt((1, 2, "x")))


def test_a_vtt_without_its_mark_and_text_that_is_not_utf8_are_refused(tmp_path):
    target = written(tmp_path / "b.srt", srt((1, 2, "x")))
    with pytest.raises(DataError, match=r"a\.vtt, line 1: a \.vtt begins with WEBVTT, this one with '1'"):
        list(read_subtitles(written(tmp_path / "a.vtt", srt((1, 2, "x"))), target))
    (tmp_path / "c.srt").write_bytes(srt((1, 2, "ä")).encode("latin-1"))
    with pytest.raises(DataError, match=r"c\.srt, line 3: byte 1 \(0xe4\) is not valid UTF-8; .* iconv"):
        list(read_subtitles(str(tmp_path / "c.srt"), target))


def test_subtitles_beside_lines_are_refused_at_once(tmp_path):
    with pytest.raises(DataError, match=r"a\.srt and b\.txt: subtitles \(\.srt, \.vtt\) are paired by their times"):
        read_parallel(["a.srt"], ["b.txt"])


def test_cues_that_are_all_seen_at_once_are_refused_before_they_take_hours(tmp_path, monkeypatch):
    monkeypatch.setattr("clearhead.formats.subtitles.pairs.MOST_COMPARED", 10_000)
    text = srt(*[(0, 50, "x")] * 101)
    with pytest.raises(DataError, match=r"a\.srt, line \d+: too many cues of the other file are seen at once"):
        paired(tmp_path, text, text)
