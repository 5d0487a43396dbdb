"""The `clearhead` command: registers the subcommands, and turns errors into exit codes."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from clearhead.cli.commands import NAMES, function_of
from clearhead.cli.console import drop_output, notice, open_missing_streams, show_warnings_as_notices
from clearhead.cli.help import Command
from clearhead.errors import ClearheadError
from clearhead.runtime.pytorch import needing_pytorch
from clearhead.runtime.threads import prepare_openmp
from clearhead.runtime.version import full_version

OUTPUT_FAILED = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EBADF, errno.EIO}
"""Errors of standard output: full, closed or broken."""


class Commands(TyperGroup):
    """All commands; messages omit the name of the Python exception, and options other than the nearest."""

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]
        """Run the selected command."""
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise
        except Exception as error:
            refused: Any = error
            if possibilities := getattr(error, "possibilities", None):
                refused.possibilities = possibilities[:1]  # typer prints them in alphabetical order
            raise


def ending_quietly(command: Callable[..., None]) -> Callable[..., None]:
    """End a command without a traceback on Ctrl-C, or if the reader of its output, such as `head`, closes the pipe."""

    @wraps(command)
    def run_command(*args: Any, **kwargs: Any) -> None:
        try:
            command(*args, **kwargs)
        except BrokenPipeError:
            drop_output(sys.stdout)
            sys.exit(0)
        except KeyboardInterrupt:
            notice("interrupted")
            sys.exit(130)

    return run_command


def add(group: typer.Typer, command: Callable[..., None], name: str | None = None) -> None:
    """Add a command to a group, under the name of its function if no other is given."""
    group.command(name, cls=Command)(ending_quietly(command))


@cache
def make_app(only: str | None = None) -> typer.Typer:
    """Return the command line with all commands, or with one: reading the options of all takes a tenth of a second."""
    app = typer.Typer(
        name="clearhead",
        cls=Commands,
        help='The Transformer of "Attention Is All You Need": train translation models and use them.',
        no_args_is_help=True,
        add_completion=only is None,  # shells ask for words without arguments, so all commands can be completed
        pretty_exceptions_enable=False,
    )
    app.callback(invoke_without_command=True)(options)
    for name in NAMES:
        if only in (None, name):
            add(app, function_of(name), name)
    if only in (None, "corpus"):
        from clearhead.cli.corpus import check, clean, convert, stats
        from clearhead.cli.corpus_prepare import prepare

        corpus = typer.Typer(
            help="Print statistics of a corpus, check its quality, clean it, convert it, or prepare it.",
            no_args_is_help=True,
        )
        for of_corpus in (stats, check, clean, convert, prepare):
            add(corpus, of_corpus)
        app.add_typer(corpus, name="corpus")
    return app


def options(version: bool = typer.Option(False, "--version", help="Print the version and exit.")) -> None:
    """Handle the options given before the command."""
    if version:
        typer.echo(f"clearhead {full_version()}")
        raise typer.Exit


def __getattr__(name: str) -> Any:
    if name == "app":  # all commands
        return make_app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def run(arguments: list[str] | None = None) -> None:
    """Run the command line and exit: 0 success, 1 user error, 2 usage error, 130 interrupted, 143 terminated."""
    _save_time()
    open_missing_streams()
    prepare_openmp()
    show_warnings_as_notices()
    with _ending_on_sigterm(), _ignore_stderr_errors():
        try:
            try:
                given = sys.argv[1:] if arguments is None else arguments
                name = next(iter(given), None)
                app = make_app(name if name in (*NAMES, "corpus") else None)
                with needing_pytorch(f"clearhead {name}"):
                    app(args=spread_values(given), obj=given)
            finally:
                sys.stdout.flush()
        except ClearheadError as error:
            notice(str(error))
            sys.exit(1)
        except BrokenPipeError:
            drop_output(sys.stdout)
            sys.exit(0)
        except SystemExit as ended:
            if not _is_unread_help(ended):
                raise
            drop_output(sys.stdout)
            sys.exit(0)
        except OSError as error:
            if error.filename is not None:  # such as a name that is too long, or a directory that may not be read
                notice(str(ClearheadError(f"cannot use {os.fsdecode(error.filename)}: {error.strerror}")))
                sys.exit(1)
            if error.errno not in OUTPUT_FAILED:
                raise
            drop_output(sys.stdout)
            notice(f"cannot write standard output: {error.strerror}")
            sys.exit(1)


def _save_time() -> None:
    """Leave out what start and end do in vain: looking for plugins of pydantic, and collecting garbage."""
    atexit.register(gc.freeze)  # or Python would seek garbage in all objects before the system frees them: 70 ms
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # which it seeks in all installed packages


@contextmanager
def _ignore_stderr_errors() -> Iterator[None]:
    """Let what stderr could not take be lost at the end: Python would try once more, and exit with status 120."""
    try:
        yield
    finally:
        try:
            sys.stderr.flush()
        except OSError:
            drop_output(sys.stderr)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Turn SIGTERM into the end of the program with status 143, so that every `with` block cleans up.

    Training handles it itself meanwhile, see `clearhead.training.signals`.
    """

    def end(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not interrupt the tidying up
        sys.exit(128 + signal.SIGTERM)

    is_ours = threading.current_thread() is threading.main_thread()  # only there may a handler be set
    if not is_ours or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_unread_help(ended: SystemExit) -> bool:
    """Return whether the output of --help or --version was not read: Rich and typer then exit with status 1."""
    cause = ended.__context__
    # With a context of its own, it hides a usage error, which stays one whether its message was read or not.
    return isinstance(cause, BrokenPipeError) and cause.__context__ is None


MULTIPLE = (
    *("--source", "--target", "--alignments", "--pairs", "--valid-source", "--valid-target", "--valid-pairs"),
    *("--general-source", "--general-target", "--general-pairs", "--corrections", "--set"),
)
"""Options of `train` that accept several values, so that shell patterns work: `--pairs data/*.tsv`."""


def spread_values(arguments: list[str]) -> list[str]:
    """Repeat an option before each of its values: `--pairs a b` becomes `--pairs a --pairs b`.

    A `.toml` file among them is the configuration of `train`, never a value.

    >>> spread_values(["train", "--pairs", "a.tsv", "b.tsv", "c.toml", "--out", "run"])
    ['train', '--pairs', 'a.tsv', '--pairs', 'b.tsv', 'c.toml', '--out', 'run']
    """
    if arguments[:1] != ["train"]:
        return arguments
    spread: list[str] = []
    option = None
    for argument in arguments:
        if argument.startswith("-") and argument != "-":
            option = argument if argument in MULTIPLE else None
        elif option is not None and not argument.endswith(".toml") and spread[-1] != option:
            spread.append(option)
        spread.append(argument)
    return spread
