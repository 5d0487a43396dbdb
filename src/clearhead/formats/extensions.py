"""File extensions that readers of pairs and readers of documents share, importable without the readers."""

from __future__ import annotations

GETTEXT = (".po", ".pot")
"""Catalogues of gettext as text; a `.pot` is a template, without translations."""
XLIFF = (".mqxliff", ".mxliff", ".sdlxliff", ".txlf", ".xlf", ".xliff")
"""XLIFF files, also those of memoQ, Phrase, Trados and Wordfast."""
