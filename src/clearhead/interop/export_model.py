"""Export of models to directories of other libraries; nothing is written if a library gives other results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from clearhead.bundle import Bundle, require_new
from clearhead.config import ModelConfig
from clearhead.config.choices import ForeignLibrary, ForeignPrecision
from clearhead.errors import ModelError
from clearhead.files import new_directory, os_error_as
from clearhead.interop import imported
from clearhead.interop.ctranslate2.parity import prove_ctranslate2
from clearhead.interop.ctranslate2.writer import write_ctranslate2
from clearhead.interop.huggingface.parity import prove_huggingface
from clearhead.interop.huggingface.writer import write_huggingface
from clearhead.interop.onnx.parity import prove_onnx
from clearhead.interop.onnx.writer import write_onnx
from clearhead.model.stored import StoredModel
from clearhead.runtime.installation import pip_install


def export_directory(
    bundle: Bundle, directory: Path, to: ForeignLibrary, sources: Sequence[str], precision: ForeignPrecision = "float32"
) -> tuple[str, str, list[str]]:
    """Write a directory that another library loads without code of ours; on an error nothing is left.

    Args:
        bundle: The model.
        directory: Path of the new directory; nothing may exist there.
        to: The library to export to.
        sources: Sentences for the comparison, if the library is installed.
        precision: Precision of the weights: float32 or int8 for ONNX, float32 alone for transformers.

    Returns:
        What was written, the result of the comparison, and notes on what differs in the other library.

    Raises:
        ConfigError: If the library does not support this model, precision or vocabulary.
        ModelError: If the path exists, it cannot be written, or the library gives other results.
    """
    require_new(directory)
    StoredModel.of(bundle.weights)  # refuses a module that computes something else than its configuration says
    with os_error_as(ModelError, f"cannot write {directory}"), new_directory(directory) as temporary:
        match to:
            case "hf":
                kind, notes = write_huggingface(bundle, temporary)
                compared = _compared_with_transformers(bundle, temporary, kind, sources)
                # M2M100 computes more positions when a text is longer.
                ends = [] if kind == "m2m_100" else _ends(bundle.model.config)
                return f"{_a(kind)} model", compared, [*notes, *ends, *_signs(bundle)]
            case "ctranslate2":
                pieces, notes = write_ctranslate2(bundle, temporary, precision)
                compared = prove_ctranslate2(temporary, bundle, sources, precision, pieces)
                notes += _ends(bundle.model.config)
            case "onnx":
                notes = write_onnx(bundle, temporary, precision)
                compared = prove_onnx(temporary, bundle, sources, precision)
        return f"a model in {precision}", compared, [*notes, *_signs(bundle)]


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _ends(config: ModelConfig) -> list[str]:
    """Return a note on the maximum length, if the export stores sinusoids in a table; here they are computed."""
    if not config.positions.startswith("sinusoidal"):
        return []
    return [
        f"positions end at {config.max_positions:,} tokens there, and a longer text is an error; here they are "
        f"computed for any length"
    ]


def _signs(bundle: Bundle) -> list[str]:
    """Return a note that other libraries do not protect placeholders."""
    if not bundle.tokenizer.num_placeholders:
        return []
    return [
        "placeholders and markup are text there; the model learned to copy signs in their place, U+F0000 and the 31 "
        "characters behind it, which a caller puts there and takes back (docs/placeholders.md)"
    ]


def _compared_with_transformers(bundle: Bundle, directory: Path, kind: str, sources: Sequence[str]) -> str:
    if not imported.can_prove():
        return f"not compared with transformers: {pip_install('interop')}"
    prove_huggingface(directory, kind, bundle, sources)
    same = "tokens, scores and texts" if bundle.model.config.num_decoder_layers else "tokens and hidden states"
    return f"{len(sources)} sentences have the same {same} in transformers"
