"""The inference engine of the compiled core (`kernels.library`)."""
