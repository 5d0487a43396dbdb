"""Vocabularies that are lists of words or subwords, as toolkits keep them, with the file that split text into these.

A checkpoint of a toolkit often has the list alone; what made its words stands beside it, in a file of subword-nmt, of
fastBPE or of sentencepiece. Without one, text is looked up word by word, as it stands between spaces.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from pathlib import Path

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.interop.vocabularies.huggingface_files import file_base64, file_text
from clearhead.interop.vocabularies.sentencepiece_pieces import only_pieces
from clearhead.tokenizers.foreign import Frame, Side, VocabularyFile

__all__ = ["find_subwords", "read_lines", "require_rows", "word_side", "word_vocabulary"]

_CODES = ("bpecodes", "bpe.codes", "codes", "code")
_SENTENCEPIECE = (".model", ".spm")


def find_subwords(directory: Path, language: str | None = None) -> Path | None:
    """Return the file that splits the text of one side into subwords; None if there is none.

    Args:
        directory: Where it would stand.
        language: Of that side, which part of its name may say, such as `spm.de.model`.

    Raises:
        ModelError: If it could be any of several.
    """
    found = sorted(path for path in directory.iterdir() if path.suffix in _SENTENCEPIECE or _is_codes(path.name))
    of_language = [path for path in found if language is not None and language in path.name.split(".")]
    if len(of_language or found) > 1:
        raise ModelError(
            f"{directory} has several files that may split text into subwords "
            f"({', '.join(path.name for path in found[:4])}); leave one, or one that names each language, "
            f"such as codes.de"
        )
    return next(iter(of_language or found), None)


def _is_codes(name: str) -> bool:
    return any(name == codes or name.startswith(f"{codes}.") for codes in _CODES)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, split at line ends alone.

    Raises:
        ModelError: If it cannot be read, or is not UTF-8.
    """
    return file_text(path).removesuffix("\n").split("\n")


def word_side(
    pieces: Sequence[str | None],
    *,
    special: Collection[int],
    unk_id: int,
    subwords: Path | None,
    within_pieces: bool = False,
    lowercase: bool = False,
) -> Side:
    """Return how a side is spelled whose list of words a toolkit keeps.

    Args:
        pieces: The piece of every id.
        special: Ids of special tokens; what is unknown is none, and reads as it is called.
        unk_id: Id of words that are not in the list.
        subwords: From `find_subwords`.
        within_pieces: Whether text is split into what has a piece, as JoeyNMT does.
        lowercase: As of `Side`.

    Raises:
        ModelError: If the file of subwords cannot be read.
    """
    is_sentencepiece = subwords is not None and subwords.suffix in _SENTENCEPIECE
    model = "" if subwords is None else file_base64(subwords) if is_sentencepiece else file_text(subwords)
    if is_sentencepiece and within_pieces:
        model = base64.b64encode(only_pieces(base64.b64decode(model), set(pieces))).decode()
    return Side(
        speller="sentencepiece" if is_sentencepiece else "words",
        model=model,
        pieces=tuple(pieces),
        special=tuple(sorted(special)),
        unk_id=unk_id,
        within_pieces=within_pieces and not is_sentencepiece,
        lowercase=lowercase,
    )


def word_vocabulary(config: ModelConfig, source: Side, target: Side, source_frame: Frame) -> VocabularyFile:
    """Return the vocabulary of a model that is told no languages.

    Args:
        config: Our settings of the model: its special ids, and how many rows it has.
        source: How a source is spelled.
        target: How a target is spelled.
        source_frame: What a source is made of.
    """
    return VocabularyFile(
        source=source,
        target=None if target == source else target,
        source_frame=source_frame,
        target_frame=("text", config.eos_id),
        languages={},
        pad_id=config.pad_id,
        bos_id=config.bos_id,
        eos_id=config.eos_id,
        vocab_size=config.vocab_size,
        source_vocab_size=config.source_vocab_size,
    )


def require_rows(pieces: Sequence[object], embedding: Tensor, *, words: object, weights: object) -> None:
    """Make sure that a list of words is that of an embedding.

    Args:
        pieces: The list.
        embedding: Its vectors.
        words: Where the list stands, for the message.
        weights: Where the embedding stands, likewise.

    Raises:
        ModelError: If their numbers differ.
    """
    rows = embedding.size(0) if embedding.dim() else 0
    if len(pieces) != rows:
        raise ModelError(
            f"{words} makes {len(pieces):,} words, special ones included, and {weights} has {rows:,} rows: they are of "
            f"two models"
        )
