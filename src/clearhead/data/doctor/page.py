"""HTML page of an examination: one self-contained file without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from clearhead.data.doctor.batch_examination import Lengths
from clearhead.data.doctor.examination import Examination, histogram, histogram_step
from clearhead.data.doctor.findings import Finding
from clearhead.data.doctor.text_report import percent, quiet_lines, row_counts
from clearhead.pages import Html, fill, joined
from clearhead.pages.parts import bullets, folded, paragraph, report_page, scores, table, with_code

_PARTS = "data_doctor_parts.html"


def render_page(examination: Examination, files: Sequence[str], *, title: str) -> str:
    """Return the HTML page.

    Args:
        examination: The examination to show.
        files: Descriptions of the files read, one line each.
        title: Name of the corpus.
    """
    findings, pairs = examination.found(), examination.rows.pairs
    clean = examination.without_findings
    summary = f"{clean:,} of {pairs:,} pairs have no finding." if findings else f"{pairs:,} pairs. Nothing was found."
    numbers = {"pairs": f"{pairs:,}", "of them without a finding": percent(clean / pairs)} if findings and pairs else {}
    return report_page(
        "data_doctor.html",
        title=f"Data doctor: {title}",
        summary=summary,
        scores=scores(numbers) if numbers else Html(),
        findings=joined(_finding(finding, pairs, number) for number, finding in enumerate(findings))
        if findings
        else paragraph("None."),
        quiet=_quiet(examination),
        rows=folded("Rows", _rows(examination)),
        files=folded("Files", bullets(files)),
        lengths=folded("Lengths", _lengths(examination) if pairs else paragraph("There is no pair.")),
    )


def _finding(finding: Finding, pairs: int, number: int) -> Html:
    """Return a finding, unfolded if it is the first, which is the most important."""
    return fill(
        f"{_PARTS}#finding",
        name=finding.name,
        open=Html("" if number else " open"),
        **{name: with_code(words) for name, words in asdict(finding.kind).items()},
        count=f"{finding.count:,}",
        share=_share(finding, pairs),
        examples=joined(fill(f"{_PARTS}#example", **asdict(example)) for example in finding.examples),
    )


def _share(finding: Finding, pairs: int) -> str:
    share = finding.share(pairs)
    return "" if share is None else percent(share)


def _quiet(examination: Examination) -> Html:
    """Return the kinds without findings, those not checked, and the notes."""
    return joined(paragraph(line) for line in quiet_lines(examination) if line)


def _rows(examination: Examination) -> Html:
    rows = [
        (f"{count:,}", fill(f"{_PARTS}#words", words=words + name, examples=bullets(examples) if examples else Html()))
        for name, counts in [
            ("", examination.rows),
            *((f" ({name})", rows) for name, rows in examination.held_out.items()),
        ]
        for count, words, examples in row_counts(counts)
    ]
    return table(("row number", "text"), rows, caption="Where every row went")


def _lengths(examination: Examination) -> Html:
    sides = {"source": examination.source, "target": examination.target}
    tables = []
    for unit in ("characters", "words"):
        both: list[Lengths] = [getattr(side, unit) for side in sides.values()]
        step = histogram_step(*both)
        tables += [_histogram(f"{name}, in {unit}", unit, sizes, step) for name, sizes in zip(sides, both, strict=True)]
    return fill(f"{_PARTS}#columns", content=joined(tables))


def _histogram(caption: str, unit: str, lengths: Lengths, step: int) -> Html:
    bars = histogram(lengths, step)
    most, total = max(count for *_, count in bars), lengths.counts.total()
    rows = []
    for first, last, count in bars:
        width = f"{max(100 * count / most, 0.5) if count else 0:.1f}"  # bars above zero are visible
        bar = fill(f"{_PARTS}#bar", share=percent(count / total), width=width)
        rows.append((_label(first, last), f"{count:,}", bar))
    heads = (unit, "Texts", "Share")
    bars_table = table(("row", "number", "text"), rows, heads=heads, caption=caption.capitalize(), classes="histogram")
    quantiles = "; ".join(f"{name} {value:,}" for name, value in lengths.to_dict().items())
    return fill(f"{_PARTS}#histogram", table=bars_table, quantiles=paragraph(quantiles))


def _label(first: int, last: int | None) -> str:
    if last is None:
        return f"{first:,} and more"
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
