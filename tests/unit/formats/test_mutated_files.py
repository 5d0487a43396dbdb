"""Damaged files, a few hundred of each format: pairs or one clear line, in no time, and every line in one row."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from clearhead.errors import ClearheadError
from clearhead.formats import WRITERS, SentencePair, read_pairs, read_parallel, write_pairs

PAIRS = [
    SentencePair(f"Hello {n}, “wörld” %(x)s", f"Hallo {n}; Welt\t{{x}} ü".replace("\t", " "), "x:1") for n in range(9)
]
CATALOGUE = r"""# Übersetzung
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=ISO-8859-1\n"

#, fuzzy
msgctxt "menu"
msgid "%d file"
msgid_plural "%d \"files\"\n"
msgstr[0] "%d größere Datei"
msgstr[1] ""
"%d größere "
"Dateien\n"

#~| msgid "old"
#~ msgid "older"
#~ msgstr "älter"
"""
SUBTITLES = "".join(f"{n}\n00:00:{n:02},000 --> 00:00:{n + 1:02},500\n<i>Hello</i>\n{n} there\n\n" for n in range(1, 9))
PIECES = [
    *(b'"', b"\\", b"\n", b"\r", b"\0", b"\xff\xfe", b"-->", b"[", b"{" * 99, b"9" * 5_000, b"msgid ", b"#~ "),
    *(b'msgstr[3] "', b"charset=utf-7", b",", b";", b"\t", b"WEBVTT", b"\xe2\x80\xa8", b"null", b"\\ud800"),
]


def originals(directory: Path) -> dict[str, bytes]:
    """Return a sound file of every format by its extension."""
    files = {".po": CATALOGUE.encode("latin-1"), ".srt": SUBTITLES.encode(), ".vtt": f"WEBVTT\n\n{SUBTITLES}".encode()}
    for extension in WRITERS.keys() - files.keys():
        write_pairs(str(directory / f"p{extension}"), PAIRS, ("en", "de"))
        files[extension] = (directory / f"p{extension}").read_bytes()
    return dict(sorted(files.items()))


def mutated(data: bytes, random: Random) -> bytes:
    """Change one to four places: a byte, a cut, a copy of another part, a piece that means something, or the end."""
    result = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(result) + 1)
        match random.randrange(5):
            case 0 if place < len(result):
                result[place] = random.randrange(256)
            case 1:
                del result[place : place + random.randint(1, 20)]
            case 2:
                start = random.randrange(len(result) + 1)
                result[place:place] = result[start : start + random.randint(1, 40)]
            case 3:
                result[place:place] = random.choice(PIECES)
            case _ if random.random() < 0.3:
                del result[place:]
    return bytes(result)


def outcome(path: Path, data: bytes, beside: str) -> list[SentencePair] | None:
    """Return the pairs of a damaged file, or None if it was refused."""
    path.write_bytes(data)
    try:
        if path.suffix in (".srt", ".vtt"):
            return list(read_parallel([str(path)], [beside]))
        return list(read_pairs([str(path)], tolerated=1.0))
    except ClearheadError:
        return None


def attack(directory: Path, times: int) -> dict[str, int]:
    """Read so many damaged files of every format and return how many of each were read all the same."""
    beside = directory / "beside.srt"
    beside.write_text(SUBTITLES, encoding="utf-8")
    read = {}
    for extension, data in originals(directory).items():
        random = Random(f"{extension} 20170612")
        read[extension] = 0
        for _ in range(times):
            pairs = outcome(directory / f"damaged{extension}", mutated(data, random), str(beside))
            if pairs is not None:
                read[extension] += 1
                assert all(not (pair.source or pair.target) for pair in pairs if pair.defect)
                for pair in pairs:
                    (pair.source + pair.target).encode("utf-8")
                    assert "\n" not in pair.source + pair.target
    return read


def test_a_damaged_file_gives_pairs_or_one_clear_error(tmp_path):
    read = attack(tmp_path, 50)
    assert read.keys() == {*WRITERS, ".srt", ".vtt"}


@pytest.mark.slow
def test_five_thousand_damaged_files_of_every_format_give_pairs_or_one_clear_error(tmp_path):
    read = attack(tmp_path, 5_000)
    assert read.keys() == {*WRITERS, ".srt", ".vtt"}


def test_no_entry_of_a_damaged_catalogue_is_dropped(tmp_path):
    """Each `msgid` that still begins a line is a separate pair, or is in a row that reports the problem."""
    sound = "\n".join(f'msgid "number {n}"\nmsgstr "Nummer {n}"\n' for n in range(1, 30))
    random = Random(7)
    for _ in range(200):
        lines = sound.split("\n")
        for _ in range(3):
            place = random.randrange(len(lines))
            lines[place] = random.choice([lines[place][:-1], lines[place][1:], "#:", "garbage", '"more"', "#, fuzzy"])
        pairs = outcome(tmp_path / "m.po", "\n".join(lines).encode(), "")
        assert pairs is not None
        begun = sum(line.startswith("msgid ") for line in lines)
        assert len(pairs) >= begun
        whole = {
            (a[7:-1], b[8:-1])
            for before, a, b, after in zip(["", *lines], lines, lines[1:], [*lines[2:], ""], strict=False)
            if before == after == "" and a.startswith('msgid "') and b.startswith('msgstr "') and a[-1] == b[-1] == '"'
        }
        assert whole <= {(pair.source, pair.target) for pair in pairs}
