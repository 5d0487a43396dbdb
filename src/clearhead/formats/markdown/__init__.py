"""Markdown files as documents: their prose as segments, and the insertion of translations."""
