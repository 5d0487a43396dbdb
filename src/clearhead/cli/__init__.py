"""The command line: a module for each command, and the options, checks and notices that commands share."""

import gc

# New objects until garbage is collected; importing the libraries of a command makes 60,000. With 700, Python's default,
# collecting took a tenth of the time to the first translation.
gc.set_threshold(100_000)
