"""Rows of columns (TSV, CSV, JSON Lines, Arrow, Anki): their pairs, and the table with a column translated."""
