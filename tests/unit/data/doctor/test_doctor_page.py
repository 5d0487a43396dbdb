from __future__ import annotations

import re

from corpus_text import pairs_of, texts
from well_formed import Page

from clearhead.data.doctor import examine
from clearhead.data.doctor.page import render_page
from clearhead.data.doctor.text_report import report_lines

EVIL = "<script>alert(1)</script> & \"quoted\" 'single' $name ${x}"


def sick():
    rows = [texts(number) for number in range(300)]
    return examine(pairs_of([*rows, (rows[0][0] + EVIL, rows[0][1]), rows[5], ("", "x")], name=f"{EVIL}.tsv"))


def test_text_of_the_corpus_is_escaped():
    page = Page(render_page(sick(), [f"{EVIL}: tab-separated"], title=EVIL))
    assert "script" not in page.elements
    assert EVIL in page.text


def test_the_page_needs_nothing_else():
    text = render_page(sick(), ["f: tab-separated"], title="f")
    page = Page(text)
    ids = page.values("id")
    assert all(link.startswith("#") and link[1:] in ids for link in page.links)
    assert len(ids) == len(set(ids))
    assert not re.search(r"url\(|@import|<link|javascript:", text)
    assert "$" not in text.replace("$name", "").replace("${x}", "")


def test_the_page_shows_what_the_report_says():
    result = sick()
    page = Page(render_page(result, ["f: tab-separated"], title="f"))
    lines = "\n".join(report_lines(result))
    for finding in result.found():
        assert finding.kind.title in page.text
        assert f"{finding.kind.severity}: {finding.kind.title}, {finding.count:,}" in lines
        for example in finding.examples:
            assert example.origin in page.text
            assert example.origin in lines
    assert "Not looked for: In validation or test text as well" in page.text


def test_commands_in_the_advice_are_code():
    page = render_page(sick(), ["f: tab-separated"], title="f")
    assert "<code>train</code> keeps the first of them" in page
    assert "`" not in Page(page).text


def test_an_empty_corpus_has_a_page():
    page = Page(render_page(examine([]), ["f: empty"], title="f"))
    assert "Nothing was found" in page.text


def test_doctor_page_starts_with_the_summary_and_opens_the_first_finding():
    result = sick()
    text = render_page(result, ["f: tab-separated"], title="f")
    page = Page(text).text
    answer = f"{result.without_findings:,} of {result.rows.pairs:,} pairs have no finding."
    assert page.index("Data doctor: f") < page.index(answer) < page.index("Findings")
    folds = re.findall(r'<details class="finding fold" id="(\w+)"( open)?>', text)
    assert [(finding.name, " open" if not number else "") for number, finding in enumerate(result.found())] == folds
