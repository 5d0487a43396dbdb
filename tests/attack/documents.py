"""Attack: damaged and strange documents; text alone changes in them, or one `DataError` says why not."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from random import Random
from string import ascii_letters, digits
from typing import Any

from child import command, refused_or, trouble_of
from harness import Attack, Campaign, Case, Outcome, judged

HEADER = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n'
WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
SOUND = {
    ".csv": 'id,name\n1,"drei, ""eins""\nnull"\n2, vier fünf\r\n3,\n',
    ".html": '<!DOCTYPE html>\n<html lang=de><title>eins &amp; zwei</title><p class="a">drei <b>vier <i>fünf</i></b>'
    "<br>sechs &nbsp;<!-- x --><img alt='sieben'></p><pre> acht </pre><script>if (a<b) {}</script><ul><li>neun<li>null"
    "</ul><![CDATA[x]]><?php x ?><table><tr><td>eins<td translate=no>zwei</table>",
    ".json": '{"a": ["eins", {"b": "zwei\\n\\u00e9", "b": 1.50e3}], "c": null, "": "\\ud83d\\ude00 drei"}\n',
    ".md": "---\ntitle: x\n---\n# eins *zwei* {#id}\n\n"
    "- drei [vier](u) [fünf][] `code`\n  - [ ] sechs  \n    sieben\n\n"
    "> [!NOTE]\n> acht[^1]\n\n| a | b \\| c |\n|---|--:|\n| neun | `x` |\n\n```\nnull\n```\n<div>\neins\n</div>\n\n"
    "[^1]: zwei drei\n[^2]: vier fünf\n\n[fünf]: /u\n",
    ".po": HEADER
    + '\n# x\n#, c-format\n#| msgid "alt"\nmsgctxt "m"\nmsgid "%d drei"\nmsgid_plural "%d vier\\n"\nmsgstr[0] '
    '""\nmsgstr[1] ""\n\n#, fuzzy\nmsgid ""\n"eins\\n"\n"zwei"\nmsgstr "x"\n\n#~ msgid "alt"\n#~ msgstr "y"\n',
    ".sdlxliff": '<xliff version="1.2" xmlns:sdl="http://sdl.com/FileTypes/SdlXliff/1.0"><file><body>\n'
    '<trans-unit id="u"><source>eins zwei drei</source><seg-source><g id="1"><mrk mtype="seg" mid="1">eins</mrk> '
    '<mrk mtype="seg" mid="2">zwei</mrk></g> <mrk mtype="seg" mid="3">drei</mrk></seg-source><target><g id="1">'
    '<mrk mtype="seg" mid="1">x</mrk> <mrk mtype="seg" mid="2"/></g> <mrk mtype="seg" mid="3">y</mrk></target>'
    '<sdl:seg-defs><sdl:seg id="3" locked="true"/></sdl:seg-defs></trans-unit></body></file></xliff>\n',
    ".srt": "1\n00:00:01,000 --> 00:00:02,000\n<i>eins,\nzwei</i>\n\n"
    "2\n00:00:03,000 --> 00:00:04,000\n- drei\n- vier\n",
    ".tmx": '<?xml version="1.0" encoding="UTF-8"?>\n<tmx version="1.4"><header srclang="en"/>'
    "<body>\n<tu><note>n</note>"
    '<tuv xml:lang="en"><seg>eins <bpt i="1">&lt;b></bpt>zwei<ept i="1">x</ept> <ph/></seg></tuv></tu>\n<tu><tuv '
    'xml:lang="en-US"><seg><![CDATA[<drei>]]></seg></tuv><tuv xml:lang="de"><seg>x</seg></tuv></tu></body></tmx>\n',
    ".tsv": "eins\tone\nzwei \t\n\ndrei\n",
    ".txt": "eins zwei\n  drei\n\n- vier\n- fünf\n> sechs\n> sieben\n---\nacht\n",
    ".vtt": "WEBVTT\n\nNOTE x\n\n"
    "a\n00:01.000 --> 00:02.000 align:left\n<v Eva>eins &amp; <c.x>zwei</c>\n\nSTYLE\n::cue {}\n",
    ".xlf": '<?xml version="1.0"?>\n<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body>\n'
    '<trans-unit id="1" approved="yes"><source>eins <g id="1">zwei</g> <x id="2"/></source><target state="final">x'
    '</target><note>n</note></trans-unit>\n<trans-unit id="2"><source>drei</source><alt-trans><target>x</target>'
    "</alt-trans></trans-unit></body></file></xliff>\n",
    ".xliff": '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0"><file id="f">'
    '<unit id="1"><notes><note>n</note></notes>\n<segment state="initial" subState="a:b">'
    '<source>eins <pc id="1">zwei</pc><ph id="2"/></source>'
    '</segment><ignorable><source> </source></ignorable><segment><source>drei <mrk id="m" translate="no">X</mrk>'
    "</source><target/></segment></unit></file></xliff>\n",
}
"""A small document of every format that is text."""
PARAGRAPH = (
    f'<w:document xmlns:w="{WORD}"><w:body><w:p><w:pPr><w:jc w:val="left"/></w:pPr><w:r><w:t>eins </w:t></w:r><w:ins '
    'w:id="1"><w:r><w:rPr><w:b/></w:rPr><w:t>zwei</w:t></w:r></w:ins><w:del w:id="2"><w:r><w:delText>x</w:delText>'
    "</w:r></w:del><w:r><w:tab/><w:t>drei</w:t></w:r></w:p><w:tbl><w:tr><w:tc><w:p><w:r><w:t>vier</w:t></w:r></w:p></w:tc>"
    "</w:tr></w:tbl></w:body></w:document>"
)
CONTENT_TYPES = (
    '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
PIECES = (
    *(
        b'"',
        b"\\",
        b"\n",
        b"\r\n",
        b"\t",
        b",",
        b"<",
        b">",
        b"</",
        b"/>",
        b"<b>",
        b"</b>",
        b"&",
        b"&amp;",
        b"&#0;",
        b"]]>",
    ),
    *(
        b"<!--",
        b"-->",
        b"*",
        b"_",
        b"`",
        b"```\n",
        b"[",
        b"](u)",
        b"|",
        b"    ",
        b"# ",
        b"1. ",
        b"> ",
        b"{",
        b"}",
        b"[[" * 99,
    ),
    *(b"msgid ", b"msgstr ", b"#, ", b"#~ ", b'msgstr[2] "x"\n', b"<g1>", b"<x9/>", b"\xe2\x80\xa8", b"\xff", b"\0"),
    *(
        b"<seg>",
        b"</source>",
        b"<target>",
        b"00:00:05,000 --> 00:00:06,000\n",
        b"<script>",
        b"<pre>",
        b"\\ud800",
        b"9" * 999,
    ),
)
FOREIGN = "foreign"
"""In place of an extension: one that is not read."""
FORMS = ("as it is", "as it is", "with a mark", "utf-16", "carriage returns", "many times")


def cases(campaign: Campaign) -> Iterator[Case]:
    """Damage one document for every case, read it and fill it in every way."""
    model = "" if campaign.is_small else str(campaign.stock.models / "plain")
    extensions = [*SOUND, ".docx", FOREIGN]
    for number in campaign.numbers():
        choose = campaign.choose(number)
        extension, form = extensions[number % len(extensions)], choose.choice(FORMS)
        arguments = {"extension": extension, "form": form, "times": choose.randint(0, 4), "seed": choose.random()}
        work = {"work": str(campaign.directory / f"case-{number}"), "model": model}
        yield Case(
            number,
            f"{extension}, {form}, damaged {arguments['times']} times",
            "documents:attack",
            {**work, **arguments, "is_translated": not campaign.is_small and choose.random() < 0.1},
        )


def attack(
    work: str, model: str, extension: str, form: str, times: int, seed: float, is_translated: bool
) -> dict[str, str]:
    """Write one document, read it and fill it; runs in a child."""
    choose = Random(seed)
    if extension == FOREIGN:
        return _foreign(Path(work), choose)
    path = Path(work) / f"document{extension}"
    path.parent.mkdir()
    path.write_bytes(_damaged_docx(choose, times) if extension == ".docx" else _damaged(choose, extension, form, times))
    before = path.read_bytes()
    outcome, detail = filled_document(path)
    if times == 0 and outcome is Outcome.refused:
        outcome, detail = Outcome.wrong, f"a sound document is refused: {detail}"
    if not outcome.is_finding and is_translated:
        outcome, detail = _translated(path, Path(model), outcome)
    if not outcome.is_finding and (trouble := _examined(path)):
        outcome, detail = Outcome.wrong, trouble
    if path.read_bytes() != before:
        outcome, detail = Outcome.wrong, "the file was changed"
    return {"outcome": outcome, "detail": detail}


def _foreign(work: Path, choose: Random) -> dict[str, str]:
    """Write a file of a format that is not read, by its extension or its beginning; it must be refused."""
    from clearhead.formats.document_files import refuse_foreign_format

    work.mkdir()
    is_named = choose.random() < 0.7
    extension = "." + "".join(choose.choices(ascii_letters + digits, k=choose.randint(4, 8))) if is_named else ""
    known = (*SOUND, ".docx", ".html", ".json", ".markdown", ".text", ".txlf", ".mxliff", ".mqxliff")
    extension = ".mdx" if extension.lower() in known else extension or choose.choice(("", ".txt", ".text", ".de"))
    path = work / f"document{extension}"
    beginnings = (
        "<?xml version='1.0'?>",
        "<!DOCTYPE html>",
        "<HTML>",
        '{"a": "b"}',
        '\n[{"a": 1}]',
        "\ufeff<html lang=x>",
    )
    start = choose.choice(("eins", *beginnings)) if is_named else choose.choice(beginnings)
    path.write_text(f"{start}\nzwei drei\n", encoding="utf-8")
    refusal, _ = refused_or(lambda: refuse_foreign_format(str(path)))
    if refusal is None:
        return {"outcome": Outcome.wrong, "detail": f"{path.name} with {start!r} is translated line by line"}
    return {"outcome": Outcome.refused, "detail": refusal[:200]}


def filled_document(path: Path) -> tuple[Outcome, str]:
    """Fill a document with nothing, with its own texts and with others, and read it again."""
    data = path.read_bytes()
    refusal, document = refused_or(lambda: _read(path))
    if refusal is not None:
        return Outcome.refused, refusal[:200]
    texts = [segment.text for segment in document.segments]
    if document.filled([None] * len(texts)) != data:
        return Outcome.wrong, "without a translation it is another file"
    if any(segment.line < 1 for segment in document.segments):
        return Outcome.wrong, "a segment has no line"
    for made in (str, _with_other_words):
        outcome, detail = _refilled(document, [made(text) for text in texts], path)
        if outcome is not Outcome.works:
            return outcome, detail
    return Outcome.works, f"{len(texts)} segments"


def _refilled(document: Any, translations: list[str], path: Path) -> tuple[Outcome, str]:
    """Fill a document, and read what it is then."""
    from clearhead.formats.document import Filling

    refusal, filled = refused_or(lambda: document.filled([Filling(text) for text in translations]))
    if refusal is not None:
        return Outcome.refused, refusal[:200]
    again = path.with_name(f"filled{path.suffix}")
    again.write_bytes(filled)
    refusal, reread = refused_or(lambda: _read(again))
    again.unlink()
    if refusal is not None:
        return Outcome.wrong, f"what was filled cannot be read: {refusal[:200]}"
    found = [one.translation if reread.keeps_finished else one.text for one in reread.segments]
    expected = [
        segment.text if document.problem(number, text) else text
        for number, (segment, text) in enumerate(zip(document.segments, translations, strict=True))
    ]
    if [_words(text) for text in found] != [_words(text) for text in expected]:
        return Outcome.wrong, f"filled with {expected!r:.300}, read again {found!r:.300}"
    return Outcome.works, ""


def _translated(path: Path, model: Path, expected: Outcome) -> tuple[Outcome, str]:
    """Translate a document on the command line, with a report."""
    output, page = path.with_name(f"out{path.suffix}"), path.with_name("page.html")
    arguments = ["translate", model, path, "-o", output, "--beam", 1, "--report", page, *_options(path)]
    code, _, errors = command(*arguments)
    if trouble := trouble_of(code, errors, allowed=(0, 1)):
        return Outcome.untyped, trouble
    kept = [f".{output.name}.progress.jsonl"] if "what is done is kept" in errors else []
    left = sorted(one.name for one in path.parent.iterdir() if one != path)
    if left != (sorted([page.name, output.name]) if not code else kept):
        return Outcome.wrong, f"exit code {code}, and there is {left}"
    if not code and expected is Outcome.refused:
        return Outcome.works, "a translation had nothing of what could not be written"
    return expected, "translated"


def _examined(path: Path) -> str | None:
    """Read a file as pairs, if it is of a format that has them, and count; return what is wrong."""
    from clearhead.data.doctor import examine
    from clearhead.data.doctor.page import render_page
    from clearhead.formats import READERS, read_pairs

    if path.suffix not in READERS:
        return None
    refusal, result = refused_or(lambda: examine(read_pairs([str(path)], tolerated=1.0)))
    if refusal is not None:
        return None
    rows = result.rows
    if rows.read != rows.pairs + sum(rows.others.values()):
        return f"{rows.read} rows read, {rows.pairs} pairs and {rows.others}"
    page = re.sub("<style>.*?</style>", "", render_page(result, ["f"], title=path.name), flags=re.DOTALL)
    return None if page.count("<") == page.count(">") else "the page has an open tag"


def _read(path: Path) -> Any:
    from clearhead.formats.document_files import read_document

    options: dict[str, Any] = {".csv": {"columns": [2]}, ".tsv": {"columns": [1]}, ".txt": {"paragraphs": True}}.get(
        path.suffix.lower(), {}
    )
    if path.suffix == ".tmx":
        options = {"from_lang": "en", "to_lang": "de"}
    return read_document(str(path), **options)


def _options(path: Path) -> list[str]:
    return {
        ".csv": ["--columns", "2"],
        ".tsv": ["--columns", "1"],
        ".txt": ["--paragraphs"],
        ".tmx": ["--from-lang", "en", "--to-lang", "de"],
    }.get(path.suffix, [])


_TAG = re.compile(r"(</?g[0-9]+>|<x[0-9]+/>)")


def _with_other_words(text: str) -> str:
    """Put an x before every word that is no tag."""
    return "".join(part if _TAG.fullmatch(part) else re.sub(r"[^\W\d_]+", r"x\g<0>", part) for part in _TAG.split(text))


def _words(text: str) -> str:
    """Return a text without tags, whose numbers may differ, and white space, which formats wrap; nor with `-->`, which
    no subtitle can have."""
    return "".join(_TAG.sub("", text).split()).replace("-->", "->")


def _damaged(choose: Random, extension: str, form: str, times: int) -> bytes:
    data = SOUND[extension].encode()
    if form == "many times" and extension in (".md", ".txt", ".html", ".tsv"):
        data *= 50
    damaged = bytearray(data)
    for _ in range(times):
        place, other = choose.randrange(len(damaged) + 1), choose.randrange(len(damaged) + 1)
        match choose.randrange(5):
            case 0:
                damaged[place:place] = choose.choice(PIECES)
            case 1:
                del damaged[place : place + choose.randint(1, 30)]
            case 2:
                damaged[place:place] = damaged[other : other + choose.randint(1, 60)]
            case 3:
                damaged[place : place + 1] = bytes([choose.randrange(256)])
            case 4 if choose.random() < 0.3:
                del damaged[place:]
    data = bytes(damaged)
    if form == "carriage returns":
        return data.replace(b"\r", b"").replace(b"\n", b"\r\n")
    # A catalogue and HTML say what they are in, and a mark that contradicts them is refused.
    if form == "with a mark" and extension != ".po":
        return b"\xef\xbb\xbf" + data
    if form == "utf-16" and extension not in (".po", ".tmx"):
        return data.decode("utf-8", "replace").encode("utf-16")
    return data


def _damaged_docx(choose: Random, times: int) -> bytes:
    """Return a Word file whose text, or the file itself, is damaged."""
    part = bytearray(PARAGRAPH.encode())
    for _ in range(times):
        place = choose.randrange(len(part) + 1)
        if choose.random() < 0.5:
            part[place:place] = choose.choice(PIECES)
        else:
            del part[place : place + choose.randint(1, 30)]
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", CONTENT_TYPES)
        archive.writestr("word/document.xml", bytes(part))
    data = bytearray(packed.getvalue())
    if times > 2:
        data[choose.randrange(len(data))] = choose.randrange(256)
    return bytes(data)


ATTACK = Attack("documents", "documents", full=1_000, few=6, run=judged(cases))
