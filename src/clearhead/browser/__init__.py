"""Export of a model to a page or a package for npm, which translate without a server."""
