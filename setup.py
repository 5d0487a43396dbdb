"""How the fast core of translation is built; all else stands in pyproject.toml."""

from hashlib import sha256
from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(Path("src/clearhead/kernels/csrc").glob("*.[ch]"))
HASH = sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]
FLAGS = ["-O3", "-ffp-contract=off", "-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma"]

core = Extension(
    "clearhead.kernels._core",
    ["src/clearhead/kernels/csrc/core.c"],
    depends=[str(path) for path in SOURCES],
    define_macros=[("SOURCES", f"0x{HASH}")],  # by which kernels/library.py tells what a core was built from
    extra_compile_args=FLAGS,
    optional=True,  # where it cannot be compiled (no compiler, another processor) PyTorch does its work
)

setup(ext_modules=[core])
