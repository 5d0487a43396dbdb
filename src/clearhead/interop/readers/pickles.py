"""Reader of PyTorch files without running code: every name in a pickle is checked before anything is built.

A pickle is a program that calls the functions it names. PyTorch's weights-only loader refuses most names, but some of
those it accepts take unlimited memory or time, such as `bytearray` with a number, or `_codecs.encode` with punycode. So
a file is read only if it names what PyTorch writes for tensors and plain containers, used as PyTorch writes it.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from clearhead.errors import ModelError
from clearhead.files import require_regular
from clearhead.interop.readers.foreign_config import require_bounded

_ZIP_START = b"PK\x03\x04"
_MOST_UNPACKED = 16
"""Largest ratio of the unpacked to the packed size of an archive; neither PyTorch nor Marian compresses."""
_PICKLES = 5
"""Pickles in files of PyTorch before 1.6: magic number, version, system information, object, keys of the storages."""

_CHEAP = re.compile(
    r"torch\._utils _rebuild_(tensor(_v2)?|parameter)|torch(\.cuda)? \w+Storage"
    r"|torch (device|(b?float|u?int|complex)\d+|bool)"
)
"""Names that may be used in any way: with arguments of any size they cost nothing."""
_USES = {
    ("collections", "OrderedDict"): ("O", r"O\)R"),  # without arguments
    ("_codecs", "encode"): ("E", "E[SL]L2R"),  # bytes, as text in this place and latin1; numbers of NumPy contain them
    ("__builtin__", "set"): ("s", r"s\]"),  # a list in this place
    ("builtins", "set"): ("s", r"s\]"),
    ("collections", "Counter"): ("C", "C}"),  # a dict in this place
}
"""Names that may be used only as Python writes them: the name to its letter, and to the pattern of operations.

An argument may not be stored once and used many times, which would multiply the size of the file.
"""
_LETTERS = {"EMPTY_TUPLE": ")", "REDUCE": "R", "TUPLE2": "2", "EMPTY_LIST": "]", "EMPTY_DICT": "}"}


class Record:
    """Stand-in for an object whose class is not looked up."""

    state: Any = None
    """State of the object, usually its attributes by name."""

    def __new__(cls, *_arguments: Any) -> Record:
        """Accept any arguments, like the class in whose place it is."""
        return super().__new__(cls)

    def __init__(self, *_arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


def read_pickle(path: Path, what: str, *, stood_in_for: Collection[str] = ()) -> Any:
    """Read a PyTorch file, with a `Record` for every object of some packages.

    Args:
        path: The file.
        what: Name of such a file in messages, such as `weights`.
        stood_in_for: Packages whose classes and functions are replaced by records.

    Raises:
        ModelError: If the file cannot be read, or names anything else, or its values are too deep or too large.
    """
    try:
        require_regular(path)
        require_unpacked(path)
        named: set[tuple[str, str]] = set()
        for pickled in _pickles(path):
            named |= _require_cheap(pickled, path, stood_in_for)
        stand_ins: list[Any] = [
            type(name, (Record,), {"__module__": module})
            for module, name in sorted(named)
            if module.split(".")[0] in stood_in_for
        ]
        with torch.serialization.safe_globals(stand_ins):
            values = torch.load(path, map_location="cpu", weights_only=True)
        require_bounded(values, _parts, stored=path.stat().st_size, origin=path)
    except OSError as error:
        raise ModelError(f"cannot read the {what} {path}: {error.strerror or error}") from None
    except ModelError:
        raise
    except pickle.UnpicklingError:
        raise _refusal(path, ()) from None
    except Exception as error:  # a damaged archive or pickle may raise any exception
        said = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ModelError(f"cannot read the {what} {path}: {said:.200}") from None
    return values


def require_unpacked(path: Path) -> None:
    """Check that an archive is not much larger when unpacked: a small one could fill the memory.

    Files that are not archives are accepted.

    Raises:
        ModelError: If the archive would be too large.
        BadZipFile: If the archive is damaged.
        OSError: If the file cannot be read.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP_START)) != _ZIP_START:
            return
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > _MOST_UNPACKED * path.stat().st_size:
            raise ModelError(f"{path} is damaged: it would be more than {_MOST_UNPACKED} times as long unpacked")


def _refusal(path: Path, others: Iterable[str]) -> ModelError:
    what = f" ({', '.join(sorted(others)[:3]):.100})" if others else ""
    return ModelError(
        f"{path} holds more than tensors and settings{what}: it could run code or fill the memory when read, and is not"
    )


def _pickles(path: Path) -> Iterator[BinaryIO | io.BytesIO]:
    """Yield an open file for each pickle of a PyTorch file, at its beginning.

    Raises:
        ModelError: If an archive does not contain exactly one pickle.
    """
    with path.open("rb") as file:
        if file.read(len(_ZIP_START)) != _ZIP_START:
            file.seek(0)
            for _ in range(_PICKLES):
                yield file
            return
    with zipfile.ZipFile(path) as archive:
        inside = [info for info in archive.infolist() if Path(info.filename).name == "data.pkl"]
        if len(inside) != 1:
            raise ModelError(f"{path} is damaged: it holds {len(inside)} files data.pkl, not 1")
        yield io.BytesIO(archive.read(inside[0]))


def _require_cheap(file: BinaryIO | io.BytesIO, path: Path, stood_in_for: Collection[str]) -> set[tuple[str, str]]:
    """Return the module and name of everything that one pickle refers to, which must be safe to load.

    Raises:
        ModelError: If the pickle names anything else, or uses a name in another way than Python writes it.
    """
    named: set[tuple[str, str]] = set()
    letters: list[str] = []
    memo: dict[int, str] = {}
    argument: Any
    for opcode, argument, _ in pickletools.genops(file):
        match opcode.name:
            case "BINPUT" | "LONG_BINPUT":
                memo[argument] = letters[-1] if letters else "."
                continue
            case "BINGET" | "LONG_BINGET":
                letter = memo.get(argument, ".").replace("S", ".")  # a stored text may be used many times
            case "GLOBAL":
                module, _, name = argument.partition(" ")
                named.add((module, name))
                letter = _USES.get((module, name), (".", ""))[0]
            case "BINUNICODE":
                letter = "L" if argument == "latin1" else "S"
            case _:
                letter = _LETTERS.get(opcode.name, ".")
        letters.append(letter)
    used = re.sub("|".join(pattern for _, pattern in _USES.values()), "", "".join(letters))
    misused = {f"{module}.{name}" for (module, name), (letter, _) in _USES.items() if letter in used}
    if others := misused | {
        f"{module}.{name}"
        for module, name in named
        if module.split(".")[0] not in stood_in_for
        and (module, name) not in _USES
        and _CHEAP.fullmatch(f"{module} {name}") is None
    }:
        raise _refusal(path, others)
    return named


def _parts(value: Any) -> Iterable[Any]:
    match value:
        case Mapping():
            return (*value, *value.values())
        case list() | tuple() | set():
            return value
        case Record():
            return (value.state,)
        case _:
            return ()
