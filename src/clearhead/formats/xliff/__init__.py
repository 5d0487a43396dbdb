"""XLIFF 1.2 and 2: their pairs, and the file with translations filled in."""
