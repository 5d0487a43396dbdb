"""Text report of an examination, for a terminal: the most important findings first, with examples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import wrap

from clearhead.data.doctor.batch_examination import SideStatistics
from clearhead.data.doctor.examination import MALFORMED, Examination, RowCounts
from clearhead.data.doctor.findings import Finding
from clearhead.formats import SKIPS

_WIDTH = 100


def size_lines(examination: Examination) -> list[str]:
    """Return the number of rows, and the lengths of their texts."""
    rows = examination.rows
    lines = [f"{count:>12,} {words}" for count, words, _ in row_counts(rows)]
    for name, others in examination.held_out.items():
        lines += [f"{count:>12,} {words} ({name})" for count, words, _ in row_counts(others)]
    if not rows.pairs:
        return lines
    table = [("", "source", "target")]
    for unit in ("characters", "words"):
        source, target = (getattr(side, unit).to_dict() for side in (examination.source, examination.target))
        table += [(f"{unit}, {name}", f"{source[name]:,}", f"{target[name]:,}") for name in source]
    table.append(("scripts", _scripts(examination.source), _scripts(examination.target)))
    first, second = (max(len(row[column]) for row in table) for column in (0, 1))
    return [*lines, "", *(f"{name:<{first}}  {source:>{second}}  {target}".rstrip() for name, source, target in table)]


def report_lines(examination: Examination) -> list[str]:
    """Return the whole report."""
    lines = [*size_lines(examination), ""]
    for rows in (examination.rows, *examination.held_out.values()):
        for _, words, examples in row_counts(rows):
            if examples:
                lines += [f"{words}:", *(f"    {example}" for example in examples), ""]
    findings = examination.found()
    clean, pairs = examination.without_findings, examination.rows.pairs
    lines.append(f"{clean:,} of {pairs:,} pairs have no finding." if findings else "Nothing was found.")
    for finding in findings:
        lines += ["", *_finding_lines(finding, examination)]
    quiet = quiet_lines(examination)
    if findings:
        lines.append("")
    for line in quiet if findings else quiet[1:]:
        lines += wrap(line, _WIDTH)
    return lines


def quiet_lines(examination: Examination) -> list[str]:
    """Return the kinds without findings in a line, empty if there are none; then those not checked, and the notes."""
    findings = examination.findings.values()
    titles = [item.kind.title for item in findings if not item.count and item.unchecked is None and item.note is None]
    return [
        f"Nothing found of: {'; '.join(titles)}." if titles else "",
        *(f"Not looked for: {item.kind.title}: {item.unchecked}." for item in findings if item.unchecked is not None),
        *(f"Note: {item.kind.title}: {item.note}." for item in findings if item.note is not None),
    ]


def row_counts(rows: RowCounts) -> Iterator[tuple[int, str, Sequence[str]]]:
    """Yield the number of rows read, of pairs, and of other rows by reason with examples."""
    yield rows.read, "rows read", ()
    yield rows.pairs, "pairs", ()
    meanings = {MALFORMED: "the row of its file is no pair", **SKIPS}
    for reason, meaning in meanings.items():
        if count := rows.others[reason]:
            yield count, f"{reason}: {meaning}", rows.examples[reason]


def percent(share: float) -> str:
    """Return a share as a percentage: two digits, and never 0 for a positive share.

    >>> percent(0.25), percent(0.00004), percent(1.0), percent(1e-9)
    ('25 %', '0.004 %', '100 %', '< 0.001 %')
    """
    value = 100 * share
    return "< 0.001 %" if 0 < value < 0.001 else f"{value:.2g} %" if value < 10 else f"{value:.0f} %"


def _scripts(side: SideStatistics) -> str:
    shares = side.script_shares().items()
    return ", ".join(f"{name} {percent(share)}" for name, share in shares if share >= 0.001) or "none"


def _finding_lines(finding: Finding, examination: Examination) -> list[str]:
    kind = finding.kind
    share = finding.share(examination.rows.pairs)
    counts = f"{finding.count:,}" + (f" ({percent(share)})" if share is not None else "")
    lines = [f"{kind.severity}: {kind.title}, {counts}"]
    for label, words in (("what", kind.meaning), ("why it matters", kind.why), ("what to do", kind.remedy)):
        lines += wrap(f"{label}: {words}", _WIDTH, initial_indent="  ", subsequent_indent="    ")
    for example in finding.examples:
        lines.append(f"    {example.origin}" + (f": {example.detail}" if example.detail else ""))
        lines += [
            f"        {text}" for text in (example.source, example.target) if text or example.source != example.target
        ]
    return lines
