"""XLIFF 1.x and 2.x: sentence pairs, and the file with translations filled in."""
