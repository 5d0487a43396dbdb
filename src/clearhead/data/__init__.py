"""Training data: cleaning, hold-out, store and batches; the data doctor; and a synthetic corpus for the demo."""
