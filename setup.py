"""How the fast core of translation is built; all else stands in pyproject.toml."""

import re
from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

CSRC = Path("src/clearhead/kernels/csrc")

names, digest = ["core.c"], sha256()
for name in names:  # which grows by what each includes
    text = CSRC.joinpath(name).read_bytes()
    names += [header for header in re.findall(r'#include "(.+?)"', text.decode()) if header not in names]
    digest.update(text)
FLAGS = [
    "-O3",
    "-ffp-contract=off",
    "-fno-semantic-interposition",
    "-mavx512f",
    "-mavx512bw",
    "-mavx512dq",
    "-mavx512vl",
    "-mfma",
]

core = Extension(
    "clearhead.kernels._core",
    [str(CSRC / "core.c")],
    depends=[str(CSRC / name) for name in names],
    define_macros=[("SOURCES", f"0x{digest.hexdigest()[:16]}")],  # kernels/library.py compares the sources with it
    extra_compile_args=FLAGS,
    optional=True,  # where it cannot be compiled (no compiler, another processor) PyTorch does its work
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


setup(ext_modules=[core], cmdclass={"build_py": BuildWithExamples})
