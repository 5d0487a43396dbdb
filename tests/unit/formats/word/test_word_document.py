"""Word files: python-docx reads the translation where the text was, and every other part is as before."""

from __future__ import annotations

import io
import zipfile
from zipfile import ZIP_DEFLATED, ZipFile

import docx
import pytest
from docx.oxml.ns import nsdecls
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from written_files import damaged

from clearhead.errors import DataError
from clearhead.formats import office_archive
from clearhead.formats.document import Filling
from clearhead.formats.word import document as word
from clearhead.formats.word.document import WordDocument, read_docx

NAMESPACES = nsdecls("w", "r")


def saved(document) -> bytes:
    stream = io.BytesIO()
    document.save(stream)
    return stream.getvalue()


EMPTY = saved(docx.Document())


def repacked(data: bytes, **changes: bytes | None) -> bytes:
    """Return a file with some of its parts changed or, for None, left out; `__` replaces a slash in their names."""
    stream = io.BytesIO()
    named = {name.replace("__", "/").replace("_dot_", "."): change for name, change in changes.items()}
    with ZipFile(io.BytesIO(data)) as old, ZipFile(stream, "w", ZIP_DEFLATED) as new:
        for info in old.infolist():
            content = named.get(info.filename, old.read(info))
            if content is not None:
                new.writestr(info.filename, content)
    return stream.getvalue()


def with_content(*paragraphs: str) -> bytes:
    """Return a file with paragraphs of this content."""
    with ZipFile(io.BytesIO(EMPTY)) as archive:
        xml = archive.read("word/document.xml").decode()
    content = "".join(f"<w:p {NAMESPACES}>{paragraph}</w:p>" for paragraph in paragraphs)
    return repacked(EMPTY, word__document_dot_xml=xml.replace("<w:sectPr", f"{content}<w:sectPr", 1).encode())


def renamed(data: bytes, name) -> bytes:
    """Return a file with other names of its parts."""
    stream = io.BytesIO()
    with ZipFile(io.BytesIO(data)) as old, ZipFile(stream, "w", ZIP_DEFLATED) as new:
        for info in old.infolist():
            new.writestr(name(info.filename), old.read(info))
    return stream.getvalue()


def body(data: bytes):
    """Return the XML of a file's document."""
    with ZipFile(io.BytesIO(data)) as archive:
        return etree.fromstring(archive.read("word/document.xml"))


def run(text: str, properties: str = "") -> str:
    return f'<w:r>{properties and f"<w:rPr>{properties}</w:rPr>"}<w:t xml:space="preserve">{text}</w:t></w:r>'


def field(code: str, result: str) -> str:
    marks = [f'<w:r><w:fldChar w:fldCharType="{form}"/></w:r>' for form in ("begin", "separate", "end")]
    return f"{marks[0]}<w:r><w:instrText>{code}</w:instrText></w:r>{marks[1]}{result}{marks[2]}"


def texts(document):
    return [segment.text for segment in document.segments]


@pytest.fixture
def letter() -> bytes:
    """A file of many things."""
    document = docx.Document()
    document.core_properties.title = "kept"
    document.add_heading("A title", 1)
    paragraph = document.add_paragraph("Hello ")
    paragraph.add_run("bold").bold = True
    paragraph.add_run(" wor")
    paragraph.add_run("ld, and\ttab.")
    document.add_paragraph("an item", style="List Bullet")
    table = document.add_table(1, 2)
    table.cell(0, 0).text, table.cell(0, 1).text = "a cell", "12"
    document.sections[0].header.paragraphs[0].text = "the header"
    document.sections[0].footer.paragraphs[0].text = "the footer"
    return saved(document)


def test_python_docx_reads_the_translation(letter, read_text, translated):
    document = read_text(read_docx, letter)
    assert texts(document) == [
        "A title",
        "Hello <g1>bold</g1> world, and<x2/>tab.",
        "an item",
        "a cell",
        "the header",
        "the footer",
    ]
    assert [segment.line for segment in document.segments] == [1, 2, 3, 4, 5, 6]
    assert [segment.shown_place for segment in document.segments] == [
        "paragraph 1",
        "paragraph 2",
        "paragraph 3",
        "table 1, row 1, cell 1",
        "header 1",
        "footer 1",
    ]
    theirs = docx.Document(io.BytesIO(translated(document)))
    assert [paragraph.text for paragraph in theirs.paragraphs] == ["A TITLE", "HELLO BOLD WORLD, AND\tTAB.", "AN ITEM"]
    assert [(run.text, run.bold) for run in theirs.paragraphs[1].runs] == [
        ("HELLO ", None),
        ("BOLD", True),
        (" WORLD, AND", None),
        ("\t", None),
        ("TAB.", None),
    ]
    assert [paragraph.style.name for paragraph in theirs.paragraphs] == ["Heading 1", "Normal", "List Bullet"]
    assert [cell.text for cell in theirs.tables[0].rows[0].cells] == ["A CELL", "12"]
    assert theirs.sections[0].header.paragraphs[0].text == "THE HEADER"
    assert theirs.sections[0].footer.paragraphs[0].text == "THE FOOTER"


def test_places_are_named_as_readers_count_them(read_text):
    document = docx.Document()
    document.add_paragraph("one")
    document.add_paragraph("7")
    for _ in range(2):
        table = document.add_table(2, 2)
    table.cell(1, 0).text = "12"
    cell = table.cell(1, 1)
    cell.text = "a\nb"
    cell.add_paragraph("c")
    cell.add_table(1, 1).cell(0, 0).text = "d"
    document.add_paragraph("two")
    assert [(one.text, one.shown_place) for one in read_text(read_docx, saved(document)).segments] == [
        ("one", "paragraph 1"),
        ("a<x1/>b", "table 2, row 2, cell 2"),
        ("c", "table 2, row 2, cell 2, paragraph 2"),
        ("d", "table 2, row 2, cell 2, table 1, row 1, cell 1"),
        ("two", "paragraph 2"),
    ]


def test_notes_and_text_boxes_are_named_by_their_number(read_text):
    box = f"<w:txbxContent><w:p>{run('in a box')}</w:p><w:p>{run('too')}</w:p></w:txbxContent>"
    data = with_content(f"{run('around')}<w:r><w:pict>{box}</w:pict></w:r>", run("after"))
    notes = "".join(
        f'<w:footnote w:id="{number}"{kind}><w:p>{run(text)}</w:p></w:footnote>'
        for number, kind, text in ((0, ' w:type="separator"', "line"), (1, "", "one"), (2, "", "two"))
    )
    with ZipFile(io.BytesIO(data)) as archive:
        types = archive.read("[Content_Types].xml").decode()
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    override = f'<Override PartName="/word/footnotes.xml" ContentType="{main}"/></Types>'
    stream = io.BytesIO(repacked(data, **{"[Content_Types]_dot_xml": types.replace("</Types>", override).encode()}))
    with ZipFile(stream, "a") as archive:
        archive.writestr("word/footnotes.xml", f"<w:footnotes {NAMESPACES}>{notes}</w:footnotes>")
    assert [(one.text, one.shown_place) for one in read_text(read_docx, stream.getvalue()).segments] == [
        ("around", "paragraph 1"),
        ("in a box", "text box paragraph 1"),
        ("too", "text box paragraph 2"),
        ("after", "paragraph 2"),
        ("line", "paragraph 3"),
        ("one", "footnote 1"),
        ("two", "footnote 2"),
    ]


def test_other_parts_are_as_before(letter, read_text, translated):
    before, after = (ZipFile(io.BytesIO(data)) for data in (letter, translated(read_text(read_docx, letter))))
    assert after.testzip() is None
    described = [
        [
            (info.filename, info.date_time, info.compress_type, info.external_attr, info.comment)
            for info in each.infolist()
        ]
        for each in (before, after)
    ]
    assert described[0] == described[1]
    changed = [name for name in before.namelist() if before.read(name) != after.read(name)]
    assert sorted(changed) == ["word/document.xml", "word/footer1.xml", "word/header1.xml"]


def test_only_the_paragraph_that_is_translated_changes(read_text):
    data = with_content(run("one"), run("two", "<w:b/>") + "<w:proofErr/>", run("three"))
    document = read_text(read_docx, data)
    filled = ZipFile(io.BytesIO(document.filled([None, Filling("zwei"), None]))).read("word/document.xml")
    before = ZipFile(io.BytesIO(data)).read("word/document.xml")
    assert filled == before.replace(b"two", b"zwei").replace(b"<w:proofErr/>", b"")


@pytest.mark.parametrize(
    ("content", "text", "translation", "expected"),
    [
        (run("a ") + run("b", "<w:b/>"), "a <g1>b</g1>", "<g1>B</g1> A", run("B", "<w:b/>") + run(" A")),
        (run("a", "<w:b/>") + run(" b", "<w:b/>"), "a b", "c", run("c", "<w:b/>")),
        (run("a", '<w:lang w:val="en"/>') + run("b"), "ab", "c", run("c")),
        (run("a b") + run(" ", "<w:b/>") + run("c"), "a b c", "d", run("d")),
        (
            run("name:") + run("   ", '<w:u w:val="single"/>') + run("date:"),
            "name:<x1/>date:",
            "Name:<x1/>Datum:",
            run("Name:") + run("   ", '<w:u w:val="single"/>') + run("Datum:"),
        ),
        ("<w:r><w:t> a </w:t></w:r>" + run("b"), "ab", "c", run("c")),
        (run("a-") + "<w:r><w:t>b</w:t><w:noBreakHyphen/><w:t>c</w:t></w:r>", "a-b\u2011c", "d", run("d")),
        ("<w:r><w:tab/><w:t>a</w:t><w:br/></w:r>", "a", "b", "<w:r><w:tab/></w:r>" + run("b") + "<w:r><w:br/></w:r>"),
        (
            run("see ") + f'<w:hyperlink r:id="rId1">{run("it", "<w:u/>")}</w:hyperlink>' + run(" now"),
            "see <g1>it</g1> now",
            "jetzt <g1>es</g1>",
            run("jetzt ") + f'<w:hyperlink r:id="rId1">{run("es", "<w:u/>")}</w:hyperlink>',
        ),
        (
            run("page ") + field("PAGE", run("3")) + run(" of it"),
            "page <x1/> of it",
            "<x1/> Seite",
            field("PAGE", run("3")) + run(" Seite"),
        ),
        (
            run("see ") + field(' HYPERLINK "x"', run("it")) + run("!"),
            "see <g1>it</g1>!",
            "<g1>es</g1>!",
            field(' HYPERLINK "x"', run("es")) + run("!"),
        ),
        (
            run("a ")
            + f'<w:del w:id="1"><w:r><w:delText>b</w:delText></w:r></w:del><w:ins w:id="2">{run("c")}</w:ins>.',
            "a <x1/><g2>c</g2>",
            "d <x1/><g2>e</g2>",
            run("d ")
            + f'<w:del w:id="1"><w:r><w:delText>b</w:delText></w:r></w:del><w:ins w:id="2">{run("e")}</w:ins>',
        ),
        (
            f"<w:sdt><w:sdtPr/><w:sdtContent>{run('a')}</w:sdtContent></w:sdt>" + run(" b"),
            "<g1>a</g1> b",
            "c",
            f"<w:sdt><w:sdtPr/><w:sdtContent>{run('c')}</w:sdtContent></w:sdt>",
        ),
        (
            '<w:bookmarkStart w:id="0" w:name="n"/>' + run("a") + '<w:bookmarkEnd w:id="0"/>',
            "a",
            "b",
            '<w:bookmarkStart w:id="0" w:name="n"/>' + run("b") + '<w:bookmarkEnd w:id="0"/>',
        ),
        (run("say &lt;g1&gt; &amp;"), "say <x1/> &", "<x1/> < sag", run("&lt;g1&gt;") + run(" &lt; sag")),
    ],
)
def test_runs_of_a_translation(content, text, translation, expected, read_text):
    document = read_text(read_docx, with_content(content))
    assert texts(document) == [text]
    filled = docx.Document(io.BytesIO(document.filled([Filling(translation)])))
    wanted = docx.Document(io.BytesIO(with_content(expected)))
    assert filled.element.body.xml == wanted.element.body.xml


def test_a_text_box_is_translated_where_it_is(read_text, translated):
    box = "<w:r><w:pict><w:txbxContent><w:p><w:r><w:t>inner</w:t></w:r></w:p></w:txbxContent></w:pict></w:r>"
    document = read_text(read_docx, with_content(run("outer ") + box + run("text")))
    assert texts(document) == ["outer <x1/>text", "inner"]
    for fillings in ([Filling("<x1/>A"), Filling("B")], [None, Filling("B")], [Filling("A<x1/>"), None]):
        xml = ZipFile(io.BytesIO(document.filled(fillings))).read("word/document.xml")
        assert (b">B<" in xml, b"inner" in xml) == (fillings[1] is not None, fillings[1] is None)
        assert b"<w:txbxContent><w:p><w:r><w:t" in xml


def test_a_field_over_several_paragraphs_does_not_hide_them(read_text, translated):
    begin, end = field("TOC", "@").split("@")
    document = read_text(read_docx, with_content(begin + run("one"), run("two") + end))
    assert texts(document) == ["one", "two"]
    assert [paragraph.text for paragraph in docx.Document(io.BytesIO(translated(document))).paragraphs] == [
        "ONE",
        "TWO",
    ]


PIECES = [run("a"), run(" b ", "<w:b/>"), run("c", "<w:i/>"), run(" "), "<w:r><w:tab/></w:r>", field("PAGE", run("1"))]
PIECES += [
    f"<w:hyperlink>{run('d')}{run('e', '<w:b/>')}</w:hyperlink>",
    "<w:hyperlink/>",
    '<w:bookmarkStart w:id="1"/>',
]
PIECES += ['<w:r><w:fldChar w:fldCharType="begin"/></w:r>', '<w:r><w:fldChar w:fldCharType="end"/></w:r>', "<w:r/>"]
PIECES += [f"<w:ins>{field('HYPERLINK x', run('f'))}</w:ins>", "<w:r><w:fldChar/></w:r>"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=8), st.sampled_from(["same", "none", "around"]))
def test_any_paragraph_keeps_its_markup_and_has_the_translation(pieces, change):
    data = with_content("".join(pieces))
    document = WordDocument(data, "letter.docx")
    assert document.filled([None] * len(document.segments)) == data
    change_text = {"same": lambda text: text, "none": lambda text: "Wort", "around": lambda text: f"Wort {text}"}[
        change
    ]
    filled = document.filled([Filling(change_text(text)) for text in texts(document)])
    before, after = body(data), body(filled)

    def count(tree, name):
        return len(tree.findall(f".//{{*}}{name}"))

    for name in ("tab", "fldChar", "instrText", "hyperlink", "ins", "bookmarkStart"):
        assert count(before, name) == count(after, name)
    if change == "same":
        assert before.xpath("string(.)") == after.xpath("string(.)")
        assert texts(WordDocument(filled, "letter.docx")) == texts(document)
    elif document.segments:
        assert "Wort" in after.xpath("string(.)")


XML = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"><w:body>{}</w:body></w:document>'


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: b"", "is no DOCX file, or is damaged"),
        (lambda data: b"text", "is no DOCX file, or is damaged"),
        (lambda data: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + data, "is encrypted, or in Word's old format"),
        (lambda data: data[: len(data) // 2], "is no DOCX file, or is damaged"),
        (lambda data: repacked(data, **{"[Content_Types].xml": None}), "it has no .Content_Types"),
        (lambda data: repacked(data, word__document_dot_xml=None), "no document of Word"),
        (lambda data: repacked(data, word__document_dot_xml=b"<a>"), "document.xml, line 1: the XML is cut off"),
        (
            lambda data: repacked(data, word__document_dot_xml=b'<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'),
            "the document type declares the entity 'b'; entities are refused",
        ),
        (
            lambda data: repacked(data, word__document_dot_xml=XML.format("<w:p>" * 300 + "</w:p>" * 300).encode()),
            "more than 200 elements are nested in each other",
        ),
        (lambda data: repacked(data, word__document_dot_xml="<a/>".encode("utf-16")), "not in UTF-8"),
        (lambda data: repacked(data, word__document_dot_xml="<a/>".encode("utf-16-le")), "not in UTF-8"),
    ],
)
def test_read_docx_rejects_damaged_encrypted_and_foreign_files(change, message, letter, tmp_path):
    path = tmp_path / "letter.docx"
    path.write_bytes(change(letter))
    with pytest.raises(DataError, match=message):
        read_docx(str(path))


def test_an_encrypted_part_is_refused(letter, tmp_path):
    path = tmp_path / "letter.docx"
    at = letter.rindex(b"PK\x01\x02") + 8  # the flags of the last part in the directory
    path.write_bytes(letter[:at] + b"\x01" + letter[at + 1 :])
    with pytest.raises(DataError, match="is encrypted; save it without a password"):
        read_docx(str(path))


def test_read_docx_rejects_files_too_large_when_unpacked(letter, tmp_path, monkeypatch):
    path = tmp_path / "letter.docx"
    path.write_bytes(letter)
    monkeypatch.setattr(office_archive, "MOST_PART_BYTES", 1_000)
    with pytest.raises(DataError, match="when unpacked; it is refused"):
        read_docx(str(path))
    monkeypatch.undo()
    monkeypatch.setattr(office_archive, "MOST_UNPACKED_BYTES", 1_000)
    with pytest.raises(DataError, match="when unpacked; it is refused"):
        read_docx(str(path))


def test_a_part_that_unpacks_to_a_multiple_is_refused_before_it_is_unpacked(letter, tmp_path, monkeypatch):
    path = tmp_path / "letter.docx"
    with ZipFile(io.BytesIO(letter)) as old, ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for info in old.infolist():
            filler = b"<!--%b-->" % (b" " * 2_000_000) if info.filename == "word/document.xml" else b""
            new.writestr(info.filename, old.read(info) + filler)
    with pytest.raises(DataError, match=r"word/document\.xml is more than 300 times as large when unpacked"):
        read_docx(str(path))
    monkeypatch.setattr(office_archive, "MOST_UNCHECKED_BYTES", 3_000_000)
    assert read_docx(str(path)).segments


def test_the_tags_of_all_parts_are_bounded_before_any_is_parsed(letter, read_text, monkeypatch):
    with ZipFile(io.BytesIO(letter)) as archive:
        whole = b"".join(archive.read(part) for part in word._text_parts(archive, "letter.docx")[0])
    monkeypatch.setattr(word, "MOST_TAGS", whole.count(b"<"))
    assert read_text(read_docx, letter).segments
    monkeypatch.setattr(word, "MOST_TAGS", whole.count(b"<") - 1)
    monkeypatch.setattr(word, "_text_part", None)
    with pytest.raises(DataError, match=rf"has {whole.count(b'<'):,} tags, and the most is .*; divide the document"):
        read_text(read_docx, letter)


def test_read_docx_rejects_duplicate_parts(letter, tmp_path):
    path = tmp_path / "letter.docx"
    path.write_bytes(letter)
    with pytest.warns(UserWarning, match="Duplicate name"), ZipFile(path, "a") as archive:
        archive.writestr("word/document.xml", b"<a/>")
    with pytest.raises(DataError, match="two parts of the same name"):
        read_docx(str(path))


def test_a_character_that_xml_cannot_hold_is_refused(letter, read_text):
    document = read_text(read_docx, letter)
    for character in "\x00\x1b\ud800\uffff":
        fillings = [None, Filling(f"a{character}"), *[None] * 4]
        with pytest.raises(DataError, match=f"paragraph 2: the translation holds U\\+{ord(character):04X}, which XML"):
            document.filled(fillings)


def test_damaged_files_never_end_in_a_traceback(letter, survives_damage):
    signs = b"<>/\"'=&w:pPK\x00\xff\x01"
    unpacked = zipfile.ZipFile(io.BytesIO(letter)).read("word/document.xml")
    survives_damage(read_docx, damaged(letter, signs, most=8))
    survives_damage(
        read_docx, (repacked(letter, word__document_dot_xml=one) for one in damaged(unpacked, signs, most=8))
    )


def test_a_drawing_of_megabytes_in_an_attribute_is_kept_and_its_size_is_bounded(monkeypatch):
    drawing = f'<w:r><w:pict><v:shape xmlns:v="v" xmlns:o="o" o:gfxdata="{"A" * 1_500_000}"/></w:pict></w:r>'
    document = WordDocument(with_content(run("Hello") + drawing + run("bold", "<w:b/>")), "a.docx")
    assert "Hello" in "".join(texts(document))
    assert drawing.encode() in ZipFile(io.BytesIO(document.filled([Filling(texts(document)[0])]))).read(
        "word/document.xml"
    )
    monkeypatch.setattr("clearhead.formats.word.paragraphs._MAX_TAG_CHARACTERS", 1_000_000)
    with pytest.raises(DataError, match="longer than 1,000,000 characters"):
        WordDocument(with_content(run("Hello") + drawing), "a.docx")


def test_the_size_of_a_paragraph_is_bounded(monkeypatch):
    content = run("Hello") * 20
    assert texts(WordDocument(with_content(content), "a.docx"))
    monkeypatch.setattr("clearhead.formats.word.paragraphs._MAX_SIZE", 1_000)
    with pytest.raises(DataError, match="line 2: this paragraph is larger than 1,000 characters"):
        WordDocument(with_content(content), "a.docx")


@pytest.mark.parametrize("name", [lambda part: part.replace("/", "\\"), str.upper])
def test_parts_with_other_names_than_in_the_list_are_read(letter, name, in_capitals):
    document = WordDocument(renamed(letter, name), "a.docx")
    assert texts(document) == texts(WordDocument(letter, "b.docx"))
    filled = document.filled([Filling(in_capitals(one.text)) for one in document.segments])
    with ZipFile(io.BytesIO(filled)) as archive, ZipFile(io.BytesIO(renamed(letter, name))) as old:
        assert archive.namelist() == old.namelist()
        assert b"HELLO" in archive.read(name("word/document.xml"))
        assert b"THE HEADER" in b"".join(map(archive.read, archive.namelist()))


@pytest.mark.parametrize("around", ["<w:r><w:rPr><w:b/></w:rPr>{}</w:r>", "{}"])
def test_the_base_of_a_ruby_is_text_and_keeps_its_reading(around):
    reading = "<w:rubyPr/><w:rt><w:r><w:t>reading</w:t></w:r></w:rt>"
    ruby = f"<w:ruby>{reading}<w:rubyBase>{run('base')}</w:rubyBase></w:ruby>"
    data = with_content(run("before ") + around.format(ruby) + run(" after"))
    document = WordDocument(data, "a.docx")
    assert texts(document) == ["before <g1>base</g1> after"]
    filled = body(document.filled([Filling("AFTER <g1>BASE</g1> BEFORE")]))
    [written] = filled.iterfind(".//{*}ruby")
    assert ["".join(part.itertext()) for part in written.iter("{*}rt", "{*}rubyBase")] == ["reading", "BASE"]
    assert "".join(filled.itertext()).strip() == "AFTER readingBASE BEFORE"


STYLES = f"""<w:styles {NAMESPACES}><w:docDefaults><w:rPrDefault><w:rPr><w:lang w:val="en-US" w:eastAsia="en-US"
 w:bidi="ar-SA"/></w:rPr></w:rPrDefault></w:docDefaults><w:style w:type="character"><w:rPr><w:lang w:val="en-US"/>
</w:rPr></w:style><w:style><w:rPr><w:lang w:val="la"></w:lang></w:rPr></w:style></w:styles>"""


@pytest.mark.parametrize(
    ("language", "changed"),
    [
        ("de", {'w:val="en-US" w:eastAsia="en-US"': 'w:val="de" w:eastAsia="en-US"', '="en-US"/>': '="de"/>'}),
        ("zh_Hans", {
            'w:val="en-US" w:eastAsia="en-US"': 'w:val="zh-Hans" w:eastAsia="zh-Hans"',
            'w:val="en-US"/>': 'w:val="zh-Hans" w:eastAsia="zh-Hans"/>',
        }),
        ("he", {
            'w:val="en-US" w:eastAsia="en-US"\n w:bidi="ar-SA"': 'w:val="he" w:eastAsia="en-US"\n w:bidi="he"',
            'w:val="en-US"/>': 'w:val="he" w:bidi="he"/>',
        }),
        ("en", {}),
        ("", {}),
    ],
)  # fmt: skip
def test_the_language_of_the_styles_is_that_of_the_translation(language, changed):
    data = repacked(with_content(run("a")), word__styles_dot_xml=STYLES.encode())
    document = WordDocument(data, "a.docx")
    expected = STYLES
    for old, new in changed.items():
        assert expected.count(old) == 1
        expected = expected.replace(old, new)
    with ZipFile(io.BytesIO(document.filled_in(language, [Filling("A")]))) as archive:
        assert archive.read("word/styles.xml").decode() == expected
    assert document.filled_in(language, [None]) == data
