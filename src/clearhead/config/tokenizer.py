"""`[tokenizer]`: the vocabulary."""

from __future__ import annotations

import re
from typing import Self

from pydantic import model_validator

from clearhead.choices import TokenizerKind
from clearhead.config.settings import Pieces, Settings
from clearhead.language_tags import LANGUAGE

__all__ = ["TokenizerConfig"]


class TokenizerConfig(Settings):
    """`[tokenizer]`: the joint subword vocabulary."""

    kind: TokenizerKind = "bpe"
    """Byte-pair encoding (paper section 5.1, EN-DE), unigram, or word-piece (EN-FR)."""
    vocab_size: Pieces | None = None
    """Pieces in the vocabulary, special tokens included; chosen from the corpus size if not set (paper: 37,000)."""
    split_digits: bool = True
    """Keep every digit a piece of its own, so that numbers are copied rather than memorised."""
    language_tags: tuple[str, ...] = ()
    """Languages whose tag, such as `<2de>`, may head a source line to name the language it is translated into."""

    @model_validator(mode="after")
    def _tags_can_be_told_apart(self) -> Self:
        for language in self.language_tags:
            if not re.fullmatch(LANGUAGE, language) or self.language_tags.count(language) > 1:
                raise ValueError(
                    f"tokenizer.language_tags: {language!r} must be there once, not empty, without spaces, "
                    f"'<' and '>'; for example ['de', 'fr']"
                )
        return self
