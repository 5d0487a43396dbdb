"""Word files (.docx) as documents whose text is translated."""
