"""The translation benchmark runs on toys, with whichever peers are installed, and all engines write the same."""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import run_benchmark
from torch.nn import functional

from clearhead.bundle import Bundle, save_bundle
from clearhead.config import DecodeConfig, ModelConfig
from clearhead.decoding.step import pad_batch
from clearhead.kernels.library import library
from clearhead.model import Transformer
from clearhead.tokenizers import Tokenizer
from run_all import translation_tables

pytestmark = pytest.mark.slow  # every test starts a process for each engine

BENCH = Path(__file__).parents[2] / "bench" / "translate.py"
SENTENCES = [
    f"{who} {does} {where}."
    for who in ("A small dog", "The old man", "Nobody we know")
    for does in ("sleeps", "runs and runs", "sits")
    for where in ("here", "on the grass", "in front of a house")
]


def run(*arguments: str, fails: bool = False) -> str:
    """Run the benchmark as a reader would, and return what it printed, or its complaint."""
    return run_benchmark("translate.py", "--threads", "1", *arguments, fails=fails)


@pytest.fixture(scope="module")
def copier(tmp_path_factory) -> Path:
    """Return the directory of a model that has learned to repeat its source a little, and ends by itself."""
    torch.manual_seed(1)
    tokenizer = Tokenizer.train(SENTENCES, vocab_size=401)
    shape = {"d_model": 32, "num_heads": 2, "d_ff": 64, "num_encoder_layers": 1, "num_decoder_layers": 2}
    config = ModelConfig(vocab_size=tokenizer.vocab_size, dropout=0.0, **shape)
    model = Transformer(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, betas=(0.9, 0.98))
    source = pad_batch(tokenizer.encode_sources(SENTENCES), config.pad_id)
    labels = pad_batch(tokenizer.encode_targets(SENTENCES), config.pad_id)
    shifted = torch.cat([torch.full((len(labels), 1), config.bos_id), labels[:, :-1]], dim=1)
    for _ in range(60):
        with torch.no_grad():
            model.target_embedding.weight[config.bos_id] = 0.0  # as the benchmark will set it
        loss = functional.cross_entropy(model(source, shifted).flatten(0, 1), labels.flatten(), ignore_index=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    directory = tmp_path_factory.mktemp("translation") / "copier"
    save_bundle(directory, Bundle(model.eval(), tokenizer, DecodeConfig(extra_length=29)))
    return directory


@pytest.fixture(scope="module")
def result(copier) -> dict[str, Any]:
    text = copier.parent / "source.txt"
    text.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    arguments = ["--model", str(copier), "--source", str(text), "--cases", "--beams", "1", "3", "--rounds", "2"]
    return json.loads(run(*arguments, "--batch", "16", "--json"))


@pytest.fixture(scope="module")
def beams(result) -> list[dict[str, Any]]:
    (case,) = result["cases"]
    return case["beams"]


@pytest.fixture(scope="module")
def runs(beams) -> list[dict[str, Any]]:
    return [run_ for beam in beams for run_ in beam["runs"]]


def test_missing_translation_engines_are_named_with_pip_install(result, beams, runs):
    ours = {"clearhead", *(f"clearhead-{form}" for form in ("bf16x3", "bf16", "int8"))}
    theirs = {f"ctranslate2{form}" for form in ("", "-workers", "-int8", "-int8-workers")}
    missing = {name: line for name, line in result["missing"].items() if name != "limits"}
    engines = {
        *ours,
        *theirs,
        "huggingface",
        *(missing.keys() & {"marian-int8", "slimt-int8"}),
    }  # if installed, for random weights
    measured = [*(beam["processes"] for beam in beams), *(run_["engines"] for run_ in runs)]
    assert all(names.keys() | missing.keys() == engines for names in measured)
    assert all(not names.keys() & missing.keys() for names in measured)
    assert {"clearhead", "huggingface"} <= measured[0].keys()
    assert [line for line in missing.values() if not re.search("pip install|VNNI|AMX", line)] == []


def test_translation_tables_hold_the_windows_of_every_engine(result, runs):
    tables = translation_tables(result)
    assert [table["rows"].keys() for table in tables] == [run_["engines"].keys() for run_ in runs]
    assert all(len(windows) == 2 for table in tables for windows in table["rows"].values())


def test_a_trained_model_gives_the_same_text_in_every_float32_engine(runs):
    for run_ in runs:
        for name in {"huggingface", "ctranslate2", "ctranslate2-workers"} & run_["engines"].keys():
            assert run_["engines"][name]["differing"] == {"number": 0, "first": []}
            assert run_["engines"][name]["output_tokens"] == run_["engines"]["clearhead"]["output_tokens"]
        # They end by themselves, long before the limit.
        assert 3 < run_["engines"]["clearhead"]["output_tokens"] / run_["sentences"] < 20


def test_ratios_are_those_of_the_windows(runs):
    for run_ in runs:
        for row in run_["engines"].values():
            assert len(row["windows"]) == 2
            assert row["output_tokens_per_second"] == pytest.approx(statistics.median(row["windows"]))
            a_sentence = row["output_tokens"] / run_["sentences"]
            assert row["output_tokens_per_second"] == pytest.approx(a_sentence * row["sentences_per_second"])
            found = {"ctranslate2", "huggingface"} & run_["engines"].keys()
            assert row["ratios"].keys() - {"ctranslate2-best"} == found
            assert ("ctranslate2-best" in row["ratios"]) == ("ctranslate2" in found)
            for reference in found:
                theirs = run_["engines"][reference]["windows"]
                assert row["ratios"][reference] == pytest.approx(
                    [own / other for own, other in zip(row["windows"], theirs, strict=True)]
                )


def test_every_row_but_a_shortlist_s_has_its_share_of_the_limit(result, runs):
    if "limits" in result["missing"]:
        pytest.skip(result["missing"]["limits"])
    for run_ in runs:
        for name, row in run_["engines"].items():
            precision = {"clearhead-bf16x3": "bfloat16 x3", "clearhead-bf16": "bfloat16"}.get(
                name, "int8" if "int8" in name else "float32"
            )
            if name == "clearhead-shortlist" or not run_["limits"][precision]:
                assert row["limit_shares"] is None
            else:
                assert len(row["limit_shares"]) == 2
                assert all(share > 0.0 for share in row["limit_shares"])


def test_each_beam_size_has_processes_of_its_own_with_start_up_and_memory(beams):
    assert [beam["beam"] for beam in beams] == [1, 3]
    for beam in beams:
        assert [run_["batch"] for run_ in beam["runs"]] == [16, 1]
        for name, process in beam["processes"].items():
            assert process["start_up_seconds"] > 0.01
            assert process["peak_mib"] > 5
            expected = {
                "clearhead-bf16x3": "bfloat16 x3",
                "clearhead-bf16": "bfloat16",
                "clearhead-int8": "int8",
                "ctranslate2-int8": "int8_float32",
                "ctranslate2-int8-workers": "int8_float32",
            }
            assert process["computes_in"].partition(", ")[0] == expected.get(name, "float32")


def test_the_table_of_random_weights_shows_outputs_of_one_length_and_all_the_same():
    printed = run("--cases", "toy", "--engines", "clearhead", "ctranslate2", "--beams", "1", "--rounds", "1")
    has_peer = "ctranslate2 is not installed" not in printed
    row = r"^  {} +([\d,.]+) +([\d,]+) +(?:\d+%|-) +(?:\d+\.\d\d|-) +(?:\d+\.\d\d|-) +- +(?:0|-)   [\d,]+$"
    for name, length in [("clearhead", 8), *([("ctranslate2", 7)] if has_peer else [])]:  # without the end at the limit
        speeds = re.findall(row.format(name), printed, flags=re.MULTILINE)
        assert len(speeds) == 2  # 64 at a time, one at a time
        for pair in speeds:
            sentences, tokens = (float(number.replace(",", "")) for number in pair)
            assert tokens == pytest.approx(length * sentences, abs=0.5 + length * 0.05)
        assert re.search(rf"^  {name} +\d+\.\d\d +[\d,]+   float32(?:, .+)?$", printed, flags=re.MULTILINE)


def test_every_engine_is_held_to_avx2():
    if library() is None or "avx2" not in torch.backends.cpu.get_cpu_capability().lower().replace("avx512", "avx2"):
        pytest.skip("needs the compiled core, and a processor with AVX2")
    names = ["clearhead", "huggingface", "ctranslate2"]
    done = json.loads(
        run("--cases", "toy", "--engines", *names, "--beams", "1", "--rounds", "1", "--isa", "avx2", "--json")
    )
    assert ", held to avx2; " in done["machine"]
    (beam,) = done["cases"][0]["beams"]
    assert beam["processes"]["clearhead"]["computes_in"] == "float32, avx2"
    if "huggingface" in beam["processes"]:
        assert beam["processes"]["huggingface"]["computes_in"] == "float32, AVX2"


@pytest.mark.parametrize("name", ["marian-int8", "slimt-int8"])
def test_engines_of_marian_write_as_many_tokens_as_the_length_limit_allows(name):
    arguments = ["--cases", "student", "--beams", "1", "--rounds", "1", "--sentences", "4", "--json"]
    if find_spec("_pymarian") is None or find_spec("slimt") is None:
        pytest.skip("needs pymarian and slimt")
    done = json.loads(run(*arguments, "--engines", name))
    for run_ in done["cases"][0]["beams"][0]["runs"]:
        assert run_["engines"][name]["output_tokens"] == 30 * run_["sentences"]


def test_a_model_that_is_not_there_is_refused_in_one_line(tmp_path):
    complaint = run("--model", str(tmp_path / "nothing"), "--source", str(BENCH), fails=True)
    assert complaint.startswith(f"no model at {tmp_path / 'nothing'}")


def test_the_profile_of_a_trained_model_adds_up(copier):
    if library() is None:
        pytest.skip("needs the compiled core")
    text = copier.parent / "lines.txt"
    text.write_text("\n".join(SENTENCES) + "\n", encoding="utf-8")
    script = str(BENCH.with_name("translation_profile.py"))
    done = subprocess.run(
        [sys.executable, script, str(copier), "--source", str(text), "--beam", "2"],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert sum(map(float, re.findall(r"(\d+\.\d)%", done.stdout))) == pytest.approx(100.0, abs=0.5)
