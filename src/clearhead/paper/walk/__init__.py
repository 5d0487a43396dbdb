"""A sentence step by step through a small Transformer: every number from its ids to the next token."""
