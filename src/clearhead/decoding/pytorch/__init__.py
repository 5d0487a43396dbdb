"""The PyTorch inference engine, for every device and processor."""
