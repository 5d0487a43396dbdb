"""Import and export of Hugging Face transformers models: state dicts and whole directories."""
