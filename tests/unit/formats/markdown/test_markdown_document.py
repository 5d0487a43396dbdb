"""Markdown: its prose is found and comes back as Markdown that says the translation; nothing else changes."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.common.utils import normalizeReference
from steps import assert_linear
from written_files import damaged

from clearhead.formats.document import Filling
from clearhead.formats.file_text import FileText
from clearhead.formats.markdown.document import LONGEST_BLOCK, MarkdownDocument, read_markdown
from clearhead.formats.markdown.inline import scanned
from every_run import one_in, slow

ROOT = Path(__file__).parents[4]


def texts(document):
    return [segment.text for segment in document.segments]


@pytest.mark.parametrize(
    ("page", "segments", "filled"),
    [
        ("# one ##\n\ntwo", ["one", "two"], "# ONE ##\n\nTWO"),
        ("one\ntwo\n===\n", ["one two"], "ONE TWO\n===\n"),
        ("> a\n> b\nc\n", ["a b c"], "> A B C\n"),
        ("- a\n  b\n- c\n\n  d\n", ["a b", "c", "d"], "- A B\n- C\n\n  D\n"),
        ("1. > a\n   > b\n", ["a b"], "1. > A B\n"),
        ("- [ ] task\n- [x] done\n", ["task", "done"], "- [ ] TASK\n- [x] DONE\n"),
        ("a  \n  b\\\nc\n", ["a<x1/>b<x2/>c"], "A  \n  B\\\nC\n"),
        ("> a\\\n> b\n", ["a<x1/>b"], "> A\\\n> B\n"),
        ("*a* **b** ***c*** ~~d~~", None, "*A* **B** ***C*** ~~D~~"),
        ("_a_ s_n_k __b__", ["<g1>a</g1> s_n_k <g2>b</g2>"], "_A_ S_N_K __B__"),
        ("a `f(*x*)` b", ["a <x1/> b"], "A `f(*x*)` B"),
        ("``a ` b`` c", ["<x1/> c"], "``a ` b`` C"),
        ('[a *b*](u "t") c', ["<g1>a <g2>b</g2></g1> c"], '[A *B*](u "t") C'),
        ("[a](u)", ["a"], "[A](u)"),
        ("[a][r] [r] [x]\n\n[r]: /u\n", ["<g1>a</g1> <g2>r</g2> [x]"], "[A][r] [R][r] [X]\n\n[r]: /u\n"),
        (
            "- [a b]\n- [a b][]\n- x\n\n[A B]: u\n",
            ["<g1>a b</g1>"] * 2 + ["x"],
            "- [A B][a b]\n- [A B][a b]\n- X\n\n[A B]: u\n",
        ),
        ("> [a\n> b] c\n\n[a b]: u\n", None, "> [A B][a b] C\n\n[a b]: u\n"),
        ("![an a][] ![b] ![c][b]\n\n[an a]: u\n[b]: v\n", ["c"], "![an a][] ![b] ![C][b]\n\n[an a]: u\n[b]: v\n"),
        ("see ![an image](u.png) now", ["see <x1/> now", "an image"], "SEE ![AN IMAGE](u.png) NOW"),
        ("![alone](u)", ["alone"], "![ALONE](u)"),
        ("<b>a</b> <!-- x --> <br> <code>y</code> z", None, "<b>A</b> <!-- x --> <br> <code>y</code> Z"),
        ("a <http://x.org/y> https://x.org/y_z. b", ["a <x1/> <x2/>. b"], None),
        ("a \\* b &amp; c &copy; &nbsp;d", ["a * b & c © \xa0d"], "A \\* B & C &copy; &nbsp;D"),
        ("a&nbsp;b `c\u00a0d` e", ["a\xa0b <x1/> e"], "A&nbsp;B `c\u00a0d` E"),
        ("note[^1]\n\n[^1]: the note\n", ["note<x1/>", "the note"], "NOTE[^1]\n\n[^1]: THE NOTE\n"),
        ("[^1]: a b\n  c\n[^2]: d e\n", ["a b c", "d e"], "[^1]: A B C\n[^2]: D E\n"),
        ("a\n: b\n  c\n: d\n", ["a", "b c", "d"], "A\n: B C\n: D\n"),
        ("a\n: <!-- b --> c\n  d\n", ["a", "c d"], "A\n: <!-- b --> C D\n"),
        ("船は正午に\n出発\nABC\nand\n", ["船は正午に出発 ABC and"], "船は正午に出発 ABC AND\n"),
        ("> **船は**\n> [正午](u)に\n> `x`\n> 出発\n", ["<g1>船は</g1><g2>正午</g2>に <x3/> 出発"], None),
        (
            "船は<ruby class='x'>港<rp>(</rp><rt>みなと</rt><rp>)</rp></ruby>へ <ruby>東<rt>と</rt>京</ruby>",
            ["船は<g1>港</g1>へ <x2/>"],
            None,
        ),
        ("# a {#b .c}\n\nd\ne\n{: .f}\n", ["a", "d e"], "# A {#b .c}\n\nD E\n{: .f}\n"),
        ("{% if x %}\na\n  {% endif %}\n", ["a"], "{% if x %}\nA\n  {% endif %}\n"),
        ("> [!NOTE]\n> a\n", ["a"], "> [!NOTE]\n> A\n"),
        ("| a | b |\n|---|---|\n| c \\| d | `x` |\n", ["a", "b", "c | d"], "| A | B |\n|---|---|\n| C \\| D | `x` |\n"),
        ("a | b\n--|--\nb | a\n", ["a", "b", "b", "a"], "A | B\n--|--\nB | A\n"),
        ("---\ntitle: x\n---\na\n", ["a"], "---\ntitle: x\n---\nA\n"),
        ("+++\nt = 1\n+++\n\na", ["a"], "+++\nt = 1\n+++\n\nA"),
        ("```\ncode\n```\n    code\n\na", ["a"], None),
        ("a {{ name }} {% if x %} b", ["a <x1/> <x2/> b"], None),
        ("$$\nx\n$$\n\n--8<-- 'file.md'\n\n[[_TOC_]]\n\n[TOC]\n", [], None),
        (
            "import T from '@a/T';\nimport 'b.css'\n\nexport const c = 1\n\nimport goods from 'b' now",
            ["import goods from 'b' now"],
            "import T from '@a/T';\nimport 'b.css'\n\nexport const c = 1\n\nIMPORT GOODS FROM 'B' NOW",
        ),
        ("say \\<g1> now", ["say <x1/> now"], "SAY \\<G1> NOW".replace("G1", "g1")),
        ("a [[b|c]] ![[d.png]] \\(x+y\\) [@e, p. 3]", ["a <x1/> <x2/> <x3/> <x4/>"], None),
        ("{doc}`install` and {ref}`the label <lab>` b", ["<x1/> and <x2/> b"], None),
        ("a {/* b */} c\n\n{/* d\ne */}\n", ["a <x1/> c"], "A {/* b */} C\n\n{/* d\ne */}\n"),
        ("![a](b.png){ width=300 } c", ["<x1/><x2/> c", "a"], "![A](b.png){ width=300 } C"),
        ("export default function A() {\n  return b;\n}\n\nexport async function c() {}\n", [], None),
        ("[x]: /url 'title'\n", [], None),
        ("12 - 3\n\n---\n", [], None),
        ("", [], ""),
    ],
)
def test_segments_of_markdown_pages_and_pages_filled_with_translations(page, segments, filled, read_text, translated):
    document = read_text(read_markdown, page)
    if segments is not None:
        assert texts(document) == segments
    if filled is not None:
        assert translated(document).decode() == filled


CONTAINERS = [
    (":::tip\na\nb\n:::\n\nc\n", ["a b", "c"]),
    (":::note[A *b*]\nc\n:::\n", ["A <g1>b</g1>", "c"]),
    (":::note[a]{.x}\n\nb\n\n:::\n", ["a", "b"]),
    ("::: warning Take care\na\n:::\n", ["Take care", "a"]),
    ("::: warning Note: a = b\nc\n:::\n", ["Note: a = b", "c"]),
    ("::: details Click me {open}\na\n:::\n", ["Click me", "a"]),
    ("::: {.callout-note title='x'}\na\n:::\n", ["a"]),
    (":::{admonition} Our title\n:class: tip\na\n:::\n", ["Our title", "a"]),
    (":::{figure} boat.png\n:width: 5\n\na\n:::\n", ["a"]),
    (":::image type='content' source='a.png':::\n\na\n", ["a"]),
    ("::: mermaid\ngraph TD\n\nA-->B\n:::\na\n", ["a"]),
    (":::{math}\nx + why\n:::\na\n", ["a"]),
    ("- a\n\n  :::tip\n  b\n  :::\n", ["a", "b"]),
    ("a\n:::tip\nb\n:::\nc\n", ["a", "b", "c"]),
    ("> :::tip\n> a\n> :::\n", ["a"]),
    ("!!! note\n    a\n\n    b\n\n        code\n\nc\n", ["a", "b", "c"]),
    ('!!! note "Our: title"\n\n    a\n    b\n', ["Our: title", "a b"]),
    ('??? "Read more"\n    a\n', ["Read more", "a"]),
    ('???+ tip inline end "Read more"\n    a\n', ["Read more", "a"]),
    ('!!! note\n    a\n\n    !!! tip "b"\n        c\n\n    d\n\ne\n', ["a", "b", "c", "d", "e"]),
    ('=== "Linux"\n\n    a\n\n    - b\n\n=== "Windows"\n\n    c\n', ["Linux", "a", "b", "Windows", "c"]),
    ("a\n!!! note\n    b\n", ["a", "b"]),
    ("/// note | Some title\na\n///\n", ["Some title", "a"]),
    ("!!! Look here, please\n", ["!!! Look here, please"]),
    ('<Card title="Our boats">\n  a **b**\n</Card>\n', ["a <g1>b</g1>"]),
    (
        "<Tabs>\n    <Tab\n      label={`a > b`}\n    >\n\n        a\n\n        b\n\n    </Tab>\n</Tabs>\nc\n",
        ["a", "b", "c"],
    ),
    ("<Card {...props} icon={{ a: { b: 1 } }} />\n\na <B c={1 > 2} /> d\n", ["a <x1/> d"]),
    ("<Steps>\n\n1. a\n\n   b\n\n</Steps>\n", ["a", "b"]),
    ('<div style={{ width: "5px" }}>\na\n</div>\n', ["a"]),
    ("<Card>\na\n", ["a"]),
    ("```\n<Card>\n:::tip\n!!! note\n```\n\n    code\n", []),
    ("<details>\n<summary>a</summary>\nb\n</details>\n", ["a", "b"]),
    ('<p align="center">a <b>b</b></p>\n<img alt="c" src="d">\n', ["a <g1>b</g1>", "c"]),
    ("- a\n\n  <div>\n  b\n  </div>\n", ["a", "b"]),
    ("<!-- a -->\n\n<pre>\na\n\nb\n</pre>\n\n<script>\na\n</script>\n", []),
]


@pytest.mark.parametrize(("page", "segments"), CONTAINERS)
def test_text_in_containers_of_documentation_sites_is_translated(page, segments, read_text, translated, in_capitals):
    document = read_text(read_markdown, page)
    assert texts(document) == segments
    assert document.remarks == []
    assert texts(read_text(read_markdown, translated(document))) == [in_capitals(text) for text in segments]


@pytest.mark.parametrize(
    ("page", "lines"),
    [
        ("<details>\n<summary>a</summary>\nb **c**\n</details>\n", "3"),
        ("> <p>a</p>\n\n> <p>b\n> c</p>\n", "1, 3"),
        ("<div a={() => b}>c</div>\n", "1"),
        (":::note a {b} c\nd\n:::\n\n:::row:::\n", "1"),
        ("a\n$$\nx\n$$\n\n$$\ny\n$$\n", "1"),
        ("a\n: b\n\n        c\n\nd\n\n        code\n", "4"),
        ("```{note}\na\n```\n\n```{math}\na\n```\n", "1"),
        ("a\n\n" + "b" * (LONGEST_BLOCK + 1), "3"),
    ],
)
def test_paragraphs_that_are_left_are_counted(page, lines, read_text):
    count = lines.count(",") + 1
    assert read_text(read_markdown, page).remarks == [
        f"{count} paragraphs are left as they are, for their markup is not read: lines {lines}"
    ]


@pytest.mark.parametrize(
    ("page", "translation", "filled"),
    [
        ("Use \\{name\\} or &#123;x&#125; here\n", "Hier {name}, {x}", "Hier \\{name\\}, \\{x\\}\n"),
        ("a 5 \\< 6 &lt;b&gt; c\n", "5 < 6 <b> d", "5 \\< 6 \\<b\\> d\n"),
        ("costs \\$5 \\(five\\) \\: end\n", "für $5 (fünf): Ende", "für \\$5 \\(fünf\\)\\: Ende\n"),
        ("See \\_config.yml and s_n\n", "Siehe _config.yml, s_n", "Siehe \\_config.yml, s\\_n\n"),
        ("1\\. a\n", "2. b.", "2\\. b.\n"),
        ("a \\* b *c \\! d*\n", "* e! <g1>f!</g1>", "\\* e\\! *f\\!*\n"),
        ("| a \\| b \\< c |\n|--|\n", "d | e < f", "| d \\| e \\< f |\n|--|\n"),
        ("![a \\< b](u)\n", "c < d", "![c \\< d](u)\n"),
        ("&copy; &amp; &quot;a&quot;\n", '© & "b"', '&copy; & "b"\n'),
        ("a \\< b\n\nc < d\n", None, "A \\< B\n\nC < D\n"),
    ],
)
def test_marks_that_the_source_escapes_are_escaped_in_the_translation(page, translation, filled, read_text, translated):
    document = read_text(read_markdown, page)
    if translation is None:
        assert translated(document).decode() == filled
    else:
        assert document.filled([Filling(translation), *(None for _ in document.segments[1:])]).decode() == filled


@pytest.mark.parametrize(
    ("page", "translation", "filled"),
    [
        (":::note[a]\nb\n:::\n", "c [d]", ":::note[c [d]]\nb\n:::\n"),
        ("::: note a\nb\n:::\n", "c {d} e=f", None),
        ('!!! note "a"\n    b\n', 'c "d: e', '!!! note "c "d: e"\n    b\n'),
    ],
)
def test_titles_are_written_only_if_they_are_read_as_titles(page, translation, filled, read_text):
    document = read_text(read_markdown, page)
    assert (document.problem(0, translation) == "") == (filled is not None)
    assert document.filled([Filling(translation), None]).decode() == (page if filled is None else filled)


@pytest.mark.parametrize(
    ("page", "translation", "filled"),
    [
        ("a\n", "# b", "\\# b\n"),
        ("a\n", "#b", "#b\n"),
        ("a\n", "1. b", "1\\. b\n"),
        ("a\n", "1.5 b", "1.5 b\n"),
        ("a\n", "- b", "\\- b\n"),
        ("a\n", "> b", "\\> b\n"),
        ("a\n", "* b", "\\* b\n"),
        ("a\n", "*b*", "\\*b*\n"),
        ("a\n", "2 * 3 < 4 & s_n, [sic]", "2 * 3 < 4 & s_n, [sic]\n"),
        ("a\n", "b `c` d_e", "b \\`c\\` d_e\n"),
        ("a\n", "<b>", "\\<b>\n"),
        ("a\n", "&copy;", "\\&copy;\n"),
        ("a\n", "[b](c)", "\\[b\\](c)\n"),
        ("a\n", "b \n\n c", "b c\n"),
        ("a\n", "    b", "b\n"),
        ("a\n", "===", "===\n"),
        ("a\n", "b\\*", "b\\\\\\*\n"),
        ("a\n", "https://b_c.d/*e*", "https://b_c.d/\\*e\\*\n"),
        ("# a\n", "C #", "# C \\#\n"),
        ("# a\n", "# b", "# # b\n"),
        ("a\n===\n", "- b", "\\- b\n===\n"),
        ("| a |\n|--|\n", "b | c", "| b \\| c |\n|--|\n"),
        ("![a](u)\n", "b [c](d)", "![b \\[c\\](d)](u)\n"),
        ("*a* b\n", "<g1> c </g1> d", "*c* d\n"),
        ("a _b_ c\n", "d<g1>e</g1>f", "d*e*f\n"),
        ("a **b** c\n", "<g1>「d」</g1>e", "<strong>「d」</strong>e\n"),
        ("a **b** c\n", "d", "**d**\n"),
        ("a  \nb\n", "c <x1/>", "c <br>\n"),
        ("a  \nb\n", "c<x1/># d", "c  \n\\# d\n"),
        ("> a  \n> b\n", "c<x1/>- d", "> c  \n> \\- d\n"),
        ("[a][]\n\n[a]: u\n", "<g1>[b]</g1>", "[[b]][a]\n\n[a]: u\n"),
        ("[a][]\n\n[a]: u\n", "b <g1>a</g1>", "b [a][]\n\n[a]: u\n"),
        ("[a*]\n\n[a*]: u\n", "b", "[b][a*]\n\n[a*]: u\n"),
        ("b\n\n[a]: u\n", "[a]", "\\[a\\]\n\n[a]: u\n"),
    ],
)
def test_markdown_syntax_in_translations_is_escaped(page, translation, filled, read_text):
    document = read_text(read_markdown, page)
    fillings = [Filling(translation), *(None for _ in document.segments[1:])]
    assert document.filled(fillings).decode() == filled


WORDS = [
    *"#*_`~[]()<>&|!\\-+=.:1a ",
    "1. ",
    "- ",
    "**",
    "```",
    "&amp;",
    "<b>",
    "</i>",
    "http://x",
    "[a]",
    "](u)",
    "\u00a0",
    "「",
    "é",
]
FRAMES = ["{}\n", "# {}\n", "> - {}\n", "{}\n---\n", "| {} | b |\n|--|--|\n", "![{}](u)\n", "1. {}\n   b\n"]


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(FRAMES), st.lists(st.sampled_from(WORDS)).map("".join))
def test_any_translation_is_read_back_as_it_is(frame, translation):
    page = frame.format("word") + "\n[a]: u\n"
    document = MarkdownDocument(FileText.of(page.encode(), "page.md"))
    wanted = re.sub("[ \t]+", " ", f"x{translation}y")
    again = MarkdownDocument(
        FileText.of(document.filled([Filling(wanted), *(None for _ in document.segments[1:])]), "p")
    )
    assert len(again.segments) == len(document.segments)
    # Addresses are read as one piece, whatever they were before.
    elements = "".join("\0" if part.startswith("<x") else part for part in re.split(r"(<x\d+/>)", texts(again)[0]))
    pattern = re.escape(elements).replace("\0", r"https?://\S*?")
    assert re.fullmatch(f"{pattern}( b)?", wanted + (" b" if "   b" in frame else ""))


MARKDOWN_IT = MarkdownIt("commonmark")


def their_events(text):
    """Return what markdown-it reads: words, and the forms of what else there is."""
    tokens = MARKDOWN_IT.parseInline(text, {"references": {"A": {"href": "/u", "title": ""}}})[0].children
    forms = {"hardbreak": "alone", "code_inline": "alone", "image": "alone", "html_inline": "html"}
    for token in tokens:
        if token.type.endswith(("_open", "_close")):
            yield token.type.rpartition("_")[2], ""
        elif token.type in forms:
            yield forms[token.type], ""
        else:
            yield "words", " " if token.type == "softbreak" else token.content


def our_events(text):
    for event in scanned(text, lambda label: normalizeReference(label) == "A").events:
        markup = text[event.start : event.end]
        if event.form == "words":
            yield "words", event.words
        elif markup.startswith("<http"):
            yield from [("open", ""), ("words", markup[1:-1]), ("close", "")]
        else:
            yield "html" if markup.startswith("<") else event.form, ""


def joined(events):
    done = []
    for form, words in events:
        if form == "words" and done and done[-1][0] == "words":
            done[-1] = ("words", done[-1][1] + words)
        elif form != "words" or words:
            done.append((form, words))
    return done


INLINE = [
    "*",
    "**",
    "***",
    "_",
    "__",
    "`",
    "``",
    "[",
    "]",
    "(",
    ")",
    "![",
    "](/u)",
    "[a]",
    "[A][]",
    '](</u> "t")',
    "a",
    "b ",
    " ",
]
INLINE += [
    "\n",
    "  \n",
    "\\\n",
    "\\*",
    "&amp;",
    "&x;",
    "<b>",
    "</b>",
    "<br/>",
    "<!-- c -->",
    "<http://x>",
    "!",
    ".",
    '"',
    "<",
    "—",
    "é",
]


@settings(max_examples=1000, deadline=None)
@given(st.lists(st.sampled_from(INLINE), max_size=14).map("".join))
def test_inline_markup_is_read_as_markdown_it_reads_it(text):
    text = "\n".join(line.lstrip(" ") for line in text.split("\n")).strip()
    # It takes a label before a parenthesis that ends the text, and all within brackets that are none, for no link.
    text = text.replace("](", "](/u)") if text.endswith("](") else text
    if re.search(r"\](?:\((?!/u\)|</u> \"t\"\))|\[)", re.sub(r"\[A\]\[\]", "", text)):
        return
    assert joined(our_events(text)) == joined(their_events(text))


def test_an_escaped_statement_of_a_template_does_not_become_one(read_text):
    document = read_text(read_markdown, rb"Write \{% endif %} at the end." + b"\n")
    filled = document.filled([Filling("At the end {% endif %}.")])
    assert filled.startswith(rb"At the end \{% endif %")
    assert texts(read_text(read_markdown, filled)) == ["At the end {% endif %}."]


def test_a_tag_of_html_without_another_half_stays_in_its_sentence(read_text, translated):
    document = read_text(read_markdown, b"Rows of <pad> are <b>not</b> read.</i>\n")
    assert document.problem(0, "ROWS OF <x1/> ARE <g2>NOT</g2> READ.<x3/>") == ""
    assert translated(document) == b"ROWS OF <pad> ARE <b>NOT</b> READ.</i>\n"


@pytest.mark.parametrize(
    "path", one_in(4, sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])), ids=lambda path: path.name
)
def test_our_own_pages_keep_their_form(path, read_text, translated, in_capitals):
    document = read_text(read_markdown, path.read_bytes())
    assert len(document.segments) > 3
    again = read_text(read_markdown, translated(document))
    assert texts(again) == [in_capitals(text) for text in texts(document)]

    def outline(text):
        parser = MarkdownIt("commonmark").enable("table")
        for token in parser.parse(text):
            kept = token.content if token.type in ("fence", "code_block") else ""
            yield token.type, token.info, re.findall(r"<[^>]*>", token.content) if token.type == "html_block" else kept
            for child in token.children or ():
                if child.type not in ("text", "softbreak"):
                    href = child.attrs.get("href") or child.attrs.get("src")
                    yield child.type, href, child.content if child.type != "image" else ""

    before, after = path.read_text(encoding="utf-8"), translated(document).decode()
    assert list(outline(after)) == list(outline(before))


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_marks_and_line_ends_are_kept(mark, end, read_text, translated):
    document = read_text(read_markdown, mark + f"# a{end or chr(10)}> b\\{end or chr(10)}> c{end}".encode())
    assert translated(document) == mark + f"# A{end or chr(10)}> B\\{end or chr(10)}> C{end}".encode()


PIECES = [
    *WORDS,
    ":::a\n",
    '!!! a "b"\n',
    "<A>\n",
    "</A>\n",
    "<p>",
    "\n",
    "\n\n",
    "> ",
    "    ",
    "\t",
    "\r\n",
    "|--|",
    "===\n",
    "---\n",
    "[^1]",
    "  \n",
    "{{",
    "[a]: u\n",
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_any_markdown_round_trips_and_is_filled(page):
    document = MarkdownDocument(FileText.of(page.encode(), "page.md"))
    assert document.filled([None] * len(document.segments)) == page.encode()
    document.filled([Filling(segment.text.upper()) for segment in document.segments])


def test_damaged_pages_never_end_in_a_traceback(survives_damage):
    page = (ROOT / "README.md").read_bytes()[:3000]
    survives_damage(read_markdown, damaged(page, b"<>[]()*_`|#-\\\n\t \x00\xff!&~1a"))


@pytest.mark.parametrize(
    "piece",
    [
        "[",
        "*a ",
        "<a ",
        "`a",
        "[a](",
        "![a",
        "<!--a",
        "> a",
        "- a",
        "_a",
        "a\\\n",
        "[a]: <",
        "<A b={",
        "<A>\n",
        "{/*",
        "\\(",
        "[[",
        "!!! a\n    ",
    ],
)
@pytest.mark.parametrize("times", [900, slow(3_000)])
def test_long_nonsense_is_read_in_one_pass(piece, times, read_text, translated):
    translated(read_text(read_markdown, piece * times + "x"))


def test_blocks_longer_than_longest_block_are_not_translated(read_text):
    assert texts(read_text(read_markdown, "a" * LONGEST_BLOCK + "\n\nb")) == ["a" * LONGEST_BLOCK, "b"]
    assert texts(read_text(read_markdown, "a" * (LONGEST_BLOCK + 1) + "\n\nb")) == ["b"]


def test_lost_links_follow_the_translation_without_nesting(read, fill):
    document = read("a.md", "See [Monday](b/1) and [May](b/2).\n")
    assert fill(document, lambda text: "Sieh nach.") == "Sieh nach. [Monday](b/1) [May](b/2)\n"
    assert fill(document, lambda text: "<g1>Sieh <g2>nach</g2></g1>.") == "[Sieh nach](b/1). [May](b/2)\n"


def test_statements_of_templates_that_belong_together_are_a_pair(read, fill):
    document = read("a.md", 'A {% if x %}b{% else %}c{% endif %} {{% note %}}d{{% /note %}} {{< ref "e" >}} f\n')
    assert [one.text for one in document.segments] == ["A <g1>b<x2/>c</g1> <g3>d</g3> <x4/> f"]
    assert fill(document, lambda text: "</g1>A <x2/><g1>b</g1> <x4/> f </g3>d") == (
        '{{% note %}}A {% else %}{% if x %}b{% endif %} {{< ref "e" >}} f{{% /note %}} d\n'
    )


IDS = """# Boats {#boats}

[a](#boats) [b](#red-boats) <a href="#the-code-x">c</a> [d](#red-boats-1) [e][f] [g](#oars) [h](other.md#oars)

[f]: #öl

## Red boats

The `code x`
---

## *Red* boats #

### Öl

### Other

<a name="oars"></a>

### Oars
"""


def test_linked_headings_keep_their_ids_where_the_page_writes_ids(read, fill):
    document = read("a.md", IDS)
    assert document.remarks == []
    written = fill(document, {"Red boats": "Boote", "The <x1/>": "Der <x1/>", "<g1>Red</g1> boats": "<g1>Rot</g1>"})
    assert written == (
        IDS.replace("## Red boats", "## Boote {#red-boats}")
        .replace("The `code x`", "Der `code x` {#the-code-x}")
        .replace("*Red* boats #", "*Rot* {#red-boats-1} #")
    )
    assert [one.text for one in read("a.md", written).segments][2:5] == ["Boote", "Der <x1/>", "Rot"]


def test_headings_linked_by_id_are_remarked(read, fill):
    document = read("a.md", IDS.replace(" {#boats}", ""))
    assert document.remarks == [
        "5 headings that links of the page name get other ids with their translation, unless their ids are written, "
        "such as # Words {#id}: #boats, #red-boats, #red-boats-1, #the-code-x, #öl"
    ]
    assert "{#" not in fill(document, str.upper)
    assert read("a.md", "[a](#x)\n\n# Y\n").remarks == []


@pytest.mark.parametrize("line", ["<Card>\n", "</Card>\n", "<Card>\n</Card>\n"])
def test_tags_on_lines_of_their_own_take_work_proportional_to_their_number(line):
    assert_linear(lambda number: MarkdownDocument(FileText.of(line.encode() * number, "a.md")), 50)


def test_ids_without_an_end_cost_no_time():
    start = time.process_time()
    page = "[a](#b)\n\n# a {#" + "a" * 200_000
    MarkdownDocument(FileText.of(page.encode(), "a.md"))
    assert time.process_time() - start < 10  # two minutes if each letter of an id is tried as its end
