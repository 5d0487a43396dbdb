"""The report page: worst first, everything counted, bounded, and safe whatever is in the texts."""

from __future__ import annotations

import re
from dataclasses import replace

from well_formed import Page

from clearhead.text.quality_flags import KINDS, Flag
from clearhead.translation.report import MOST_CHARACTERS, MOST_SHOWN, TranslationReport, reporting
from clearhead.translation.result import MemoryMatch, TermUse, Translation

EVIL = "<script>alert(1)</script> & \"quoted\" 'single' $name ${x}"


def made(source, text="x", *, score=-1.0, kinds=(), detail="", **cut):
    flags = tuple(Flag(kind, detail) for kind in kinds)
    return Translation(source, text, score, (), warnings=flags, **cut)


def page_of(*translations, title="a.txt", name="a.txt"):
    report = TranslationReport()
    report.add([(f"line {number}", one) for number, one in enumerate(translations, start=1)], name=name)
    report.add_file(f"{name}: {len(translations)} lines")
    return report.page(title)


def sources_of(page):
    return re.findall(r'<dt>Source</dt><dd dir="auto">(.*?)</dd>', page, re.DOTALL)


def test_segments_are_ordered_by_damage_then_score():
    page = page_of(
        made("sure", score=-0.1),
        made("unsure", score=-5.0),
        made("mild", kinds=["unusual_case"]),
        made("serious", kinds=["placeholders"]),
        made("serious and unsure", kinds=["placeholders"], score=-2.0),
        made("both", kinds=["placeholders", "numbers"], score=0.0),
        made("placed tags", kinds=["placed_markup"], score=-9.0),
        made("a number", kinds=["numbers"], score=-1.5),
        made("cut", output_truncated=True, source_truncated=True),
    )
    assert sources_of(page) == [
        "cut",
        "both",
        "serious and unsure",
        "a number",
        "serious",
        "placed tags",
        "mild",
        "unsure",
        "sure",
    ]


def test_every_kind_of_warning_has_its_meaning_and_detail_on_the_page():
    text = Page(page_of(*(made("a", kinds=[kind], detail=f"found {kind}") for kind in KINDS))).text
    for kind, (meaning, _) in KINDS.items():
        assert f"{meaning[:1].upper()}{meaning[1:]}: found {kind}" in text


def test_a_segment_has_its_place_and_its_measures():
    text = Page(page_of(made("a" * 20, "b" * 60, score=-0.5, kinds=["too_long"]), name="b.po")).text
    assert "b.po, line 1\n" in text
    assert "score per token -0.50, length ratio 2.00" in text


def test_a_reason_shows_its_segments_alone():
    page = page_of(made("a", kinds=["numbers", "copied"]), made("b", kinds=["copied"]), made("c"))
    assert re.findall(r'<article class="segment panel ([^"]*)"', page) == [
        "is-numbers is-copied",
        "is-copied",
        "is-unsure",
    ]
    for kind in ("copied", "numbers", "unsure"):
        assert f'id="only-{kind}"' in page
        assert f"main:has(#only-{kind}:checked) .segment:not(.is-{kind}) {{ display: none; }}" in page
    assert "only-too_long" not in page


def test_all_are_counted_and_the_worst_of_each_reason_shown():
    many = [made(f"n{number}", kinds=["numbers"], score=-number / 1000) for number in range(3 * MOST_SHOWN)]
    page = page_of(*many, made("c", kinds=["unseen_characters"]))
    assert sources_of(page) == [*(f"n{number}" for number in reversed(range(2 * MOST_SHOWN, 3 * MOST_SHOWN))), "c"]
    counts = re.findall(r'<td class="number">([\d,]+)</td><td class="number">([\d,]+)</td>', page)
    assert counts == [("301", "101"), ("300", "100"), ("1", "1")]


def test_missed_terms_are_a_reason_and_what_was_reused_is_none():
    exact = MemoryMatch("d", "D", 1.0, is_reused=True)
    page = page_of(
        made("a", terms=(TermUse("Hund", "hound", "hound"),)),
        made("b", terms=(TermUse("Hund", "hound", "", "length"), TermUse("Katze", "cat", "cats"))),
        made("e", terms=(TermUse("Maus", "mouse", "mice", "costly", "The rat."),)),
        replace(made("c", score=None, kinds=["numbers"]), memory=exact),
        replace(made("d", score=None), memory=exact),
        made("", "", score=0.0),
    )
    text = Page(page).text
    assert sources_of(page) == ["c", "b", "e", "a"]
    assert "A term is missing, or its sentence became improbable by it: Hund -> hound" in text
    assert "score per token none" in text
    assert "Maus -> mice at a price (without it: The rat.)" in text
    assert "6 translated; 3 of them look wrong." in text
    assert "Reused from a translation memory, and not shown: 1." in text


def test_long_texts_are_cut_and_say_so():
    page = page_of(made("a" * (MOST_CHARACTERS + 1_234), "b" * MOST_CHARACTERS, kinds=["numbers"], detail="7" * 10_000))
    assert sources_of(page)[0].endswith("</summary>" + "a" * MOST_CHARACTERS + " … and 1,234 more characters</details>")
    assert len(page) < 20_000


def test_document_tags_are_marked_and_explained():
    page = page_of(made("a <g1>b</g1>", "<x2/> & <b>", kinds=["numbers"]))
    assert '<dd dir="auto">a <code class="tag">&lt;g1&gt;</code>b<code class="tag">&lt;/g1&gt;</code></dd>' in page
    assert '<dd dir="auto"><code class="tag">&lt;x2/&gt;</code> &amp; &lt;b&gt;</dd>' in page
    assert "Small codes such as <g1>" in Page(page).text
    assert "Small codes" not in page_of(made("a", kinds=["numbers"]))


def test_texts_are_escaped_and_the_page_needs_nothing_else():
    text = page_of(made(EVIL, EVIL, kinds=["numbers"], detail=EVIL), title=EVIL, name=EVIL)
    page = Page(text)
    ids = page.values("id")
    assert "script" not in page.elements
    assert page.text.count(EVIL) == 7  # twice the title, the place, the reason, both texts, the file
    assert page.links == []
    assert len(ids) == len(set(ids))
    assert not re.search(r"url\(|@import|<link|javascript:", text)


def test_page_without_translations_says_so(tmp_path):
    with reporting(str(tmp_path / "page.html"), "a.txt"):
        pass
    assert "Nothing was translated." in Page((tmp_path / "page.html").read_text(encoding="utf-8")).text


def test_unflagged_segments_are_ordered_by_quality():
    page = page_of(
        made("surer by score", score=-0.1, quality=0.2),
        made("surer by quality", score=-9.0, quality=0.95),
        made("reused", score=None, kinds=["numbers"]),
    )
    assert sources_of(page) == ["reused", "surer by score", "surer by quality"]
    assert "quality 0.20, score per token -0.10" in Page(page).text
    assert (
        "Of use, most after edits (chrF 50 or more), as far as the model can tell: 1 of 2." in Page(page).text
    )  # 0.2 + 0.95
