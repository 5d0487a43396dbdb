"""Tokenizers: our own lossless subword vocabularies, and exact imports of other libraries' vocabularies."""

from clearhead.tokenizers.learned import SPECIAL_TOKENS, START_TOKEN, Tokenizer, load_vocabulary
from clearhead.tokenizers.vocabulary import Vocabulary, require_texts

__all__ = ["SPECIAL_TOKENS", "START_TOKEN", "Tokenizer", "Vocabulary", "load_vocabulary", "require_texts"]
