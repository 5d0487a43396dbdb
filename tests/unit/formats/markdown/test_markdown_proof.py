"""What is written is read back: markdown-it finds the same structure around hostile translations."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from clearhead.formats.document import Filling
from clearhead.formats.inline_tags import tokens
from clearhead.formats.markdown.document import read_markdown
from every_run import one_in

PAGES = [
    "Oh\\![a link](u) and [another][b]!\n\n[b]: v\n",
    "See [r] or ![an image](i.png) [r][]\n\n[r]: /u\n",
    "\\![r]\n\n[r]: /u\n",
    "Text [](empty)\n\n[one](a)[two](b)![three](c)\n",
    "An *important*, **very** ***loud*** _word_ or__two__ a*b*c\n",
    "The `code` and ``a ` b`` run\\`s\n",
    "A  \nhard\\\nbreak\nand a soft one\n",
    "# One #\n\nTwo\n---\n\nThree\nfour\n===\n",
    '> quoted *words\n> go* on [to\n> here](u "t")\n',
    "- item\n- [ ] task\n\n  more\n\n1. first\n   second\n",
    "| one | *two* |\n|---|:-:|\n| `x` [a](b) | c \\| d |\n",
    'A <b>bold</b> <span title="x">word</span> <!-- note --> <http://x.org>\n',
    "Wide &nbsp; &copy; 3 < 4 > 2 & all \\* \\_ \\[ \\# ~ tilde\n",
    "[![badge](b.svg)](u) word ![other *one*](o)\n",
    "*[over*](u) [a [b](c) d](e) **x*\n",
    "[r]: /u\n[r] begins\n\n+ plus\n+ 2\\. two\n",
]
MARKS = ["!", "*", "_", "[", "]", "`", "<", "![", "**", "(", "\\", "&", "#", "~"]
PARSER = MarkdownIt("commonmark").enable("table")


def outline(page):
    """Yield what markdown-it reads, other than words; emphasis and breaks written in HTML count as such."""
    for token in PARSER.parse(page):
        yield token.type, token.tag
        for child in token.children or ():
            if child.type in ("text", "softbreak"):
                continue
            html = re.fullmatch(r"<(/?)(em|strong)>|<br>", child.content) if child.type == "html_inline" else None
            if html is not None:
                yield (f"{html[2]}_{'close' if html[1] else 'open'}", None) if html[2] else ("hardbreak", None)
            else:
                is_kept = child.type in ("code_inline", "html_inline")
                yield child.type, child.content if is_kept else child.attrs.get("href") or child.attrs.get("src")


def at_word_ends(text, mark):
    """Return a segment with a mark at the end of its words, and of each run of words between tags."""
    pieces = [
        token if not isinstance(token, str) else re.sub(r"(\S)(\s*)\Z", rf"\1{re.escape(mark)}\2", token)
        for token in tokens(text)
    ]
    return "".join(map(str, pieces))


@pytest.mark.parametrize("page", PAGES)
def test_markdown_filled_with_its_own_text_is_unchanged(page, read_text):
    document = read_text(read_markdown, page)
    assert document.filled([Filling(segment.text) for segment in document.segments]).decode() == page


@pytest.mark.parametrize("mark", MARKS)
@pytest.mark.parametrize("page", one_in(2, PAGES))
def test_marks_at_markup_change_no_structure(page, mark, read_text):
    document = read_text(read_markdown, page)
    translations = [
        [at_word_ends(segment.text, mark) for segment in document.segments],
        [f"{segment.text}{mark}" for segment in document.segments],
        [f"{mark}{segment.text}" for segment in document.segments],
    ]
    for texts in translations:
        assert not any(document.problem(number, text) for number, text in enumerate(texts))
        filled = document.filled(list(map(Filling, texts))).decode()
        assert list(outline(filled)) == list(outline(page)), filled


@pytest.mark.parametrize(
    ("page", "translation", "filled"),
    [
        ("Oh\\![a](u)\n", "Ah!<g1>b</g1>", "Ah\\![b](u)\n"),
        ("See [a](u) now\n", "Da!<g1>b</g1> nun", "Da\\![b](u) nun\n"),
        ("Note[^1] here\n\n[^1]: x y\n", "Da!<x1/> nun", "Da\\![^1] nun\n\n[^1]: x y\n"),
        ("a ![b](u) c\n", "d! <x1/> e", "d! ![b](u) e\n"),
        ("a\n---\n", "b|", "b&#124;\n---\n"),
        ("[a] b\n\n[a]: u\n", "<g1>a</g1>: c", "[a]\\: c\n\n[a]: u\n"),
        ("[a] b\n\n[a]: u\n", "<g1>a</g1>(c) d", "[a]\\(c) d\n\n[a]: u\n"),
        ("a\\\nb\n", "c\\<x1/>d", "c\\\\\\\nd\n"),
    ],
)
def test_marks_are_escaped_where_they_would_be_markup(page, translation, filled, read_text):
    document = read_text(read_markdown, page)
    fillings = [Filling(translation), *(None for _ in document.segments[1:])]
    assert document.filled(fillings).decode() == filled


def test_backticks_in_the_words_and_in_a_description_are_no_code(read_text):
    document = read_text(read_markdown, "see ![an image](u) now\n")
    filled = document.filled([Filling("x` <x1/> y"), Filling("a ` z")])
    assert filled.decode() == "x` ![a &#96; z](u) y\n"


def test_translation_inexpressible_in_markdown_is_a_problem_and_keeps_the_source(read_text):
    page = "A `b` or `c`\n\nh\n"
    document = read_text(read_markdown, page)
    wrong = ["A <x1/><x2/>", "i"]  # code next to code would be one code
    assert [bool(document.problem(number, text)) for number, text in enumerate(wrong)] == [True, False]
    assert document.filled(list(map(Filling, wrong))).decode() == page.replace("h", "i")


def test_a_text_of_tags_alone_that_its_source_lacks_has_no_words(read_text):
    document = read_text(read_markdown, "# h\n")
    assert document.problem(0, "<g1>") == ""
    assert document.filled([Filling("<g1>")]).decode() == "# \n"
