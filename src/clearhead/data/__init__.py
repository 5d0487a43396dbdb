"""Data preparation: cleaning, holding out validation pairs, the store on disk, and batching."""
