"""Catalogues of GNU gettext: their pairs, and the catalogue with translations filled in."""
