"""Word lists, and subwords by the BPE codes of subword-nmt (Sennrich, Haddow and Birch 2016).

Codes are pairs of symbols in merge order. In version 0.2 the end of a word is a suffix of its last letter, in 0.1 a
separate symbol. fastBPE files are codes of version 0.2 with a count after each pair. A subword that does not end its
word is marked with `@@`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from itertools import pairwise

from clearhead.runtime.lazy import LruCache
from clearhead.tokenizers.subword_encoders import ListedPieces

_MARK = "@@"
_END = "</w>"
_CACHED_WORDS = 65_536


class Codes:
    """BPE codes, which split words into subwords.

    Args:
        text: A file of codes.
        known: Known subwords with their marks; an unknown one is split again. None disables this.

    Raises:
        ValueError: If a line is not a pair, or the version is unknown.
    """

    def __init__(self, text: str, known: Collection[str] | None = None) -> None:
        lines = text.rstrip("\n").split("\n")
        version = "0.1"
        if lines[0].startswith("#version:"):
            version = re.sub(r"(\.0+)*$", "", lines.pop(0).split()[-1])
        columns = [line.strip("\r ").split(" ") for line in lines]
        if version == "0.1" and columns and all(len(parts) == 3 and parts[2].isdecimal() for parts in columns):
            version, columns = "0.2", [parts[:2] for parts in columns]
        if version not in ("0.1", "0.2"):
            raise ValueError(f"its codes are of version {version}; those that can be read are 0.1 and 0.2")
        for number, parts in enumerate(columns, start=1):
            if len(parts) != 2:
                raise ValueError(f"its pair of codes {number} is {' '.join(parts)!r:.60}, not two symbols")
        self._end_is_symbol = version == "0.1"
        # Reversed, so that the first of duplicate pairs counts, and the first of pairs with the same join too.
        self._ranks = {(left, right): rank for rank, (left, right) in reversed(list(enumerate(columns)))}
        self._joined = {left + right: (left, right) for left, right in self._ranks}
        self._known = None if known is None else frozenset(known)
        self.parts = LruCache(self._parts, _CACHED_WORDS)
        """Cached function from a word to its subwords, without marks."""

    def marked(self, text: str) -> list[str]:
        """Return the subwords of a text's words, with their marks."""
        marked: list[str] = []
        for word in text.strip("\r\n ").split(" "):
            if word:
                *parts, last = self.parts(word)
                marked += [*(part + _MARK for part in parts), last]
        return " ".join(marked).split()  # other white space is split after the codes are applied, as in the toolkits

    def _parts(self, word: str) -> tuple[str, ...]:
        if len(word) == 1:
            return (word,)
        symbols = [*word, _END] if self._end_is_symbol else [*word[:-1], word[-1] + _END]
        while len(symbols) > 1:
            best = min(pairwise(symbols), key=lambda pair: self._ranks.get(pair, math.inf))
            if best not in self._ranks:
                break
            symbols = _join(symbols, best)
        if symbols[-1] == _END:
            symbols.pop()
        else:
            symbols[-1] = symbols[-1].removesuffix(_END)
        if self._known is None:
            return tuple(symbols)
        last = len(symbols) - 1
        return tuple(
            part for at, symbol in enumerate(symbols) for part in self._within_known(symbol, is_last=at == last)
        )

    def _within_known(self, part: str, *, is_last: bool) -> list[str]:
        """Undo merges until every subword is known or cannot be split further."""
        assert self._known is not None
        if (part if is_last else part + _MARK) in self._known:
            return [part]
        pair = self._joined.get(part + _END if is_last else part)
        if pair is None:
            return [part]
        left, right = pair
        right = right.removesuffix(_END) if is_last else right
        return self._within_known(left, is_last=False) + self._within_known(right, is_last=is_last)


class WordEncoder(ListedPieces):
    """A word list, or a list of subwords produced by BPE codes.

    Args:
        codes: The text of a file of codes; if empty, text is split at spaces only.
        pieces: The piece of each id; None for ids without a piece.
        special: Ids of special tokens, which never occur in tokenized text.
        unk_id: Id of unknown pieces.
        within_pieces: Whether to split unknown subwords again, as JoeyNMT does.

    Raises:
        ValueError: If the codes are invalid.
    """

    def __init__(
        self, codes: str, pieces: Sequence[str | None], special: Collection[int], unk_id: int, *, within_pieces: bool
    ) -> None:
        super().__init__("bpe" if codes else "word", pieces, special, unk_id)
        self._ids = {
            piece: token_id
            for token_id, piece in enumerate(pieces)
            if piece is not None and token_id not in self.special
        }
        self._codes = Codes(codes, self._ids if within_pieces else None) if codes else None

    def _as_text(self, piece: str) -> str:
        return piece.removesuffix(_MARK) if piece.endswith(_MARK) else f"{piece} "

    def _split(self, texts: list[str]) -> list[list[str]]:
        return [text.split() if self._codes is None else self._codes.marked(text) for text in texts]

    def _joined(self, pieces: list[str]) -> str:
        return f"{' '.join(pieces)} ".replace(f"{_MARK} ", "").rstrip()


def _join(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """Merge every occurrence of a pair, from the left."""
    joined: list[str] = []
    at = 0
    while at < len(symbols):
        if tuple(symbols[at : at + 2]) == pair:
            joined.append(pair[0] + pair[1])
            at += 2
        else:
            joined.append(symbols[at])
            at += 1
    return joined
