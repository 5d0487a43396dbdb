"""How the compiled core of translation is built, for this machine and for others; all else is in pyproject.toml.

The core is a shared library that Python loads with ctypes, so a wheel with it fits every version of Python. `make
wheels` compiles it with zig's clang for every platform of `TARGETS`; elsewhere the compiler of the system does.
"""

import os
import re
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from tempfile import TemporaryDirectory

from setuptools import Command, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

CSRC = Path("src/clearhead/kernels/csrc")
FLAGS = ["-O3", "-ffp-contract=off", "-fvisibility=hidden", "-fPIC", "-g0"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
ARMV8_2 = "-march=armv8.2-a"
FORMS = {
    "x86_64": {
        "avx2": AVX2,
        "avx_vnni": [*AVX2, "-mavxvnni"],
        "avx512": AVX512,
        "avx512_vnni": [*AVX512, "-mavx512vnni"],
        "avx512_bf16": [*AVX512, "-mavx512vnni", "-mavx512bf16"],
    },
    "aarch64": {"neon": [], "neon_dot": [f"{ARMV8_2}+dotprod"], "neon_i8mm": [f"{ARMV8_2}+dotprod+i8mm"]},
}
"""Flags of each form of the core, by processor; the plain form, without flags, is for every processor."""

TARGETS = {
    "manylinux_2_17_x86_64": "x86_64-linux-gnu.2.17",
    "manylinux_2_17_aarch64": "aarch64-linux-gnu.2.17",
    "musllinux_1_2_x86_64": "x86_64-linux-musl",
    "musllinux_1_2_aarch64": "aarch64-linux-musl",
    "macosx_11_0_x86_64": "x86_64-macos.11.0",
    "macosx_11_0_arm64": "aarch64-macos.11.0",
    "win_amd64": "x86_64-windows-gnu",
}
"""Platforms of the wheels with the core, and what zig calls them."""

WEB_FORMS = {"relaxed": ["+simd128", "+relaxed-simd"], "simd": ["+simd128"], "plain": []}
"""Features of the modules of WebAssembly: a browser takes none with an instruction that it lacks."""


def source_hash():
    """Return the first 16 hexadecimal digits of the SHA-256 of the core's sources; `library.py` compares them."""
    names, digest = ["core.c", "form.c"], sha256()
    for name in names:  # extended in the loop
        text = CSRC.joinpath(name).read_bytes()
        names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
        digest.update(text)
    return digest.hexdigest()[:16]


def zig(target):
    """Return the command of zig's C compiler for a target; its warnings are errors."""
    return [sys.executable, "-m", "ziglang", "cc", "-target", target, "-s", "-Wall", "-Wextra", "-Werror"]


def forms_of(triple):
    """Return the forms for the processor of a target such as `x86_64-linux-gnu`, with their flags."""
    machine = triple.partition("-")[0]
    return {"plain": [], **FORMS.get({"amd64": "x86_64", "arm64": "aarch64"}.get(machine, machine), {})}


def compile_forms(compiler, triple, directory):
    """Compile form.c once for each form of the target's processor; return the object files."""

    def compile_form(form, flags):
        if "ziglang" in compiler:  # which reads -march as the name of a processor
            flags = [flag.replace(ARMV8_2, "-mcpu=generic+v8_2a") for flag in flags]
        output = f"{directory}/{form}.o"
        names = [f"-DFORM={form}", f"-DFORM_{form}"]
        subprocess.run([*compiler, *FLAGS, *flags, *names, "-c", str(CSRC / "form.c"), "-o", output], check=True)
        return output

    forms = forms_of(triple)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return list(pool.map(compile_form, forms, forms.values()))


def build_core(compiler, triple, directory):
    """Compile the core for a target, and write it with its checksum, of which `library.py` learns its name.

    Raises:
        OSError: If the compiler cannot be run.
        subprocess.CalledProcessError: If it fails.
    """
    system = {"macos": "dylib", "apple": "dylib", "windows": "dll"}
    suffix = next((system[word] for word in re.findall("[a-z]+", triple) if word in system), "so")
    path = Path(directory, f"_core.{suffix}")
    with TemporaryDirectory() as temporary:
        objects, output = compile_forms(compiler, triple, temporary), f"{temporary}/{path.name}"
        core = ["-shared", f"-DSOURCES=0x{source_hash()}", str(CSRC / "core.c"), *objects, "-lm", "-o", output]
        subprocess.run([*compiler, *FLAGS, *core], check=True)
        content = Path(output).read_bytes()
    path.write_bytes(content)
    path.with_suffix(".sha256").write_text(f"{sha256(content).hexdigest()}  {path.name}\n")


def build_web(directory):
    """Compile the core to modules of WebAssembly, with zig, since gcc has no such target.

    Raises:
        subprocess.CalledProcessError: If zig is missing or fails.
    """
    # WASI's library has memcpy and erf; its system is two functions, a clock and one that does nothing.
    compiler = [*zig("wasm32-wasi"), "-mexec-model=reactor", *FLAGS]
    exported = ["-Wl,--export-dynamic", "-Wl,--export=__heap_base"]

    sources = ["-DFORM=plain", "-DFORM_plain", "-DSOURCES=0", str(CSRC / "core.c"), str(CSRC / "form.c")]
    for name, features in WEB_FORMS.items():
        # Told to clang alone; zig would compile its library anew for each of them.
        flags = [word for feature in features for word in ("-Xclang", "-target-feature", "-Xclang", feature)]
        subprocess.run([*compiler, *flags, *sources, *exported, "-o", f"{directory}/core-{name}.wasm"], check=True)


class BuildCore(build_ext):
    """Builds the core: for the platform of a wheel if one is given, else for this machine if it has a C compiler."""

    def run(self):
        """Compile the core into the package."""
        directory, wheel = Path("src" if self.inplace else self.build_lib), self.get_finalized_command("bdist_wheel")
        directory /= "clearhead/kernels"
        directory.mkdir(parents=True, exist_ok=True)
        for left in directory.glob("_core.*"):  # of an earlier build, perhaps for another platform
            left.unlink()
        if wheel.plat_name_supplied:
            target = TARGETS[wheel.plat_name]
            build_core(zig(target), target, directory)
            return
        compiler = shlex.split(os.environ.get("CC", "cc"))
        try:
            triple = subprocess.run([*compiler, "-dumpmachine"], check=True, capture_output=True, text=True).stdout
            if "mingw" in triple:
                raise OSError("gcc does not align AVX's registers on Windows, its bug 54412")
            build_core(compiler, triple.strip(), directory)
        except (OSError, subprocess.CalledProcessError) as error:
            self.warn(f"the compiled core of translation was not built, PyTorch does its work: {error}")


class WheelForEveryPython(bdist_wheel):
    """Names a wheel by its platform alone; the one for the platform `any` has no compiled core."""

    def finalize_options(self):
        """Leave out the core of the wheel for any platform."""
        if self.plat_name == "any":
            self.distribution.ext_modules = []
        super().finalize_options()

    def get_tag(self):
        """Return the tags of Python, its ABI and the platform."""
        return "py3", "none", super().get_tag()[2]


class BuildWeb(Command):
    """Builds the core for browsers into the package of these sources: `python setup.py build_web`."""

    user_options = []  # noqa: RUF012 - setuptools wants a list

    def initialize_options(self):
        """There are none."""

    def finalize_options(self):
        """There are none."""

    def run(self):
        """Compile the modules."""
        build_web("src/clearhead/kernels")


class SdistWithVersion(sdist):
    """Writes the version into the sources, which have no git then."""

    def make_release_tree(self, base_dir, files):
        """Lay out the sources, then the file of the version."""
        super().make_release_tree(base_dir, files)
        Path(base_dir, "src/clearhead/runtime/version.txt").write_text(self.distribution.get_version())


class BuildWithExamples(build_py):
    """Puts into the package the examples, which `clearhead paper concepts` runs, and the core for browsers."""

    def run(self):
        """Copy the package, then the examples and the core into it; of the core only what zig, if there, compiles."""
        super().run()
        if not self.editable_mode:
            kernels = Path(self.build_lib, "clearhead/kernels")
            for left in kernels.glob("core-*.wasm"):  # of an earlier build in the same sources
                left.unlink()
            if find_spec("ziglang"):
                build_web(kernels)
            else:
                self.warn("without ziglang no core for browsers was built: clearhead export --to web needs it")
            Path(self.build_lib, "clearhead/runtime/version.txt").write_text(self.distribution.get_version())
            directory = f"{self.build_lib}/clearhead/paper/examples"
            self.mkpath(directory)
            for path in Path("examples").glob("*.py"):
                self.copy_file(str(path), directory)


if __name__ == "__main__":
    setup(
        version=run_path("src/clearhead/runtime/version.py")["full_version"](),
        # Makes the wheel one of a platform; BuildCore compiles more than this.
        ext_modules=[Extension("clearhead.kernels._core", [str(CSRC / "core.c")])],
        cmdclass={
            "build_ext": BuildCore,
            "build_py": BuildWithExamples,
            "build_web": BuildWeb,
            "bdist_wheel": WheelForEveryPython,
            "sdist": SdistWithVersion,
        },
    )
