"""What settings mean: the docstrings of their fields, read from the source files, for flags, requests and pages.

Pydantic would read the source files whenever they are imported. The first paragraph of a docstring holds wherever a
setting is given, as a flag too; further paragraphs are about the sections of a configuration.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

SECTIONS: Mapping[str, str] = {
    "": "run:Config",
    "data": "text:DataConfig",
    "tokenizer": "text:TokenizerConfig",
    "model": "model:ModelConfig",
    "train": "train:TrainConfig",
    "decode": "decode:DecodeConfig",
    "sampling": "decode:Sampling",
    "serve": "serve:ServeConfig",
}
"""Section to the file and the class that define its settings; nothing of them is imported."""


@cache
def docstrings(path: Path) -> dict[str, dict[str, str]]:
    """Return the docstring of each field of each class in a file, indented as it is there."""
    classes = [node for node in ast.parse(path.read_text("utf-8")).body if isinstance(node, ast.ClassDef)]
    return {
        node.name: {
            field.target.id: text.value.value
            for field, text in pairwise(node.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in classes
    }


def words(setting: str) -> str:
    """Return what a setting means, on one line.

    >>> words("decode.beam_size")
    'Hypotheses kept at every step; 1 is greedy search (paper section 6.1: 4).'
    """
    section, _, key = setting.rpartition(".")
    file, _, name = SECTIONS[section].partition(":")
    text = docstrings(Path(__file__).with_name(f"{file}.py"))[name][key]
    return " ".join(text.split("\n\n")[0].split())


class SameAs(NamedTuple):
    """Annotation of a field that means what a setting does: the words are those of the setting."""

    setting: str
    more: str = ""
    """What holds for this field alone."""

    def __str__(self) -> str:
        return f"{words(self.setting)} {self.more}".rstrip()

    def __get_pydantic_json_schema__(self, schema: Any, handler: Any) -> dict[str, Any]:
        """Describe the field in a JSON schema."""
        return {**handler(schema), "description": str(self)}
