"""Damaged TMX and XLIFF: any file gives one pair for every unit, or one clear error."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.formats import Wanted
from clearhead.formats.tmx.pairs import open_tmx
from clearhead.formats.xliff.pairs import open_xliff

SECRET = "the text of another file"
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "secret.dtd">
<tmx version="1.4"><header srclang="en"><note>note</note></header><body>
<tu tuid="1"><tuv xml:lang="en"><seg>A <bpt i="1" x="1">&lt;b&gt;</bpt>dog<ept i="1">&lt;/b&gt;</ept>.</seg></tuv>
<tuv xml:lang="de"><seg>Ein <bpt i="1" x="1">&lt;b&gt;</bpt>Hund<ept i="1">&lt;/b&gt;</ept>.</seg></tuv></tu>
<tu><tuv xml:lang="de-AT"><seg>Jänner</seg></tuv><tuv xml:lang="en"><seg><hi>January</hi> <ph x="1"/></seg></tuv></tu>
</body></tmx>
"""
XLIFF_1 = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file original="f" source-language="en" target-language="de" datatype="plaintext"><header/><body>
<trans-unit id="1"><source>A <g id="1">dog</g>.</source>
<target state="new">Ein <g id="1">Hund</g>.</target></trans-unit>
<group id="g" translate="no"><trans-unit id="2" approved="no"><source>One. Two.</source>
<seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>
<target><mrk mtype="seg" mid="1">Eins.</mrk> <mrk mtype="seg" mid="2">Zwei.</mrk></target></trans-unit></group>
</body></file></xliff>
"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1"><segment state="initial"><source>A <pc id="1">dog</pc><cp hex="0001"/></source>
<target>Ein <sc id="1"/>Hund<ec startRef="1"/></target></segment></unit>
<unit id="2" translate="no"><segment><source>a<ph id="1"/></source></segment><ignorable><source> </source></ignorable>
</unit></file></xliff>
"""
INSERTED = [
    *("<", ">", "&", "'", '"', "/", "]]>", "<!--", "<![CDATA[", "<?", "\0", "\r\n", "&#0;", "&#13;", "&x;", "&amp;"),
    *("<x/>", "<seg>", "</seg>", "<tu>", "</tu>", "<target/>", "<source>", "</source>", "<body>", "<cp hex='D800'/>"),
    *("xml:lang='fr'", " lang='it'", " translate='no'", " xmlns='urn:x'", "de", "1", "\x80", "\ufeff", "\ud7ff" * 9),
    f"<!DOCTYPE a [<!ENTITY x '{SECRET}'>]>",
    "<!DOCTYPE a [<!ENTITY x SYSTEM 'secret.txt'>]>",
]
NAMES = [b"tu", b"tuv", b"seg", b"source", b"target", b"segment", b"unit", b"ph", b"x", b"mrk", b"en", b"de", b"xliff"]


def mutated(content: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.randint(1, 3)):
        first = chance.randrange(len(content) + 1)
        last = min(first + chance.choice((1, 2, 9, 60, 400)), len(content))
        match chance.randrange(6):
            case 0:
                content = content[:first] + content[last:]
            case 1:
                content = content[:last] + content[first:]
            case 2:
                content = content[:first] + bytes(chance.randbytes(1)) + content[first + 1 :]
            case 3:
                content = content[:first] + chance.choice(INSERTED).encode() + content[first:]
            case 4:
                content = content.replace(chance.choice(NAMES), chance.choice(NAMES), chance.randint(1, 4))
            case 5 if chance.random() < 0.2:
                content = content.decode("utf-8", "replace").encode(
                    chance.choice(["utf-16", "latin-1", "utf-8-sig"]), "replace"
                )
    return content


def num_tmx_units(root: ElementTree.Element) -> int:
    """Count the outermost `tu` of the format's own namespace outside headers, with another parser's tree."""

    def count(element: ElementTree.Element) -> int:
        if namespace(element) != namespace(root) or local_name(element) == "header":
            return 0
        return 1 if local_name(element) == "tu" else sum(map(count, element))

    return sum(map(count, root))


def num_xliff_2_segments(root: ElementTree.Element) -> int:
    def count(element: ElementTree.Element) -> int:
        if namespace(element) != namespace(root):
            return 0
        if local_name(element) == "unit":
            return sum((namespace(child), local_name(child)) == (namespace(root), "segment") for child in element)
        return sum(map(count, element))

    return sum(map(count, root))


def local_name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def namespace(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[0]


def check(path: Path, seeds: range) -> int:
    """Read mutated files; return how many of them gave pairs."""
    (path / "secret.dtd").write_text(f"<!ENTITY x '{SECRET}'>")
    (path / "secret.txt").write_text(SECRET)
    num_read = 0
    for seed in seeds:
        chance = random.Random(seed)
        name, text, reader, count = chance.choice(KINDS)
        content = mutated(text.encode(), chance)
        file = path / name
        file.write_bytes(content)
        wanted = chance.choice([Wanted(), Wanted(from_lang="en", to_lang="de")])
        try:
            pairs = list(reader(str(file), wanted).pairs)
        except (ConfigError, DataError):
            continue
        num_read += 1
        assert not any(SECRET in pair.source + pair.target for pair in pairs), seed
        for pair in pairs:
            assert not (pair.defect and pair.skipped), seed
        if count is not None and not any("XML forbids" in (pair.defect or "") for pair in pairs):
            encoding = "utf-16" if content.startswith(b"\xff\xfe") else "utf-8"
            tree = ElementTree.fromstring(content.decode(encoding).lstrip("\ufeff"))
            assert len(pairs) == count(tree), seed
    return num_read


Kind = tuple[str, str, Callable, Callable[[ElementTree.Element], int] | None]
KINDS: list[Kind] = [
    ("m.tmx", TMX, open_tmx, num_tmx_units),
    ("f.xlf", XLIFF_1, open_xliff, None),  # a unit gives one row or one for each segment
    ("f.xliff", XLIFF_2, open_xliff, num_xliff_2_segments),
]


def test_a_damaged_file_gives_a_pair_for_every_unit_or_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert 40 < check(tmp_path, range(400)) < 360  # some of them are harmless, and some are not


@pytest.mark.slow
def test_thousands_of_damaged_files_give_pairs_or_one_clear_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    check(tmp_path, range(400, 5_400))
