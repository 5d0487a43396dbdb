"""What needs no PyTorch runs in a process that cannot import it, with the same outputs, bit for bit."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest

from clearhead.inspection.explain import explain
from clearhead.kernels.library import library
from clearhead.runtime.installation import pip_install
from clearhead.translation.translator import Translator
from commands import clearhead

pytestmark = pytest.mark.skipif(library() is None, reason="without the compiled core PyTorch does the work")

SHAPE = {"d_model": 64, "num_heads": 2, "d_ff": 64}

MISSING = "import sys; sys.modules['torch'] = None"
"""Makes importing PyTorch fail, as if it were not installed."""

BEGIN = """
import contextlib, io, json, pathlib, sys
import clearhead
directory, source, target = sys.argv[1:]
lines = pathlib.Path(source).read_text(encoding="utf-8").splitlines()
def run(*arguments):
    from clearhead.cli.main import run
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        run([*arguments])
    return out.buffer.getvalue().decode()
"""

TRANSLATOR = """
translator = clearhead.Translator.load(directory, device="auto")
if "torch" in sys.modules and sys.modules["torch"] is not None:
    translator.bundle.model  # its module, from which the engine is made
ways = [{}, {"beam_size": 1}, {"num_best": 3}, {"precision": "int8"}, {"sampling": clearhead.Sampling(), "num_best": 2},
        {"diversity": 0.5, "num_best": 2}, {"prefix": "A"}, {"mbr": 4}, {"alignments": True}]
found = [
    [repr((one.text, one.tokens, one.score, one.alignment)) for one in translator.translate(lines, **way)]
    for way in ways
]
found.append(translator.score(lines, lines[::-1]))
both = clearhead.Translator.load(directory, ensemble=[directory])
found.append([repr((one.text, one.score)) for one in both.translate(lines)])
"""

COMMANDS = """
found = [
    run("translate", directory, source), run("translate", directory, source, "--beam", "1", "--format", "jsonl"),
    run("score", directory, "--source", source, "--target", target), run("verify", directory), run("info", directory),
    run("evaluate", directory, "--source", source, "--reference", target, "--json").partition("sentences_per")[0],
]
"""

EXPORT = """
import tempfile
place = tempfile.mkdtemp()
said = run("export", directory, "-o", place + "/small", "--to", "clearhead", "--precision", "int8", "--source", source,
           "--target", target)
found = [said.replace(place, ""), run("translate", place + "/small", source), run("verify", place + "/small"),
         pathlib.Path(place, "small/README.md").read_text(encoding="utf-8")]
"""

SERVER = """
import asyncio, httpx
from clearhead.config import ServeConfig
from clearhead.serving.app import make_app
from clearhead.serving.keys import Keys
from clearhead.serving.models import ModelSource
from clearhead.serving.search_process import SearchProcesses
from clearhead.serving.service import Service
config = ServeConfig()
processes = SearchProcesses(config.max_batch, config.max_searches)
service = Service([ModelSource("de-en", directory)], config, Keys({}), device="auto", search_processes=processes)
service.load()
async def ask():
    async with httpx.AsyncClient(transport=httpx.ASGITransport(make_app(service)), base_url="http://a") as client:
        answers = [await client.post("/translate", json={"q": lines, "source": "de", "target": "en"})]
        answers.append(await client.post("/v1/score", json={"texts": lines[:1], "translations": ["A b"]}))
        answers.append(await client.get("/v1/models"))
        return [[answer.status_code, answer.json()] for answer in answers]
found = asyncio.run(ask())
service.close()
"""


WORKS = {"translator": TRANSLATOR, "commands": COMMANDS, "export": EXPORT, "server": SERVER}


@pytest.fixture
def files(make_model_dir, sentences, tmp_path):
    source, target = tmp_path / "source.txt", tmp_path / "target.txt"
    source.write_text("".join(f"{line}\n" for line in sentences), encoding="utf-8")
    target.write_text("".join(f"{line}\n" for line in reversed(sentences)), encoding="utf-8")
    return str(make_model_dir(**SHAPE)), str(source), str(target)


def test_outputs_are_the_same_without_pytorch(files, monkeypatch, capsys):
    program = BEGIN + "".join(f"{work}\nprint(json.dumps(found))\n" for work in WORKS.values())
    without = ran_with(MISSING + program, *files)
    monkeypatch.setattr(sys, "argv", ["", *files])
    exec(program, {})  # here PyTorch is imported already, which takes longer than any of the works
    expected = capsys.readouterr().out
    for name, found, other in zip(WORKS, without.splitlines(), expected.splitlines(), strict=True):
        assert json.loads(found) == json.loads(other), name
        assert all(json.loads(found))


def in_one_process(start, commands, directory=None):
    """Return exit status, output and messages of each command: one process for all, since each takes half a second."""
    program = f"""{start}
import contextlib, io, json
from clearhead.cli.main import run
said = []
for arguments in json.loads(sys.argv[1]):
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()) as told:
        try: run(arguments)
        except SystemExit as end: said.append((end.code, out.buffer.getvalue().decode(), told.getvalue()))
print(json.dumps(said))"""
    command = [sys.executable, "-c", program, json.dumps(commands)]
    ran = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    said = json.loads(ran.stdout)
    assert len(said) == len(commands)
    return said


NEED_PYTORCH = [
    (["train", "config.toml"], "clearhead train"),
    (["explain", "MODEL", "Ein Hund.", "--ablate"], "--ablate"),
    (["explain", "MODEL", "Ein Hund.", "--attribution", "-o", "a.json"], "--attribution"),
    (["explain", "OTHER", "Ein Hund."], r"this model \(for fp32 the compiled core takes .+ in multiples of 32\)"),
    (["export", "MODEL", "-o", "theirs", "--to", "hf"], "export to hf"),
    (["optimize", "MODEL", "--source", "SOURCE", "--target", "TARGET"], "clearhead optimize"),
    (["serve", "OTHER", "--port", "0"], r"this model \(for fp32 the compiled core takes .+ in multiples of 32\)"),
    (["translate", "OTHER", "SOURCE"], r"this model \(for fp32 the compiled core takes .+ in multiples of 32\)"),
]


def test_commands_that_need_pytorch_say_so_in_one_line(files, make_model_dir, tmp_path):
    places = dict(zip(("MODEL", "SOURCE", "TARGET"), files, strict=True)) | {"OTHER": str(make_model_dir("other"))}
    commands = [[places.get(one, one) for one in arguments] for arguments, _ in NEED_PYTORCH]
    said = in_one_process(MISSING, commands, tmp_path)
    for (_, what), (status, _, told) in zip(NEED_PYTORCH, said, strict=True):
        assert status == 1
        expected = rf"clearhead: {what} needs PyTorch, which is not installed: {re.escape(pip_install('train'))}\n"
        assert re.fullmatch(expected, told.splitlines(keepends=True)[-1]), told  # a server logs before


def test_a_model_that_nothing_here_computes_is_refused_when_it_is_loaded(files):
    program = f"""{MISSING}
import clearhead
from clearhead.kernels import library
library._load = lambda: (None, None)  # as if there had been no compiler
try: clearhead.Translator.load(sys.argv[1])
except clearhead.ClearheadError as error: print(error)"""
    assert ran_with(program, files[0]) == (
        "this model (clearhead's compiled core is not in use: this installation was built for no particular platform, "
        f"or without a C compiler) needs PyTorch, which is not installed: {pip_install('train')}\n"
    )


def test_files_that_need_pyarrow_say_so_in_one_line(tmp_path):
    tmp_path.joinpath("pairs.tsv").write_text("a\tb\n", encoding="utf-8")
    outputs = ["pairs.parquet", "pairs.arrow", "pairs.feather"]
    for output in outputs:
        tmp_path.joinpath(output).write_bytes(b"PAR1")
    given = [(output, one) for output in outputs for one in (["stats", output], ["convert", "pairs.tsv", output])]
    commands = [["corpus", *one] for _, one in given]
    said = in_one_process("import sys; sys.modules['pyarrow'] = None", commands, tmp_path)
    for (output, _), (status, _, told) in zip(given, said, strict=True):
        expected = f"clearhead: {output}: Parquet and Arrow files need pyarrow, which is not installed: "
        assert (status, told.splitlines()[-1]) == (1, f"{expected}{pip_install('arrow')}")
        assert "Traceback" not in told


def test_without_babel_languages_are_known_by_their_names(tmp_path):
    tmp_path.joinpath("pairs.csv").write_text("German,English\nja,yes\n", encoding="utf-8")
    program = "import sys; sys.modules['babel'] = None; from clearhead.cli.main import run; run()"
    given = ["corpus", "stats", "pairs.csv", "--from-lang", "de", "--to-lang", "en", "--json"]
    ran = subprocess.run(
        [sys.executable, "-c", program, *given], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert "German" in json.loads(ran.stdout)["files"][0]


def test_a_name_of_the_package_that_needs_pytorch_says_so(files):
    program = f"{MISSING}; import clearhead; clearhead.train"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.stderr.endswith(
        f"ClearheadError: clearhead.train needs PyTorch, which is not installed: {pip_install('train')}\n"
    )


def test_the_package_itself_imports_next_to_nothing():
    program = "import sys; before = set(sys.modules); import clearhead; print(len(set(sys.modules) - before))"
    slow = "print({'numpy', 'pydantic', 'importlib.metadata', 'typer'} & sys.modules.keys())"
    ran = subprocess.run([sys.executable, "-c", f"{program}; {slow}"], capture_output=True, text=True, check=True)
    count, found = ran.stdout.splitlines()
    assert found == "set()"
    assert int(count) < 40


def test_the_first_collection_puts_the_usual_threshold_back():  # a server with 100,000 kept hundreds of MB of garbage
    program = """
import gc
usual = gc.get_threshold(), len(gc.callbacks)
import clearhead.cli
at_start = gc.get_threshold()
gc.collect()
print(at_start[0] > 60_000, (gc.get_threshold(), len(gc.callbacks)) == usual)"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "True True\n"


UNUSED = (
    *("babel", "fastapi", "jaxtyping", "markdown_it", "matplotlib", "pyarrow", "rapidfuzz", "sacrebleu", "tomli_w"),
    *("backports.zstd", "concurrent.futures", "logging", "multiprocessing"),
    *("clearhead.cli.train", "clearhead.config.train", "clearhead.decoding.batched_sampling"),
    *("clearhead.decoding.constraints", "clearhead.decoding.grid_beam_search"),
    *("clearhead.formats.document", "clearhead.formats.pair_files"),
    *("clearhead.formats.xml", "clearhead.inspection", "clearhead.serving", "clearhead.tokenizers.foreign"),
    *("clearhead.training",),
)
"""Modules that only other work needs than translating lines."""


def test_translating_lines_collects_no_garbage_looks_for_no_plugins_and_imports_little(files):
    program = f"""{MISSING}
import atexit, gc, importlib.metadata, json
collections, looked = [], []
def note():
    parts = [vars(part) for name, part in sys.modules.items() if name.startswith("clearhead")]
    every = {{id(one): one for part in parts for one in part.values() if isinstance(one, type)}}
    own = [one for one in every.values() if one.__module__.startswith("clearhead")]
    classes = sum("__dataclass_fields__" in vars(one) for one in own)
    unused = [*{{*{UNUSED}}} & sys.modules.keys()]
    print(json.dumps([collections, looked, gc.get_freeze_count() > 10_000, unused, classes]), file=sys.stderr)
atexit.register(note)
importlib.metadata.entry_points = lambda **group: looked.append(str(group)) or []
sys.argv[1:] = ["translate", *sys.argv[1:3]]
import clearhead
gc.callbacks.append(lambda phase, info: collections.append(phase))
from clearhead.cli.main import run
run()"""
    ran = subprocess.run([sys.executable, "-c", program, *files], capture_output=True, text=True, check=True)
    *found, dataclasses = json.loads(ran.stderr.splitlines()[-1])
    assert found == [[], [], True, []]
    assert dataclasses <= 20  # each takes half a millisecond to make


def test_explanations_without_pytorch_have_the_same_attention_steps_and_search(files, sentences, capsys):
    ways = [(beam, target) for beam in (1, 4) for target in (None, "A dog.")]
    commands = [["explain", files[0], sentences[0], "--beam", "4"]]
    for beam, target in ways:
        command = ["explain", files[0], sentences[0], "--beam", str(beam), "--format", "json"]
        commands.append([*command, *(["--target", target] if target else [])])
    (_, shown, _), *said = in_one_process(f"{MISSING}; sys.modules['jaxtyping'] = None", commands)
    clearhead(*commands[0])
    assert shown == capsys.readouterr().out
    for (beam, target), (_, out, _) in zip(ways, said, strict=True):
        without, settings = json.loads(out), {"beam_size": beam}
        found = explain(Translator.load(files[0], device="cpu"), sentences[0], target, **settings).to_dict()
        for name in ("logit_lens", "residual_norms"):
            assert found.pop(name)
            assert not without.pop(name)
        assert_close(without, found)


def ran_with(program, *arguments):
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assert_close(found, expected):
    """Compare nested JSON values; numbers to rounding."""
    assert type(found) is type(expected) or {type(found), type(expected)} == {int, float}
    if isinstance(found, dict):
        assert found.keys() == expected.keys()
        for name in found:
            assert_close(found[name], expected[name])
    elif isinstance(found, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other)
    elif isinstance(found, int | float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    else:
        assert found == expected
