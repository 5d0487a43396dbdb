"""Export of models to directories of other libraries; nothing is written if a library gives other results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from clearhead.bundle import Bundle
from clearhead.bundle.model_directory import require_new
from clearhead.config import ModelConfig
from clearhead.config.choices import ForeignLibrary, ForeignPrecision
from clearhead.errors import ModelError
from clearhead.files import keep_others, new_directory, os_error_as, read_json, write_json
from clearhead.interop import imported
from clearhead.interop.ctranslate2.parity import prove_ctranslate2
from clearhead.interop.ctranslate2.writer import write_ctranslate2
from clearhead.interop.huggingface.parity import prove_added_tokens, prove_huggingface
from clearhead.interop.huggingface.writer import write_huggingface
from clearhead.interop.imported import NO_SENTENCES
from clearhead.interop.onnx.parity import prove_onnx
from clearhead.interop.onnx.writer import write_onnx
from clearhead.interop.round_trip import KEY
from clearhead.interop.vocabularies.vocabulary_files import tokens_beside_sentencepiece
from clearhead.model.stored import StoredModel
from clearhead.runtime.installation import pip_install

_FILES = "files"
"""The names of the files of an export, in its record."""


def export_directory(
    bundle: Bundle,
    directory: Path,
    to: ForeignLibrary,
    sources: Sequence[str],
    precision: ForeignPrecision = "float32",
    *,
    force: bool = False,
) -> tuple[str, str, list[str]]:
    """Write a directory that another library loads without code of ours; on an error nothing is left.

    Args:
        bundle: The model.
        directory: Path of the new directory.
        to: The library to export to.
        sources: Sentences for the comparison, if the library is installed.
        precision: Precision of the weights: float32 or int8 for ONNX, float32 alone for transformers.
        force: Whether to replace an earlier export that exists there, to any of these libraries.

    Returns:
        What was written, the result of the comparison, and notes on what differs in the other library.

    Raises:
        ConfigError: If the library does not support this model, precision or vocabulary.
        ModelError: If the path exists, it cannot be written, or the library gives other results.
    """
    refuse = partial(refuse_other, force=force)
    refuse(directory)
    StoredModel.of(bundle.weights)  # refuses a module that computes something else than its configuration says
    with (
        os_error_as(ModelError, f"cannot write {directory}"),
        new_directory(directory, refuse=refuse) as temporary,
    ):
        written = f"a model in {precision}"
        match to:
            case "hf":
                kind, notes = write_huggingface(bundle, temporary)
                written, compared = f"{_a(kind)} model", _compared_with_transformers(bundle, temporary, kind, sources)
                # M2M100 computes more positions when a text is longer.
                notes += [] if kind == "m2m_100" else _ends(bundle.config)
            case "ctranslate2":
                pieces, notes = write_ctranslate2(bundle, temporary, precision)
                compared = prove_ctranslate2(temporary, bundle, sources, precision, pieces) if sources else NO_SENTENCES
                notes += _ends(bundle.config)
            case "onnx":
                notes = write_onnx(bundle, temporary, precision)
                compared = prove_onnx(temporary, bundle, sources, precision) if sources else NO_SENTENCES
        if to != "hf" and sources and tokens_beside_sentencepiece(bundle.tokenizer) and imported.can_prove():
            prove_added_tokens(temporary, bundle, sources)
        _record_files(temporary)
        keep_others(directory, temporary, [*_written_files(directory), *_written_files(temporary)])
    return written, compared, [*notes, *_signs(bundle)]


def refuse_other(directory: Path, *, force: bool) -> None:
    """Require that nothing is in the place of an export or, with `force`, an earlier one to any of these libraries.

    Raises:
        ModelError: If something else is there, or the place cannot be written.
    """
    require_new(directory, lambda path: bool(_written_files(path)), force=force)


def _record_files(directory: Path) -> None:
    """Add the names of an export's files to its record, for the export that replaces it."""
    values = read_json(path := directory / "config.json", ModelError)
    values[KEY][_FILES] = sorted(file.name for file in directory.iterdir())
    write_json(path, values)


def _written_files(directory: Path) -> list[str]:
    """Return the names of an export's files; none if a path holds no export."""
    try:
        record = read_json(directory / "config.json", ModelError).get(KEY)
    except ModelError:
        return []
    names = record.get(_FILES) if isinstance(record, dict) else None
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []


def _a(kind: str) -> str:
    return f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"


def _ends(config: ModelConfig) -> list[str]:
    """Return a note on the maximum length, if the export stores sinusoids in a table; here they are computed."""
    if not config.positions.startswith("sinusoidal"):
        return []
    return [
        f"the export has positions for {config.max_positions:,} tokens, and a longer text is an error there; clearhead "
        f"computes positions for any length"
    ]


def _signs(bundle: Bundle) -> list[str]:
    """Return a note that other libraries do not protect placeholders."""
    if not bundle.tokenizer.num_placeholders:
        return []
    return [
        "only clearhead protects placeholders and markup: elsewhere, replace them by the 32 characters from U+F0000 "
        "on, which the model learned to copy, and restore them after translation (docs/placeholders.md)"
    ]


def _compared_with_transformers(bundle: Bundle, directory: Path, kind: str, sources: Sequence[str]) -> str:
    if not imported.can_prove():
        return f"not compared with transformers: {pip_install('interop')}"
    if not sources:
        return NO_SENTENCES
    differs = prove_huggingface(directory, kind, bundle, sources)
    same = "tokens, scores and texts" if bundle.config.num_decoder_layers else "tokens and hidden states"
    return differs or f"{len(sources)} sentences have the same {same} in transformers"
