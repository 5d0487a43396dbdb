"""Tables (TSV, CSV, JSON Lines, Arrow, Anki): sentence pairs from two columns, and translation of one column."""
