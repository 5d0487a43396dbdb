"""The compiled core (`kernels.library`) as an engine."""
