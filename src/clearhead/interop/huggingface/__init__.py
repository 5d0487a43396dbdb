"""Models of Hugging Face transformers: their state dicts, and whole directories in and out."""
