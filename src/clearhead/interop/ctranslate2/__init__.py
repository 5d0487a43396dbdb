"""Import and export of CTranslate2 models: the binary file, the vocabularies, and whole directories."""
