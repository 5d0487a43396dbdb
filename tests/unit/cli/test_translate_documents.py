from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import sys
from pathlib import Path

import docx
import pytest

from clearhead.bundle import save_bundle
from clearhead.cli import checks, main
from clearhead.cli.translate import translate
from clearhead.errors import ClearheadError, ConfigError, DataError
from clearhead.text.quality_flags import Flag
from clearhead.translation import documents
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator
from commands import clearhead

PAGE = Path(__file__).parents[3] / "docs" / "documents.md"
COMMANDS = [
    line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("clearhead translate runs/en-de ")
]
CUE = "00:00:01,000 --> 00:00:02,000"
FILES = {
    "README.md": ("# ja\n\n* nein\n\n```\nja\n```\n", "# JA\n\n* NEIN\n\n```\nja\n```\n"),
    "config.json": (
        '{"type": "ja", "label": "ja", "help": [{"text": "nein"}], "message": ""}',
        '{"type": "ja", "label": "JA", "help": [{"text": "NEIN"}], "message": ""}',
    ),
    "film.srt": (f"1\n{CUE}\n<i>ja,\nnein</i>\n", f"1\n{CUE}\n<i>JA,\nNEIN</i>\n"),
    "glossary.tsv": ("en\tde\nja\tyes\nnein\t\n", "en\tde\nja\tyes\nnein\tNEIN\n"),
    "glossary.tmx": (
        '<tmx><header srclang="fr"/><body><tu><tuv xml:lang="en"><seg>ja</seg></tuv></tu></body></tmx>',
        '<tmx><header srclang="fr"/><body><tu><tuv xml:lang="en"><seg>ja</seg></tuv>'
        '<tuv xml:lang="de"><seg>JA</seg></tuv></tu></body></tmx>',
    ),
    "letter.docx": ("ja", "JA"),  # the text of its one paragraph
    "letter.txt": ("ja\n  nein\n\n- ja\n", "JA\n  NEIN\n\n- JA\n"),
    "memory.tmx": (
        '<tmx><tu><tuv lang="en"><seg>ja</seg></tuv></tu>'
        '<tu><tuv lang="en"><seg>nein</seg></tuv><tuv lang="de"><seg>x</seg></tuv></tu></tmx>',
        '<tmx><tu><tuv lang="en"><seg>ja</seg></tuv><tuv lang="de"><seg>JA</seg></tuv></tu>'
        '<tu><tuv lang="en"><seg>nein</seg></tuv><tuv lang="de"><seg>x</seg></tuv></tu></tmx>',
    ),
    "messages.json": ('{"ja": "nein", "n": 1.0}', '{"ja": "NEIN", "n": 1.0}'),
    "messages.po": (
        '# x\nmsgid "ja"\nmsgstr "yes"\n\nmsgid "nein"\nmsgstr ""\n',
        '# x\nmsgid "ja"\nmsgstr "yes"\n\n#, fuzzy\nmsgid "nein"\nmsgstr "NEIN"\n',
    ),
    "messages.xlf": (
        '<xliff version="1.2"><trans-unit><source>ja</source></trans-unit></xliff>',
        '<xliff version="1.2"><trans-unit><source>ja</source><target state="needs-review-translation">JA</target>'
        "</trans-unit></xliff>",
    ),
    "page.html": ('<p class="a">ja</p>\n', '<p class="a">JA</p>\n'),
    "products.csv": ('id,name\n1,"ja"\n', 'id,name\n1,"JA"\n'),
    "trailer.vtt": ("WEBVTT\n\n00:01.000 --> 00:02.000\nja\n", "WEBVTT\n\n00:01.000 --> 00:02.000\nJA\n"),
}
"""Every file that the page names, and what becomes of it where lines are put in capitals."""


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "model"
    save_bundle(directory, make_bundle(), golden=[], card="# A small model\n")
    return directory


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Write all files, and go where they are."""
    monkeypatch.chdir(tmp_path)
    for name, (content, _) in FILES.items():
        if name.endswith(".docx"):
            document = docx.Document()
            document.add_paragraph(content)
            document.save(name)
        else:
            Path(name).write_bytes(content.encode())
    return tmp_path


@pytest.fixture
def shouting(monkeypatch):
    """Put lines in capitals instead of translating them; returns all that were, in lists."""
    read = []

    def shout(self, lines, *, on_progress=None, scores=True, quality=False, **settings):
        if lines:
            read.append(list(lines))
        if "stop" in lines:
            raise RuntimeError("stopped")
        flags = [(Flag("numbers", "7"),) if "7" in line else () for line in lines]
        return [
            Translation(
                line,
                line.upper(),
                -1.5 if scores or quality else None,
                tuple(line.split()),
                warnings=flag,
                quality=0.25 * len(line.split()) if quality else None,
            )
            for line, flag in zip(lines, flags, strict=True)
        ]

    monkeypatch.setattr(Translator, "translate", shout)
    return read


def names(directory):
    return sorted(path.name for path in Path(directory).iterdir())


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(run_command, model, files, shouting, command):
    (files / "german").mkdir()
    arguments = shlex.split(command)[3:]
    result = run_command(translate, model, *arguments)
    output = arguments[arguments.index("-o") + 1]
    documents = [name for name in arguments if name in FILES]
    assert documents
    for name in documents:
        path = files / output / name if output == "german/" else files / output
        if name.endswith(".docx"):
            assert [paragraph.text for paragraph in docx.Document(str(path)).paragraphs] == [FILES[name][1]]
        else:
            assert path.read_bytes().decode() == FILES[name][1]
    assert len(re.findall(r" segments: ", result.stderr)) == len(documents)
    assert not [name for name in names(files) if name.startswith(".")]


def test_json_example_of_the_page_is_the_output_of_translate(run_command, model, files, shouting):
    page = PAGE.read_text(encoding="utf-8")
    before, after = map(json.loads, re.findall(r"`(\{\"title\".*?\})`", page))
    Path("a.json").write_text(json.dumps(before), encoding="utf-8")
    made = json.loads(run_command(translate, model, "a.json").stdout)
    assert [made[name] == value for name, value in before.items()] == [after[name] == before[name] for name in after]
    segment = json.loads(run_command(translate, model, "a.json", "--format", "jsonl").stdout)
    fields = re.findall(r"^  - `(\w+)`:", page.partition("`--format jsonl`** ")[2].partition("\n\n")[0], re.MULTILINE)
    assert fields
    assert not {*fields} - segment.keys()


def test_translate_writes_the_models_translations_into_a_json_document(run_command, model, files):
    Path("a.json").write_text('["Ein Hund.", {"a": "Zwei Männer sitzen.", "b": 7}]', encoding="utf-8")
    expected = [
        one.text for one in Translator.load(model).translate(["Ein Hund.", "Zwei Männer sitzen."], one_line=True)
    ]
    run_command(translate, model, "a.json", "-o", "b.json")
    assert json.loads(Path("b.json").read_text(encoding="utf-8")) == [expected[0], {"a": expected[1], "b": 7}]
    sampled = run_command(translate, model, "a.json", "--sample", "--seed", 3).stdout
    assert run_command(translate, model, "a.json", "--sample", "--seed", 3, "--workers", 1).stdout == sampled


def test_standard_output_takes_a_document_byte_for_byte(run_command, model, files, shouting):
    Path("a.srt").write_bytes(f"\ufeff1\r\n{CUE}\r\nein Hund".encode())
    for arguments in ([], ["-o", "-"]):
        result = run_command(translate, model, "a.srt", *arguments)
        assert result.stdout_bytes == f"\ufeff1\r\n{CUE}\r\nEIN HUND".encode()
    assert run_command(translate, model, "--paragraphs", stdin="ein\r\nHund\r\n").stdout_bytes == b"EIN\r\nHUND\r\n"
    run_command(translate, model, "--paragraphs", "-o", "new.txt.gz", stdin="ein\nHund\n")
    assert gzip.decompress(Path("new.txt.gz").read_bytes()) == b"EIN\nHUND\n"
    assert not [name for name in names(files) if name.startswith(".")]


def test_binary_document_is_written_to_stdout_only_with_output_dash(run_command, model, files, shouting, monkeypatch):
    assert run_command(translate, model, "letter.docx", "-o", "-").stdout_bytes.startswith(b"PK")
    assert '"text": "JA"' in run_command(translate, model, "letter.docx", "--format", "jsonl").stdout
    monkeypatch.setattr(sys, "stdout", sys.__stdout__)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    with pytest.raises(ConfigError, match="a picture is no text"):
        checks.refuse_binary("a picture", "-")


def test_any_file_can_be_translated_as_lines(run_command, model, files, shouting):
    Path("menu.strings").write_text('"ja" = "nein";\n', encoding="utf-8")
    assert run_command(translate, model, "menu.strings", "--as-text").stdout == '"JA" = "NEIN";\n'
    assert run_command(translate, model, "page.html", "--as-text").stdout == '<P CLASS="A">JA</P>\n'
    assert run_command(translate, model, "--as-text", stdin="<html>ja").stdout == "<HTML>JA\n"


def test_markup_from_standard_input_is_refused(run_command, model, files, shouting):
    with pytest.raises(DataError, match=r"standard input is no plain text, for it begins with '<html'.*; --as-text"):
        run_command(translate, model, stdin="\n<html>\nja\n")
    with pytest.raises(DataError, match="standard input is no plain text"):
        run_command(translate, model, "--paragraphs", stdin="<html>\nja\n")
    assert shouting == []


def test_a_translation_may_have_another_extension_of_its_format(run_command, model, files, shouting):
    Path("a.pot").write_bytes(b'msgid "ja"\nmsgstr ""\n')
    run_command(translate, model, "a.pot", "-o", "a.po")
    assert Path("a.po").read_text(encoding="utf-8") == '#, fuzzy\nmsgid "ja"\nmsgstr "JA"\n'
    Path("a.sdlxliff").write_text(FILES["messages.xlf"][0], encoding="utf-8")
    run_command(translate, model, "a.sdlxliff", "-o", "a.xlf")
    assert Path("a.xlf").read_text(encoding="utf-8") == FILES["messages.xlf"][1]


def test_documents_are_translated_by_plain_code_if_asked(run_command, model, files, monkeypatch):
    Path("a.json").write_text('["Ein Hund."]', encoding="utf-8")
    asked, translate_lines = [], Translator.translate

    def watched(self, lines, **how):
        asked.append(how.get("plain", False))
        return translate_lines(self, lines, **how)

    monkeypatch.setattr(Translator, "translate", watched)
    for plain, options in ((False, []), (True, ["--plain"])):
        asked.clear()
        run_command(translate, model, "a.json", "-o", "b.json", *options)
        assert {*asked} == {plain}
    assert json.loads(Path("b.json").read_text()) == [translate_lines(Translator.load(model), ["Ein Hund."])[0].text]


def test_keys_say_which_strings_are_translated(run_command, model, files, shouting):
    Path("a.json").write_text('{"type": "ja", "label": "ja", "x": {"a,b": "nein"}}', encoding="utf-8")
    translated = run_command(translate, model, "a.json", "--keys", 'label,"x.a,b"').stdout
    assert translated == '{"type": "ja", "label": "JA", "x": {"a,b": "NEIN"}}'


def test_untranslated_paragraphs_are_printed_and_in_the_report(run_command, model, files, shouting):
    Path("a.md").write_text("ja\n\n> <p>nein</p>\n", encoding="utf-8")
    result = run_command(translate, model, "a.md", "--report", "page.html")
    assert result.stdout == "JA\n\n> <p>nein</p>\n"
    remark = "a.md: 1 paragraphs are left as they are, for their markup is not read: lines 3"
    assert f"{remark}\n" in result.stderr
    assert remark in Path("page.html").read_text(encoding="utf-8")


def test_units_with_a_forbidden_character_are_kept_and_counted(run_command, model, files, shouting):
    unit = "<trans-unit><source>ja{}</source></trans-unit>"
    written = '<xliff version="1.2">' + "\n".join(unit.format(sign) for sign in ("", "&#2;")) + "</xliff>"
    Path("a.xlf").write_text(written, encoding="utf-8")
    result = run_command(translate, model, "a.xlf", "--skip-bad-units")
    target = '</source><target state="needs-review-translation">JA</target>'
    assert result.stdout == written.replace("</source>", target, 1)
    assert "a.xlf: 1 units skipped; XML forbids a character in them: lines 2\n" in result.stderr


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "a.xlf",
            '<xliff version="1.2"><file target-language="{}"><trans-unit><source>ja</source></trans-unit></file>'
            "</xliff>",
        ),
        (
            "a.xliff",
            '<xliff version="2.0" trgLang="{}"><unit id="1"><segment><source>ja</source></segment></unit></xliff>',
        ),
        ("a.po", 'msgid ""\nmsgstr "Language: {}\\n"\n\nmsgid "ja"\nmsgstr ""\n'),
        (
            "a.tmx",
            '<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>ja</seg></tuv>'
            '<tuv xml:lang="{}"><seg>x</seg></tuv></tu></body></tmx>',
        ),
    ],
)
def test_target_language_of_a_file_other_than_the_models_is_reported(
    run_command, model, make_model_dir, tmp_path, shouting, name, content
):
    french = make_model_dir(info={"data": {"languages": ["en", "fr"]}})
    path = tmp_path / name
    for language, directory, is_told in [("de", french, True), ("fr-CA", french, False), ("de", model, False)]:
        path.write_text(content.format(language), encoding="utf-8")
        told = run_command(translate, directory, path).stderr
        assert (
            f"{name}: the file names de as its target language, and the model translates into fr\n" in told
        ) == is_told


def test_translate_prints_counts_of_segments_and_warnings(run_command, model, files, shouting):
    Path("a.tsv").write_text("ja 7\tyes\nnein 7\t\nwas\t\n42\t\n7 Hunde\t\n", encoding="utf-8")
    result = run_command(translate, model, "a.tsv", "--columns", "1,2")
    assert result.stdout == "ja 7\tyes\nnein 7\tNEIN 7\nwas\tWAS\n42\t\n7 Hunde\t7 HUNDE\n"
    assert result.stderr.splitlines() == [
        "clearhead: a.tsv: 5 segments: 3 translated, 1 kept, 1 without words; 2 flagged",
        "clearhead: a.tsv: 2 with numbers (a number of the source is missing, or a number is invented): "
        "row 2, column 1; row 5, column 1",
    ]


def test_the_report_has_what_was_translated(run_command, model, files, shouting):
    Path("a.json").write_text('["ja", 7,\n"nein 7", "42"]', encoding="utf-8")
    Path("out").mkdir()
    run_command(translate, model, "a.json", "messages.po", "-o", "out", "--report", "page.html")
    page = Path("page.html").read_text(encoding="utf-8")
    assert re.findall(r"<bdi>([^<]*, line [^<]*)</bdi>", page) == [
        "a.json, line 2",
        "a.json, line 1",
        "messages.po, entry 2, line 5",
    ]
    assert "<li>a.json: 3 segments: 2 translated, 0 kept, 1 without words</li>" in page
    assert "<li>messages.po: 2 segments: 1 translated, 1 kept, 0 without words</li>" in page
    assert names("out") == ["a.json", "messages.po"]


def test_a_line_of_several_segments_is_named_once(run_command, model, files, shouting):
    Path("a.json").write_text('["ja 7", "nein 7",\n"was 7"]', encoding="utf-8")
    said = run_command(translate, model, "a.json").stderr.splitlines()[1]
    assert (
        said
        == "clearhead: a.json: 3 with numbers (a number of the source is missing, or a number is invented): lines 1, 2"
    )
    left = run_command(translate, model, "a.json", "--only-if", 0.9).stderr.splitlines()[-1]
    assert left == "clearhead: a.json: 3 left untranslated, with a quality below --only-if: lines 1, 2"


def test_json_lines_hold_an_object_for_each_segment(run_command, model, files, shouting):
    Path("a.tsv").write_text("ja 7\tyes\nnein\t\n42\t\n", encoding="utf-8")
    arguments = ["a.tsv", "--columns", "1,2", "--only-missing", "--format", "jsonl"]
    lines = [json.loads(line) for line in run_command(translate, model, *arguments).stdout.splitlines()]
    assert lines[0] == {"line": 1, "place": "row 1, column 1", "status": "kept", "source": "ja 7", "text": "yes"}
    assert lines[2] == {"line": 3, "place": "row 3, column 1", "status": "without_words", "source": "42", "text": "42"}
    assert lines[1] == {
        "line": 2,
        "place": "row 2, column 1",
        "status": "translated",
        "source": "nein",
        "text": "NEIN",
        "score": -1.5,
        "tokens": ["nein"],
        "alternatives": [],
        "truncated": False,
        "source_truncated": False,
        "output_truncated": False,
        "sentences": [],
        "warnings": [],
        "warning_details": {},
        "score_per_token": -0.75,
        "length_ratio": 1.0,
    }
    Path("out").mkdir()
    run_command(translate, model, "messages.json", "-o", "any.name", "--format", "jsonl")
    run_command(translate, model, "messages.json", "film.srt", "-o", "out", "--format", "jsonl")
    assert json.loads(Path("any.name").read_text())["text"] == "NEIN"
    assert names("out") == ["film.srt.jsonl", "messages.json.jsonl"]


def test_a_segment_of_low_quality_stays_as_it_is_and_is_counted(run_command, model, files, shouting):
    Path("a.tsv").write_text("de\ten\nja ja ja\t\nnein\t\nwas\tdraft\n42\t\n", encoding="utf-8")
    given = "a.tsv", "--columns", "de,en", "--retranslate", "--only-if", "0.5"
    result = run_command(translate, model, *given, "--report", "page.html")
    assert result.stdout == "de\ten\nja ja ja\tJA JA JA\nnein\t\nwas\tdraft\n42\t\n"
    assert result.stderr.splitlines() == [
        "clearhead: a.tsv: 4 segments: 1 translated, 0 kept, 1 without words, 2 left; 0 flagged",
        "clearhead: a.tsv: 2 left untranslated, with a quality below --only-if: row 3, column de; row 4, column de",
    ]
    page = Path("page.html").read_text(encoding="utf-8")
    assert re.findall("quality ([0-9.]+),", page) == ["0.25", "0.25", "0.75"]
    objects = [
        json.loads(line) for line in run_command(translate, model, *given, "--format", "jsonl").stdout.splitlines()
    ]
    assert [(one["status"], one.get("quality")) for one in objects] == [
        ("translated", 0.75),
        ("left", 0.25),
        ("left", 0.25),
        ("without_words", None),
    ]
    assert (objects[1]["text"], objects[1]["place"]) == ("nein", "row 3, column de")


# Broken off and going on


@pytest.mark.parametrize("options", [[], ["--plain"], ["--quality", "--beam", "2"]])
def test_the_translator_knows_every_option(files, run_command, model, options):
    form = ["--format", "jsonl"] if "--quality" in options else []
    run_command(translate, model, "config.json", "-o", "b.json", *options, *form)
    assert len(Path("b.json").read_text(encoding="utf-8")) > 4


@pytest.fixture
def stopped(files, run_command, model, shouting, monkeypatch):
    """Stop the translation of a.json at its fifth string, and let it go on; returns what was read in the end."""
    monkeypatch.setattr(documents, "CHUNK_LINES", 2)
    Path("a.json").write_text('["a", "b", "c", "d", "stop", "e"]', encoding="utf-8")
    with pytest.raises(RuntimeError, match="stopped"):
        run_command(translate, model, "a.json", "-o", "b.json")
    assert not Path("b.json").exists()
    assert not list(Path().glob("*.partial"))
    assert len(Path(".b.json.progress.jsonl").read_text(encoding="utf-8").splitlines()) == 5
    Path("a.json").write_text('["a", "b", "c", "d", "go", "e"]', encoding="utf-8")
    shouting.clear()
    return shouting


def test_interrupted_translate_names_the_progress_file(files, model, shouting, monkeypatch, capsys):
    monkeypatch.setattr(documents, "CHUNK_LINES", 1)
    Path("a.json").write_text('["stop", "b"]', encoding="utf-8")
    Path("b.json").write_text('["b", "stop"]', encoding="utf-8")
    for name in ("a.json", "b.json"):
        with pytest.raises(RuntimeError, match="stopped"):
            main.run(["translate", str(model), name, "-o", f"new.{name}"])
    kept = "clearhead: what is done is kept in .new.b.json.progress.jsonl; the same command continues from there\n"
    assert capsys.readouterr().err == kept


def test_unencodable_translation_is_kept_in_the_progress_file(files, model, shouting, capsys):
    head = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\n'
    Path("a.po").write_bytes((head.format("ISO-8859-1") + 'msgid "\xff ja"\nmsgstr ""\n').encode("latin-1"))
    clearhead("translate", model, "a.po", "-o", "b.po")
    said = capsys.readouterr().err
    assert "a.po, line 4: the translation holds U+0178" in said
    assert "what is done is kept in .b.po.progress.jsonl; the same command continues from there" in said
    Path("a.po").write_text(head.format("UTF-8") + 'msgid "\xff ja"\nmsgstr ""\n', encoding="utf-8")
    shouting.clear()
    clearhead("translate", model, "a.po", "-o", "b.po")
    assert "\u0178 JA" in Path("b.po").read_text(encoding="utf-8")
    assert shouting == []


def test_repeated_command_continues_from_the_progress_file(stopped, run_command, model):
    result = run_command(translate, model, "a.json", "-o", "b.json", "--batch-tokens", 100)
    assert stopped == [["go", "e"]]
    assert Path("b.json").read_text(encoding="utf-8") == '["A", "B", "C", "D", "GO", "E"]'
    assert not Path(".b.json.progress.jsonl").exists()
    assert "clearhead: a.json: going on, 4 of 6 lines are in .b.json.progress.jsonl\n" in result.stderr


def test_another_model_or_other_settings_do_not_reuse_the_progress_file(stopped, run_command, model, make_model_dir):
    everything = [["a", "b"], ["c", "d"], ["go", "e"]]
    for arguments in (
        [make_model_dir("other", seed=8), "a.json"],
        [model, "a.json", "--beam", 1],
        [model, "a.json", "--format", "jsonl"],
    ):
        journal = Path(".b.json.progress.jsonl")
        kept = journal.read_bytes()
        stopped.clear()
        result = run_command(translate, *arguments, "-o", "b.json")
        assert stopped == everything
        assert "another model, version or other settings; the work begins anew" in result.stderr
        journal.write_bytes(kept)


def test_a_changed_line_of_a_journal_is_translated_again(stopped, run_command, model):
    journal = Path(".b.json.progress.jsonl")
    journal.write_bytes(journal.read_bytes().replace(b'"C"', b'"X"'))
    result = run_command(translate, model, "a.json", "-o", "b.json")
    assert stopped == [["c", "go"], ["e"]]
    assert Path("b.json").read_text(encoding="utf-8") == '["A", "B", "C", "D", "GO", "E"]'
    assert ".b.json.progress.jsonl: 1 lines of it were changed or damaged" in result.stderr


# Mistakes


INVALID = {
    ConfigError: [
        (["messages.json", "--nbest", 2], "--nbest cannot be used with a document, only with lines"),
        (["messages.json", "--prefix", "a"], "--prefix cannot be used with a document"),
        (["messages.json", "--columns", "a"], "messages.json: --columns has no meaning for a .json file"),
        (["messages.json", "--paragraphs"], "messages.json: --paragraphs has no meaning"),
        (["letter.txt", "--columns", "a"], "--columns needs a document or a file of rows, for example a .csv"),
        (["messages.json", "--to-lang", "de"], "messages.json: --to-lang has no meaning for a .json file"),
        (["letter.txt", "--from-lang", "de"], "--from-lang needs a document or --memory FILE"),
        (["glossary.tmx", "-o", "b.tmx"], "glossary.tmx: give --from-lang and --to-lang; its languages: en"),
        (["letter.txt", "--keys", "a"], "--keys needs a document"),
        (["products.csv", "--keys", "a"], "products.csv: --keys has no meaning for a .csv file"),
        (["messages.json", "--keys", "x"], "messages.json has no string below the key 'x'"),
        (["messages.json", "--keys", '"x'], '--keys "x: unexpected end of data'),
        (["letter.txt", "--only-missing"], "--only-missing needs a document"),
        (["messages.json", "letter.txt", "-o", "out"], "messages.json is a document and letter.txt is lines"),
        (["messages.json", "film.srt"], "several documents need a directory"),
        (["messages.json", "film.srt", "-o", "b.json"], "several documents need a directory"),
        (["messages.json", "out/messages.json", "-o", "new"], "several documents are called messages.json"),
        (["messages.json", "-o", "b.txt"], "b.txt must have another extension, for it will be a .json file"),
        (["letter.txt", "--paragraphs", "-o", "b.srt"], "it will be plain text, as letter.txt is"),
        (["--paragraphs", "-o", "b.srt"], "it will be plain text, as standard input is"),
        (["--paragraphs", "-o", "new"], "standard input has no name to have in a directory"),
        (["messages.json", "--report", "page"], "--report page: the page is a file whose name ends in .html"),
        (["messages.json", "--report", "-"], "--report -: the page is a file"),
        (["messages.json", "page.html", "--report", "page.html"], "several documents need a directory"),
        (["page.html", "-o", "new", "--report", "new/page.html"], "a translation goes there"),
        (["products.csv", "-o", "b.csv"], "products.csv has 2 columns"),
        (["products.csv", "--columns", "name,id,x"], "products.csv has no column 'x'"),
        (["products.csv", "--columns", '"na'], '--columns "na: unexpected end of data'),
        (["products.csv", "--columns", ""], "columns : name one or two different ones"),
        (["letter.txt", "--as-text", "--paragraphs"], "--as-text cannot be used with --paragraphs"),
        (["products.csv", "--as-text", "--columns", "1"], "--columns needs a document"),
        (["letter.docx"], "letter.docx is no text, which a terminal could show; name a file with -o, or"),
        (["messages.json", "--beam", 0, "-o", "b.json"], "decode.beam_size = 0"),
    ],
    DataError: [
        (["messages.json", "-o", "messages.json"], "messages.json is an input as well"),
        (["messages.json", "film.srt", "-o", "."], "./messages.json is an input as well"),
        (["messages.json", "-o", "film.srt/b.json"], "film.srt is not a directory that may be changed"),
        (["page.html", "-o", "b.html", "--report", "page.html"], "page.html is an input as well"),
        (["page.html", "--report", "film.srt/b.html"], "film.srt is not a directory that may be changed"),
        (["missing.json"], "missing.json: there is no such file"),
        (["bad.json", "-o", "b.json"], "bad.json, line 2: this is no JSON"),
        (["messages.json", "bad.json", "-o", "new"], "bad.json, line 2: this is no JSON"),
        (
            ["menu.strings"],
            "menu.strings: .strings files are not read as documents; convert it to XLIFF or PO, with Okapi's Tikal or "
            "the Translate Toolkit, for example, and back afterwards; --as-text translates every line of it as it is",
        ),
        (["a.mdx"], "a.mdx: .mdx files are not read as documents; if all of it is Markdown, name a copy"),
        (["a.mdx", "--paragraphs"], "a.mdx: .mdx files are not read as documents"),
        (["page.de"], "page.de is no plain text, for it begins with '<html'; give it the extension of"),
        (["page.de", "--paragraphs"], "of its format; --as-text translates every line of it as it is"),
        (["letter.txt", "menu.strings"], "menu.strings: .strings files are not read"),
        (["menu.strings", "--paragraphs"], "menu.strings: .strings files are not read"),
        (["messages.json.gz"], "messages.json.gz is a compressed document"),
    ],
}


@pytest.mark.parametrize(
    ("error", "arguments", "message"), [(error, *case) for error, cases in INVALID.items() for case in cases]
)
def test_translate_rejects_invalid_document_arguments_and_writes_nothing(
    run_command, model, files, arguments, error, message
):
    for directory in ("out", "new"):
        Path(directory).mkdir()
    Path("out/messages.json").write_text("[]")
    Path("messages.json.gz").write_bytes(b"")
    Path("bad.json").write_text("[\n}")
    Path("menu.strings").write_text('"ja" = "nein";\n')
    Path("a.mdx").write_text("ja\n")
    Path("page.de").write_text("<html><p>ja</p>\n")
    before = names(files), names("out")
    with pytest.raises(error) as caught:
        run_command(translate, model, *arguments)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert (names(files), names("out"), names("new")) == (*before, [])


def test_unwritable_output_is_rejected_before_translating(run_command, model, files, shouting):
    Path("b.json").symlink_to("film.srt/b.json")
    with pytest.raises(DataError, match=r"cannot write b\.json: .*film.srt is not a directory"):
        run_command(translate, model, "messages.json", "-o", "b.json")
    assert shouting == []


def test_a_device_takes_a_document_and_has_no_journal(run_command, model, files, shouting):
    run_command(translate, model, "messages.json", "-o", os.devnull)
    assert not [name for name in os.listdir("/dev") if "progress" in name]


def test_a_tag_that_is_unknown_is_named_with_the_line_of_its_segment(run_command, make_model_dir, files):
    Path("a.json").write_text('["ja",\n"ja", "<2xx> nein"]')
    with pytest.raises(DataError, match=r"^a.json, line 2: unknown language tag <2xx>"):
        run_command(translate, make_model_dir(language_tags=("de", "fr")), "a.json", "--target-lang", "de")


def test_a_mistake_is_one_line_and_status_1(model, files, capsys):
    assert clearhead("translate", model, "messages.json", "-o", "b.txt") == 1
    assert capsys.readouterr().err.count("\n") == 1
    assert issubclass(ConfigError, ClearheadError)


def test_finished_translations_are_kept_without_retranslate(run_command, model, files, shouting):
    Path("a.po").write_text('msgid "ja"\nmsgstr "yes"\n\nmsgid "nein"\nmsgstr ""\n', encoding="utf-8")
    kept = 'msgid "ja"\nmsgstr "yes"\n\n#, fuzzy\nmsgid "nein"\nmsgstr "NEIN"\n'
    for arguments in ([], ["--only-missing"]):
        assert run_command(translate, model, "a.po", *arguments).stdout == kept
    replaced = kept.replace('msgid "ja"\nmsgstr "yes"', '#, fuzzy\nmsgid "ja"\nmsgstr "JA"')
    assert run_command(translate, model, "a.po", "--retranslate").stdout == replaced
    Path("a.tsv").write_text("ja\tyes\nnein\t\n", encoding="utf-8")
    for arguments, written in [([], "ja\tyes\nnein\tNEIN\n"), (["--retranslate"], "ja\tJA\nnein\tNEIN\n")]:
        assert run_command(translate, model, "a.tsv", "--columns", "1,2", *arguments).stdout == written
