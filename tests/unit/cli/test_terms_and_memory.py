"""`translate --terms` and `--memory`, of lines and documents: the commands of docs/terms.md, and what is said."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from clearhead.bundle import save_bundle
from clearhead.cli.evaluate import evaluate
from clearhead.cli.explain import explain
from clearhead.cli.search_options import TermOptions
from clearhead.cli.translate import translate
from clearhead.decoding import neighbours
from clearhead.errors import ConfigError, DataError
from clearhead.translation.match_repair import EXACT_FROM
from clearhead.translation.memory import LEAST_SIMILARITY
from clearhead.translation.memory_file import write_memory

PAGE = (Path(__file__).parents[3] / "docs" / "terms.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^clearhead translate runs/en-de .*$", PAGE, re.MULTILINE)
MEMORY = """<tmx version="1.4"><header srclang="en"/><body>
<tu><tuv xml:lang="en"><seg>Open the file.</seg></tuv><tuv xml:lang="de"><seg>Öffnen Sie die Datei.</seg></tuv></tu>
<tu><tuv xml:lang="en"><seg>Close the window now.</seg></tuv><tuv xml:lang="de"><seg>Fenster &amp; zu!</seg></tuv></tu>
</body></tmx>"""
CATALOGUE = r"""msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\n"

# by hand
# translation memory, 50 %: old
#: a.c:1
msgid "Open the file."
msgstr ""

msgid "Close the door now.\n"
msgstr ""
"""
XLIFF = {
    "1.2": "<trans-unit id='1'><source>Open the file.</source></trans-unit>"
    "<trans-unit id='2'><source>Close the door now.</source><target/></trans-unit>",
    "2.0": "<unit id='1'><segment><source>Open the file.</source></segment>"
    "<segment id='q'><source>Close the door now.</source></segment></unit>",
}


@pytest.fixture(scope="module")
def model(make_bundle, tmp_path_factory):
    directory = tmp_path_factory.mktemp("models") / "model"
    save_bundle(directory, make_bundle(decode={"extra_length": 20}), golden=[], card="# A small model\n")
    return directory


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("terms.tsv").write_text("# ours\n\ngearbox\tGetriebe\tGetriebes\nfile\tDatei\n", encoding="utf-8")
    Path("memory.tmx").write_text(MEMORY, encoding="utf-8")
    pairs = [("Open the file.", "Öffnen Sie die Datei.", None), ("Close the window now.", "Fenster & zu!", None)]
    write_memory("memory.sqlite", pairs, ("en", "de"))
    Path("text.txt").write_text("Open the file.\nThe gearbox\n\nClose the door now.\n", encoding="utf-8")
    Path("messages.po").write_text(CATALOGUE, encoding="utf-8")
    Path("messages.xlf").write_text(f'<xliff version="1.2">{XLIFF["1.2"]}</xliff>', encoding="utf-8")


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_the_page_run(run_command, model, command):
    arguments = shlex.split(command)[3:]
    result = run_command(translate, model, *arguments)
    assert Path(arguments[-1]).exists() or json.loads(result.stdout.splitlines()[0])
    assert ("terms met" in result.stderr) == ("--terms" in arguments)
    assert ("1 reused, 1 similar" in result.stderr) == ("--memory" in arguments)


@pytest.mark.parametrize(
    ("line", "found"),
    [("Close the door now.", "0 reused, 1 similar"), ("Open the file.", "1 reused, 0 similar"), ("The gearbox", None)],
)
def test_translation_memory_matches_are_reported_only_if_any(run_command, model, line, found):
    Path("text.txt").write_text(f"{line}\n", encoding="utf-8")
    said = run_command(translate, model, "text.txt", "--memory", "memory.tmx").stderr
    assert said.count("text.txt: translation memory: ") == (found is not None)
    assert (found or "") in said


def test_jsonl_has_the_terms_and_what_the_memory_has(run_command, model):
    result = run_command(
        translate, model, "text.txt", "--terms", "terms.tsv", "--memory", "memory.tmx", "--format", "jsonl"
    )
    first, second, blank, last = map(json.loads, result.stdout.splitlines())
    assert (first["text"], first["score"], first["memory"]["is_reused"]) == ("Öffnen Sie die Datei.", None, True)
    (use,) = second["terms"]
    assert (use["source"], use["reason"] in (None, "costly")) == ("gearbox", True)  # the model is untrained
    assert (use["without"] is not None) == (use["reason"] == "costly")
    assert second["terms"][0]["form"] in ("Getriebe", "Getriebes")
    assert "memory" not in second
    assert (blank["text"], blank["terms"]) == ("", [])
    assert last["memory"] == {
        "source": "Close the window now.",
        "target": "Fenster & zu!",
        "similarity": 0.8,
        "is_reused": False,
    }
    assert "text.txt: 1 of 1 terms met" in result.stderr
    plain = run_command(translate, model, "text.txt", "--format", "jsonl").stdout
    assert not {"terms", "memory"} & json.loads(plain.splitlines()[0]).keys()


def test_a_catalogue_says_in_comments_what_the_memory_has(run_command, model):
    run_command(translate, model, "messages.po", "--memory", "memory.tmx", "-o", "out.po")
    lines = Path("out.po").read_text(encoding="utf-8").splitlines()
    assert lines[3:9] == [
        "# by hand",
        "# translation memory, 100 %: reused",
        "#: a.c:1",
        "#, fuzzy",
        'msgid "Open the file."',
        'msgstr "Öffnen Sie die Datei."',
    ]
    assert "# translation memory, 80 %: Close the window now. -> Fenster & zu!" in lines
    if shutil.which("msgfmt"):
        subprocess.run(["msgfmt", "--check-format", "-o", "/dev/null", "out.po"], check=True)


def test_the_languages_of_a_memory_may_be_given_beside_any_document(run_command, model):
    third = '<tuv xml:lang="fr"><seg>Ouvrez.</seg></tuv></tu>'
    Path("memory.tmx").write_text(MEMORY.replace("</tu>", third), encoding="utf-8")
    arguments = [translate, model, "messages.po", "--memory", "memory.tmx", "-o", "out.po"]
    with pytest.raises(ConfigError) as refused:
        run_command(*arguments)
    advice = str(refused.value).partition("for example ")[2].split()
    assert advice == ["--from-lang", "en", "--to-lang", "de"]
    run_command(*arguments, *advice)
    assert "translation memory, 100 %: reused" in Path("out.po").read_text(encoding="utf-8")


@pytest.mark.parametrize("version", XLIFF)
def test_an_xliff_has_the_matches_in_its_own_convention(run_command, model, version):
    Path("in.xlf").write_text(f'<xliff version="{version}">{XLIFF[version]}</xliff>', encoding="utf-8")
    run_command(translate, model, "in.xlf", "--memory", "memory.tmx", "-o", "out.xlf")
    root = ElementTree.parse("out.xlf").getroot()
    assert root.find(".//target").text == "Öffnen Sie die Datei."
    if version == "1.2":
        states = [target.get("state-qualifier") for target in root.findall("trans-unit/target")]
        assert states == ["exact-match", None]
        assert [one.get("match-quality") for one in root.findall("trans-unit/alt-trans")] == ["100%", "80%"]
        assert root.findall("trans-unit/alt-trans/target")[1].text == "Fenster & zu!"
    else:
        matches = root.findall("unit/{urn:oasis:names:tc:xliff:matches:2.0}matches/*")
        ids = [segment.get("id") for segment in root.findall("unit/segment")]
        assert [one.get("ref") for one in matches] == [f"#{one}" for one in ids]
        assert [one.get("similarity") for one in matches] == ["100.0", "80.0"]
        assert matches[1].find("target").text == "Fenster & zu!"


def test_a_missed_term_is_named_with_its_line(run_command, make_model_dir):
    model = make_model_dir(decode={"extra_length": 1})
    Path("few.txt").write_text("x\nfile\n", encoding="utf-8")
    Path("long.tsv").write_text(f"file\t{'Datei' * 9}\n", encoding="utf-8")
    result = run_command(translate, model, "few.txt", "--terms", "long.tsv")
    assert f"few.txt: 0 of 1 terms met; missed: line 2: 'file' as '{'Datei' * 9}' (no transl" in result.stderr
    assert result.stdout == run_command(translate, model, "few.txt").stdout


def test_origin_of_depends_on_terms(run_command, model, monkeypatch):
    from clearhead.translation.documents import origin_of
    from clearhead.translation.terminology import Terms
    from clearhead.translation.translator import Translator

    translator, terms = Translator.load(model), Terms.load("terms.tsv")
    assert origin_of(translator, terms=terms) != origin_of(translator)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fuzzy", "0.5"], "--fuzzy needs --memory FILE"),
        (["--memory-weight", "0.5"], "--memory-weight needs --memory FILE"),
        (["--memory", "memory.tmx", "--memory-weight", "1"], "decode.memory_weight = 1"),
        (["--memory", "memory.tmx", "--fuzzy", "0"], "must be above 0 and at most 1"),
        (["--memory", "memory.tmx", "--nbest", "2"], "--nbest cannot be used with --memory, which has one translation"),
        (
            ["--memory", "memory.tmx", "--prefix", "a"],
            "--prefix cannot be used with --memory, whose translations are fixed",
        ),
        (["--terms", "terms.tsv", "--sample"], "cannot be with samples"),
        (["--from-lang", "en"], "--from-lang needs a document or --memory FILE"),
    ],
)
def test_translate_rejects_invalid_terms_and_memory_options(run_command, model, arguments, message):
    with pytest.raises(ConfigError, match=message):
        run_command(translate, model, "text.txt", *arguments)


@pytest.fixture
def consulting(make_translator, monkeypatch):
    """Return the directory of a model that the compiled core computes, so that it can consult a memory."""
    monkeypatch.setattr(neighbours, "REACH", 50.0)  # states of a random model are not near each other
    bundle = make_translator(d_model=64, num_heads=2, d_k=16, d_v=32, d_ff=96).bundle
    save_bundle("core", bundle, golden=[], card="# A small model\n")
    return Path("core")


def test_lines_and_documents_consult_the_memory(run_command, consulting):
    texts = {}
    for weight in ("0", "0.95"):
        options = ["--memory", "memory.tmx", "--memory-weight", weight]
        texts[weight] = run_command(translate, consulting, "text.txt", *options).stdout.splitlines()
        run_command(translate, consulting, "messages.po", *options, "-o", f"{weight}.po")
    alone = run_command(translate, consulting, "text.txt").stdout.splitlines()
    assert texts["0"][1:] == alone[1:]  # the first line is reused
    assert texts["0.95"][3] != alone[3]
    assert texts["0.95"][:3] == texts["0"][:3]
    assert Path("0.po").read_text("utf-8") != Path("0.95.po").read_text("utf-8")


def test_a_model_that_cannot_consult_the_memory_is_named_in_one_notice(run_command, consulting, model, make_translator):
    said = "translation memory: similar pairs are not consulted; only a single encoder-decoder on the CPU consults"
    alone = make_translator(num_encoder_layers=0, tying="decoder", positions="learned", max_positions=64)
    save_bundle("decoder", alone.bundle, golden=[], card="# A small model\n")
    memory, others = ["--memory", "memory.tmx"], ["--ensemble", consulting]
    runs = {
        "ensemble": (translate, consulting, "text.txt", *others),
        "ensemble, a document": (translate, consulting, "messages.po", "-o", "out.po", *others),
        "decoder alone": (translate, Path("decoder"), "text.txt"),
        "not by the core": (translate, model, "text.txt"),
        "evaluated": (evaluate, model, "--source", "text.txt", "--reference", "text.txt"),
        "explained": (explain, Path("decoder"), "Open the door."),
    }
    assert {name: run_command(*run, *memory).stderr.count(said) for name, run in runs.items()} == dict.fromkeys(runs, 1)
    for name in ("ensemble", "decoder alone", "not by the core", "explained"):
        assert said not in run_command(*runs[name], *memory, "--memory-weight", "0").stderr
        with pytest.raises(ConfigError, match="memory_weight: only a single encoder-decoder on the CPU"):
            run_command(*runs[name], *memory, "--memory-weight", "0.5")
    assert said not in run_command(translate, consulting, "text.txt", *memory).stderr


def test_evaluation_uses_the_memory(run_command, consulting):
    Path("ref.txt").write_text("\u00d6ffnen Sie die Datei.\nDas Getriebe\n\nT\u00fcr zu!\n", encoding="utf-8")
    given = [consulting, "--source", "text.txt", "--reference", "ref.txt", "-o"]
    run_command(evaluate, *given, "alone.txt")
    run_command(evaluate, *given, "used.txt", "--memory", "memory.tmx", "--memory-weight", "0.9")
    alone, used = (Path(name).read_text("utf-8").splitlines() for name in ("alone.txt", "used.txt"))
    assert used[0] == "\u00d6ffnen Sie die Datei."
    assert used[3] != alone[3]
    assert used[1:3] == alone[1:3]


def test_translate_names_the_line_of_a_terms_file_without_a_tab(run_command, model):
    Path("bad.tsv").write_text("a\tb\nc\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.tsv:2: no tab"):
        run_command(translate, model, "text.txt", "--terms", "bad.tsv")


def test_the_help_and_the_page_state_the_similarities_of_the_code():
    assert TermOptions.fuzzy.show_default == str(LEAST_SIMILARITY)
    assert TermOptions.reuse_from.show_default.startswith(f"{EXACT_FROM} for numbers")
    assert f"at least `--fuzzy` ({LEAST_SIMILARITY}):" in PAGE
    assert f"By default ({EXACT_FROM}) only what needs no model is repaired" in PAGE
    serving = pytest.importorskip("clearhead.serving.schemas")
    assert f"by default {EXACT_FROM} where" in serving.TranslateRequest.model_fields["reuse_from"].description


@pytest.mark.parametrize("name", ["text.txt", "messages.po"])
def test_a_glossary_of_several_languages_needs_the_two_of_the_translation(run_command, model, name):
    Path("terms.csv").write_text("en;fr;de;note\nfile;fichier;Datei;of ours\n", encoding="utf-8")
    arguments = [model, name, "--terms", "terms.csv", "-o", f"out{Path(name).suffix}"]
    with pytest.raises(ConfigError, match=r"it has 'en', 'fr', 'de', 'note', .* --from-lang and --to-lang"):
        run_command(translate, *arguments)
    assert not Path(arguments[-1]).exists()
    assert "1 of 1 terms met" in run_command(translate, *arguments, "--from-lang", "en", "--to-lang", "fr").stderr
    assert "fichier" in Path(arguments[-1]).read_text(encoding="utf-8").lower()
