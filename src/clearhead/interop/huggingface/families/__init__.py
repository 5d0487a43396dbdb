"""One kind of model of Hugging Face a file: its settings and its key table."""
