"""Instructions that forms of the compiled core execute for the same work: a count, not a time.

    python bench/instructions.py

An emulator counts, so the processor here does not matter. The work is that of `tests/unit/kernels/core_bits.c` with a
model of 2+2 layers, d_model 256, d_ff 512 and 844 tokens: each sentence is encoded, searched with a beam of 4 and twice
greedily, and scored three times. It is done for 4 and for 8 sentences, whose difference leaves out what is done once.
Needed are a C compiler, zig (`pip install ziglang`), and qemu 7.2 to 8.1 (Debian 12: `apt-get install qemu-user`).
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

ROOT = Path(__file__).parents[1]
FORMS = {"avx2": "x86_64", "neon": "aarch64", "neon-dot": "aarch64", "neon-i8mm": "aarch64"}
"""And their processors; the first is what the others are compared with. qemu has no AVX-512."""
PRECISIONS = {"fp32": "FP32", "bf16": "BF16", "int8": "INT8"}
"""By the name that `--precision` has for it."""
SENTENCES = 4


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--precision", nargs="+", choices=PRECISIONS, default=list(PRECISIONS))
    options = parser.parse_args()
    os.chdir(ROOT)  # where setup.py is run
    print("| | " + " | ".join(FORMS) + " |\n|" + " --- |" * (1 + len(FORMS)))
    with TemporaryDirectory() as temporary:
        directory = Path(temporary)
        plugin, setup = build_plugin(directory), _load_setup()
        objects = {name: _compile_forms(setup, name, directory) for name in dict.fromkeys(FORMS.values())}
        for precision in options.precision:
            few, many = (
                _count_work(plugin, setup, objects, [f"-DPRECISIONS={PRECISIONS[precision]}", f"-DSENTENCES={number}"])
                for number in (SENTENCES, 2 * SENTENCES)
            )
            counts = [(many[form] - few[form]) / SENTENCES for form in FORMS]
            cells = [f"{count / 1e6:.1f} million ({count / counts[0]:.2f})" for count in counts]
            print(f"| {precision} | " + " | ".join(cells) + " |", flush=True)


def build_plugin(directory: Path) -> Path:
    """Compile the plugin that counts, and return it."""
    plugin = directory / "instructions.so"
    source = Path(__file__).with_suffix(".c")
    subprocess.run(["cc", "-shared", "-fPIC", "-O2", str(source), "-o", str(plugin)], check=True)
    return plugin


def run_counted(plugin: Path, processor: str, program: Path, argument: str) -> tuple[int, str]:
    """Return how many instructions a program executed, and what it printed."""
    command = [f"qemu-{processor}", "-plugin", str(plugin), str(program), argument]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stderr), done.stdout


def _load_setup() -> ModuleType:
    """Return setup.py, which knows how the forms are compiled."""
    spec = importlib.util.spec_from_file_location("clearhead_setup", "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _compile_forms(setup: ModuleType, processor: str, directory: Path) -> list[str]:
    """Compile all forms for a processor, as for the wheels; return the object files."""
    target = f"{processor}-linux-musl"
    (directory / processor).mkdir(exist_ok=True)
    objects: list[str] = setup.compile_forms(setup.zig(target), target, directory / processor)
    return objects


def _count_work(plugin: Path, setup: ModuleType, objects: dict[str, list[str]], options: list[str]) -> dict[str, int]:
    """Return how many instructions each form executes.

    Raises:
        RuntimeError: If not all forms compute the same.
    """
    for processor, forms in objects.items():
        source = ["tests/unit/kernels/core_bits.c", f"{setup.CSRC}/core.c", *forms, "-lm"]
        flags = [*setup.FLAGS, f"-I{setup.CSRC}", "-DSOURCES=0", "-Wno-unused-function", "-static"]
        command = [*setup.zig(f"{processor}-linux-musl"), *flags, "-DTIMES=4", "-DMODELS=1", *options, *source]
        subprocess.run([*command, "-o", str(plugin.with_name(f"work-{processor}"))], check=True)
    counts, printed = {}, set()
    for form, processor in FORMS.items():
        counts[form], text = run_counted(plugin, processor, plugin.with_name(f"work-{processor}"), form)
        printed.add(text.removeprefix(form))
    if len(printed) > 1:
        raise RuntimeError(f"the forms compute different results:\n{''.join(sorted(printed))}")
    return counts


if __name__ == "__main__":
    main()
