"""Translation server: an HTTP API that batches the sentences of all clients together."""
