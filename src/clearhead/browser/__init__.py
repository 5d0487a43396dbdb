"""Export of a model to a page that translates in a browser, without a server."""
