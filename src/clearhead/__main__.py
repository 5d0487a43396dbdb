"""`python -m clearhead`: the command line, also where `clearhead` is not on the path."""

from __future__ import annotations

from clearhead.cli.main import run

if __name__ == "__main__":
    run()
