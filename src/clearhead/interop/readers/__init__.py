"""Readers of other libraries' files: settings, weights, vocabularies, YAML, and pickles without running code."""
