"""Figures 1 and 2 of the paper, drawn from a forward pass of a configuration."""
