"""How the fast core of translation is built; all else stands in pyproject.toml."""

import os
import platform
import re
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

CSRC = Path("src/clearhead/kernels/csrc")

names, digest = ["core.c", "form.c"], sha256()
for name in names:  # which grows by what each includes
    text = CSRC.joinpath(name).read_bytes()
    names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
    digest.update(text)

FLAGS = ["-O3", "-ffp-contract=off", "-fno-semantic-interposition", "-fvisibility=hidden", "-g0"]
AVX2 = ["-mavx2", "-mfma"]
AVX512 = [*AVX2, "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl"]
FORMS = {
    "x86_64": {
        "avx2": AVX2,
        "avx_vnni": [*AVX2, "-mavxvnni"],
        "avx512": AVX512,
        "avx512_vnni": [*AVX512, "-mavx512vnni"],
        "avx512_bf16": [*AVX512, "-mavx512vnni", "-mavx512bf16"],
    },
    "aarch64": {"neon": [], "neon_dot": ["-march=armv8.2-a+dotprod"]},
}
"""Flags of each form of the core, by processor; the plain form, without flags, is for every processor."""

core = Extension(
    "clearhead.kernels._core",
    [str(CSRC / "core.c")],
    depends=[str(CSRC / name) for name in names],
    define_macros=[("SOURCES", f"0x{digest.hexdigest()[:16]}")],  # kernels/library.py compares the sources with it
    extra_compile_args=FLAGS,
    optional=True,  # where it cannot be compiled (no compiler) PyTorch does its work
)


class BuildForms(build_ext):
    """Compiles form.c once for each form that the processor may have, then the core that chooses among them."""

    def build_extension(self, extension):
        """Compile the forms and add them to the extension."""
        machine = {"AMD64": "x86_64", "arm64": "aarch64"}.get(platform.machine(), platform.machine())
        forms = {"plain": [], **FORMS.get(machine, {})}
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for objects in pool.map(self._compile, forms, forms.values()):
                extension.extra_objects += objects
        super().build_extension(extension)

    def _compile(self, form, flags):
        return self.compiler.compile(
            [str(CSRC / "form.c")],
            output_dir=f"{self.build_temp}/{form}",
            macros=[("FORM", form), (f"FORM_{form}", None)],
            extra_preargs=[*FLAGS, *flags],
        )


class BuildWithExamples(build_py):
    """Puts the examples, which `clearhead paper concepts` runs, into the package."""

    def run(self):
        """Copy the package, then the examples into it."""
        super().run()
        if not self.editable_mode:
            directory = f"{self.build_lib}/clearhead/paper/examples"
            self.mkpath(directory)
            for path in Path("examples").glob("*.py"):
                self.copy_file(str(path), directory)


setup(ext_modules=[core], cmdclass={"build_ext": BuildForms, "build_py": BuildWithExamples})
