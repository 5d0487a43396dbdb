"""HTML documents whose text is translated."""
