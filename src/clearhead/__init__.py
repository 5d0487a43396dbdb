"""The Transformer of "Attention Is All You Need", from pairs of text to a translator, with every head open to view.

>>> import clearhead as ch
>>> ch.presets.paper_base().d_model
512
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clearhead.runtime.pytorch import needing_pytorch

if TYPE_CHECKING:
    from clearhead.config import Config, ModelConfig, Sampling, presets
    from clearhead.conversion import export_model, import_model
    from clearhead.errors import ClearheadError
    from clearhead.files.tensors import load_tensors
    from clearhead.formats.document_files import read_document
    from clearhead.inspection.explain import explain
    from clearhead.inspection.explanation import Explanation
    from clearhead.model.attention import MultiHeadAttention, scaled_dot_product_attention
    from clearhead.model.transformer import Transformer
    from clearhead.pipelines import pipeline
    from clearhead.runtime.threads import set_num_threads
    from clearhead.tokenizers import Tokenizer
    from clearhead.training.run import train
    from clearhead.translation import Translation
    from clearhead.translation.documents import TranslatedSegment, fillings, translate_document
    from clearhead.translation.memory import TranslationMemory
    from clearhead.translation.memory_file import MemoryFile
    from clearhead.translation.terminology import Term, Terms
    from clearhead.translation.translator import Translator

    __version__: str

# Imported on first use: `clearhead --help` must not wait for torch.
_HOMES = {
    "ClearheadError": "clearhead.errors",
    "Config": "clearhead.config",
    "Explanation": "clearhead.inspection.explanation",
    "MemoryFile": "clearhead.translation.memory_file",
    "ModelConfig": "clearhead.config",
    "MultiHeadAttention": "clearhead.model.attention",
    "Sampling": "clearhead.config",
    "Term": "clearhead.translation.terminology",
    "Terms": "clearhead.translation.terminology",
    "Tokenizer": "clearhead.tokenizers",
    "Transformer": "clearhead.model.transformer",
    "TranslatedSegment": "clearhead.translation.documents",
    "Translation": "clearhead.translation",
    "TranslationMemory": "clearhead.translation.memory",
    "Translator": "clearhead.translation.translator",
    "explain": "clearhead.inspection.explain",
    "fillings": "clearhead.translation.documents",
    "export_model": "clearhead.conversion",
    "import_model": "clearhead.conversion",
    "load_tensors": "clearhead.files.tensors",
    "pipeline": "clearhead.pipelines",
    "read_document": "clearhead.formats.document_files",
    "scaled_dot_product_attention": "clearhead.model.attention",
    "set_num_threads": "clearhead.runtime.threads",
    "train": "clearhead.training.run",
    "translate_document": "clearhead.translation.documents",
}

__all__ = [
    "ClearheadError",
    "Config",
    "Explanation",
    "MemoryFile",
    "ModelConfig",
    "MultiHeadAttention",
    "Sampling",
    "Term",
    "Terms",
    "Tokenizer",
    "Transformer",
    "TranslatedSegment",
    "Translation",
    "TranslationMemory",
    "Translator",
    "explain",
    "export_model",
    "fillings",
    "import_model",
    "load_tensors",
    "pipeline",
    "presets",
    "read_document",
    "scaled_dot_product_attention",
    "set_num_threads",
    "train",
    "translate_document",
]


if not TYPE_CHECKING:  # with it, a type checker would accept every name

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            return import_module("clearhead.runtime.version").full_version()
        if name == "presets":
            return import_module("clearhead.config.presets")
        if name in _HOMES:
            with needing_pytorch(f"clearhead.{name}"):
                return getattr(import_module(_HOMES[name]), name)
        raise AttributeError(f"module 'clearhead' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
