"""Readers of other libraries' files: settings, weights, pickles (without running their code) and YAML."""
