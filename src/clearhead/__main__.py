"""`python -m clearhead`: the command line."""

from clearhead.cli.main import run

if __name__ == "__main__":
    run()
