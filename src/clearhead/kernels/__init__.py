"""Fast operations: the compiled core with its Python interface; PyTorch linear layers, dropout and products.

In float32 the products are those of plain PyTorch, up to rounding.
"""
