"""Bulk work with `--ray`: the bytes of one process, whatever is killed; and errors of one line."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace

import killed_workers
import numpy as np
import psutil
import pytest

from clearhead.bundle import load_bundle
from clearhead.bundle.side_files import SHORTLIST_FILE, add_side_files
from clearhead.cli.corpus_prepare import prepare
from clearhead.cli.evaluate import evaluate
from clearhead.cli.score import score
from clearhead.cli.synthesize import backtranslate, distill
from clearhead.cli.translate import translate
from clearhead.data import staged_corpus
from clearhead.decoding.shortlist import Shortlist
from clearhead.errors import ClearheadError, ConfigError, DataError, ModelError
from clearhead.files import output_parts
from clearhead.formats import read_pairs, write_pairs
from clearhead.runtime import ray_shards
from clearhead.runtime.installation import pip_install
from clearhead.runtime.ray_shards import Actors
from clearhead.runtime.version import full_version
from clearhead.translation import documents, lines
from clearhead.translation.documents import origin_of
from clearhead.translation.line_shards import Models, Scoring, load_worker, origin_on
from clearhead.translation.translator import Translator
from small_runs import write_numbers

LINES = [f"Ein Hund, {number} Hunde." if number % 5 else "" for number in range(31)]


@pytest.fixture
def ray_directory():
    """Return a directory for Ray, the names of whose sockets must be short."""
    directory = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))
    try:
        yield directory
    finally:
        end_orphans()
        shutil.rmtree(directory)


def end_orphans():
    """End what a Ray leaves behind whose starter was killed: two of its processes would look for it for a minute."""
    left = [child for child in psutil.Process().children() if "ray" in child.name()]
    for child in left:
        child.kill()
    psutil.wait_procs(left, timeout=60)


@contextmanager
def started(directory, how, *arguments):
    """Start the command with the workers of `killed_workers.py`."""
    script = Path(__file__).with_name("killed_workers.py")
    process = subprocess.Popen(
        [sys.executable, str(script), how, str(directory / "marker"), *map(str, arguments)],
        env={**os.environ, "RAY_TMPDIR": str(directory), "RAY_AUTH_MODE": "disabled", "RAY_ADDRESS": ""},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


def test_a_worker_that_is_killed_changes_nothing(run_command, make_model_dir, write_lines, tmp_path, ray_directory):
    model, source, output = make_model_dir(), write_lines("in.txt", *LINES), tmp_path / "out.jsonl"
    expected = run_command(translate, model, source, "--format", "jsonl").stdout
    arguments = ["translate", model, source, "-o", output, "--format", "jsonl", "--ray", "auto"]
    with started(ray_directory, "ends", *arguments) as process:
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert output.read_text(encoding="utf-8") == expected
    assert (ray_directory / "marker").exists()
    assert re.search(r"clearhead: 31 lines in \d+ s: [\d.]+ a second on \d+ CPUs?; a million take [\d.,]+ CPU ", said)
    assert "Traceback" not in said  # Ray may say that a worker ended
    assert not Path(f"{output}.parts").exists()


@pytest.mark.slow
def test_a_command_that_is_killed_continues(run_command, make_model_dir, write_lines, tmp_path, ray_directory):
    model, source, output = make_model_dir(), write_lines("in.txt", *LINES), tmp_path / "out.txt"
    arguments = ["translate", model, source, "-o", output, "--nbest", 2, "--ray", "auto"]
    parts = tmp_path / "out.txt.parts"
    with started(ray_directory, "waits", *arguments) as process:
        until = time.monotonic() + 600
        while not ((ray_directory / "marker").exists() and any(parts.glob("part-*"))):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.1)
        process.kill()
        process.wait()
    assert not output.exists()
    finished = 7 * len(list(parts.glob("part-*")))
    with started(ray_directory, "waits", *arguments) as process:
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert f"clearhead: {finished} lines were finished before" in said
    assert output.read_text(encoding="utf-8") == run_command(translate, model, source, "--nbest", 2).stdout


@pytest.fixture
def without_ray(monkeypatch):
    """Let the work on Ray be done here, as its rows come from there; return the addresses."""
    addresses = []

    @contextmanager
    def actors(address, *, device):
        addresses.append(address)
        yield Actors(2, 0)

    def run(make_worker, shards, actors):
        actor = ray_shards._Actor(make_worker)
        for shard in reversed(shards):
            row = actor({"shard": shard})
            if row["error"]:
                raise ClearheadError(row["error"])
            yield row["shard"]["number"], row["result"]

    monkeypatch.setattr(ray_shards, "ray_actors", actors)
    monkeypatch.setattr(ray_shards, "run_on_ray", run)
    monkeypatch.setattr(ray_shards, "set_num_threads", lambda count: None)
    monkeypatch.setattr(output_parts, "SHARD_LINES", 7)
    monkeypatch.setattr(lines, "CHUNK_LINES", 7)  # some notices are given chunk by chunk
    return addresses


@pytest.mark.parametrize(
    "options",
    [
        ["--format", "jsonl", "--quality"],
        ["--nbest", "2"],
        ["--sample", "--seed", "5"],
        ["--only-if", "0.1"],
        ["--terms", "TERMS", "--format", "jsonl"],
        ["--prefix", "A small d"],
    ],
)
def test_outputs_and_notices_are_those_of_one_process(
    run_command, make_model_dir, write_lines, tmp_path, without_ray, options
):
    terms = write_lines("terms.tsv", "Hund\tdog", "Hunde\tdogs")
    options = [str(terms) if option == "TERMS" else option for option in options]
    model, source, output = make_model_dir(), write_lines("in.txt", *LINES, "犬犬犬"), tmp_path / "out.txt"
    alone = run_command(translate, model, source, *options)
    result = run_command(translate, model, source, "-o", output, "--ray", "10.0.0.1:6379", *options)
    assert output.read_text(encoding="utf-8") == alone.stdout
    assert without_ray == ["10.0.0.1:6379"]
    own = [line for line in result.stderr.splitlines() if " a second on 2 CPUs" not in line]
    assert own == alone.stderr.splitlines()


@pytest.mark.parametrize("extension", [".parquet", ".arrow", ".jsonl"])
@pytest.mark.usefixtures("without_ray")
def test_rows_are_those_of_one_process(run_command, make_model_dir, write_lines, tmp_path, extension):
    targets = [f"A dog, {number} dogs." for number in range(len(LINES))]
    pairs = write_lines("pairs.tsv", *map("\t".join, zip(LINES, targets, strict=True)))
    given, model = tmp_path / f"in{extension}", make_model_dir()
    write_pairs(str(given), read_pairs([str(pairs)]), ("de", "en"))
    if extension == ".jsonl":  # plain keys
        given.write_text("".join(json.dumps({"id": 5, "de": line}) + "\n" for line in LINES))
        given_pairs = pairs
    else:
        given_pairs = given
    here, there = tmp_path / f"here{extension}", tmp_path / f"there{extension}"
    for command, arguments in [
        (translate, [given, "--columns", "de,french"]),
        (score, ["--pairs", given_pairs]),
    ]:
        run_command(command, model, *arguments, "-o", here)
        run_command(command, model, *arguments, "-o", there, "--ray", "auto")
        assert here.read_bytes() == there.read_bytes()
        assert not Path(f"{there}.parts").exists()


DOCUMENTS = {
    "in.tsv": [row for line in LINES for row in (f'{line}\tHunde "\t', f"17\t{line}\tthere")],
    "in.csv": ["id,de,en\r", *(f'5, "{line}\nHunde","x, ""y"""\r' for line in LINES), "Hund,17\r", "5"],
    "in.json": [json.dumps({"of": LINES, "more": ["17", "Hunde"]})],
    "in.txt": [row for line in LINES for row in (line, "", "Hunde")],
}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("in.tsv", ["--columns", "1,3", "--sample", "--seed", "5"]),
        ("in.csv", ["--columns", "de,en", "--retranslate", "--terms", "TERMS"]),
        ("in.json", ["--format", "jsonl", "--quality"]),
        ("in.txt", ["--paragraphs"]),
    ],
)
@pytest.mark.usefixtures("without_ray")
def test_documents_are_those_of_one_process(
    run_command, make_model_dir, write_lines, tmp_path, monkeypatch, name, options
):
    given, model = write_lines(name, *DOCUMENTS[name]), make_model_dir()
    terms = write_lines("terms.tsv", "Hund\tdog", "Hunde\tdogs")
    options = [str(terms) if option == "TERMS" else option for option in options]
    here, there = tmp_path / f"here.{name}", tmp_path / f"there.{name}"
    alone = run_command(translate, model, given, *options, "-o", here)
    monkeypatch.setattr(documents, "CHUNK_LINES", 0)  # nothing is translated in this process
    result = run_command(translate, model, given, *options, "-o", there, "--ray", "auto")
    assert there.read_bytes() == here.read_bytes() != given.read_bytes()
    own = [line for line in result.stderr.splitlines() if " a second on 2 CPUs" not in line]
    assert own == alone.stderr.splitlines()
    assert not Path(f"{there}.parts").exists()


@pytest.mark.usefixtures("without_ray")
def test_documents_without_words_need_no_worker(run_command, make_model_dir, write_lines, tmp_path):
    given, there = write_lines("in.tsv", "17\t", "\t5"), tmp_path / "there.tsv"
    run_command(translate, make_model_dir(), given, "--columns", "1,2", "-o", there, "--ray", "auto")
    assert there.read_bytes() == given.read_bytes()


@pytest.fixture
def settings(tmp_path, monkeypatch):
    """Return the settings of a text of eleven pieces."""
    monkeypatch.setattr(staged_corpus, "PIECE_ROWS", killed_workers.PIECE_ROWS)
    pairs = write_numbers(tmp_path / "numbers.tsv")
    (path := tmp_path / "train.toml").write_text(f'[data]\npairs = ["{pairs}"]\n[tokenizer]\nvocab_size = 277\n')
    return path


def contents(run):
    """Return the files of prepared data."""
    return {path.name: path.read_bytes() for path in [run / "tokenizer.json", *(run / "data").iterdir()]}


def test_data_prepared_by_workers_one_of_which_is_killed_are_those_of_one_process(
    run_command, settings, tmp_path, ray_directory
):
    run_command(prepare, settings, "-o", tmp_path / "alone")
    arguments = ["corpus", "prepare", settings, "-o", tmp_path / "run", "--ray", "auto"]
    with started(ray_directory, "ends", *arguments) as process:
        _, said = process.communicate(timeout=600)
    assert process.returncode == 0, said
    assert (ray_directory / "marker").exists()
    assert re.search(r"\d+ pairs in \d+ s: [\d.]+ a second on \d+ CPUs?; a million take [\d.,]+ CPU hours\n", said)
    assert "Traceback" not in said
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")
    assert not (tmp_path / "run" / "data.parts").exists()


@pytest.mark.slow
def test_a_preparation_that_is_killed_continues(run_command, settings, tmp_path, ray_directory):
    run_command(prepare, settings, "-o", tmp_path / "alone")
    arguments = ["corpus", "prepare", settings, "-o", tmp_path / "run", "--ray", "auto"]
    with started(ray_directory, "waits", *arguments) as process:
        until = time.monotonic() + 600
        parts = tmp_path / "run" / "data.parts"
        while not ((ray_directory / "marker").exists() and list(parts.glob("tokenised-*[0-9]"))):
            assert process.poll() is None, process.stderr.read()
            assert time.monotonic() < until
            time.sleep(0.1)
        process.kill()
        process.wait()
    end_orphans()
    run_command(prepare, settings, "-o", tmp_path / "run")
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")


def test_data_prepared_by_workers_are_those_of_one_process(run_command, settings, tmp_path, without_ray):
    run_command(prepare, settings, "-o", tmp_path / "alone")
    said = run_command(prepare, settings, "-o", tmp_path / "run", "--ray", "10.0.0.1:6379").stderr
    assert without_ray == ["10.0.0.1:6379"]
    assert re.search(r"1\d\d pairs in 0 s: [\d.,]+ a second on 2 CPUs; a million take [\d.,]+ CPU hours\n", said)
    assert contents(tmp_path / "run") == contents(tmp_path / "alone")


def test_workers_of_another_version_or_without_the_files_are_one_line(tmp_path):
    with pytest.raises(ConfigError, match=r"here is clearhead .*, and 0\.0\.1 where the command was given"):
        ray_shards._JsonWorker(lambda: len, "0.0.1")
    worker = ray_shards._JsonWorker(lambda: lambda shard: (tmp_path / shard["name"]).read_text(), full_version())
    with pytest.raises(ClearheadError, match=r"No such file.*none.*must be at the same place on every machine"):
        worker({"number": 0, "shard": '{"name": "none"}'})
    with pytest.raises(ClearheadError, match=r"Is a directory: '[^']*'$"):
        worker({"number": 0, "shard": '{"name": "."}'})


@pytest.mark.parametrize("command", [distill, backtranslate])
@pytest.mark.usefixtures("without_ray")
def test_synthetic_pairs_are_those_of_one_process(run_command, make_model_dir, write_lines, tmp_path, command):
    files = [write_lines("a.txt", *LINES[:17]), write_lines("b.txt", *LINES[17:])]
    model = make_model_dir(seed=6, printable=True, decode={"beam_size": 2, "extra_length": 60})
    here, there = tmp_path / "here.tsv.gz", tmp_path / "there.tsv.gz"
    alone = run_command(command, model, *files, "-o", here, "--tag", "en")
    result = run_command(command, model, *files, "-o", there, "--tag", "en", "--ray", "auto")
    assert here.read_bytes() == there.read_bytes()
    assert len(gzip.decompress(here.read_bytes()).splitlines()) > 4
    assert alone.stderr in result.stderr


def test_distillation_continues_in_one_process(run_command, make_model_dir, write_lines, tmp_path, monkeypatch):
    monkeypatch.setattr(output_parts, "SHARD_LINES", 7)
    model = make_model_dir(seed=6, printable=True, decode={"beam_size": 2, "extra_length": 60})
    given, add, added = [model, write_lines("a.txt", *LINES)], output_parts.OutputParts.add, []

    def ending(parts, shard, part):
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(shard.number)
        add(parts, shard, part)

    with monkeypatch.context() as patch:
        patch.setattr(output_parts.OutputParts, "add", ending)
        interrupted = run_command(distill, *given, "-o", tmp_path / "out.tsv")
    assert interrupted.exit_code != 0
    assert added == [0, 1, 2]
    assert not (tmp_path / "out.tsv").exists()
    assert "21 lines were finished before" in run_command(distill, *given, "-o", tmp_path / "out.tsv").stderr
    run_command(distill, *given, "-o", tmp_path / "whole.tsv")
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


@pytest.mark.usefixtures("without_ray")
def test_scores_are_those_of_one_process(run_command, make_model_dir, write_lines, tmp_path):
    sources, targets = LINES, [f"A dog, {number} dogs." for number in range(len(LINES))]
    model, output = make_model_dir(), tmp_path / "scores.txt"
    files = ["--source", write_lines("a", *sources), "--target", write_lines("b", *targets)]
    run_command(score, model, *files, "--ray", "auto", "-o", output)
    assert output.read_text() == run_command(score, model, *files).stdout
    with pytest.raises(ConfigError, match="--ray cannot be used with --alignments"):
        run_command(score, model, *files, "--ray", "auto", "-o", output, "--alignments", tmp_path / "links")

    # A pair that cannot be scored is named by its line in the whole file.
    files = ["--source", write_lines("a", *sources), "--target", write_lines("b", *targets[:-2], "dog " * 1_100, "x")]
    with pytest.raises(ClearheadError, match=r"a, pair 30 has [\d,]+ tokens on one side"):
        run_command(score, model, *files, "--ray", "auto", "-o", output)


def test_the_table_of_test_sets_is_that_of_one_process(run_command, make_model_dir, tmp_path, without_ray, monkeypatch):
    monkeypatch.setattr("clearhead.cli.evaluate._SHARD_LINES", 5)
    models = [make_model_dir(f"model{seed}", seed=seed, info={"data": {"languages": ["de", "en"]}}) for seed in (3, 8)]
    (sets := tmp_path / "sets").mkdir()
    for name, count in (("talks.tsv", 11), ("news.tsv", 18)):
        (sets / name).write_text("".join(f"{line or 'Hund'}\t{n} dogs\n" for n, line in enumerate(LINES[:count])))
    outputs = tmp_path / "here.csv", tmp_path / "there.csv"
    given, loaded = [*models, "--sets", sets], []
    with monkeypatch.context() as patch:
        for name in ("clearhead.bundle", "clearhead.translation.translator"):
            patch.setattr(f"{name}.load_bundle", lambda path, **how: loaded.append(path) or load_bundle(path, **how))
        alone = run_command(evaluate, *given, "-o", outputs[0])
    assert loaded == models  # each once

    run, done = ray_shards.run_on_ray, []

    def ending(make_worker, shards, actors):
        for number, part in run(make_worker, shards, actors):
            done.append(number)
            yield number, part
            if len(done) == 9:  # in the work of the second model
                raise ClearheadError("a machine burns")

    monkeypatch.setattr(ray_shards, "run_on_ray", ending)
    with pytest.raises(ClearheadError, match="burns"):
        run_command(evaluate, *given, "-o", outputs[1], "--ray", "auto")
    result = run_command(evaluate, *given, "-o", outputs[1], "--ray", "auto")
    assert len(done) == 2 * (3 + 4)
    assert "29 lines were finished before" in result.stderr  # of the first model
    assert result.stdout == alone.stdout
    assert outputs[1].read_bytes() == outputs[0].read_bytes()
    assert [path.name for path in tmp_path.glob("*.parts")] == []
    with pytest.raises(ConfigError, match="--ray needs --sets DIR"):
        run_command(evaluate, models[0], "--pairs", sets / "news.tsv", "-o", outputs[1], "--ray", "auto")
    with pytest.raises(ConfigError, match="--ray needs --output FILE"):
        run_command(evaluate, *given, "--ray", "auto")


def test_finished_parts_are_not_made_again(
    run_command, make_model_dir, write_lines, tmp_path, without_ray, monkeypatch
):
    model, source, output = make_model_dir(), write_lines("in.txt", *LINES), tmp_path / "out.txt.gz"
    run, made = ray_shards.run_on_ray, []

    def two(make_worker, shards, actors):
        for number, part in run(make_worker, shards, actors):
            made.append(number)
            yield number, part
            if len(made) == 2:
                raise ClearheadError("a machine burns")

    monkeypatch.setattr(ray_shards, "run_on_ray", two)
    with pytest.raises(ClearheadError, match="a machine burns"):
        run_command(translate, model, source, "-o", output, "--ray", "auto")
    with pytest.raises(DataError, match=r"made with another settings; repeat"):
        run_command(translate, model, source, "-o", output, "--ray", "auto", "--beam", 3)
    said = run_command(translate, model, source, "-o", output, "--ray", "auto").stderr
    assert "10 lines were finished before" in said
    assert made == [4, 3, 2, 1, 0]
    run_command(translate, model, source, "-o", tmp_path / "one.txt.gz")
    assert output.read_bytes() == (tmp_path / "one.txt.gz").read_bytes()


def test_parts_of_another_shortlist_are_refused(make_model_dir):
    directory, origins = make_model_dir(), []
    for last in (30, 40):
        common = np.arange(3, last, dtype=np.int32)
        translator = Translator.load(directory)
        size = translator.config.vocab_size
        shortlist = Shortlist(common, np.full((size, 2), -1, dtype=np.int32))
        add_side_files(directory, {SHORTLIST_FILE: shortlist.save}, translator.bundle.identity())
        origins.append(origin_of(Translator.load(directory), shortlist=True))
    assert origins[0].pop("shortlist") != origins[1].pop("shortlist")
    assert origins[0] == origins[1]
    assert "shortlist" not in origin_of(Translator.load(directory))


def test_a_worker_with_another_model_is_refused(make_model_dir):
    origin = {"models": [["another", "one"]], "version": "0"}
    with pytest.raises(ModelError, match=r"differs from the model where the command was given: models, version"):
        load_worker(Models(make_model_dir(), "cpu"), Scoring(plain=False, settings={}), origin)


def test_a_worker_of_another_version_or_device_is_refused(make_model_dir):
    models, work = Models(make_model_dir(), "cpu"), Scoring(plain=False, settings={})
    origin = origin_on("cuda:1", work, models.load())
    assert origin["device"] == "cuda"
    with pytest.raises(ClearheadError, match=r"^the device here is cpu, not cuda, as where the command was given"):
        load_worker(models, work, origin)
    message = f"^clearhead here is {re.escape(full_version())}, not 0.0.7, as where the command was given"
    with pytest.raises(ClearheadError, match=message):
        load_worker(models, work, {**origin, "device": "cpu", "version": "0.0.7"})


def test_parts_of_another_type_of_device_are_refused(
    run_command, make_model_dir, write_lines, tmp_path, without_ray, monkeypatch
):
    run = ray_shards.run_on_ray

    def one(make_worker, shards, actors):
        yield next(run(make_worker, shards, actors))
        raise ClearheadError("a machine burns")

    @contextmanager
    def gpus(address, *, device):
        yield Actors(2, 1)

    monkeypatch.setattr(ray_shards, "run_on_ray", one)
    given = make_model_dir(), write_lines("in.txt", *LINES), "-o", tmp_path / "out.txt", "--ray", "auto"
    with pytest.raises(ClearheadError, match="burns"):
        run_command(translate, *given)
    monkeypatch.setattr(ray_shards, "ray_actors", gpus)
    with pytest.raises(DataError, match="made with another device; repeat that command, or remove the directory"):
        run_command(translate, *given)


@pytest.mark.usefixtures("without_ray")
def test_a_million_lines_have_the_price_of_the_machine_file(
    run_command, make_model_dir, write_lines, tmp_path, monkeypatch
):
    machine = write_lines("cpu.toml", "flops = 1e12", "memory = 1e9", "bandwidth = 1e9", "price = 2.5")
    clock = SimpleNamespace(monotonic=iter([100.0, 136.0]).__next__)
    monkeypatch.setattr("clearhead.cli.bulk_work.time", clock)
    given = make_model_dir(), write_lines("in.txt", *LINES), "-o", tmp_path / "out.txt"
    said = run_command(translate, *given, "--ray", "auto", "--machine", machine).stderr
    # Two CPUs for 36 seconds are 72 / 3600 hours for 31 lines.
    assert "31 lines in 36 s: 0.9 a second on 2 CPUs; a million take 645.16 CPU hours, price 1,612.90\n" in said
    with pytest.raises(ConfigError, match="--machine needs --ray ADDRESS"):
        run_command(translate, *given, "--machine", machine)
    machine = write_lines("free.toml", "flops = 1e12", "memory = 1e9", "bandwidth = 1e9")
    with pytest.raises(ConfigError, match=r"free\.toml has no price of a device an hour; add one, such as: price"):
        run_command(translate, *given, "--ray", "auto", "--machine", machine)


@pytest.mark.usefixtures("without_ray")
def test_a_worker_without_the_model_is_one_line(run_command, make_model_dir, write_lines, tmp_path, monkeypatch):
    output, load = tmp_path / "out.txt", Translator.load

    def load_elsewhere(path, *, device="auto", ensemble=()):
        return load(path if device == "cpu" else "/srv/none", device=device, ensemble=ensemble)

    monkeypatch.setattr(Translator, "load", load_elsewhere)
    with pytest.raises(ClearheadError, match=rf"^on {re.escape(socket.gethostname())}: .*/srv/none"):
        run_command(translate, make_model_dir(), write_lines("in.txt", *LINES), "-o", output, "--ray", "auto")
    assert not output.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "--ray needs --output FILE, beside which finished parts are kept"),
        (["-o", "-"], "--ray needs -o FILE"),
        (["-o", os.devnull], "--ray needs -o FILE"),
        (["-o", "out.txt", "--memory", "m.tmx"], "--ray cannot be used with --memory"),
        (["-o", "out.txt", "--alignments", "a"], "--ray cannot be used with --alignments"),
        (["-o", "out.txt", "--report", "a.html"], "--ray cannot be used with --report"),
        (["-o", "out.txt", "--workers", "2"], "--ray cannot be used with --workers"),
        (["-o", "out.txt", "--threads", "1"], "--ray cannot be used with --threads"),
        (["-o", "out.txt", "SECOND"], "--ray cannot be used with more than one FILE"),
    ],
)
def test_options_that_do_not_go_with_ray_are_named(run_command, write_lines, options, message):
    source, second = write_lines("in.txt", "a"), write_lines("second.txt", "b")
    options = [str(second) if option == "SECOND" else option for option in options]
    with pytest.raises(ConfigError, match=re.escape(message)):
        run_command(translate, "none", source, *options, "--ray", "auto")


def test_a_cluster_that_cannot_be_reached_is_one_line(run_command, make_model_dir, write_lines, tmp_path, monkeypatch):
    given = [make_model_dir(), write_lines("in.txt", "a"), "-o", tmp_path / "out.txt"]
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(ClearheadError, match=rf"no Ray answers at 127.0.0.1:{port}: Connection refused; start one"):
        run_command(translate, *given, "--ray", f"127.0.0.1:{port}")
    monkeypatch.setenv("RAY_ADDRESS", f"127.0.0.1:{port}")
    with pytest.raises(ClearheadError, match=rf"no Ray answers at 127.0.0.1:{port}"):
        run_command(translate, *given, "--ray", "auto")
    monkeypatch.setenv("RAY_ADDRESS", "")
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray" / "ray_current_cluster").write_text(f"127.0.0.1:{port}")  # of `ray start`, killed since
    with pytest.raises(ClearheadError, match=rf"no Ray answers at 127.0.0.1:{port}"):
        run_command(translate, *given, "--ray", "auto")
    with pytest.raises(ConfigError, match=r"--ray here: the address is auto or HOST:PORT, such as"):
        run_command(translate, *given, "--ray", "here")
    assert not (tmp_path / "out.txt").exists()


def test_an_error_of_ray_names_the_error_of_the_worker():
    text = """\x1b[36mray::MapWorker(Map(_Actor)).submit()\x1b[39m (pid=7, ip=192.0.2.2)
Traceback (most recent call last):
  File "work.py", line 3, in work
    raise RuntimeError("a bug here")
RuntimeError: a bug here

The above exception was the direct cause of the following exception:

ray.exceptions.UserCodeException: UDF failed to process a data block."""
    assert ray_shards._reason(ValueError(text)) == "RuntimeError: a bug here"
    assert ray_shards._reason(ValueError("\nThe actor died.\nmore")) == "The actor died"
    assert ray_shards._reason(ValueError()) == "ValueError"


def test_ray_that_is_missing_or_too_old_is_one_line(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "ray", None)
        match = rf"--ray needs the package ray, which is not installed: {re.escape(pip_install('ray'))}"
        with pytest.raises(ConfigError, match=match), ray_shards.ray_actors("auto", device="cpu"):
            pass
    old = ModuleType("ray")
    old.__version__, old.data = "2.9.3", ModuleType("ray.data")
    monkeypatch.setitem(sys.modules, "ray", old)
    monkeypatch.setitem(sys.modules, "ray.data", old.data)
    with (
        pytest.raises(ConfigError, match=r"--ray needs Ray 2\.60 or later, and this is 2\.9\.3: pip install"),
        ray_shards.ray_actors("auto", device="cpu"),
    ):
        pass


@pytest.mark.usefixtures("without_ray")
def test_the_parts_name_what_they_were_made_with(run_command, make_model_dir, write_lines, tmp_path, monkeypatch):
    origin = {}

    def burning(make_worker, shards, actors):
        origin.update(json.loads((tmp_path / "out.txt.parts" / "origin.json").read_text()))
        raise ClearheadError("a machine burns")

    monkeypatch.setattr(ray_shards, "run_on_ray", burning)
    arguments = make_model_dir(), write_lines("in.txt", *LINES), "-o", tmp_path / "out.txt", "--ray", "auto"
    with pytest.raises(ClearheadError, match="burns"):
        run_command(translate, *arguments)
    assert not (tmp_path / "out.txt.parts").exists()  # no part was finished
    assert origin["input"]["lines"] == len(LINES)
    assert {"models", "version", "settings", "lines"} <= origin.keys()
