"""Translation over HTTP: models behind an interface for programs, which fills its batches with all clients' texts."""
