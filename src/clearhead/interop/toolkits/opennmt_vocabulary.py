"""Vocabularies of OpenNMT-py and eole: a word list for each side, and the subword file if it is available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from clearhead.errors import ModelError
from clearhead.interop.toolkits.opennmt_layout import Names
from clearhead.interop.toolkits.shared import text_notes
from clearhead.interop.vocabularies.word_vocabulary import find_subwords, require_rows, word_side
from clearhead.tokenizers.foreign import VocabularySide

_TOKENIZER = "onmt_tokenize"
"""Transform of OpenNMT's own tokenizer, whose files look like those of other tokenizers."""
_SPLITS = ("bpe", "sentencepiece")
_ABOUT_TRAINING = ("filtertoolong", "switchout", "tokendrop", "tokenmask")


@dataclass(frozen=True)
class Lists:
    """The word lists of both sides."""

    source: Sequence[str]
    target: Sequence[str]
    start: str
    """First input of the decoder."""
    origin: str
    """Name of the lists' source, for messages."""
    pad: str = "<blank>"
    eos: str = "</s>"
    unk: str = "<unk>"

    def require_rows(self, state: Mapping[str, Tensor], names: Names, weights: Path) -> None:
        """Check that each list has as many words as its embedding has rows, if the embedding exists.

        Raises:
            ModelError: If the numbers differ.
        """
        for words, module in ((self.source, names.source), (self.target, names.target)):
            if (name := f"{module}.weight") in state:
                require_rows(words, state[name], words=self.origin, weights=f"{name} in {weights}")

    def model_settings(self) -> dict[str, Any]:
        """Return our settings that a vocabulary determines.

        Raises:
            ModelError: If a special token is missing, or the padding ids of source and target differ.
        """
        missing = [token for token in (self.pad, self.start, self.eos) if token not in self.target]
        if missing or self.pad not in self.source:
            raise ModelError(f"{self.origin} lacks the special token {(missing or [self.pad])[0]!r:.60}")
        pad_id = self.target.index(self.pad)
        if self.source.index(self.pad) != pad_id:
            raise ModelError(f"{self.origin}: {self.pad} has another number in the source than in the target")
        same_size = len(self.source) == len(self.target)
        return {
            "vocab_size": len(self.target),
            "source_vocab_size": None if same_size else len(self.source),
            "pad_id": pad_id,
            "bos_id": self.target.index(self.start),
            "eos_id": self.target.index(self.eos),
        }

    def sides(
        self, directory: Path, transforms: object, named: Sequence[object] = (None, None)
    ) -> tuple[VocabularySide, VocabularySide]:
        """Return the tokenizers of source and target.

        Args:
            directory: Directory in which to look for subword files.
            transforms: Names of the toolkit's text transforms.
            named: Path of the subword file of each side at training time, or None.

        Raises:
            ModelError: If a subword file cannot be read, or several files are candidates.
        """
        source, target = (
            word_side(
                words,
                special={words.index(token) for token in (self.pad, self.start, self.eos) if token in words},
                unk_id=words.index(self.unk) if self.unk in words else 0,
                subwords=None if _TOKENIZER in _names(transforms) else _subwords(directory, name),
            )
            for words, name in ((self.source, named[0]), (self.target, named[1]))
        )
        return source, target


def transform_notes(transforms: object, *sides: VocabularySide) -> list[str]:
    """Return notes on the toolkit's text transforms that clearhead does not apply."""
    done = (*_ABOUT_TRAINING, *(_SPLITS if sides[0].model else ()))
    left = [name for name in _names(transforms) if name not in done]
    notes = (
        [f"its transforms {', '.join(left)} are not made here: give it text that they have been through"]
        if left
        else []
    )
    return notes + text_notes(*sides)


def _subwords(directory: Path, named: object) -> Path | None:
    """Return the subword file that a setting names, if it is beside the model; otherwise the one found there."""
    if isinstance(named, str) and (path := directory / Path(named).name).is_file():
        return path
    return find_subwords(directory)


def _names(transforms: object) -> list[str]:
    return [str(name) for name in transforms] if isinstance(transforms, list) else []
