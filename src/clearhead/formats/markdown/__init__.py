"""Markdown documents whose text is translated."""
