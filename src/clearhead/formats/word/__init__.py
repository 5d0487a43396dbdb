"""Word documents (.docx) whose text is translated."""
