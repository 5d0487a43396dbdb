"""Word files (.docx) as documents: their paragraphs as segments, and the insertion of translations."""
