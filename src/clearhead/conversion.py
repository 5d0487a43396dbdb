"""Models from and for other libraries as Python functions; the commands `import` and `export` print their results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

from clearhead.bundle import load_bundle, save_bundle
from clearhead.bundle.model_directory import refuse_foreign, refuse_model
from clearhead.config.choices import ForeignLibrary, ForeignPrecision
from clearhead.runtime.pytorch import needing_pytorch
from clearhead.translation.golden import NUM_GOLDEN, make_golden, require_computed_alike, vocabulary_sources
from clearhead.translation.translator import Translator

Stage = Callable[[str], AbstractContextManager[Any]]
"""Shows the name of what is being done, while it is done."""

NUM_COMPARED = 8
"""Number of sentences compared in an export, made of words of the vocabulary."""


@dataclass(frozen=True)
class Conversion:
    """Result of `import_model` or `export_model`."""

    written: str
    """What was written, such as `a marian model`."""
    kind: str
    """Kind of the imported model, such as `marian`, or the library of the export."""
    proof: str
    """Result of the comparison with the other library, or why there is none."""
    notes: tuple[str, ...]
    """Differences from the original."""


def import_model(
    path: str | Path,
    output: str | Path,
    *,
    kind: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    markers: Sequence[str] = (),
    force: bool = False,
    stage: Stage = lambda _: nullcontext(),
) -> Conversion:
    """Convert a model of another library to a model directory; no code in its files is run (docs/models.md).

    Args:
        path: Directory or file of the other library.
        output: Model directory to write.
        kind: Kind of model; None to recognize it by its files.
        source_lang: Source language, for a model with source-language tokens; None for the one in the files.
        target_lang: Default target language; None for the one in the files.
        markers: Special tokens that a text may contain, such as `<hl>`; others in a text are text.
        force: Whether to replace an existing model.
        stage: Called with what is being done.

    Raises:
        ConfigError: If the kind is unknown, or naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, the other library gives other results, or the output exists.
    """
    with needing_pytorch("import"):
        from clearhead.interop.import_model import import_path
        from clearhead.interop.imported import NO_SENTENCES, card

    path, output = Path(path), Path(output)
    refuse_foreign(output)
    if not force:
        refuse_model(output)
    imported = import_path(path, kind=kind, source_lang=source_lang, target_lang=target_lang, markers=markers)
    model, tokenizer = imported.bundle.model, imported.bundle.tokenizer
    golden, sources = [], vocabulary_sources(tokenizer, NUM_GOLDEN, is_tagged=False)
    compared = "tokens and hidden states"
    if model.config.num_decoder_layers:
        with stage("translating golden sentences"):
            golden = make_golden(Translator(imported.bundle))
        sources, compared = [sentence["source"] for sentence in golden], "tokens, scores and texts"
    proof = f"not compared with its own library: {imported.why_unproven}"
    if imported.prove is not None and not sources:
        proof = NO_SENTENCES
    elif imported.prove is not None:
        with stage(f"comparing with {imported.library}"):
            findings = imported.prove(sources)
        proof = findings or f"{len(sources)} sentences have the same {compared} as in {imported.library}"
    check = partial(require_computed_alike, golden=golden)
    save_bundle(output, imported.bundle, golden=golden, card=card(output.name, imported, proof), check=check)
    size = f"{model.num_parameters():,} parameters, {tokenizer.vocab_size:,} pieces"
    return Conversion(size, imported.kind, proof, imported.notes)


def export_model(
    model: str | Path | Translator,
    output: str | Path,
    *,
    to: ForeignLibrary | Literal["transformers", "huggingface"],
    precision: ForeignPrecision = "float32",
    force: bool = False,
) -> Conversion:
    """Convert a model to a directory of another library, and compare the results (docs/models.md).

    A page or a small model is made by the command `clearhead export`.

    Args:
        model: Model directory, run directory, or translator.
        output: Directory to write.
        to: The other library: `hf` (also `transformers` or `huggingface`), `ctranslate2` or `onnx`.
        precision: Precision of the weights.
        force: Whether to replace an existing export to any of these libraries.

    Raises:
        ConfigError: If the library does not support this model, precision or vocabulary.
        ModelError: If the output exists or cannot be written, or the library gives other results; nothing is written.
    """
    with needing_pytorch(f"export to {to}"):
        from clearhead.interop.export_model import export_directory, refuse_other

    refuse_other(Path(output), force=force)
    library: ForeignLibrary = "hf" if to == "transformers" or to == "huggingface" else to
    bundle = model.bundle if isinstance(model, Translator) else load_bundle(model)
    sources = vocabulary_sources(bundle.tokenizer, NUM_COMPARED, is_tagged=bundle.decode.target_lang is None)
    written, compared, notes = export_directory(bundle, Path(output), library, sources, precision, force=force)
    return Conversion(written, library, compared, tuple(notes))
