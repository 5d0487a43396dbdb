"""Import of other libraries' models: which library a path belongs to, and the reader for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from clearhead.errors import ConfigError, ModelError, nearest_name
from clearhead.interop.ctranslate2.reader import import_ctranslate2
from clearhead.interop.huggingface.reader import import_huggingface
from clearhead.interop.huggingface.state import FAMILIES
from clearhead.interop.imported import Imported, as_vocabulary
from clearhead.interop.onnx.reader import import_onnx
from clearhead.interop.readers.foreign_weights import WEIGHT_FILES
from clearhead.interop.toolkits.eole import import_eole
from clearhead.interop.toolkits.fairseq import import_fairseq
from clearhead.interop.toolkits.joeynmt import import_joeynmt
from clearhead.interop.toolkits.marian_npz import import_marian, is_marian
from clearhead.interop.toolkits.opennmt_py import import_opennmt
from clearhead.interop.vocabularies.markers import possible_markers, with_markers
from clearhead.tokenizers.foreign import ForeignVocabulary

_SHOWN = 8
"""Maximum number of tokens in a note."""


@dataclass(frozen=True)
class Library:
    """A library whose models can be imported.

    `read` takes the path, the requested kind or None, and the source and target languages or None.
    """

    is_here: Callable[[Path], bool]
    """Return whether a path looks like a model of the library, judged by file names alone."""
    read: Callable[[Path, str | None, str | None, str | None], Imported]
    kinds: tuple[str, ...]
    """Allowed values of `--kind`."""
    layout: str
    """Files of a model, for the message that no library was recognised."""


def _has_any(*names: str) -> Callable[[Path], bool]:
    return lambda path: any((path / name).exists() for name in names)


def _has_like(pattern: str, *, beside: str | None = None) -> Callable[[Path], bool]:
    """Return a test for a path that is, or contains, a file matching a pattern.

    Args:
        pattern: Glob pattern of the file's name.
        beside: Pattern of another file that its directory must contain; None for no other.
    """

    def is_here(path: Path) -> bool:
        directory = path if path.is_dir() else path.parent
        is_named = any(directory.glob(pattern)) if path.is_dir() else path.match(pattern)
        return is_named and (beside is None or any(directory.glob(beside)))

    return is_here


_has_onnx = _has_any("encoder_model.onnx")
_has_weights = _has_any(*WEIGHT_FILES)

LIBRARIES: Mapping[str, Library] = {
    "fairseq": Library(
        _has_like("*.pt", beside="dict.*.txt"),
        import_fairseq,
        ("fairseq",),
        "a checkpoint such as checkpoint_best.pt, or its directory, with dictionaries such as dict.de.txt beside it",
    ),
    "JoeyNMT": Library(
        _has_like("*.ckpt", beside="config.yaml"),
        import_joeynmt,
        ("joeynmt",),
        "a directory with best.ckpt, config.yaml, src_vocab.txt and trg_vocab.txt",
    ),
    "eole": Library(
        _has_any("model.00.safetensors"),
        import_eole,
        ("eole",),
        "a directory with config.json, model.00.safetensors and vocab.json",
    ),
    "CTranslate2": Library(
        _has_any("model.bin", "model/model.bin"),
        import_ctranslate2,
        ("ctranslate2",),
        "a directory with model.bin, config.json, the vocabulary and the tokenizer; or a package of Argos Translate, "
        "unpacked: the tokenizer, metadata.json, and the rest in the folder model",
    ),
    "ONNX": Library(
        lambda path: _has_onnx(path) and not _has_weights(path),
        import_onnx,
        ("onnx",),
        "a directory that clearhead exported, with encoder_model.onnx and the files beside it",
    ),
    "transformers": Library(
        _has_any("config.json", "model.safetensors", "pytorch_model.bin"),
        import_huggingface,
        tuple(FAMILIES),
        "a directory with config.json, the weights and the tokenizer",
    ),
    "OpenNMT-py": Library(
        _has_like("*.pt"),
        import_opennmt,
        ("opennmt-py",),
        "a checkpoint such as model_step_50000.pt",
    ),
    "Marian": Library(
        is_marian, import_marian, ("marian-nmt",), "an .npz file, beside it decoder.yml and the vocabularies"
    ),
}
"""Libraries in the order in which they are tried: transformers directories may contain other files that end in .pt."""

_REFUSED: Mapping[str, tuple[Callable[[Path], bool], str]] = {
    "an adapter of PEFT": (
        _has_like("adapter_config.json"),
        "it holds changes to another model, which must be merged first: "
        "peft.AutoPeftModelForSeq2SeqLM.from_pretrained(PATH).merge_and_unload().save_pretrained(MERGED), with the "
        "tokenizer of that model in the same directory; import MERGED",
    ),
    "a model of Bergamot": (
        _has_like("*.intgemm*.bin"),
        "it holds weights rounded to 8 bits for Marian's intgemm alone; import the .npz file that it was made from, "
        "with the vocabularies and decoder.yml beside it",
    ),
}
"""Models that are recognized and cannot be imported: what they are, the test of a path, and what to do."""


def missing_model(path: Path) -> ModelError:
    """Return the error for a path that does not exist, which may be meant as a name of the Hugging Face Hub."""
    is_name = len(path.parts) == 2 and not path.parent.exists()
    fetch = f"; fetch it first: hf download {path} --local-dir {path.name}" if is_name else ""
    return ModelError(
        f"no model at {path}: there is no such file or directory, and nothing is downloaded from a name{fetch}"
    )


def import_path(
    path: Path,
    *,
    kind: str | None = None,
    source_lang: str | None = None,
    target_lang: str | None = None,
    markers: Sequence[str] = (),
) -> Imported:
    """Read a model of another library; no code in it is run.

    Args:
        path: Directory or file of the model.
        kind: Kind of model; None to recognise it by its files.
        source_lang: Source language, for a model with source-language tokens; None for the one in the files.
        target_lang: Default target language; None for the one in the files.
        markers: Special tokens that are read as such where a text contains them, such as `<hl>`.

    Raises:
        ConfigError: If the kind or a marker is unknown, or naming every setting that our model cannot express.
        ModelError: If a file is missing or damaged, or does not fit the others.
    """
    if not path.exists():
        raise missing_model(path)
    try:
        return _with_markers(_library(path, kind).read(path, kind, source_lang, target_lang), path, markers)
    except ConfigError as error:
        if str(path) in str(error):
            raise
        raise ConfigError(f"{path}: {error}") from None


def _with_markers(imported: Imported, path: Path, markers: Sequence[str]) -> Imported:
    """Let the vocabulary read markers, and note the special tokens that remain text."""
    vocabulary = imported.bundle.tokenizer
    if not isinstance(vocabulary, ForeignVocabulary):
        if markers:
            raise ConfigError("--markers is for vocabularies of other libraries, and clearhead trained this one")
        return imported
    file = vocabulary.file
    if markers:
        if "words" in (file.source.speller, (file.target or file.source).speller):
            raise ConfigError("--markers has no meaning: this model looks up whole words, special tokens among them")
        file = with_markers(file, markers)
        imported.bundle.tokenizer = as_vocabulary(file, path)  # the comparison uses the same bundle
    if not (others := possible_markers(file)):
        return imported
    shown = ",".join(others[:_SHOWN]) + (",.." if len(others) > _SHOWN else "")
    note = (
        f"these special tokens are text in a text: {shown:.300}; name those that users of the model write (--markers)"
    )
    return replace(imported, notes=(*imported.notes, note))


def _library(path: Path, kind: str | None) -> Library:
    """Return the library of the requested kind, or the first one that recognises the path."""
    if kind is not None:
        known = [name for library in LIBRARIES.values() for name in library.kinds]
        if kind not in known:
            raise ConfigError(f"models of the kind {kind!r:.100} are not known here{nearest_name(kind, known)}")
        return next(library for library in LIBRARIES.values() if kind in library.kinds)
    chosen = next((library for library in LIBRARIES.values() if library.is_here(path)), None)
    for what, (is_here, advice) in _REFUSED.items():
        if chosen is None and is_here(path):
            raise ModelError(f"{path} is {what}: {advice}")
    if chosen is None:
        layouts = "; ".join(f"{name}: {library.layout}" for name, library in LIBRARIES.items())
        raise ModelError(f"{path} is no model of a library that is known here ({layouts})")
    return chosen
