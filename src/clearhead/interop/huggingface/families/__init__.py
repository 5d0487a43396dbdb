"""Model families of Hugging Face transformers: settings and key tables, one family per file."""
