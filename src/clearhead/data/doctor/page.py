"""HTML page of an examination: one self-contained file without scripts."""

from __future__ import annotations

from collections.abc import Sequence

from clearhead.data.doctor.examination import Examination
from clearhead.data.doctor.findings import Finding
from clearhead.data.doctor.lengths import Lengths, histogram, histogram_step
from clearhead.data.doctor.text_report import percent, row_counts
from clearhead.pages import Html, fill, joined, style

_PARTS = "data_doctor_parts.html"


def render_page(examination: Examination, files: Sequence[str], *, title: str) -> str:
    """Return the HTML page.

    Args:
        examination: The examination to show.
        files: Descriptions of the files read, one line each.
        title: Name of the corpus.
    """
    found, pairs = examination.found(), examination.rows.pairs
    clean = examination.without_findings
    summary = (
        f"{pairs:,} pairs; {clean:,} of them have no finding." if found else f"{pairs:,} pairs. Nothing was found."
    )
    return fill(
        "data_doctor.html",
        title=title,
        style=style(),
        summary=summary,
        contents=_contents(found, pairs) if found else Html(),
        findings=joined(_finding(one, pairs) for one in found) if found else _paragraph("None."),
        quiet=_quiet(examination),
        rows=joined(
            _row(count, words + (f" ({name})" if name else ""), examples)
            for name, rows in {"": examination.rows, **examination.held_out}.items()
            for count, words, examples in row_counts(rows)
        ),
        files=joined(fill(f"{_PARTS}#item", text=line) for line in files),
        lengths=_lengths(examination) if pairs else _paragraph("There is no pair."),
    )


def _contents(found: Sequence[Finding], pairs: int) -> Html:
    rows = joined(fill(f"{_PARTS}#contents_row", **_numbers(one, pairs)) for one in found)
    return fill(f"{_PARTS}#contents", rows=rows)


def _finding(finding: Finding, pairs: int) -> Html:
    kind = finding.kind
    examples = joined(
        fill(f"{_PARTS}#example", origin=one.origin, source=one.source, target=one.target, detail=one.detail)
        for one in finding.examples
    )
    return fill(
        f"{_PARTS}#finding",
        **_numbers(finding, pairs),
        meaning=kind.meaning,
        why=kind.why,
        remedy=kind.remedy,
        examples=examples,
    )


def _numbers(finding: Finding, pairs: int) -> dict[str, str]:
    share = finding.share(pairs)
    return {
        "name": finding.name,
        "title": finding.kind.title,
        "severity": finding.kind.severity,
        "count": f"{finding.count:,}",
        "share": "" if share is None else percent(share),
    }


def _quiet(examination: Examination) -> Html:
    """Return the kinds without findings, and those not checked."""
    quiet = [one for one in examination.findings.values() if not one.count]
    lines = [f"Not looked for: {one.kind.title}, for {one.unchecked}." for one in quiet if one.unchecked is not None]
    if titles := [one.kind.title for one in quiet if one.unchecked is None]:
        lines.insert(0, f"Nothing found of: {'; '.join(titles)}.")
    return joined(map(_paragraph, lines))


def _row(count: int, words: str, examples: Sequence[str]) -> Html:
    items = joined(fill(f"{_PARTS}#item", text=example) for example in examples)
    return fill(
        f"{_PARTS}#row",
        count=f"{count:,}",
        words=words,
        examples=fill(f"{_PARTS}#list", items=items) if examples else Html(),
    )


def _lengths(examination: Examination) -> Html:
    sides = {"source": examination.source, "target": examination.target}
    tables = []
    for unit in ("characters", "words"):
        both: list[Lengths] = [getattr(side, unit) for side in sides.values()]
        step = histogram_step(*both)
        tables += [_histogram(f"{name}, in {unit}", unit, one, step) for name, one in zip(sides, both, strict=True)]
    return fill(f"{_PARTS}#columns", content=joined(tables))


def _histogram(caption: str, unit: str, lengths: Lengths, step: int) -> Html:
    bars = histogram(lengths, step)
    most, total = max(count for *_, count in bars), lengths.counts.total()
    rows = joined(
        fill(
            f"{_PARTS}#bar",
            label=_label(first, last),
            count=f"{count:,}",
            share=percent(count / total),
            width=f"{max(100 * count / most, 0.5) if count else 0:.1f}",  # bars above zero are visible
        )
        for first, last, count in bars
    )
    quantiles = "; ".join(f"{name} {value:,}" for name, value in lengths.to_dict().items())
    return fill(f"{_PARTS}#histogram", caption=caption.capitalize(), unit=unit, bars=rows, quantiles=quantiles)


def _label(first: int, last: int | None) -> str:
    if last is None:
        return f"{first:,} and more"
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _paragraph(text: str) -> Html:
    return fill(f"{_PARTS}#paragraph", text=text)
