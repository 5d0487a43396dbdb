"""From a configuration to a trained model: loss, optimiser, schedule, loop, checkpoints, log and report."""
