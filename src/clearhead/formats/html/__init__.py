"""HTML as a document whose text is translated."""
