"""One interface to SentencePiece and Hugging Face tokenizers; builds `tokenizer.json` for GPT-2, BART and BERT.

A subword encoder maps between text, pieces and ids; language and end tokens are added by `foreign`.
"""

from __future__ import annotations

import base64
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from clearhead.errors import DataError, ModelError
from clearhead.runtime.installation import pip_install
from clearhead.tokenizers.tokenizer_json import require_bounded, without_names
from clearhead.tokenizers.vocabulary import refuse_surrogates, require_texts, typed_errors

_MOST_ADDED = 10_000
"""Maximum number of tokens added to a sentencepiece model."""
_MOST_ADDED_LENGTH = 100
"""Maximum length of such a token; every length is looked for where one may begin in a text."""

_SPACES = re.compile(r"\s+")


class SubwordEncoder(ABC):
    """The pieces of one side."""

    kind: str
    """The subword algorithm, such as `bpe`."""
    num_ids: int
    """Upper bound of the ids that have a piece, exclusive."""
    lowercase: bool = False
    """Whether texts are lowercased first."""
    special: frozenset[int]
    """Ids of special tokens."""
    is_byte_level = False
    """Whether pieces are written in characters that each represent a byte."""
    added: Mapping[str, int] = MappingProxyType({})
    """Tokens that are found in a text before the rest is tokenized, and their ids."""

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokenize texts, without special tokens; a special token in a text is text, unless it is in `added`.

        Raises:
            DataError: If an item is not text, or contains an unpaired surrogate.
            ModelError: If the vocabulary has no pieces for a text, not even an unknown token.
        """
        texts = require_texts(texts, "texts")
        refuse_surrogates(texts)
        with typed_errors(ModelError, "the tokenizer cannot encode the text: "):
            return self._encode([text.lower() for text in texts] if self.lowercase else texts)

    def decode(self, batch: Sequence[Sequence[int]]) -> list[str]:
        """Detokenize ids, without special tokens.

        Raises:
            DataError: If the ids are invalid.
        """
        with typed_errors(DataError, "these ids cannot be read as text: "):
            return self._decode([list(ids) for ids in batch])

    @abstractmethod
    def token(self, token_id: int) -> str | None:
        """Return the name of a piece; None for ids without one.

        Raises:
            DataError: If the id is invalid.
        """

    def readable(self, token_id: int) -> str:
        """Return the readable text of a piece, or the name of a special token; "" for ids without a piece.

        Raises:
            DataError: If the id is invalid.
        """
        piece = self.token(token_id)
        return piece or "" if piece is None or token_id in self.special else self._as_text(piece)

    @abstractmethod
    def _as_text(self, piece: str) -> str:
        """Return a piece as it reads in the middle of a text."""

    @abstractmethod
    def _encode(self, texts: list[str]) -> list[list[int]]: ...

    @abstractmethod
    def _decode(self, batch: list[list[int]]) -> list[str]: ...


class ListedPieces(SubwordEncoder):
    """An encoder with a table of the piece of each id.

    Args:
        kind: The subword algorithm.
        pieces: The piece of each id; None for ids without a piece.
        special: Ids of special tokens.
        unk_id: Id of pieces that are not in the table.
    """

    def __init__(self, kind: str, pieces: Sequence[str | None], special: Collection[int], unk_id: int) -> None:
        self.kind = kind
        self.num_ids = len(pieces)
        self._pieces = pieces
        self.special = frozenset(special)
        self._unk_id = unk_id
        self._ids: dict[str, int] = {}

    def token(self, token_id: int) -> str | None:
        """Return a piece as the library writes it, with its mark for a space or for the middle of a word."""
        if not isinstance(token_id, int) or token_id < 0:
            raise DataError(f"these ids cannot be read as pieces: {token_id!r} is none")
        return self._pieces[token_id] if token_id < len(self._pieces) else None

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._ids.get(piece, self._unk_id) for piece in pieces] for pieces in self._split(texts)]

    def _decode(self, batch: list[list[int]]) -> list[str]:
        rows = [[self.token(token_id) for token_id in ids if token_id not in self.special] for ids in batch]
        return [self._joined([piece for piece in row if piece is not None]) for row in rows]

    @abstractmethod
    def _split(self, texts: list[str]) -> list[list[str]]:
        """Return the pieces of texts."""

    @abstractmethod
    def _joined(self, pieces: list[str]) -> str:
        """Return the text of pieces."""


class AddedToken(NamedTuple):
    """How a token that was added to a SentencePiece model is found in a text."""

    lstrip: bool = False
    """Whether it takes the white space before it."""
    rstrip: bool = False
    """Whether it takes the white space behind it."""
    single_word: bool = False
    """Whether it is text within a word."""


class SentencePieceEncoder(ListedPieces):
    """A SentencePiece model with a separate table of ids, because other libraries renumber the pieces.

    Args:
        model: The bytes of a `.model` or `.spm` file, in base64.
        pieces: The piece of each id; None for ids without a piece.
        special: Ids of special tokens.
        unk_id: Id of pieces that are not in the table.
        added: The tokens that are found in a text before the rest is tokenized, by their ids.
        space_before_added: Whether a space before such a token is a piece of its own.
        between_spaces: Whether the word of a `single_word` ends at a space alone, and not at a punctuation mark.

    Raises:
        ModelError: If the library `sentencepiece` is missing.
        ValueError: If the model is damaged, or there are too many or too long added tokens.
    """

    def __init__(
        self,
        model: str,
        pieces: Sequence[str | None],
        special: Collection[int],
        unk_id: int,
        added: Mapping[int, AddedToken] = MappingProxyType({}),
        *,
        space_before_added: bool = False,
        between_spaces: bool = False,
    ) -> None:
        super().__init__("sentencepiece", pieces, special, unk_id)
        self.added = {piece: token_id for token_id in added if (piece := pieces[token_id])}
        self._added_lengths = sorted({len(piece) for piece in self.added}, reverse=True)
        if len(self.added) > _MOST_ADDED or (self.added and self._added_lengths[0] > _MOST_ADDED_LENGTH):
            raise ValueError(
                f"it has {len(self.added):,} added tokens of up to {self._added_lengths[0]:,} characters; at most "
                f"{_MOST_ADDED:,} of {_MOST_ADDED_LENGTH} are allowed"
            )
        first = "".join(sorted({piece[0] for piece in self.added}))
        self._starts_added = re.compile(f"[{re.escape(first)}]" if first else "(?!)")
        self._settings_of_added = dict(added)  # the default, a proxy, cannot be pickled
        self._space_before_added = space_before_added
        self._between_spaces = between_spaces
        self._word_goes_on = re.compile(r"[^ ]" if between_spaces else r"\w")
        self._processor = _processor(model)
        self._ids = {piece: token_id for token_id, piece in enumerate(pieces) if piece is not None}
        for token_id in self.special - {unk_id}:
            self._ids.pop(pieces[token_id] or "", None)  # special tokens in a text are text

    def _as_text(self, piece: str) -> str:
        return piece.replace("▁", " ")

    def _encode(self, texts: list[str]) -> list[list[int]]:
        if not self.added:
            return super()._encode(texts)
        parts = [self._parts(text) for text in texts]
        encoded = iter(super()._encode([part for row in parts for part in row if isinstance(part, str)]))
        space = self._ids.get("▁", self._unk_id)
        rows: list[list[int]] = []
        for row in parts:
            ids: list[int] = []
            for part, behind in zip(row, [*row[1:], ""], strict=True):
                if isinstance(part, int):
                    ids.append(part)
                    continue
                ids += next(encoded)
                if self._space_before_added and isinstance(behind, int) and part[-1:].isspace():
                    ids.append(space)
            rows.append(ids)
        return rows

    def _parts(self, text: str) -> list[str | int]:
        """Return the added tokens of a text, of several the longest, as ids between the texts around them."""
        parts: list[str | int] = []
        done = passed = 0
        for match in self._starts_added.finditer(text):
            at = match.start()
            length = at >= passed and next((n for n in self._added_lengths if text[at : at + n] in self.added), 0)
            if not length:
                continue
            passed = at + length
            token_id = self.added[text[at:passed]]
            token = self._settings_of_added[token_id]
            before, behind = text[at - 1 : at], text[passed : passed + 1]
            if token.single_word and any(map(self._word_goes_on.match, (before, behind))):
                if self._between_spaces:  # transformers tokenizes it with the text on one side alone
                    end = passed if self._word_goes_on.match(before) else at
                    parts.append(text[done:end])
                    done = end
                continue
            skipped = text[done:at]
            parts += [skipped.rstrip() if token.lstrip else skipped, token_id]
            if token.rstrip and (spaces := _SPACES.match(text, passed)):
                passed = spaces.end()
            done = passed
        return [part for part in (*parts, text[done:]) if part != ""]

    def _split(self, texts: list[str]) -> list[list[str]]:
        return self._processor.encode(texts, out_type=str)

    def _joined(self, pieces: list[str]) -> str:
        text = self._processor.decode_pieces(pieces)
        return text.replace("▁", " ").strip()  # pieces of the other side's model keep their `▁`


class TokenizersEncoder(SubwordEncoder):
    """A `tokenizer.json` of Hugging Face's tokenizers.

    Args:
        model: The text of the file.
        control: Ids of control tokens, in addition to the special ones that the file lists.
        read: Ids of special tokens that are nevertheless found in a text.

    Raises:
        ValueError: If the text is invalid, or may take more than linear time.
    """

    def __init__(self, model: str, control: Collection[int] = (), read: Collection[int] = ()) -> None:
        try:
            values = json.loads(model)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        if not isinstance(values, dict):
            raise ValueError("it must hold a JSON object")
        require_bounded(values)
        text, self._names = without_names(values, control, read)
        with typed_errors(ValueError):
            self._backend = tokenizers.Tokenizer.from_str(text)
            self._backend.encode_special_tokens = True  # a "</s>" in the text is text
            self._backend.no_padding()
            self._backend.no_truncation()
            added = self._backend.get_added_tokens_decoder()
        self.special = frozenset(control).union(read, (token_id for token_id, token in added.items() if token.special))
        self.added = {token.content: token_id for token_id, token in added.items() if not token.special}
        self.kind = type(self._backend.model).__name__.lower()
        self.is_byte_level = isinstance(self._backend.decoder, decoders.ByteLevel)
        vocabulary = values["model"]["vocab"]
        of_text = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
        self.num_ids = max([*of_text, *added], default=-1) + 1

    def token(self, token_id: int) -> str | None:
        """Return the name of a piece."""
        with typed_errors(DataError, "these ids cannot be read as pieces: "):
            name = self._backend.id_to_token(token_id)
        return self._names.get(name, name) if name is not None else None

    def _as_text(self, piece: str) -> str:
        if isinstance(self._backend.model, models.WordPiece):
            return piece.removeprefix("##") if piece.startswith("##") else f" {piece}"
        if isinstance(self._backend.decoder, decoders.ByteLevel):
            return self._backend.decoder.decode([piece])
        return piece.replace("▁", " ")

    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [encoded.ids for encoded in self._backend.encode_batch_fast(texts, add_special_tokens=False)]

    def _decode(self, batch: list[list[int]]) -> list[str]:
        text = [[token_id for token_id in ids if token_id not in self.special] for ids in batch]
        return self._backend.decode_batch(text, skip_special_tokens=True)


def _library() -> ModuleType:
    try:
        import sentencepiece
    except ImportError:
        raise ModelError(
            f"this model encodes text with SentencePiece, which is not installed: {pip_install('interop')}"
        ) from None
    return sentencepiece


def _processor(model: str) -> Any:
    library = _library()
    with typed_errors(ValueError):
        return library.SentencePieceProcessor(model_proto=base64.b64decode(model, validate=True))


def sentencepiece_pieces(model: str) -> list[str]:
    """Return the pieces of a SentencePiece model, by its own ids.

    Args:
        model: The bytes of a `.model` or `.spm` file, in base64.

    Raises:
        ModelError: If the library `sentencepiece` is missing.
        ValueError: If the model is damaged.
    """
    processor = _processor(model)
    return [processor.id_to_piece(number) for number in range(processor.get_piece_size())]


def sentencepiece_ends(model: str) -> tuple[int, int]:
    """Return the ids of the end token and of unknown pieces of a SentencePiece model, whatever their names.

    The first is -1 if there is none; see `sentencepiece_pieces`.
    """
    processor = _processor(model)
    return int(processor.eos_id()), int(processor.unk_id())


def sentencepiece_settings(model: str) -> dict[str, Any]:
    """Return the settings of a SentencePiece model that change how a text is segmented, beside its pieces and rules.

    Args:
        model: The bytes of a `.model` or `.spm` file, in base64.

    Raises:
        ModelError: If the library `sentencepiece` is missing, or `protobuf` is missing or too old for it.
        ValueError: If the model is damaged.
    """
    form, errors = _model_proto()
    try:
        read = form.FromString(base64.b64decode(model, validate=True))
    except errors as error:
        raise ValueError(str(error)) from None
    names = ("add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces")
    return {
        "model_type": read.trainer_spec.ModelType.Name(read.trainer_spec.model_type).lower(),
        **{name: getattr(read.normalizer_spec, name) for name in names},
        "treat_whitespace_as_suffix": read.trainer_spec.treat_whitespace_as_suffix,
    }


def only_pieces(model: bytes, kept: Collection[object]) -> bytes:
    """Return a SentencePiece model that segments text only into some pieces; single characters and special ones stay.

    The library's own `SetVocabulary` does the same, but versions since 0.2.2 lack it.

    Args:
        model: The bytes of a `.model` file; an invalid file is returned unchanged, and the library then rejects it.
        kept: Names of the pieces to keep.

    Raises:
        ModelError: If the library `sentencepiece` is missing, or `protobuf` is missing or too old for it.
    """
    form, errors = _model_proto()
    piece_type = form.SentencePiece
    try:
        read = form.FromString(model)
        for piece in read.pieces:
            wanted = piece_type.NORMAL if piece.piece in kept or len(piece.piece) == 1 else piece_type.UNUSED
            if piece.type in (piece_type.NORMAL, piece_type.UNUSED) and piece.type != wanted:
                piece.type = wanted
    except errors:
        return model
    return read.SerializeToString()


def _model_proto() -> tuple[Any, tuple[type[Exception], ...]]:
    """Return the form of a SentencePiece model as protobuf's message, and the errors of damaged ones."""
    _library()
    try:
        from google.protobuf.message import DecodeError
        from sentencepiece.sentencepiece_model_pb2 import ModelProto  # type: ignore[attr-defined] # made when imported
    except Exception as error:  # an old protobuf raises its own VersionError
        raise ModelError(
            f"this model needs a protobuf that fits SentencePiece: pip install --upgrade protobuf ({error})"
        ) from None
    return ModelProto, (DecodeError, UnicodeDecodeError)


def byte_level_tokenizer(
    vocabulary: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    special: Sequence[str],
    *,
    space_before: bool = False,
) -> str:
    """Return a `tokenizer.json` of byte-level BPE, as in GPT-2 and BART (Radford et al. 2019).

    Args:
        vocabulary: Id of each piece, as in `vocab.json`.
        merges: Pairs of pieces in merge order, as in `merges.txt`.
        special: Pieces that are special tokens.
        space_before: Whether a space is prepended to every text.

    Raises:
        ValueError: If the arguments contradict each other.
    """
    with typed_errors(ValueError):
        made = tokenizers.Tokenizer(models.BPE(vocab=dict(vocabulary), merges=list(merges)))
        made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=space_before)
        made.decoder = decoders.ByteLevel()
        made.add_special_tokens([token for token in special if token in vocabulary])
        return made.to_str()


def with_added_tokens(text: str, added: Sequence[Mapping[str, Any]]) -> str:
    """Return a `tokenizer.json` with more added tokens, unchanged if it has them all.

    Args:
        text: The file.
        added: The tokens, each as in the list `added_tokens` of such a file, ordered by id.

    Raises:
        ValueError: If the file is damaged, or a token gets another id than its own.
    """
    known = {token["content"] for token in json.loads(text).get("added_tokens", ())}
    if not (new := [token for token in added if token["content"] not in known]):
        return text
    with typed_errors(ValueError):
        made = tokenizers.Tokenizer.from_str(text)
        for token in new:
            settings = {name: value for name, value in token.items() if name not in ("id", "content")}
            made.add_tokens([tokenizers.AddedToken(token["content"], **settings)])
    for token in new:
        if (number := made.token_to_id(token["content"])) != token["id"]:
            raise ValueError(f"the added token {token['content']!r:.100} has the id {token['id']}, but gets {number}")
    return made.to_str()


def wordpiece_tokenizer(pieces: Sequence[str], *, lowercase: bool, strip_accents: bool | None, split_han: bool) -> str:
    """Return a `tokenizer.json` of BERT's WordPiece (Devlin et al. 2019).

    Args:
        pieces: Pieces by id, as in `vocab.txt`.
        lowercase: Whether text is lowercased.
        strip_accents: Whether accents are removed; None follows `lowercase`.
        split_han: Whether every Chinese character is a separate word.

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
