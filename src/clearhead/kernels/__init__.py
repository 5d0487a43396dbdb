"""Operations in forms that a processor computes fast; each gives what the plain operation of PyTorch gives."""
