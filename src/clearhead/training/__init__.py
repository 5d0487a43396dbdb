"""Training: loss, optimisers, learning-rate schedule, training loop, checkpoints, log and report (paper section 5)."""
