"""Fast implementations of operations; each is equivalent to the plain PyTorch operation."""
