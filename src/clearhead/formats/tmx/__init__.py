"""TMX translation memories: their pairs, and the memory with translations filled in."""
