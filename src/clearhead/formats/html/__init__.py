"""HTML files as documents: their text as segments, and the insertion of translations."""
