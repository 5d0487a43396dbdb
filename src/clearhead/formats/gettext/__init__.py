"""GNU gettext catalogues: sentence pairs, and the catalogue with translations filled in."""
