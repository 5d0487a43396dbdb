"""HTML: its texts are found where a browser shows them, and nothing else of the file changes."""

from __future__ import annotations

import difflib
import pydoc
import random
from html.parser import HTMLParser

import lxml.html
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from written_files import damaged

from clearhead.errors import DataError
from clearhead.formats.document import Filling
from clearhead.formats.file_text import FileText
from clearhead.formats.html.document import HtmlDocument, read_html
from clearhead.formats.html.tokens import html_tokens
from every_run import slow


def texts(document):
    return [segment.text for segment in document.segments]


@pytest.mark.parametrize(
    ("page", "segments", "filled"),
    [
        ("<p>One</p>\n<p>two", ["One", "two"], "<p>ONE</p>\n<p>TWO"),
        ("<ul><li>a<li>b</ul>", ["a", "b"], "<ul><li>A<li>B</ul>"),
        ("<p> a\n <b>b</b>\t c </p>", ["a <g1>b</g1> c"], "<p> A <b>B</b> C </p>"),
        ("<p><b><i>all</i></b></p>", ["all"], "<p><b><i>ALL</i></b></p>"),
        ("<div>a<p>b</p>c</div>", ["a", "b", "c"], "<div>A<p>B</p>C</div>"),
        ("a<br>b", ["a<x1/>b"], "A<br>B"),
        ("<p><a id=x></a>a <code>f(x)</code> b", ["a <x1/> b"], "<p><a id=x></a>A <code>f(x)</code> B"),
        ("<p><code>f</code> is a", ["<x1/> is a"], "<p><code>f</code> IS A"),
        ("<pre>code <b>x</b></pre>after", ["after"], "<pre>code <b>x</b></pre>AFTER"),
        ("a<script>if (x<b) '</p>'</script>b", ["a<x1/>b"], "A<script>if (x<b) '</p>'</script>B"),
        ("<script><!--<script></script>x--></script>a", ["a"], "<script><!--<script></script>x--></script>A"),
        ("<style>p > a {}</style>a", ["a"], "<style>p > a {}</style>A"),
        ("<textarea>text</textarea>a", ["a"], "<textarea>text</textarea>A"),
        ("<title>a <b></title>", ["a <b>"], "<title>A &lt;B></title>"),
        ("a<!-- b --> c<!-->d", ["a<x1/> c<x2/>d"], "A<!-- b --> C<!-->D"),
        ("<p>a <b>b <i>c</b> d</i> e", ["a <g1>b <x2/>c</g1> d<x3/> e"], "<p>A <b>B <i>C</b> D</i> E"),
        ("<p>a <b>b<p>c</b> d", ["a <x1/>b", "c<x1/> d"], "<p>A <b>B<p>C</b> D"),
        ("a &lt;g1&gt; b", ["a <x1/> b"], "A &lt;g1&gt; B"),
        ("R&amp;D &lt; x &gt; y &nbsp;z", ["R&D < x > y \xa0z"], "R&amp;D &lt; X &gt; Y &nbsp;Z"),
        ("a < b & c &copy d", ["a < b & c © d"], "A &lt; B &amp; C © D"),
        ('<p title="a tip">b', ["a tip", "b"], '<p title="A TIP">B'),
        ("<img alt='a \"b\"'>", ['a "b"'], "<img alt='A \"B\"'>"),
        ('<img alt="a &quot;b">', ['a "b'], '<img alt="A &quot;B">'),
        ("<img alt=word src=x>", ["word"], '<img alt="WORD" src=x>'),
        ("a <img alt=b src='>'> c", ["a <x1/> c", "b"], "A <img alt=\"B\" src='>'> C"),
        ('<a href="?a=1&copy=2" title="a&copy=2 &amp;">b', ["a&copy=2 &", "b"], None),
        ('<input type=submit value="Go"><input value="kept">', ["Go"], None),
        ('<meta name=description content="a"><meta name=x content="b">', ["a"], None),
        ('<meta property="og:title" content="a">', ["a"], None),
        ("a <span translate=no>b <i>c</i></span> d", ["a <x1/> d"], "A <span translate=no>b <i>c</i></span> D"),
        ('<div class="x notranslate"><div>a</div>b</div>c', ["c"], None),
        (
            "<div translate=no>a<p translate=yes>b <i>c</i></p>d<p translate=yes>e</div>",
            ["b <g1>c</g1>", "e"],
            "<div translate=no>a<p translate=yes>B <i>C</i></p>d<p translate=yes>E</div>",
        ),
        (
            "a <b class=notranslate>b <i translate=yes>c <s translate=no>d</s></i></b> e",
            ["a <x1/> e", "c <x1/>"],
            "A <b class=notranslate>b <i translate=yes>C <s translate=no>d</s></i></b> E",
        ),
        ("<code>a <b translate=yes>b</b></code>", [], None),
        ("<li translate=no>a<li>b", ["b"], None),
        ("<p translate=no>a<div>b</div>", ["b"], None),
        ("<p>x <code>a</p><p>b", ["x <x1/>", "b"], "<p>X <code>a</p><p>B"),
        ("a <svg><title>b</title></svg> c <svg/> d", ["a <x1/> c <x2/> d"], None),
        ("a<wbr>b<my-tag>c</my-tag>", ["a<x1/>b<g2>c</g2>"], None),
        ("12 &mdash; 3", [], None),
        ("", [], ""),
        ("<p>a<b", ["a"], "<p>A<b"),
        ('<p>a<b c="d>e', ["a"], '<p>A<b c="d>e'),
        ("a</", ["a</"], "A&lt;/"),
        ("a</>b<?c?>d<!e>f", ["a<x1/>b<x2/>d<x3/>f"], None),
        ("<P TITLE=a>B</P>", ["a", "B"], '<P TITLE="A">B</P>'),
        ("<plaintext>a<b>", [], None),
        ("<select><option>a<option>b</select>", ["a", "b"], None),
        ("<script>never ends</p>", [], None),
    ],
)
def test_segments_of_html_pages_and_pages_filled_with_translations(page, segments, filled, read_text, translated):
    document = read_text(read_html, page)
    assert texts(document) == segments
    if filled is not None:
        assert translated(document).decode() == filled


def test_lines_are_those_of_the_file(read_text):
    document = read_text(read_html, "<p>\n a\r\n b\r<p>c")
    assert [(segment.text, segment.line) for segment in document.segments] == [("a b", 2), ("c", 4)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize(("mark", "encoding"), [(b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"", "utf-8")])
def test_byte_order_marks_and_line_ends_are_kept(mark, encoding, end, read_text, translated):
    document = read_text(read_html, mark + f"<p>süß</p>{end}".encode(encoding))
    assert translated(document) == mark + f"<p>SÜSS</p>{end}".encode(encoding)


def test_characters_missing_in_the_declared_encoding_become_references(read_text):
    document = read_text(read_html, b"<meta charset=iso-8859-1><p>caf\xe9 \x93a\x94")
    assert texts(document) == ["café “a”"]
    assert document.filled([Filling("žert é ”")]) == b"<meta charset=iso-8859-1><p>\x9eert \xe9 \x94"
    assert document.filled([Filling("猫")]) == b"<meta charset=iso-8859-1><p>&#29483;"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<p>\n\xff", r"line 2: byte 1 \(0xff\) is not valid UTF-8"),
        (b"<p>a\0b", "NUL"),
        (b"<meta charset=klingon>", "'klingon', which cannot be kept"),
        (b"<meta charset=iso-2022-jp>", "'iso-2022-jp', which cannot be kept"),
        (b"<meta charset=rot13>", "'rot13', which cannot be kept"),
        (b"<meta charset=base64>", "'base64', which cannot be kept"),
    ],
)
def test_read_html_rejects_binary_data_and_unsupported_encodings(data, message, tmp_path):
    path = tmp_path / "page.html"
    path.write_bytes(data)
    with pytest.raises(DataError, match=message):
        read_html(str(path))


def test_a_page_of_too_many_tags_is_refused(read_text, monkeypatch):
    monkeypatch.setattr("clearhead.formats.html.document.MOST_TOKENS", 3)
    assert len(read_text(read_html, "<p>a</p>").segments) == 1
    with pytest.raises(DataError, match="has more than 3 tags and texts; divide it"):
        read_text(read_html, "<p>a</p>b")


def test_half_of_a_surrogate_pair_is_refused(read_text):
    with pytest.raises(DataError, match="line 1: the translation holds half of a surrogate pair"):
        read_text(read_html, "<p>a").filled([Filling("\ud800")])


@pytest.mark.parametrize(
    ("page", "changed"),
    [
        ('<html lang="en"><p>a', '<html lang="de"><p>a'),
        ("<html class=x lang=en>", "<html class=x lang=de>"),
        ("<html lang>", '<html lang="de">'),
        ("<html>", '<html lang="de">'),
        ('<html lang="de-AT" dir="ltr">', '<html lang="de-AT" dir="ltr">'),
        ('<html xml:lang="en" lang="en" dir=rtl>', '<html xml:lang="de" lang="de" dir=ltr>'),
        ("<p>a", "<p>a"),
    ],
)
def test_the_language_of_the_page_changes_if_asked(page, changed, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(page, encoding="utf-8")
    document = read_html(str(path), target_language="de")
    assert document.filled([None] * len(document.segments)).decode() == changed


@pytest.mark.parametrize(
    ("page", "changed"),
    [
        ('<html lang="en">', '<html dir="rtl" lang="ar-EG">'),
        ("<html class=x lang=en dir>", '<html class=x lang=ar-EG dir="rtl">'),
        ("<html>", '<html lang="ar-EG" dir="rtl">'),
    ],
)
def test_the_direction_of_the_page_is_that_of_its_language(page, changed, read_text):
    document = read_text(read_html, f"{page}<p>a")
    assert document.filled_in("ar_EG", [Filling("b")]).decode() == f"{changed}<p>b"


def test_tags_go_where_the_translation_has_them(read_text):
    document = read_text(read_html, '<p>A <a href="x" title="tip">red <b>house</b></a> and <code>f</code>.</p>')
    assert texts(document) == ["A <g1>red <g2>house</g2></g1> and <x3/>.", "tip"]
    filled = document.filled([Filling("<x3/> & <g1>une <g2>maison</g2> rouge</g1>."), Filling('un "truc"')])
    expected = '<p><code>f</code> &amp; <a href="x" title="un &quot;truc&quot;">une <b>maison</b> rouge</a>.</p>'
    assert filled.decode() == expected
    lost = document.filled([Filling("Une maison."), None]).decode()
    assert lost == '<p><a href="x" title="tip"><b>Une maison <code>f</code>.</b></a></p>'


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.tags, self.words = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, [name for name, _ in attrs], [value for name, value in attrs if name in ("href", "id")]))

    def handle_endtag(self, tag):
        self.tags.append(tag)

    def handle_data(self, data):
        self.words.append(data)


@pytest.mark.parametrize(
    "page",
    [
        pydoc.html.page("json", pydoc.html.document(__import__("json"))),
        pydoc.html.page("random", pydoc.html.document(random)),
        difflib.HtmlDiff().make_file(["one line", "and more"], ["one word", "and more"]),
    ],
    ids=["json", "random", "diff"],
)
def test_pages_that_others_made_keep_their_tags(page, read_text, translated):
    before, after = Tags(page), Tags(translated(read_text(read_html, page)).decode())
    assert after.tags == before.tags
    assert len(before.tags) > 50
    tree = lxml.html.document_fromstring(translated(read_text(read_html, page)))
    for paragraph in tree.iter("p", "td", "title"):
        own = [paragraph.text or "", *(child.tail or "" for child in paragraph)]
        assert [words.upper() for words in own] == own


PIECES = [
    *"<>/&\"'=! \n\r",
    "<p>",
    "</p>",
    "<b>",
    "</b>",
    "<i",
    "<!--",
    "-->",
    "<code>",
    "</code>",
    "<script>",
    "</script>",
]
PIECES += [
    "&amp;",
    "&nbsp;",
    "&#60;",
    "<a title=",
    "<title>",
    "</title>",
    "<li translate=no>",
    "<br/>",
    "wort",
    "é",
    "<td",
]


@settings(max_examples=200)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_html_round_trips_and_is_filled(page):
    document = HtmlDocument(FileText.of(page.encode(), "page.html"))
    assert document.filled([None] * len(document.segments)) == page.encode()
    again = document.filled([Filling(segment.text) for segment in document.segments])
    second = HtmlDocument(FileText.of(again, "page.html"))
    assert texts(second) == texts(document)
    cut = list(html_tokens(page))
    assert [token.start for token in cut] == [0, *(token.end for token in cut)][: len(cut)]
    assert (cut[-1].end if cut else 0) == len(page)


def test_damaged_pages_never_end_in_a_traceback(survives_damage):
    page = pydoc.html.page("bisect", pydoc.html.document(__import__("bisect"))).encode()[:3000]
    survives_damage(read_html, damaged(page, b"<>\"'/&=! -\x00\xffap"))


@pytest.mark.parametrize(
    "piece",
    [
        "<b translate=no><i translate=yes>",
        "<",
        "<b>",
        "</b>",
        "<a ",
        '<a b="',
        "<!--",
        "<code>",
        "<i>x</b>",
        "<div>",
        "&",
        "<p translate=no>",
    ],
)
@pytest.mark.parametrize("times", [6_000, slow(20_000)])
def test_long_nonsense_is_read_in_one_pass(piece, times, read_text):
    document = read_text(read_html, piece * times + "x")
    assert len(document.segments) <= 1


def test_lost_links_follow_the_translation_without_nesting(read, fill):
    page = '<p>See <a href="1">Monday</a>, <a href="2">May</a>.</p>'
    document = read("a.html", page)
    assert fill(document, lambda text: "Sieh nach.") == ('<p>Sieh nach. <a href="1">Monday</a> <a href="2">May</a></p>')
    assert fill(document, lambda text: "<g1>Sieh <g2>nach</g2></g1>.") == (
        '<p><a href="1">Sieh nach</a>. <a href="2">May</a></p>'
    )


def test_code_of_a_server_stays_as_it_is(read, fill):
    page = "<p><%= a > b %> is here, <?php echo $a->b; ?> stays</p><p><% if x %>Now<% end %> <?= $c ?>!</p>"
    document = read("a.html", page)
    assert [one.text for one in document.segments] == ["<x1/> is here, <x2/> stays", "<g1>Now</g1> <x2/>!"]
    assert fill(
        document, {"<x1/> is here, <x2/> stays": "<x2/> da <x1/>", "<g1>Now</g1> <x2/>!": "</g1>Nun<g1> <x2/>"}
    ) == ("<p><?php echo $a->b; ?> da <%= a > b %></p><p>Nun<% if x %> <?= $c ?><% end %></p>")
    assert len(list(html_tokens("<% <?= " * 20_000 + "?>"))) == 2  # examined once: to the next `<%`, to the first `>`
    assert [one.text for one in read("b.html", "<p>1 <% 2, x</p>").segments] == ["1 <% 2, x"]


@pytest.mark.parametrize(
    ("page", "segments"),
    [
        ("<p>船は正午に\n  出発します。</p>", ["船は正午に出発します。"]),
        (
            "<p>船は<b>正午に</b>\n<!-- x -->\n<i>出発</i>します。</p>",
            ["船は<g1>正午に</g1><x2/><g3>出発</g3>します。"],
        ),
        ("<p>船は正午に\n<code>x</code>\n出発</p>", ["船は正午に <x1/> 出発"]),
        ("<p>船は 正午に\nABC\r\nand</p>", ["船は 正午に ABC and"]),
        ('<img alt="船は\n正午">', ["船は正午"]),
        ("<p>한국어\n문장</p>", ["한국어 문장"]),
    ],
)
def test_wrapped_chinese_and_japanese_are_joined_without_a_space(page, segments, read, fill):
    assert [one.text for one in read("a.html", page).segments] == segments


def test_the_base_of_a_ruby_keeps_its_reading(read, fill):
    page = "<p>渡し船は<ruby>港<rp>(</rp><rt>みなと</rt><rp>)</rp></ruby>を出ます。</p>"
    document = read("a.html", page)
    assert [one.text for one in document.segments] == ["渡し船は<g1>港</g1>を出ます。"]
    kept = "<p>Leaves the <ruby>port<rp>(</rp><rt>みなと</rt><rp>)</rp></ruby>.</p>"
    assert fill(document, lambda text: "Leaves the <g1>port</g1>.") == kept
    several = read(
        "a.html", "<p>船は<ruby>東<rt>とう</rt>京<rt>きょう</rt></ruby>へ</p><p><ruby>港<rt>みなと</ruby>が</p>"
    )
    assert [one.text for one in several.segments] == ["船は<x1/>へ", "<x1/>が"]
    assert [one.text for one in read("a.html", '<p>a <ruby translate="no">港<rt>み</rt></ruby></p>').segments] == [
        "a <x1/>"
    ]


XHTML = """{}<html{}><head><title>one</title><script src="a.js"/></head>
<body><p><a id="p1"/>two</p><div/>three<p title="four"/><svg/><br/>five <b/>six</body></html>"""


def test_empty_elements_of_xhtml_are_empty(read, fill):
    xml, of_xml = '<?xml version="1.0"?>\n', ' xmlns="http://www.w3.org/1999/xhtml"'
    for page in (XHTML.format(xml, ""), XHTML.format("<!DOCTYPE html>\n", of_xml), XHTML.format(xml, of_xml)):
        document = read("a.html", page)
        assert [one.text for one in document.segments] == ["one", "two", "three", "four", "<x1/><x2/>five <x3/>six"]
        assert fill(document, {"two": "TWO", "three": "THREE"}) == page.replace("two", "TWO").replace("three", "THREE")
    assert [one.text for one in read("a.html", XHTML.format("", "")).segments] == ["one"]
