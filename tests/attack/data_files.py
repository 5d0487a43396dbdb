"""Attack: damaged and strange text files; every line comes through and is counted, or one `DataError` says why not."""

from __future__ import annotations

import gzip
import lzma
import sys
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from child import command, refused_or, trouble_of
from harness import Attack, Campaign, Case, Outcome, judged
from materials import pairs

SUFFIXES = ("", ".gz", ".xz", ".zst")
MOST_LINES = 60

STRANGE_TEXTS = (
    *("", " ", "\u3000", "\u2028", "drei\u2028eins", "drei\x85eins", "\x0bnull\x0c", "\x1c", "a\rb", "\r", "\ufeff"),
    *(
        "<2de> drei",
        "</s>",
        "<pad>",
        "e\u0301\u0301\u0301",
        "👩\u200d👩\u200d👧",
        "\u202edrei",
        "\U0010ffff",
        "x\ufeff",
    ),
    *("\ufffd", "a" * 300, "neun " * 2_000, " drei", "drei ", "\\N", '"drei', "|||", "NaN", "\x7f\x01"),
)
BAD_BYTES = (b"\xff", b"\xe4rger", b"a\0b", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf5\x80\x80\x80", b"\xe2\x82")
TEXT_DAMAGE = ("none", "none", "none", "bad bytes", "utf-16", "huge line", "nothing")
FILE_DAMAGE = ("none", "none", "cut", "bit", "garbage", "zeros", "second header", "wrong suffix", "empty", "half twice")


def cases(campaign: Campaign) -> Iterator[Case]:
    """Write one file for every case, and read it in every way."""
    models = campaign.stock.models
    for number in campaign.numbers():
        choose = campaign.choose(number)
        text, file = choose.choice(TEXT_DAMAGE), FILE_DAMAGE[number % len(FILE_DAMAGE)]
        suffix, columns = choose.choice(SUFFIXES), choose.choice((1, 1, 2))
        work = campaign.directory / f"case-{number}"
        arguments = {"text": text, "file": file, "suffix": suffix, "columns": columns, "seed": choose.random()}
        yield Case(
            number,
            f"{columns} columns, {suffix or 'plain'}, text damage: {text}, file damage: {file}",
            "data_files:attack",
            {"work": str(work), "model": str(models / "plain"), **arguments},
        )


def attack(work: str, model: str, text: str, file: str, suffix: str, columns: int, seed: float) -> dict[str, str]:
    """Write one file and read it; runs in a child."""
    choose = Random(seed)
    directory = Path(work)
    directory.mkdir()
    raw = _raw(choose, text, columns)
    path = directory / f"text.{'txt' if columns == 1 else 'tsv'}{suffix}"
    streams = _compressed(choose, raw, suffix, directory, least=2 if file == "second header" else 1)
    path.write_bytes(_damaged(choose, streams, file, suffix, raw))
    if not suffix:
        raw = path.read_bytes()
    lines = _expected_lines(raw)
    must_refuse = lines is None
    print(f"{len(raw)} bytes, {'not text' if lines is None else len(lines)} lines", file=sys.stderr, flush=True)
    before = path.read_bytes()
    ways = (_read, _translated) if columns == 1 else (_read,)
    for way in (*ways, _prepared):
        outcome, detail = way(path, lines, Path(model))
        if outcome is Outcome.works and must_refuse:
            outcome, detail = Outcome.wrong, "text that is no UTF-8, or holds NUL, is taken"
        if outcome is Outcome.refused and way is _read and file == "none" and not must_refuse:
            outcome, detail = Outcome.wrong, f"a sound text is refused: {detail}"
        if outcome.is_finding:
            break
    if path.read_bytes() != before:
        outcome, detail = Outcome.wrong, "the file was changed"
    return {"outcome": outcome, "detail": f"{way.__name__[1:]}: {detail}"}


def _read(path: Path, lines: list[str] | None, model: Path) -> tuple[Outcome, str]:
    from clearhead.files import read_lines

    refusal, found = refused_or(lambda: list(read_lines(str(path))))
    if refusal is not None:
        return Outcome.refused, refusal[:200]
    if lines is not None and found != lines:
        return Outcome.wrong, f"{len(found)} lines of {len(lines)}, or others"
    return Outcome.works, f"{len(found)} lines"


def _translated(path: Path, lines: list[str] | None, model: Path) -> tuple[Outcome, str]:
    output = path.with_name("translated.txt")
    code, _, errors = command("translate", model, path, "-o", output, "--beam", 1)
    if trouble := trouble_of(code, errors, allowed=(0, 1)):
        return Outcome.untyped, trouble
    if code:
        if output.exists() or len(list(path.parent.iterdir())) > 1:
            return Outcome.wrong, f"refused, and left {sorted(p.name for p in path.parent.iterdir())}"
        return Outcome.refused, errors[:200]
    number = output.read_bytes().count(b"\n")
    if lines is not None and number != len(lines):
        return Outcome.wrong, f"{number} lines out, {len(lines)} lines in"
    return Outcome.works, f"{number} lines out"


def _prepared(path: Path, lines: list[str] | None, model: Path) -> tuple[Outcome, str]:
    from clearhead.config import Config
    from clearhead.data.prepare import prepare

    data: dict[str, Any] = {"pairs": [str(path)]}
    if ".tsv" not in path.suffixes:
        other = path.with_name("other.txt")
        numbers = pairs(len(lines or [""]), seed=1)
        other.write_bytes("".join(f"{place} {text}\n" for place, (_, text) in enumerate(numbers)).encode())
        data = {"source": [str(path)], "target": [str(other)]}
    config = Config.from_dict({"data": {**data, "valid_size": 3, "drop_duplicates": False}})
    directory = path.with_name("run") / "data"
    refusal, prepared = refused_or(lambda: prepare(config, directory))
    if refusal is not None:
        if directory.exists() or directory.with_name("data.partial").exists():
            return Outcome.wrong, "refused, and left prepared data"
        return Outcome.refused, refusal[:200]
    train, valid = prepared.report["train"], prepared.report["valid"]
    counted = train["kept"] + train["held_out"] + sum(train["dropped"].values())
    stored = len(prepared.train), len(prepared.valid)
    if lines is not None and train["read"] != len(lines):
        return Outcome.wrong, f"{train['read']} pairs read of {len(lines)}"
    if train["read"] != counted or stored != (train["kept"], valid["kept"]):
        return Outcome.wrong, f"{train['read']} pairs read, {counted} accounted for, {stored} stored: {train}, {valid}"
    return Outcome.works, f"{counted} pairs"


def _raw(choose: Random, text: str, columns: int) -> bytes:
    """Return the bytes of a text, before it is compressed."""
    sound = pairs(choose.randrange(20, MOST_LINES), seed=choose.randrange(2**30))
    lines = ["\t".join(pair[:columns]).encode() for pair in sound]
    for _ in range(choose.choice((0, 0, 1, 5))):
        strange = "\t".join(choose.choice(STRANGE_TEXTS) for _ in range(choose.choice((*[columns] * 9, 1, 3))))
        lines.insert(choose.randrange(len(lines) + 1), strange.encode())
    match text:
        case "bad bytes":
            place = choose.randrange(len(lines))
            lines[place] += choose.choice(BAD_BYTES)
        case "huge line":
            lines.insert(
                choose.randrange(len(lines)), b"\t".join([b"drei" * choose.choice((2_000, 500_000))] * columns)
            )
        case "nothing":
            lines = [b""] * choose.choice((0, 1, 50))
    ends = choose.choice(((b"\n",), (b"\n",), (b"\r\n",), (b"\n", b"\r\n")))
    raw = b"".join(line + choose.choice(ends) for line in lines)
    if choose.random() < 0.2:
        raw = raw.removesuffix(b"\n")
    if choose.random() < 0.1:
        raw = b"\xef\xbb\xbf" + raw
    return raw.decode("utf-8").encode("utf-16") if text == "utf-16" else raw


def _expected_lines(raw: bytes) -> list[str] | None:
    """Return the lines of a text as any reader should see them, or None if it is no text."""
    pieces = raw.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not pieces[-1] and (len(pieces) > 1 or not raw.startswith(b"\xef\xbb\xbf")):
        pieces.pop()
    if b"\0" in raw:
        return None
    try:
        return [piece.removesuffix(b"\r").decode("utf-8") for piece in pieces]
    except UnicodeDecodeError:
        return None


def _compressed(choose: Random, raw: bytes, suffix: str, directory: Path, *, least: int) -> list[bytes]:
    """Return the streams, at least so many, that a text is compressed to; each with a checksum of its own."""
    import zstandard

    cuts = sorted(choose.randrange(len(raw) + 1) for _ in range(max(least - 1, choose.choice((0, 0, 1, 2)))))
    parts = [raw[start:end] for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    match suffix:
        case ".gz":
            return [gzip.compress(part, mtime=0) for part in parts]
        case ".xz":
            return [lzma.compress(part) for part in parts]
        case ".zst" if least == 1 and choose.random() < 0.5 and (ours := _ours(raw, directory)):
            return [ours]
        case ".zst":
            return [zstandard.ZstdCompressor(write_checksum=True).compress(part) for part in parts]
        case _:
            return [raw]


def _ours(raw: bytes, directory: Path) -> bytes | None:
    """Return clearhead's own compression of a text; None if it is not text."""
    from clearhead.files import open_output

    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError:
        return None
    path = directory / "ours.zst"
    with open_output(str(path)) as file:
        file.write(text)
    found = path.read_bytes()
    path.unlink()
    return found


def _damaged(choose: Random, streams: list[bytes], file: str, suffix: str, raw: bytes) -> bytes:
    data = b"".join(streams)
    match file:
        case "cut":
            place = choose.randrange(len(data) + 1)
            # A cut between two streams leaves a complete file, which cannot be detected.
            return data[: place - 1 if place in accumulate(map(len, streams[:-1])) else place]
        case "bit" if data:
            place = choose.randrange(len(data))
            return data[:place] + bytes([data[place] ^ 1 << choose.randrange(8)]) + data[place + 1 :]
        case "garbage":
            return data + choose.choice((b"x", b"garbage\n", choose.randbytes(50)))
        case "zeros" if suffix:
            return data + b"\0" * choose.choice((1, 4, 512, 10_000))
        case "second header" if suffix:
            last = bytearray(streams[-1])
            for place in range(choose.choice((1, 4, 6))):
                last[place] ^= 0x55
            return b"".join(streams[:-1]) + bytes(last)
        case "half twice":
            return data + data[: len(data) // 2]
        case "wrong suffix" if suffix:
            return choose.choice((raw, gzip.compress(raw), lzma.compress(raw)))
        case "empty":
            return b""
        case _:
            return data


ATTACK = Attack("data files", "files", full=500, few=5, run=judged(cases))
