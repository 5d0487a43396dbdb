"""The benchmark of instructions counts those of a program, neither more nor fewer."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import instructions

PATH = Path(__file__).parents[2] / "bench" / "instructions.py"
LOOPS = {"x86_64": "1: dec %0; jnz 1b", "aarch64": "1: subs %0, %0, #1; b.ne 1b"}
"""Two instructions a round."""


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="needs zig: pip install ziglang")
@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
@pytest.mark.parametrize("processor", LOOPS)
def test_a_loop_of_two_instructions_counts_two_for_each_round(processor, tmp_path):
    if shutil.which(f"qemu-{processor}") is None:
        pytest.skip(f"needs qemu-{processor}: apt-get install qemu-user")
    source, program = tmp_path / "loop.c", tmp_path / "loop"
    source.write_text(
        "int main(int count, char **words) {\n"
        "    (void)count;\n"
        "    long rounds = (words[1][0] - '0') * 100000;\n"
        f'    __asm__ volatile("{LOOPS[processor]}" : "+r"(rounds) : : "cc");\n'
        "    return 0;\n"
        "}\n"
    )
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{processor}-linux-musl", "-O2", "-static"]
    subprocess.run([*zig, str(source), "-o", str(program)], check=True)
    plugin = instructions.build_plugin(tmp_path)
    few, many = (instructions.run_counted(plugin, processor, program, rounds)[0] for rounds in ("1", "4"))
    assert many - few == 2 * 300_000
