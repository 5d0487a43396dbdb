"""Conversion between other libraries' vocabulary files and our tokenizers."""
