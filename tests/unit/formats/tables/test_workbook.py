"""Excel workbooks as files of pairs: columns as in a .csv, one sheet; damaged and endless ones are refused."""

from __future__ import annotations

import builtins
import zipfile
from datetime import date, datetime
from pathlib import Path

import openpyxl
import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.formats import Wanted, described, read_pairs
from clearhead.formats.tables import workbook

SHEET = (
    '<worksheet xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><sheetData>{}</sheetData></worksheet>'
)
CELL = '<c r="{}" t="inlineStr"><is><t>{}</t></is></c>'


@pytest.fixture
def write(tmp_path):
    """Write a workbook, of sheets by name, and return its path."""

    def write_sheets(**sheets: list[list[object]]) -> str:
        book = openpyxl.Workbook()
        book.remove(book.active)
        for name, rows in sheets.items():
            sheet = book.create_sheet(name)
            for row in rows:
                sheet.append(row)
        book.save(tmp_path / "pairs.xlsx")
        return str(tmp_path / "pairs.xlsx")

    return write_sheets


def replaced(path: str, part: str, content: str) -> str:
    """Write the workbook again with another content of one part."""
    with zipfile.ZipFile(path) as archive:
        parts = {info.filename: archive.read(info) for info in archive.infolist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**parts, part: content.encode()}.items():
            archive.writestr(name, data)
    return path


def texts(path: str, wanted: Wanted = Wanted()) -> list[tuple[str, str, str]]:
    return [(pair.source, pair.target, pair.origin.rpartition(":")[2]) for pair in read_pairs([path], wanted)]


ROWS = [["id", "English", "French", "Note"], [1, "yes\nno", "oui", "x"], [None] * 4, [2, "a", None], [3, "b", 2.0]]


def test_columns_are_chosen_as_in_a_csv_and_rows_keep_their_numbers(write):
    path = write(First=ROWS, Second=[])
    assert texts(path) == [("yes no", "oui", "2"), ("a", "", "4"), ("b", "2", "5")]
    assert texts(path, Wanted(from_lang="fr", to_lang="en"))[0] == ("oui", "yes no", "2")
    assert texts(path, Wanted(("Note", 2)))[0] == ("x", "yes no", "2")
    opened = []
    list(read_pairs([path], on_open=opened.extend))
    assert described(opened) == [
        f"{path}: Excel, 4 columns with a header; from column 2 (English) to column 3 (French)"
    ]
    assert opened[0].languages == ("en", "fr")


def test_without_a_header_the_first_two_columns_are_read(write):
    assert texts(write(A=[["dog", "Hund", "x"], ["cat"]])) == [("dog", "Hund", "1"), ("cat", "", "2")]


def test_values_that_are_no_text_are_read_as_excel_shows_them(write):
    rows = [[True, 3], [2.5, date(2024, 2, 1)], [datetime(2024, 2, 1, 3, 4), "#N/A"], ["a_x000D_\nb", "c"]]
    assert [row[:2] for row in texts(write(A=rows))] == [
        ("TRUE", "3"),
        ("2.5", "2024-02-01"),
        ("2024-02-01 03:04:00", ""),
        ("a b", "c"),
    ]


def test_the_only_sheet_with_a_header_is_read(write):
    assert texts(write(About=[["ours", "x"]], Pairs=[["en", "de"], ["dog", "Hund"]])) == [("dog", "Hund", "2")]
    with pytest.raises(ConfigError, match="has 2 sheets with text: 'A', 'B'; several of them have a first row"):
        texts(write(A=[["en", "de"]], B=[["en", "fr"]]))


def test_an_empty_workbook_has_no_pairs(write):
    assert texts(write(A=[], B=[[None]])) == []


@pytest.mark.parametrize(
    ("rows", "wanted", "error", "message"),
    [
        ([["only"], ["one"]], Wanted(), DataError, "row 1: there is one column"),
        ([["en", "fr", "de"], ["a", "b", "c"]], Wanted(), ConfigError, "say which two hold source and target"),
        ([["en", "fr"], ["a", "b"]], Wanted(("en", "de")), ConfigError, "has no column 'de'"),
        ([["dog", "Hund"]], Wanted((1, 3)), ConfigError, "column 3 is asked for"),
    ],
)
def test_columns_that_cannot_be_chosen_are_refused(write, rows, wanted, error, message):
    with pytest.raises(error, match=message):
        texts(write(A=rows), wanted)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("<a><b>", "is no XLSX file, or is damaged"),
        (SHEET.format('<row r="1"><c r="A1" t="s"><v>999</v></c></row>'), "is no XLSX file, or is damaged"),
        (
            SHEET.format('<row r="9999999999">' + CELL.format("A9999999999", "a") + "</row>"),
            "more than .* 1,048,576 rows",
        ),
        (
            SHEET.format("".join(f'<row r="{n}">{CELL.format(f"XFD{n}", "a")}</row>' for n in (1, 2, 3))),
            "more than 40,000",
        ),
        (SHEET.format(f"<!--{' ' * 2_000_001}-->"), "more than 300 times as large when unpacked"),
        (
            "<!DOCTYPE worksheet ["
            + "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "a" * 10}">' for n in range(10))
            + "]>"
            + SHEET.format(f'<row r="1">{CELL.format("A1", "&e9;")}</row>'),
            "is no XLSX file, or is damaged",
        ),
    ],
)
def test_damaged_and_endless_sheets_are_refused(write, monkeypatch, content, message):
    monkeypatch.setattr(workbook, "MOST_CELLS", 40_000 if "XFD" in content else workbook.MOST_CELLS)
    path = replaced(write(A=ROWS), "xl/worksheets/sheet1.xml", content)
    with pytest.raises(DataError, match=message):
        texts(path)


def test_foreign_and_encrypted_files_and_large_parts_are_refused(write, monkeypatch):
    path = write(A=ROWS)
    monkeypatch.setattr(workbook, "MOST_PART_BYTES", 100)
    with pytest.raises(DataError, match=r"MB when unpacked; save the sheet as \.csv"):
        texts(path)
    monkeypatch.undo()
    for data, message in ((b"\xd0\xcf\x11\xe0", "Excel's old format"), (b"a,b", "is no XLSX file")):
        Path(path).write_bytes(data)
        with pytest.raises(DataError, match=message):
            texts(path)


def test_the_extra_is_named_where_openpyxl_is_missing(write, monkeypatch):
    path, usual = write(A=ROWS), builtins.__import__

    def without_openpyxl(name, *arguments, **options):
        if name == "openpyxl":
            raise ModuleNotFoundError(name=name)
        return usual(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_openpyxl)
    with pytest.raises(DataError, match=r"Excel files need openpyxl, which is not installed: pip install .*excel"):
        texts(path)
