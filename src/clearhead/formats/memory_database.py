"""Translation memories in SQLite (`.sqlite`): what identifies the file, its connection and errors, and its pairs."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from clearhead.errors import ConfigError, DataError
from clearhead.formats.pair import PairFile, SentencePair, Wanted
from clearhead.formats.xml.translation_units import are_related

EXTENSION = ".sqlite"
"""Extension of a memory file."""
APPLICATION = 0x636C6D65
"""Number in the header of a memory file: `clme` in ASCII."""
VERSION = 2
"""Version of the tables."""
_READABLE = (1, VERSION)
"""Versions whose pairs are in the same tables; the first one has another index."""

Languages = tuple[str | None, str | None]
"""Languages of sources and translations; None if they are not known."""

_SECONDS_TO_WAIT = 20.0
"""Seconds that a process waits for another one that writes."""
_CACHE = -16_000
"""In KiB, negative."""
_SQLITE = b"SQLite format 3\0"
_APPLICATION_AT = slice(68, 72)
"""Bytes of the header with the number of the application."""
_NUM_ROWS = 10_000
"""Pairs read at once; between the parts, others may write."""
_SOME_PAIRS = """
SELECT pairs.id, coalesce(original, key), target, context FROM pairs LEFT JOIN sources ON sources.id = pairs.source
WHERE pairs.id > ? ORDER BY pairs.id LIMIT ?
"""


def open_memory(path: str, wanted: Wanted) -> PairFile:
    """Open a memory file as a file of pairs; the origin of a pair is its number.

    Args:
        path: The file, which cannot be a pipe.
        wanted: Languages that are asked for.

    Raises:
        ConfigError: If the file is for other languages.
        DataError: If it cannot be read, is damaged or no memory, or of a later version; also during iteration.
    """
    database, languages = opened_memory(path, wanted.from_lang, wanted.to_lang, versions=_READABLE)
    database.close()

    def pairs() -> Iterator[SentencePair]:
        with database_errors(path), closing(opened_memory(path, versions=_READABLE)[0]) as database:
            last = 0
            while some := database.execute(_SOME_PAIRS, (last, _NUM_ROWS)).fetchall():
                for last, source, target, context in some:
                    if not (isinstance(source, str) and isinstance(target, str)):
                        raise sqlite3.DatabaseError(f"pair {last} has no text")
                    yield SentencePair(source, target, f"{path}:{last}", context=context)

    sides = languages[0] or "the sources", languages[1] or "the translations"
    return PairFile(path, "translation memory in SQLite", sides, pairs(), languages)


def opened_memory(
    path: str, from_lang: str | None = None, to_lang: str | None = None, *, versions: Sequence[int] = (VERSION,)
) -> tuple[sqlite3.Connection, Languages]:
    """Open a memory file, for writing too where this is allowed, and return its connection and languages.

    Args:
        path: The file.
        from_lang: Language of the texts that are looked up; None if it is not known.
        to_lang: Language of their translations.
        versions: Versions that can be used.

    Raises:
        ConfigError: If the file is for other languages.
        DataError: If it cannot be read, is damaged or no memory, or of another version.
    """
    if not os.path.isfile(path):
        raise DataError(f"cannot read {path}: there is no such file, or it is a directory or a pipe")
    with database_errors(path):
        mode = "rw" if os.access(path, os.W_OK) else "ro"
        database = connected(f"{Path(path).absolute().as_uri()}?mode={mode}", uri=True)
        try:
            (application,) = database.execute("PRAGMA application_id").fetchone()
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION:
                raise DataError(f"{path} is a database, but not a translation memory; {_advice(path)}")
            if version not in versions:
                raise DataError(
                    f"{path} is a translation memory of version {version}, and this clearhead uses version {VERSION}; "
                    f"{_advice(path)}"
                )
            facts = dict(database.execute("SELECT name, value FROM facts"))
            languages = facts.get("source"), facts.get("target")
            for side, own, asked in zip(("from", "to"), languages, (from_lang, to_lang), strict=True):
                if own is not None and asked is not None and not are_related(own, asked):
                    raise ConfigError(
                        f"{path} is a memory for {languages[0]} to {languages[1]}, and {asked} is asked for ({side}); "
                        f"name another memory"
                    )
        except BaseException:
            database.close()
            raise
    return database, languages


def is_database(path: str | Path) -> bool:
    """Return whether a file is an SQLite database, as memory files are."""
    return _header(path).startswith(_SQLITE)


def is_memory(path: str | Path) -> bool:
    """Return whether a file is an SQLite database with the number of a memory file."""
    header = _header(path)
    return header.startswith(_SQLITE) and header[_APPLICATION_AT] == APPLICATION.to_bytes(4, "big")


def _header(path: str | Path) -> bytes:
    if not os.path.isfile(path):
        return b""  # what was read from a pipe would be missing later
    try:
        with open(path, "rb") as file:
            return file.read(_APPLICATION_AT.stop)
    except OSError:
        return b""


def connected(path: str, *, uri: bool = False) -> sqlite3.Connection:
    """Return a connection to a database; it has no transactions of its own, and may be used from several threads.

    Args:
        path: The file, or its URI.
        uri: Whether it is a URI.
    """
    database = sqlite3.connect(path, timeout=_SECONDS_TO_WAIT, isolation_level=None, check_same_thread=False, uri=uri)
    database.execute("PRAGMA synchronous = EXTRA")  # also the removal of the journal
    database.execute(f"PRAGMA cache_size = {_CACHE}")
    return database


@contextmanager
def database_errors(path: str) -> Iterator[None]:
    """Raise errors of SQLite and the system as `DataError`.

    Args:
        path: The file, for the message.
    """
    try:
        yield
    except UnicodeEncodeError:
        raise DataError(f"cannot write {path}: a text has half of a surrogate pair, not a character") from None
    except sqlite3.Error as error:
        name = getattr(error, "sqlite_errorname", "")
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise DataError(f"{path} is being written by another process for long; try again") from None
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR", "SQLITE_PERM")):
            raise DataError(f"cannot use {path}: {error}") from None
        raise DataError(f"{path} is damaged ({error}); {_advice(path)}") from None
    except OSError as error:
        raise DataError(f"cannot write {path}: {error.strerror or error}") from None


def _advice(path: str) -> str:
    return f"make one with `{conversion(path)}`"


def conversion(path: str) -> str:
    """Return the command that makes a memory file."""
    return f"clearhead corpus convert FILE.. {path}"
