"""Models of CTranslate2: its binary file, its vocabularies, and whole directories in and out."""
