from __future__ import annotations

import csv
import gzip
import json
import os
import signal
import subprocess
import sys
from functools import partial

import openpyxl
import pytest

from clearhead.cli.corpus import check, clean, convert, stats
from clearhead.data.doctor import examination
from clearhead.errors import ConfigError, DataError
from clearhead.runtime import shards
from clearhead.translation.memory_file import MemoryFile
from clearhead.translation.result import MemoryMatch
from commands import clearhead
from small_runs import numbers, write_numbers


@pytest.fixture
def tsv(tmp_path):
    return write_numbers(tmp_path / "p.tsv")


def test_stats_counts_rows_and_measures_both_sides(run_command, tsv):
    result = run_command(stats, tsv, "--json")
    found = json.loads(result.stdout)
    assert found["files"] == [f"{tsv}: tab-separated, 2 columns; from column 1 to column 2"]
    assert (found["rows"]["read"], found["rows"]["pairs"], found["rows"]["malformed"]) == (200, 200, 0)
    words = sum(len(source.split()) for source, _ in numbers())
    assert (found["source"]["words"]["total"], found["target"]["words"]["longest"]) == (words, 5)
    lines = run_command(stats, tsv).stdout.splitlines()
    assert lines[0].split() == ["200", "rows", "read"]
    assert any(line.split() == ["words,", "total", str(words), str(words)] for line in lines)


def test_check_and_clean_use_as_many_processes_as_threads(run_command, monkeypatch, tsv, tmp_path):
    numbers, run = [], shards.run_shards

    def noted(make_worker, batches, *, workers, **more):
        numbers.append(workers)
        return run(make_worker, batches)

    monkeypatch.setattr(examination, "run_shards", noted)
    monkeypatch.setattr(examination, "ALONE_BATCHES", 0)
    monkeypatch.setattr("clearhead.data.doctor.code_points.BATCH_PAIRS", 150)
    monkeypatch.setattr("clearhead.runtime.threads.num_threads", lambda: 7)
    assert "200 rows read" in run_command(check, tsv).stdout
    run_command(clean, tsv, "-o", tmp_path / "clean.tsv", "--rejected", tmp_path / "rejected.tsv")
    assert numbers == [7, 7]


def test_check_reads_workbooks(run_command, tmp_path):
    book = openpyxl.Workbook()
    for row in [["Hund", "dog"], *([f"Hund {n}", f"dog {n}"] for n in range(7))]:
        book.active.append(row)
    book.save(tmp_path / "p.xlsx")
    found = json.loads(run_command(check, str(tmp_path / "p.xlsx"), "--json").stdout)
    assert found["rows"]["pairs"] == 8


def test_check_says_what_is_wrong_and_ends_well(run_command, write_lines):
    path = write_lines(
        "p.tsv", *(f"Hund {n}\tdog {n}" for n in range(60)), "torn", "Hund 7\tdog 7", "Hund \x1b[2J\tdog"
    )
    result = run_command(check, path)
    assert result.exit_code == 0
    assert f"{path}:61: there is no tab (the row begins 'torn')" in result.stdout
    assert f"{path}:62: first at {path}:8" in result.stdout
    assert "Hund ‹U+001B›[2J" in result.stdout
    assert "\x1b" not in result.stdout
    found = json.loads(run_command(check, path, "--json").stdout)
    assert found["rows"] | {"examples": None} == {
        **dict.fromkeys(
            ("untranslated", "unfinished", "obsolete", "not_to_translate", "without_text", "other_languages"), 0
        ),
        "unpaired": 0,
        "read": 63,
        "pairs": 62,
        "malformed": 1,
        "examples": None,
    }
    by_name = {one["name"]: one for one in found["findings"]}
    assert by_name["duplicate"]["count"] == 1
    assert by_name["duplicate"]["share"] == pytest.approx(1 / 62)
    assert by_name["leakage"]["unchecked"] == "no validation or test text is named"
    assert set(by_name["duplicate"]["examples"][0]) == {"origin", "source", "target", "detail"}


def test_files_of_unequal_length_are_a_finding_and_the_next_files_are_read(run_command, write_lines):
    sources = [f"Das ist {'sehr ' * (n * 7 % 5)}lang {n}" for n in range(90)]
    targets = [f"That is {'very ' * (n * 7 % 5)}long {n}" for n in range(90)]
    de, en = write_lines("a.de", *sources), write_lines("a.en", *targets[:40], *targets[41:])
    more = write_lines("b.de", "noch"), write_lines("b.en", "more")
    files = ["--source", de, "--target", en, "--source", more[0], "--target", more[1]]
    found = json.loads(run_command(check, *files, "--json").stdout)
    finding = found["findings"][0]
    assert finding["name"] == "unequal_files"
    assert (finding["count"], finding["share"], found["rows"]["pairs"]) == (1, None, 90)
    assert finding["examples"][0]["origin"] == f"{de}:90"
    assert "has 90 lines but" in finding["examples"][0]["detail"]


def test_stats_says_which_lines_without_a_partner_are_not_counted(run_command, write_lines):
    files = ["--source", write_lines("a.de", "eins", "zwei", "drei"), "--target", write_lines("a.en", "one", "two")]
    ran = run_command(stats, *files, "--json")
    assert json.loads(ran.stdout)["rows"]["pairs"] == 2
    assert "has 3 lines but" in ran.stderr
    assert "the lines without a partner are not counted" in ran.stderr


def test_leakage_is_looked_for_in_every_split(run_command, tsv, write_lines):
    valid = write_lines("v.tsv", f"{numbers()[3][0].upper()}!\tx", "nichts\tnothing")
    de, en = write_lines("t.de", "etwas"), write_lines("t.en", numbers()[7][1])
    flags = ["--valid-pairs", valid, "--test-source", de, "--test-target", en]
    found = json.loads(run_command(check, tsv, *flags, "--json").stdout)
    leakage = {one["name"]: one for one in found["findings"]}["leakage"]
    assert leakage["count"] == 2
    assert [one["detail"] for one in leakage["examples"]] == [
        f"the source is at {valid}:1 (valid)",
        f"the target is at {de}:1 (test)",
    ]
    assert {name: split["read"] for name, split in found["held_out"].items()} == {"valid": 2, "test": 1}
    # The other way round every file is read the other way round.
    swapped = json.loads(run_command(check, tsv, *flags, "--swap", "--json").stdout)
    assert {one["name"]: one["count"] for one in swapped["findings"]}["leakage"] == 2


def test_check_writes_its_page_to_html_files_only(run_command, tsv, tmp_path):
    page = tmp_path / "page.html"
    assert run_command(check, tsv, "-o", page).exit_code == 0
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    for name in ("-", "report.txt", "page"):
        with pytest.raises(ConfigError, match=r"the page is a file whose name ends in \.html"):
            run_command(check, tsv, "-o", name)


def rows_of(path):
    """Return the rows of a list, by the names of its columns."""
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def test_check_with_all_lists_every_row_of_every_finding(run_command, write_lines, tmp_path):
    path = write_lines("p.tsv", *(f"Hund {n}\tdog {n}" for n in range(60)), *['Hund "7\tdog\u00ad 7'] * 9, "Ei\t")
    out = tmp_path / "all.tsv"
    run_command(check, path, "--all", out)
    rows = rows_of(out)
    assert set(rows[0]) == {"origin", "finding", "detail", "source", "target"}
    assert [row["origin"] for row in rows if row["finding"] == "duplicate"] == [f"{path}:{n}" for n in range(62, 70)]
    assert [row["origin"] for row in rows if row["finding"] == "invisible"] == [f"{path}:{n}" for n in range(61, 70)]
    assert rows[-1] == {
        "origin": f"{path}:70",
        "finding": "empty",
        "detail": "the target",
        "source": "Ei",
        "target": "",
    }
    assert {(row["source"], row["target"]) for row in rows[:-1]} == {('Hund "7', "dog\u00ad 7")}
    assert [row["origin"] for row in rows] == sorted(row["origin"] for row in rows)
    lines = tmp_path / "all.jsonl"
    run_command(check, "-", "--all", lines, stdin=path.read_text(encoding="utf-8"))
    found = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert found == [{name: cell.replace(str(path), "-") for name, cell in row.items()} for row in rows]


@pytest.mark.parametrize("is_piped", [False, True])
def test_shifted_rows_are_listed_one_by_one_and_unequal_files_too(run_command, write_lines, tmp_path, is_piped):
    sources = [f"Das ist {'sehr ' * (n * 7 % 5)}lang {n}" for n in range(90)]
    targets = [f"That is {'very ' * (n * 7 % 5)}long {n}" for n in range(90)]
    targets.pop(40)
    out = tmp_path / "all.tsv"
    if is_piped:
        text = "".join(f"{one}\t{other}\n" for one, other in zip(sources, targets, strict=False))
        run_command(check, "-", "--all", out, stdin=text)
    else:
        files = write_lines("a.de", *sources), write_lines("a.en", *targets)
        run_command(check, "--source", files[0], "--target", files[1], "--all", out)
        assert [row["origin"] for row in rows_of(out) if row["finding"] == "unequal_files"] == [f"{files[0]}:90"]
    shifted = [row for row in rows_of(out) if row["finding"] == "shifted"]
    assert {row["detail"] for row in shifted} == {"the target is 1 row further up"}
    assert [row["origin"].rpartition(":")[2] for row in shifted] == [str(line) for line in range(42, 90)]
    assert (shifted[0]["source"], shifted[0]["target"]) == (sources[41], targets[41])


def test_check_rejects_all_equal_to_input_report_or_stdout(run_command, tsv, tmp_path):
    with pytest.raises(DataError, match="is an input as well"):
        run_command(check, tsv, "--all", tsv)
    page = tmp_path / "page.html"
    with pytest.raises(ConfigError, match="is named for two outputs"):
        run_command(check, tsv, "--all", page, "-o", page)
    with pytest.raises(ConfigError, match="--all - would be mixed with the report"):
        run_command(check, tsv, "--all", "-")


def test_standard_input_and_empty_files_are_corpora(run_command, write_lines):
    found = json.loads(run_command(check, "-", "--json", stdin="Hund\tdog\nKatze\tcat\n").stdout)
    assert found["rows"]["pairs"] == 2
    assert found["files"] == ["standard input: tab-separated, 2 columns; from column 1 to column 2"]
    for command in (check, stats):
        assert json.loads(run_command(command, write_lines("e.tsv"), "--json").stdout)["rows"]["read"] == 0
        assert run_command(command, write_lines("e.tsv")).exit_code == 0


@pytest.mark.parametrize("command", [check, stats])
def test_unreadable_corpora_are_errors(run_command, command, tsv, tmp_path, write_lines):
    with pytest.raises(ConfigError, match="name the corpus: FILE with both sides, or --source FILE --target FILE"):
        run_command(command)
    with pytest.raises(DataError, match=r"nowhere\.tsv: there is no such file"):
        run_command(command, tmp_path / "nowhere.tsv")
    with pytest.raises(DataError, match=r"cannot tell the format of .*f\.odd"):
        run_command(command, write_lines("f.odd", "a\tb"))
    with pytest.raises(ConfigError, match="--columns: only a file of pairs has columns"):
        run_command(command, "--source", tsv, "--target", tsv, "--columns", "1,2")
    (tmp_path / "latin.tsv").write_bytes("größer\tlarger\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin\.tsv, line 1: byte 3 \(0xf6\) is not valid UTF-8"):
        run_command(command, tmp_path / "latin.tsv")
    with pytest.raises(DataError, match="1 source files but 0 target files"):
        run_command(command, "--source", tsv)


def test_convert_keeps_every_pair_in_order(run_command, write_lines, tmp_path):
    de, en = write_lines("a.de", "Hund", "", "Kuh"), write_lines("a.en", "dog", "no source", "cow")
    more = tmp_path / "b.csv"
    more.write_text('en,de\n"cat, a",Katze\n', encoding="utf-8")
    out = tmp_path / "out.tsv.gz"
    flags = ["--source", de, "--target", en, "--columns", "de,en"]
    result = run_command(convert, more, out, *flags)
    assert gzip.decompress(out.read_bytes()).decode() == "Hund\tdog\n\tno source\nKuh\tcow\nKatze\tcat, a\n"
    assert result.stderr.endswith("clearhead: 4 pairs written\n")
    assert run_command(convert, more, "-", "--columns", "en,de").stdout == "cat, a\tKatze\n"
    assert run_command(convert, more, "-", "--swap").stdout == "Katze\tcat, a\n"


@pytest.mark.parametrize(
    ("flags", "languages"),
    [
        (["--source", "a.de", "--target", "a.en"], ("de", "en")),
        (["--source", "a.de", "--target", "a.en", "--swap"], ("en", "de")),
        (["--source", "a.de", "--target", "a.en", "--to-lang", "en-GB"], ("de", "en-GB")),
        (["p.tsv", "--from-lang", "de", "--to-lang", "en"], ("de", "en")),
        (["p.tsv", "--from-lang", "de", "--to-lang", "en", "--swap"], ("en", "de")),
        (["p.tsv"], ("source", "target")),
    ],
)
def test_the_languages_are_those_asked_for_or_of_the_names(run_command, write_lines, monkeypatch, flags, languages):
    for name, line in {"a.de": "Hund", "a.en": "dog", "p.tsv": "Hund\tdog"}.items():
        folder = write_lines(name, line).parent
    monkeypatch.chdir(folder)
    told = []
    monkeypatch.setattr(
        "clearhead.formats.write_pairs", lambda path, pairs, both: told.append(both) or len(list(pairs))
    )
    run_command(convert, *flags[:1] * (flags[0] == "p.tsv"), "out.tsv", *flags[flags[0] == "p.tsv" :])
    assert told == [languages]


def test_convert_writes_to_the_last_file_or_to_the_output(run_command, write_lines, tmp_path):
    first, second = write_lines("a.tsv", "a\tA"), write_lines("b.tsv", "b\tB")
    run_command(convert, first, second, "-o", tmp_path / "new" / "out.tsv")
    assert (tmp_path / "new" / "out.tsv").read_text(encoding="utf-8") == "a\tA\nb\tB\n"
    sides = ["--source", write_lines("c.de", "c"), "--target", write_lines("c.en", "C")]
    run_command(convert, *sides, "--out", tmp_path / "sides.tsv")
    assert (tmp_path / "sides.tsv").read_text(encoding="utf-8") == "c\tC\n"


def test_convert_writes_all_or_nothing(run_command, write_lines, tmp_path, tsv):
    out = tmp_path / "out.tsv"
    with pytest.raises(DataError, match=r"t\.tsv, line 61: there is no tab"):
        run_command(convert, write_lines("t.tsv", *["a\tb"] * 60, "torn"), out)
    with pytest.raises(DataError, match=r"has 2 lines but .* has 1"):
        run_command(convert, "--source", write_lines("u.de", "a", "b"), "--target", write_lines("u.en", "a"), out)
    assert not out.exists()
    with pytest.raises(DataError, match="is an input as well, and would be overwritten; name another file"):
        run_command(convert, tsv, tsv)
    os.link(tsv, tmp_path / "link.tsv")
    with pytest.raises(DataError, match="is an input as well, and would be overwritten; name another file"):
        run_command(convert, tsv, tmp_path / "link.tsv")
    with pytest.raises(ConfigError, match="name the corpus"):
        run_command(convert, out)


def test_entries_that_a_file_marks_are_left_out_and_counted(run_command, monkeypatch, tsv, capfd):
    from clearhead import formats

    def read(paths, wanted, **options):
        rows = formats.read_parallel([tsv], [tsv])
        return (formats.SentencePair("", "", row.origin, skipped="obsolete") if row.line > 184 else row for row in rows)

    monkeypatch.setattr("clearhead.formats.read_pairs", read)
    monkeypatch.setattr("clearhead.formats.write_pairs", lambda path, pairs, both: len(list(pairs)))
    result = run_command(convert, tsv, "out.tsv")
    assert "clearhead: 16 entries are left out: the file marks it as no longer used\n" in result.stderr
    assert "clearhead: 184 pairs written\n" in result.stderr


MESSY = ["Hund 1\tdog 1", "SchÃ¶n\tfine &amp; good", "torn", "Hund 1\tdog 1", "Ei\t", "Kuh \ufffd\tcow"]


def test_clean_writes_what_is_right_and_lists_what_it_changed_or_dropped(run_command, write_lines, tmp_path):
    path, out, rejected = write_lines("p.tsv", *MESSY), tmp_path / "out.csv", tmp_path / "rejected.tsv"
    result = run_command(clean, path, "-o", out, "--rejected", rejected, "--from-lang", "de", "--to-lang", "en")
    assert out.read_text(encoding="utf-8").splitlines() == [*('"de","en"', '"Hund 1","dog 1"', '"Schön","fine & good"')]
    rows = rows_of(rejected)
    assert [(row["origin"], row["action"], row["finding"]) for row in rows] == [
        (f"{path}:2", "changed", "mojibake,entities"),
        (f"{path}:3", "dropped", "malformed"),
        (f"{path}:4", "dropped", "duplicate"),
        (f"{path}:5", "dropped", "empty"),
        (f"{path}:6", "dropped", "mojibake"),
    ]
    assert [rows[0][name] for name in ("source", "target", "new_source", "new_target")] == [
        *("SchÃ¶n", "fine &amp; good", "Schön", "fine & good")
    ]
    assert rows[1]["detail"] == "there is no tab (the row begins 'torn')"
    assert (rows[2]["detail"], rows[2]["source"], rows[2]["new_source"]) == ("The same pair again", "Hund 1", "")
    told = [line.removeprefix("clearhead: ").strip() for line in result.stderr.splitlines()]
    assert told[-7:] == [
        "6 rows read",
        "2 pairs written, 1 of them changed; 1 mojibake; 1 entities",
        "4 rows dropped",
        "1 malformed",
        "1 duplicate",
        "1 empty",
        "1 mojibake",
    ]
    assert "other_language is not looked for: the source has too few texts whose language is clear" in told


def test_clean_reads_standard_input_and_does_what_is_asked(run_command, tmp_path):
    rejected = tmp_path / "rejected.jsonl"
    text = "".join(line + "\n" for line in MESSY)
    result = run_command(
        clean, "-", "-o", "-", "--rejected", rejected, "--fix", "none", "--drop", "empty, duplicate", stdin=text
    )
    assert result.stdout == "Hund 1\tdog 1\nSchÃ¶n\tfine &amp; good\nKuh \ufffd\tcow\n"
    rows = [json.loads(line) for line in rejected.read_text(encoding="utf-8").splitlines()]
    assert [row["origin"] for row in rows] == ["-:3", "-:4", "-:5"]


def test_clean_rejects_unknown_kinds_formats_and_outputs_before_writing(run_command, tsv, tmp_path):
    out, rejected = tmp_path / "out.tsv", tmp_path / "rejected.tsv"
    for flags, words in {
        ("--fix", "empty"): "--fix: there is no 'empty'; choose from mojibake, entities, swapped, shifted, or none",
        ("--drop", "leakage"): "--drop: there is no 'leakage'; choose from mojibake,",
    }.items():
        with pytest.raises(ConfigError, match=words):
            run_command(clean, tsv, "-o", out, "--rejected", rejected, *flags)
    with pytest.raises(DataError, match="cannot tell in which format to write"):
        run_command(clean, tsv, "-o", tmp_path / "out.odd", "--rejected", rejected)
    with pytest.raises(DataError, match="is an input as well"):
        run_command(clean, tsv, "-o", tsv, "--rejected", rejected)
    with pytest.raises(DataError, match="is an input as well"):
        run_command(clean, tsv, "-o", out, "--rejected", tsv)
    with pytest.raises(ConfigError, match="is named for two outputs"):
        run_command(clean, tsv, "-o", out, "--rejected", out)
    with pytest.raises(ConfigError, match="--rejected - would be mixed with the pairs"):
        run_command(clean, tsv, "-o", out, "--rejected", "-")
    assert [path.name for path in tmp_path.iterdir()] == ["p.tsv"]


def test_clean_says_which_lines_have_no_partner(run_command, write_lines, tmp_path):
    de, en = write_lines("a.de", "Hund", "Kuh", "Ei"), write_lines("a.en", "dog", "cow")
    result = run_command(clean, "--source", de, "--target", en, "-o", "-", "--rejected", tmp_path / "rejected.tsv")
    assert result.stdout == "Hund\tdog\nKuh\tcow\n"
    assert f"the lines from {de}:3 on have no partner and are left out" in result.stderr


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_clean_on_a_full_disk_names_the_file_and_writes_no_output(run_command, write_lines, tmp_path):
    path, out = write_lines("p.tsv", *["Ei\t"] * 20_000), tmp_path / "out.tsv"
    with pytest.raises(DataError, match="cannot write /dev/full"):
        run_command(clean, path, "-o", out, "--rejected", "/dev/full")
    assert not out.exists()


def test_stats_check_and_convert_are_commands_of_corpus(tsv, capsys):
    assert clearhead("corpus", "stats", tsv) == 0
    assert "200 rows read" in capsys.readouterr().out
    assert clearhead("corpus", "check", "nowhere.tsv") == 1
    assert capsys.readouterr().err == "clearhead: nowhere.tsv: there is no such file\n"
    assert clearhead("corpus", "convert") == 2


NOTES_TORCH = """
import atexit, runpy, sys
atexit.register(lambda: "torch" in sys.modules and print("torch was imported", file=sys.stderr))
runpy.run_module("clearhead", run_name="__main__")
"""


@pytest.mark.parametrize("command", ["stats", "check"])
def test_corpus_commands_import_no_torch_and_with_closed_stdout_exit_without_a_traceback(command, tsv):
    arguments = [sys.executable, "-c", NOTES_TORCH, "corpus", command, tsv]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 0
    assert b"Traceback" not in said
    assert b"torch was imported" not in said


@pytest.mark.skipif(os.name != "posix", reason="needs the signals of POSIX")
def test_ctrl_c_leaves_no_page(tmp_path):
    page = tmp_path / "page.html"
    command = [sys.executable, "-m", "clearhead", "corpus", "check", "-", "-o", str(page)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    # Whoever runs the tests in the background may be deaf for Ctrl-C, and its children with it.
    listens = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **pipes, preexec_fn=listens) as process:
        process.stdin.write(b"Hund\tdog\n" * 300)  # enough for the head of a table
        process.stdin.flush()
        assert process.stderr.readline().startswith(b"clearhead: standard input: tab-separated")
        process.send_signal(signal.SIGINT)
        assert process.stderr.read() == b"clearhead: interrupted\n"
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []


def test_convert_writes_a_memory_file(run_command, tmp_path):
    catalogue = 'msgctxt "verb"\nmsgid "Open"\nmsgstr "Öffnen"\n\n#, fuzzy\nmsgid "no"\nmsgstr "nein"\n'
    (tmp_path / "a.po").write_text(catalogue, encoding="utf-8")
    out = tmp_path / "m.sqlite"
    assert "1 pairs written" in run_command(convert, tmp_path / "a.po", out, "--to-lang", "de").stderr
    memory = MemoryFile(out)
    assert (len(memory), memory.languages) == (1, (None, "de"))
    assert memory.match("Open", context="verb") == MemoryMatch("Open", "Öffnen", 1.0, is_reused=True)
    memory.add("  Close now ", "Schließe jetzt", "noun")
    memory.close()
    assert "2 pairs written" in run_command(convert, out, tmp_path / "b.po").stderr
    back = (tmp_path / "b.po").read_text(encoding="utf-8")
    assert all(text in back for text in ('msgid "Open"', 'msgstr "Öffnen"', 'msgid "Close now"'))
