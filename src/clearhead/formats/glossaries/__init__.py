"""Glossaries: terms and their translations, in tables with or without a header, and in TBX."""
