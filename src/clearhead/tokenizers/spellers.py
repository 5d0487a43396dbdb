"""What spells text for other libraries' vocabularies: those libraries' own tokenizers, each behind one interface.

A speller knows pieces and their ids, and nothing of what stands around a sentence; see `foreign`.
"""

from __future__ import annotations

import base64
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clearhead.errors import DataError, ModelError
from clearhead.tokenizers.vocabulary import refuse_surrogates, require_texts, typed_errors

__all__ = [
    "SentencePieceSpeller",
    "Speller",
    "TokenizersSpeller",
    "byte_level_tokenizer",
    "require_id",
    "sentencepiece_pieces",
    "wordpiece_tokenizer",
]


class Speller(ABC):
    """One side's pieces."""

    kind: str
    """The subword algorithm, such as `bpe`."""
    num_ids: int
    """Ids that have a piece are smaller."""
    lowercase: bool = False
    """Whether texts are put in small letters first."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Spell texts in ids, without special tokens; a special token in a text is text.

        Raises:
            DataError: If one is no text, or holds an unpaired surrogate.
            ModelError: If the vocabulary has no pieces for one, not even one for the unknown.
        """
        texts = require_texts(texts, "texts")
        refuse_surrogates(texts)
        with typed_errors(ModelError, "the tokenizer cannot spell the text: "):
            return self._encode([text.lower() for text in texts] if self.lowercase else texts)

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Return the texts of ids, special tokens left out.

        Raises:
            DataError: If they are no ids.
        """
        with typed_errors(DataError, "these ids cannot be read as text: "):
            return self._decode([list(ids) for ids in batch])

    @abstractmethod
    def token(self, token_id: int) -> str | None:
        """Return a piece by its own name; None where an id has none.

        Raises:
            DataError: If it is no id.
        """

    @abstractmethod
    def readable(self, token_id: int) -> str:
        """Return a piece as it reads within a text, a special token by name.

        Raises:
            DataError: If it is no id.
        """

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _decode(self, batch: list[list[int]]) -> list[str]: ...


class SentencePieceSpeller(Speller):
    """A model of Google's sentencepiece, whose pieces have the ids of a table: libraries number them anew.

    Args:
        model: The bytes of a `.model` or `.spm` file, in base 64.
        pieces: The piece of every id; None where an id has none.
        special: Ids of special tokens.
        unk_id: Id of pieces that are not in the table.

    Raises:
        ModelError: If the library `sentencepiece` is missing.
        ValueError: If the model is damaged.
    """

    def __init__(self, model: str, pieces: Sequence[str | None], special: Collection[int], unk_id: int) -> None:
        self._processor = _processor(model)
        self._pieces = pieces
        self._special = frozenset(special)
        self._unk_id = unk_id
        self._ids = {piece: token_id for token_id, piece in enumerate(pieces) if piece is not None}
        for token_id in self._special - {unk_id}:
            self._ids.pop(pieces[token_id] or "", None)  # what is spelled is text
        self.kind = "sentencepiece"
        self.num_ids = len(pieces)

    def token(self, token_id: int) -> str | None:
        """Return a piece by its own name, with `▁` for a space."""
        require_id(token_id)
        return self._pieces[token_id] if token_id < len(self._pieces) else None

    def readable(self, token_id: int) -> str:
        """Return a piece with its space, a special token by name."""
        piece = self.token(token_id)
        if piece is None:
            return ""
        return piece if token_id in self._special else piece.replace("▁", " ")

    def _encode(self, texts: list[str]) -> list[list[int]]:
        spelled = self._processor.encode(texts, out_type=str)
        return [[self._ids.get(piece, self._unk_id) for piece in pieces] for pieces in spelled]

    def _decode(self, batch: list[list[int]]) -> list[str]:
        rows = [[self.token(token_id) for token_id in ids if token_id not in self._special] for ids in batch]
        texts = [self._processor.decode_pieces([piece for piece in row if piece is not None]) for row in rows]
        return [text.replace("▁", " ").strip() for text in texts]  # a piece of the other side's model keeps its own


class TokenizersSpeller(Speller):
    """A `tokenizer.json` of Hugging Face's tokenizers.

    Args:
        model: The text of the file.

    Raises:
        ValueError: If it is damaged.
    """

    def __init__(self, model: str) -> None:
        with typed_errors(ValueError):
            self._backend = tokenizers.Tokenizer.from_str(model)
            self._backend.encode_special_tokens = True  # a "</s>" in the text is text
            self._backend.no_padding()
            self._backend.no_truncation()
            added = self._backend.get_added_tokens_decoder()
            ids = self._backend.get_vocab(with_added_tokens=True).values()
        self._special = frozenset(token_id for token_id, token in added.items() if token.special)
        self.kind = type(self._backend.model).__name__.lower()
        self.num_ids = max(ids, default=-1) + 1

    def token(self, token_id: int) -> str | None:
        """Return a piece by its own name."""
        with typed_errors(DataError, "these ids cannot be read as pieces: "):
            return self._backend.id_to_token(token_id)

    def readable(self, token_id: int) -> str:
        """Return a piece as it reads in the middle of a text, a special token by name."""
        piece = self.token(token_id)
        if piece is None or token_id in self._special:
            return piece or ""
        if isinstance(self._backend.model, models.WordPiece):
            return piece.removeprefix("##") if piece.startswith("##") else f" {piece}"
        if isinstance(self._backend.decoder, decoders.ByteLevel):
            return self._backend.decoder.decode([piece])
        return piece.replace("▁", " ")

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [spelled.ids for spelled in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _decode(self, batch: list[list[int]]) -> list[str]:
        return self._backend.decode_batch(batch, skip_special_tokens=True)


def require_id(token_id: object) -> None:
    """Make sure that a token id can be one.

    Raises:
        DataError: If it is no whole number from 0 on.
    """
    if not isinstance(token_id, int) or token_id < 0:
        raise DataError(f"these ids cannot be read as pieces: {token_id!r} is none")


def _processor(model: str) -> Any:
    try:
        import sentencepiece
    except ImportError:
        raise ModelError(
            "this model spells text with SentencePiece, which is not installed: pip install 'clearhead[interop]'"
        ) from None
    with typed_errors(ValueError):
        return sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(model, validate=True))


def sentencepiece_pieces(model: str) -> list[str]:
    """Return the pieces of a sentencepiece model by its own ids.

    Args:
        model: As of `SentencePieceSpeller`.

    Raises:
        ModelError: If the library `sentencepiece` is missing.
        ValueError: If the model is damaged.
    """
    processor = _processor(model)
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def byte_level_tokenizer(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special: Sequence[str],
    *,
    space_before: bool = False,
) -> str:
    """Return a `tokenizer.json` of byte-level BPE, as GPT-2 and BART have it (Radford et al. 2019).

    Args:
        vocabulary: Pieces to ids, as in `vocab.json`.
        merges: Pairs of pieces in the order in which they are merged, as in `merges.txt`.
        special: Which pieces are special tokens.
        space_before: Put a space before every text.

    Raises:
        ValueError: If they contradict each other.
    """
    with typed_errors(ValueError):
        made = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space_before)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens([token for token in special if token in vocabulary])
        return made.to_str()


def wordpiece_tokenizer(pieces: Sequence[str], *, lowercase: bool, strip_accents: bool | None, split_han: bool) -> str:
    """Return a `tokenizer.json` of BERT's word pieces (Devlin et al. 2019).

    Args:
        pieces: By id, as in `vocab.txt`.
        lowercase: Put text in small letters.
        strip_accents: Take accents off letters; None does as `lowercase` says.
        split_han: Make every Chinese character a word.

    Raises:
        ValueError: If there is no `[UNK]`.
    """
    ids = {piece: number for number, piece in enumerate(pieces)}
    with typed_errors(ValueError):
        made = tokenizers.Tokenizer(models.WordPiece(vocab=ids, unk_token="[UNK]"))
        made.normalizer = normalizers.BertNormalizer(
            clean_text=True, handle_chinese_chars=split_han, strip_accents=strip_accents, lowercase=lowercase
        )
        made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        made.decoder = decoders.WordPiece(prefix="##")
        made.add_special_tokens([token for token in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]") if token in ids])
        return made.to_str()
