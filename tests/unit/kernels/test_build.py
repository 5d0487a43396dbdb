"""The compiled core as setup.py builds it: its forms, its platforms, and its bits on other processors."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from clearhead.kernels.library import _sources

ROOT = Path(__file__).parents[3]
KNOWN_FORMS = ("neon", "neon-dot", "neon-i8mm", "avx2", "avx-vnni", "avx512", "avx512-vnni", "avx512-bf16")
HAS_ZIG = importlib.util.find_spec("ziglang") is not None
QEMU = shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")
needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
needs_zig = pytest.mark.skipif(not HAS_ZIG, reason="needs zig: pip install ziglang")
needs_qemu = pytest.mark.skipif(QEMU is None, reason="needs qemu-aarch64: apt-get install qemu-user-static")


@pytest.fixture
def build(monkeypatch):
    """Return setup.py as a module, in the directory where it is run."""
    monkeypatch.chdir(ROOT)
    spec = importlib.util.spec_from_file_location("clearhead_setup", ROOT / "setup.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_form_that_is_compiled_is_in_the_table_of_its_processor_and_no_other(build):
    table = (build.CSRC / "core.c").read_text().partition("FORMS[] = {")[2].partition("};")[0]
    of_machine = dict(re.findall(r"defined\(__(\w+?)__\)\n(.*?)#e", table, re.DOTALL))
    assert of_machine.keys() == build.FORMS.keys()
    for machine, lines in of_machine.items():
        assert {"plain", *re.findall(r"&form_(\w+)", lines)} == build.forms_of(f"{machine}-linux-gnu").keys()
    assert re.findall(r"&form_(\w+)", table.partition("#endif")[2]) == ["plain"]


@pytest.mark.parametrize(
    ("triple", "forms"),
    [
        ("x86_64-linux-gnu", ["plain", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16"]),
        ("arm64-apple-darwin24.1.0", ["plain", "neon", "neon_dot", "neon_i8mm"]),
        ("aarch64-linux-gnu", ["plain", "neon", "neon_dot", "neon_i8mm"]),
        ("riscv64-linux-gnu", ["plain"]),
        ("i686-linux-gnu", ["plain"]),  # a 32-bit compiler, whatever the processor
    ],
)
def test_the_compiler_tells_which_forms_there_are(build, triple, forms):
    assert list(build.forms_of(triple)) == forms


def test_the_hash_of_the_sources_is_that_which_the_library_expects(build):
    assert int(build.source_hash(), 16) == _sources()


def test_the_names_of_platforms_agree_with_their_targets(build):
    systems = {"manylinux": "linux-gnu", "musllinux": "linux-musl", "macosx": "macos", "win": "windows"}
    for platform, target in build.TARGETS.items():
        assert systems[re.match("[a-z]+", platform)[0]] in target
        is_arm = platform.endswith(("arm64", "aarch64"))
        assert target.startswith("aarch64-" if is_arm else "x86_64-")
        version = re.match(r"(?:manylinux|macosx)_(\d+)_(\d+)_", platform)
        assert version is None or target.endswith(".".join(version.groups()))


def run_fake(build, monkeypatch, tmp_path, triple):
    """Build with a compiler that only writes its arguments into the output; return them and the files."""
    commands = []

    def run(command, check):
        commands.append(command)
        Path(command[command.index("-o") + 1]).write_text(" ".join(command))

    monkeypatch.setattr(build.subprocess, "run", run)
    build.build_core(["mycc"], triple, tmp_path)
    return commands, {path.name: path.read_bytes() for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("triple", "name"),
    [
        ("x86_64-linux-gnu.2.17", "_core.so"),
        ("aarch64-linux-musl", "_core.so"),
        ("aarch64-macos.11.0", "_core.dylib"),
        ("x86_64-apple-darwin23.1.0", "_core.dylib"),
        ("x86_64-windows-gnu", "_core.dll"),
    ],
)
def test_the_library_has_the_name_of_its_system_and_its_checksum_beside_it(build, monkeypatch, tmp_path, triple, name):
    commands, files = run_fake(build, monkeypatch, tmp_path, triple)
    assert files.keys() == {name, "_core.sha256"}
    assert files["_core.sha256"].decode() == f"{sha256(files[name]).hexdigest()}  {name}\n"
    for command in commands:
        assert "-ffp-contract=off" in command  # a product that is not rounded before a sum gives other bits
    forms = {word.removeprefix("-DFORM=") for command in commands for word in command if word.startswith("-DFORM=")}
    assert forms == build.forms_of(triple).keys()


def test_a_compiler_that_fails_is_an_error_and_leaves_no_library(build, tmp_path):
    with pytest.raises(subprocess.CalledProcessError):
        build.build_core(["false"], "x86_64-linux-gnu", tmp_path)
    with pytest.raises(OSError, match="no-such-compiler"):
        build.build_core(["no-such-compiler"], "x86_64-linux-gnu", tmp_path)
    assert list(tmp_path.iterdir()) == []


def bits(build, compiler, triple, directory, forms, runner=(), sentences=30):
    """Return what those forms compute that a processor has, as core_bits.c prints it, compiled for it and run there."""
    objects = [*build.compile_forms(compiler, triple, directory), str(build.CSRC / "core.c")]
    flags = [
        *build.FLAGS,
        "-Wno-unused-function",
        f"-I{build.CSRC}",
        "-DSOURCES=0",
        f"-DSENTENCES={sentences}",
        "-static",
    ]
    source, program = str(ROOT / "tests/unit/kernels/core_bits.c"), f"{directory}/core_bits"
    subprocess.run([*compiler, *flags, source, *objects, "-lm", "-o", program], check=True)
    printed = subprocess.run([*runner, program, *forms], check=True, capture_output=True, text=True).stdout
    lines = [line.partition(" ") for line in printed.splitlines()]
    return {form: [rest for name, _, rest in lines if name == form] for form in dict.fromkeys(x[0] for x in lines)}


@pytest.mark.slow
@needs_compiler
@needs_zig
@needs_qemu
def test_on_aarch64_every_form_computes_the_bits_of_this_processor(build, tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    triple = subprocess.run(["cc", "-dumpmachine"], check=True, capture_output=True, text=True).stdout.strip()
    of_this = bits(build, ["cc"], triple, here, ["plain", *KNOWN_FORMS])
    arm = build.zig("aarch64-linux-musl"), "aarch64-linux-musl", there
    of_arm = bits(build, *arm, KNOWN_FORMS, [QEMU])
    assert list(of_arm) == ["neon", "neon-dot", "neon-i8mm"]
    expected = of_this["plain"]
    for form, lines in (*of_this.items(), *of_arm.items()):
        assert lines == expected, form
    assert len(expected) == 16  # four precisions of four models
    # A score is that of the search, and the tokens of a search without scores are those of one with scores.
    assert all(line.count("same 1") == 2 for line in expected)
    # The plain form, in which qemu takes ten times as long, finds little. This processor lacks I8MM.
    few = bits(build, *arm, ["plain", *KNOWN_FORMS], [QEMU, "-cpu", "cortex-a76"], 4)
    expected_few = bits(build, ["cc"], triple, here, ["plain"], sentences=4)["plain"]
    assert few == dict.fromkeys(["plain", "neon", "neon-dot"], expected_few)
    lengths = [int(re.search(r"tokens (\d+)", line)[1]) for line in expected]  # of 30 translations
    assert 80 < min(lengths) < max(lengths) <= 30 * 12  # some end by themselves, and some at the limit


@pytest.mark.slow
@needs_zig
@pytest.mark.parametrize(
    ("platform", "magic"),
    [
        ("manylinux_2_17_aarch64", b"\x7fELF"),
        ("macosx_11_0_arm64", b"\xcf\xfa\xed\xfe"),
        ("macosx_11_0_x86_64", b"\xcf\xfa\xed\xfe"),
        ("win_amd64", b"MZ"),
    ],
)
def test_the_core_of_another_platform_is_linked_and_names_its_functions(build, tmp_path, platform, magic):
    target = build.TARGETS[platform]
    build.build_core(build.zig(target), target, tmp_path)
    _, name = (tmp_path / "_core.sha256").read_text().split()
    content = (tmp_path / name).read_bytes()
    assert content.startswith(magic)
    functions = re.findall(r"^EXPORT .*?(\w+)\(", (build.CSRC / "core.c").read_text(), re.MULTILINE)
    assert len(functions) == 11
    for function in functions:
        assert re.search(rb"(?<![A-Za-z])_?%b\0" % function.encode(), content), function
