"""PyTorch as an engine, on every device and processor."""
