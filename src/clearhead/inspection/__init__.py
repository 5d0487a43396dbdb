"""Inspection of one sentence: attention weights, probabilities, attribution; start with `clearhead.explain`."""
