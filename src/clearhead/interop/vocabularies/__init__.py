"""Vocabularies of other libraries: their files as our tokenizers, and our tokenizers as their files."""
