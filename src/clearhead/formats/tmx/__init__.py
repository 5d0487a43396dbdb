"""TMX translation memories: sentence pairs, and the memory with translations filled in."""
