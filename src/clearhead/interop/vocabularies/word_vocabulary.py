"""Word-list vocabularies of toolkits, with the subword file that splits text into these words.

A toolkit checkpoint often has only the list. The file that splits text, of subword-nmt, fastBPE or sentencepiece, is
beside it. Without such a file, text is split at spaces and each word is looked up in the list.
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from pathlib import Path

from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import ModelError
from clearhead.interop.readers.foreign_config import file_text
from clearhead.interop.vocabularies.huggingface_files import file_base64, vocabulary_of
from clearhead.tokenizers.foreign import Frame, VocabularyFile, VocabularySide
from clearhead.tokenizers.subword_encoders import only_pieces

_CODES = ("bpecodes", "bpe.codes", "codes", "code")
_SENTENCEPIECE = (".model", ".spm")


def find_subwords(directory: Path, language: str | None = None) -> Path | None:
    """Return the subword file of one side; None if there is none.

    Args:
        directory: Directory to search.
        language: Language of the side, which may be part of the file name, such as `spm.de.model`.

    Raises:
        ModelError: If several files are candidates.
    """
    files = sorted(path for path in directory.iterdir() if path.suffix in _SENTENCEPIECE or _is_codes(path.name))
    of_language = [path for path in files if language is not None and language in path.name.split(".")]
    if len(of_language or files) > 1:
        raise ModelError(
            f"{directory} has several files that may split text into subwords "
            f"({', '.join(path.name for path in files[:4])}); leave one, or one that names each language, "
            f"such as codes.de"
        )
    return next(iter(of_language or files), None)


def _is_codes(name: str) -> bool:
    return any(name == codes or name.startswith(f"{codes}.") for codes in _CODES)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a text file, split only at line feeds.

    Raises:
        ModelError: If the file cannot be read, or is not UTF-8.
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
) -> VocabularySide:
    """Return the tokenizer of a side from a toolkit's word list.

    Args:
        pieces: Piece of every id.
        special: Ids of special tokens; the unknown token is not among them, and is decoded as its name.
        unk_id: Id of words that are not in the list.
        subwords: Subword file from `find_subwords`, or None.
        within_pieces: Whether to split text only into pieces of the list, as JoeyNMT does.
        lowercase: Whether to lowercase text before it is split.

    Raises:
        ModelError: If the subword file cannot be read.
    """
    is_sentencepiece = subwords is not None and subwords.suffix in _SENTENCEPIECE
    model = "" if subwords is None else file_base64(subwords) if is_sentencepiece else file_text(subwords)
    if is_sentencepiece and within_pieces:
        model = base64.b64encode(only_pieces(base64.b64decode(model), set(pieces))).decode()
    return VocabularySide(
        speller="sentencepiece" if is_sentencepiece else "words",
        model=model,
        pieces=tuple(pieces),
        special=tuple(sorted(special)),
        unk_id=unk_id,
        within_pieces=within_pieces and not is_sentencepiece,
        lowercase=lowercase,
    )


def word_vocabulary(
    config: ModelConfig, source: VocabularySide, target: VocabularySide, source_frame: Frame
) -> VocabularyFile:
    """Return the vocabulary of a model without language tokens.

    Args:
        config: Our model settings, with the special token ids and the vocabulary sizes.
        source: The source tokenizer.
        target: The target tokenizer.
        source_frame: Frame of a source: its text and the ids around it.
    """
    sides = source, None if target == source else target
    return vocabulary_of(config, sides, source_frame, ("text", config.eos_id), {})


def require_rows(pieces: Sequence[object], embedding: Tensor, *, words: object, weights: object) -> None:
    """Check that a word list has as many words as its embedding has rows.

    Args:
        pieces: The word list.
        embedding: The embedding matrix.
        words: Name of the word list's source, for the message.
        weights: Name of the embedding's source, for the message.

    Raises:
        ModelError: If the numbers differ.
    """
    rows = embedding.size(0) if embedding.dim() else 0
    if len(pieces) != rows:
        raise ModelError(
            f"{words} makes {len(pieces):,} words, special ones included, and {weights} has {rows:,} rows: they are of "
            f"two models"
        )
