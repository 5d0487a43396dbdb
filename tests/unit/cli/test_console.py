from __future__ import annotations

import subprocess
import sys
import warnings

from clearhead.cli.console import show_warnings_as_notices
from clearhead.errors import CompiledCoreWarning


def test_warnings_of_our_own_are_a_line_on_stderr_and_others_are_left_alone(capsys):
    with warnings.catch_warnings(record=True) as others:
        warnings.simplefilter("always")
        show_warnings_as_notices()
        warnings.warn("it cannot be used", CompiledCoreWarning, stacklevel=1)
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert capsys.readouterr().err == "clearhead: it cannot be used\n"
    assert [str(warning.message) for warning in others] == ["something else"]


TRANSLATE = """
import sys
from pathlib import Path
import torch
from clearhead.cli.main import run
from clearhead.kernels import library as core
core._path = lambda: Path(sys.argv[1])
torch.backends.cpu.get_cpu_capability = lambda: "AVX512"
run(["translate", *sys.argv[2:]])
"""


def test_with_a_damaged_core_pytorch_translates_and_one_line_says_why(make_model_dir, write_lines, tmp_path):
    core = tmp_path / "_core.so"
    core.write_bytes(b"\x7fELF")
    model, lines = make_model_dir(), write_lines("in.txt", "Ein Hund.", "Zwei Hunde.")
    arguments = [sys.executable, "-c", TRANSLATE, core, model, lines]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0
    assert len(done.stdout.splitlines()) == 2
    told = [line for line in done.stderr.splitlines() if line.startswith("clearhead: the compiled core")]
    assert len(told) == 1
    assert f"is not in use: {core} is damaged" in told[0]
