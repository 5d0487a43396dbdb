"""Translation memory in one SQLite file: the matches of `TranslationMemory` among a million pairs and more.

The index is exact (prefix filtering, Chaudhuri, Ganti and Kaushik 2006). In texts of n and m words with a similarity
of r or more, at least k = ceil(r max(n, m)) words are the same. If the words of all texts are ordered in the same way,
rare ones first, then the first n - k + 1 words of one text and the first m - k + 1 of the other have one in common. So
the index has the first words of each source, and a look-up reads the few entries of the first words of the text: lists
of sources, in one blob for each word, length and place, and a row for each source that was added later. SQLite's
full-text index ranks texts by their words, and gives no such bound. A word that occurs again counts as another word.

The rollback journal of SQLite makes additions durable and leaves one file; processes may read while one writes.
"""

from __future__ import annotations

import hashlib
import math
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from threading import RLock

import numpy as np

from clearhead.errors import ConfigError, DataError
from clearhead.files.streams import whole_or_absent
from clearhead.formats.memory_database import (
    APPLICATION,
    VERSION,
    Languages,
    connected,
    conversion,
    database_errors,
    is_database,
    opened_memory,
)
from clearhead.translation.memory import (
    LEAST_SIMILARITY,
    MOST_NEIGHBOURS,
    MOST_USES,
    MOST_WORDS,
    POOL,
    ROUNDING,
    Candidate,
    Matches,
    TranslationMemory,
    closest,
    comparable,
    covering,
    exact_match,
    is_useful,
    require_share,
)
from clearhead.translation.result import MemoryMatch, MemoryUse
from clearhead.translation.terminology import term_words

INDEXED_FROM = 0.5
"""Least similarity that the index finds; below it, a text is compared with all sources of a fitting length."""
SHARED = 3
"""Words that a candidate shares with the first words of the text, of which there are as many more (Wang, Li and Feng
2012); where the index is not deep enough, fewer. Among a million pairs 3 is the fastest of 2, 3 and 4."""

_Word = tuple[str] | tuple[str, int]
"""A word, and from its second occurrence in a text on the number of the occurrence."""

_SOURCES_WITH_A_WORD = """
SELECT length, sources FROM source_lists WHERE word = :word AND length BETWEEN :shortest AND :longest
AND place <= length - :least * max(length, :size) + :more
UNION ALL SELECT length, source FROM first_words WHERE word = :word AND length BETWEEN :shortest AND :longest
AND place <= length - :least * max(length, :size) + :more
"""
_SOME_SOURCES = "SELECT id, key FROM sources WHERE id > ? ORDER BY id LIMIT 10000"
_TABLES = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE words (id INTEGER PRIMARY KEY, text BLOB NOT NULL UNIQUE);
CREATE TABLE sources (
    id INTEGER PRIMARY KEY, hash INTEGER NOT NULL, key TEXT NOT NULL, original TEXT, length INTEGER NOT NULL, words BLOB
);
CREATE INDEX sources_by_hash ON sources (hash);
CREATE TABLE pairs (id INTEGER PRIMARY KEY, source INTEGER NOT NULL, target TEXT NOT NULL, context TEXT);
CREATE INDEX pairs_by_source ON pairs (source);
CREATE TABLE first_words (
    word INTEGER, length INTEGER, place INTEGER, source INTEGER, PRIMARY KEY (word, length, place, source)
) WITHOUT ROWID;
CREATE TABLE source_lists (
    word INTEGER, length INTEGER, place INTEGER, sources BLOB, PRIMARY KEY (word, length, place)
) WITHOUT ROWID;
CREATE TEMP TABLE unsorted (word INTEGER, length INTEGER, place INTEGER, source INTEGER);
"""
"""`words`: rare words have the larger numbers; one that is added later counts as rare. `sources.words`: the number of
each word, four bytes each. `first_words`: of each source, the places of its first words in the order from rare ones;
`source_lists`: the same of the sources with which the file was made, four bytes each."""
_READ_AT_ONCE = 32
"""Candidates whose words are read at once."""
_BULK_CACHE = -200_000
"""Cache while a file is made, in KiB, negative."""


class MemoryFile:
    """An open memory file; it may be used from several threads.

    Args:
        path: The file.
        from_lang: Language of the texts that are looked up; None if it is not known.
        to_lang: Language of their translations.

    Raises:
        ConfigError: If the file is for other languages.
        DataError: If it cannot be read, is damaged or no memory, or of a later version.
    """

    def __init__(self, path: str | Path, *, from_lang: str | None = None, to_lang: str | None = None) -> None:
        self.path = str(path)
        self._lock = RLock()
        self._database, languages = opened_memory(self.path, from_lang, to_lang)
        self.languages: Languages = languages
        """Languages of sources and translations; None if they are not known."""
        with database_errors(self.path):
            (self._count,) = self._database.execute("SELECT count(*) FROM sources").fetchone()

    def __len__(self) -> int:
        return self._count

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def match(self, text: str, /, least: float = LEAST_SIMILARITY, *, context: str | None = None) -> MemoryMatch | None:
        """Return the most similar entry, as `TranslationMemory.match`.

        Args:
            text: A line.
            least: Minimum similarity, above 0.
            context: Context of the text.

        Raises:
            ConfigError: If `least` is not above 0 and at most 1.
            DataError: If the file is damaged, or another process writes for too long.
        """
        require_share(least)
        with self._using():
            if (exact := self.exact(text, context=context)) is not None:
                return exact
            found = self.nearest(text, 1, least)
            return found[0] if found else None

    def nearest(self, text: str, /, count: int = MOST_NEIGHBOURS, least: float = INDEXED_FROM) -> Matches:
        """Return the most similar entries, as `TranslationMemory.nearest`.

        Args:
            text: A line, or a sentence.
            count: Maximum number of entries.
            least: Minimum similarity, above 0; by default that of the index, for below it a look-up takes long.

        Raises:
            DataError: As `match`.
        """
        words = _words(comparable(text))
        if not 0 < len(words) <= MOST_WORDS:
            return []
        with self._using():
            numbers = self._numbers(words)
            own = [numbers.get(_blob(word[:1]), -1) for word in words]
            candidates = self._candidates([numbers.get(_blob(word)) for word in words], least)
            pool = closest(own, candidates, least, POOL if count > 1 else 1)  # their bounds come from lengths alone
            chosen = covering(own, pool, least, count)
            found = [(candidate.bound, self._entry(candidate.number)) for candidate in chosen]
        return [
            MemoryMatch(source, pairs[-1][0], round(similarity, 4), uses=uses)
            for similarity, (source, pairs, uses) in found
        ]

    def exact(self, text: str, /, *, context: str | None = None) -> MemoryMatch | None:
        """Return the entry whose source equals a text, as `TranslationMemory.exact`.

        Args:
            text: A line.
            context: Context of the text.

        Raises:
            DataError: As `match`.
        """
        with self._using():
            if (number := _source(self._database, comparable(text))) is None:
                return None
            source, pairs, uses = self._entry(number)
            by_context = {own: target for target, own in pairs} if any(own is not None for _, own in pairs) else {}
            return exact_match(text, source, pairs[-1][0], by_context, context, uses)

    def add(self, source: str, target: str, context: str | None = None) -> None:
        """Add a pair; when this returns, it is on disk, and other processes find it.

        Args:
            source: The source.
            target: Its translation.
            context: Its context, as in `SentencePair`.

        Raises:
            DataError: If a side is blank, or the file cannot be written.
        """
        if not is_useful(source, target):
            raise DataError("a memory needs pairs of source and translation; one side is blank")
        with self._using("IMMEDIATE"):
            number = _add(self._database, source, target, context)
            if number is not None:
                _index(self._database, number, comparable(source), self._new_number)
                self._count += 1

    def has(self, source: str, target: str, context: str | None = None) -> bool:
        """Return whether the file has a pair in this context.

        Raises:
            DataError: As `match`.
        """
        with self._using():
            return self._pair(source, target, context) is not None

    def remove(self, source: str, target: str, context: str | None = None) -> None:
        """Remove a pair, of equal ones the last; nothing happens if the file has none.

        Raises:
            DataError: If the file cannot be written.
        """
        with self._using("IMMEDIATE"):
            if (pair := self._pair(source, target, context)) is None:
                return
            write = self._database.execute
            number = _source(self._database, comparable(source))
            write("DELETE FROM pairs WHERE id = ?", (pair,))
            if write("SELECT 1 FROM pairs WHERE source = ?", (number,)).fetchone() is None:
                write("DELETE FROM sources WHERE id = ?", (number,))
                words = _words(comparable(source))
                for entries in ((self._new_number(word), len(words)) for word in words):
                    write("DELETE FROM first_words WHERE word = ? AND length = ? AND source = ?", (*entries, number))
                    lists = write("SELECT * FROM source_lists WHERE word = ? AND length = ?", entries)
                    for *where, sources in lists.fetchall():
                        kept = np.frombuffer(sources, dtype=np.int32)
                        kept = kept[kept != number]
                        if kept.nbytes < len(sources):
                            write("REPLACE INTO source_lists VALUES (?, ?, ?, ?)", (*where, kept.tobytes()))
                self._count -= 1

    def _pair(self, source: str, target: str, context: str | None) -> int | None:
        """Return the number of the last pair of these texts in a context."""
        number = _source(self._database, comparable(source))
        row = self._database.execute(
            "SELECT max(id) FROM pairs WHERE source = ? AND target = ? AND context IS ?",
            (number, target.strip(), context),
        ).fetchone()
        return None if row is None else row[0]

    def _entry(self, number: int) -> tuple[str, list[tuple[str, str | None]], tuple[MemoryUse, ...]]:
        """Return a source, its translations with their contexts, in order, and its uses if the translations differ."""
        find = self._database.execute
        key, original = find("SELECT key, original FROM sources WHERE id = ?", (number,)).fetchone()
        rows = find("SELECT id, target, context FROM pairs WHERE source = ? ORDER BY id", (number,)).fetchall()
        differ = len({target for _, target, _ in rows}) > 1
        uses = (
            MemoryUse(target, context, self._key_at(place - 1), self._key_at(place + 1))
            for place, target, context in (rows[-MOST_USES:] if differ else ())
        )
        return original or key, [(target, context) for _, target, context in rows], tuple(uses)

    def _key_at(self, place: int) -> str | None:
        row = self._database.execute(
            "SELECT key FROM pairs JOIN sources ON sources.id = pairs.source WHERE pairs.id = ?", (place,)
        ).fetchone()
        return None if row is None else row[0]

    def _numbers(self, words: Sequence[_Word]) -> dict[bytes, int]:
        """Return the numbers of words that the file has."""
        blobs = list({*map(_blob, words), *(_blob((text,)) for text, *_ in words)})
        return dict(self._database.execute(f"SELECT text, id FROM words WHERE text IN ({_marks(blobs)})", blobs))

    def _new_number(self, word: _Word) -> int:
        numbers = self._numbers([word])
        number = numbers.get(_blob(word))
        if number is None:
            number = self._database.execute("INSERT INTO words (text) VALUES (?)", (_blob(word),)).lastrowid
        assert number is not None
        return number

    def _candidates(self, numbers: Sequence[int | None], least: float) -> Iterator[Candidate]:
        """Yield the sources that may be similar enough, those of the nearest length first.

        Args:
            numbers: The numbers of the words of the text; None for one that no source has.
            least: Minimum similarity.
        """
        size = len(numbers)
        lengths = math.ceil(least * size - ROUNDING), math.floor(size / least + ROUNDING)
        if least < INDEXED_FROM:
            rows = self._database.execute("SELECT id, length FROM sources WHERE length BETWEEN ? AND ?", lengths)
            found = set(rows)
        else:
            lists: dict[int, list[np.ndarray]] = {}
            """The sources of each length, as often as they have a first word of the text."""
            ordered = sorted(numbers, key=lambda number: math.inf if number is None else number, reverse=True)
            for place, number in enumerate(ordered[: size - lengths[0] + SHARED]):
                if number is not None:
                    values = {
                        "word": number,
                        "shortest": lengths[0],
                        "longest": min(lengths[1], math.floor((size - place + SHARED - 1) / least + ROUNDING)),
                        "least": least,
                        "size": size,
                        "more": SHARED - 1 + ROUNDING,
                    }
                    for length, sources in self._database.execute(_SOURCES_WITH_A_WORD, values):
                        some = [sources] if isinstance(sources, int) else np.frombuffer(sources, dtype=np.int32)
                        lists.setdefault(length, []).append(np.asarray(some, dtype=np.int32))
            found = set()
            for length, parts in lists.items():
                sources, times = np.unique(np.concatenate(parts), return_counts=True)
                enough = sources[times >= _least_shared(size, length, least)]
                found.update((source, length) for source in enough.tolist())
        nearest = sorted(((min(size, long) / max(size, long), source) for source, long in found), reverse=True)
        for start in range(0, len(nearest), _READ_AT_ONCE):
            together = nearest[start : start + _READ_AT_ONCE]
            words_of = self._words_of([source for _, source in together])
            yield from (Candidate(bound, source, words_of[source]) for bound, source in together)

    def _words_of(self, sources: Sequence[int]) -> dict[int, array[int]]:
        """Return the numbers of the words of some sources."""
        rows = self._database.execute(f"SELECT id, length, words FROM sources WHERE id IN ({_marks(sources)})", sources)
        words = {}
        for source, length, blob in rows:
            words[source] = array("i", blob)
            if len(words[source]) != length:
                raise sqlite3.DatabaseError("a source has another number of words")
        if len(words) < len({*sources}):
            raise sqlite3.DatabaseError("a source is missing")
        return words

    @contextmanager
    def _using(self, kind: str = "DEFERRED") -> Iterator[None]:
        """Lock the file for a transaction; a part of one needs none of its own."""
        with self._lock, database_errors(self.path):
            try:
                with nullcontext() if self._database.in_transaction else _transaction(self._database, kind):
                    yield
            except UnicodeEncodeError:
                raise
            except (TypeError, ValueError) as error:  # a row is missing, or a value of another type
                raise sqlite3.DatabaseError(str(error)) from None


Memory = TranslationMemory | MemoryFile
"""A translation memory in RAM or in a file."""


def load_memory(paths: Sequence[str], *, from_lang: str | None = None, to_lang: str | None = None) -> Memory:
    """Open a memory file, or read files of pairs as `TranslationMemory.load`.

    Args:
        paths: One memory file; or files, directories or glob patterns.
        from_lang: Language of the sources.
        to_lang: Language of the translations.

    Raises:
        ConfigError: If a memory file is for other languages or not the only one; or as `TranslationMemory.load`.
        DataError: If a file cannot be read.
    """
    files = [path for path in paths if is_database(path)]
    if not files:
        return TranslationMemory.load(paths, from_lang=from_lang, to_lang=to_lang)
    if len(paths) > 1:
        raise ConfigError(f"{files[0]} is a memory file, and used alone; make one of all files: {conversion(files[0])}")
    return MemoryFile(files[0], from_lang=from_lang, to_lang=to_lang)


def write_memory(path: str, pairs: Iterable[tuple[str, str, str | None]], languages: Languages) -> int:
    """Write a memory file, which appears only when it is complete; return the number of its pairs.

    Args:
        path: The file.
        pairs: Source, translation and context of each pair; those with a blank side are left out.
        languages: Languages of sources and translations; None if they are not known.

    Raises:
        DataError: If the file cannot be written, or there is no pair.
    """
    with whole_or_absent(path) as written, database_errors(path), closing(connected(str(written))) as database:
        database.execute(f"PRAGMA cache_size = {_BULK_CACHE}")
        database.execute("PRAGMA journal_mode = OFF")  # the file is thrown away if this fails
        database.executescript(_TABLES)
        database.execute(f"PRAGMA application_id = {APPLICATION}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.executemany("INSERT INTO facts VALUES (?, ?)", zip(("source", "target"), languages, strict=True))
        count, frequency = 0, Counter[_Word]()
        with _transaction(database):
            for source, target, context in pairs:
                if is_useful(source, target):
                    count += 1
                    if _add(database, source, target, context) is not None:
                        frequency.update(_words(comparable(source)))
        if not count:
            raise DataError(f"{path}: no pair to write; a memory needs pairs of source and translation")
        numbers = {word: number for number, (word, _) in enumerate(frequency.most_common(), start=1)}
        frequency.clear()
        with _transaction(database):
            rows = ((number, _blob(word)) for word, number in numbers.items())
            database.executemany("INSERT INTO words VALUES (?, ?)", rows)
            last = 0
            while some := database.execute(_SOME_SOURCES, (last,)).fetchall():
                for last, key in some:
                    _index(database, last, key, numbers.__getitem__, "unsorted")
            in_order = database.execute("SELECT * FROM unsorted ORDER BY word, length, place, source")
            for where, entries in groupby(in_order, itemgetter(0, 1, 2)):
                sources = array("i", map(itemgetter(3), entries)).tobytes()
                database.execute("INSERT INTO source_lists VALUES (?, ?, ?, ?)", (*where, sources))
    return count


def _least_shared(size: int, other: int, least: float) -> int:
    """Return how many of their first words two texts of given lengths share at least, if they are similar enough."""
    same = math.ceil(least * max(size, other) - ROUNDING)
    return max(1, min(SHARED, same, same + 1 - math.ceil(INDEXED_FROM * other - ROUNDING)))


def _index(
    database: sqlite3.Connection, source: int, key: str, number_of: Callable[[_Word], int], table: str = "first_words"
) -> None:
    """Add the words of a source to a table of the index."""
    words = _words(key)
    size, numbers = len(words), array("i", (number_of(word[:1]) for word in words))
    ordered = sorted(map(number_of, words), reverse=True)
    num_first = size - math.ceil(INDEXED_FROM * size - ROUNDING) + 1
    first = ((number, size, place, source) for place, number in enumerate(ordered[:num_first]))
    database.execute("UPDATE sources SET length = ?, words = ? WHERE id = ?", (size, numbers.tobytes(), source))
    database.executemany(f"INSERT INTO {table} VALUES (?, ?, ?, ?)", first)


def _add(database: sqlite3.Connection, source: str, target: str, context: str | None) -> int | None:
    """Add a pair; return the number of its source if that is new."""
    key, original = comparable(source), source.strip()
    number = _source(database, key)
    if is_new := number is None:
        values = _hash(key), key, None if original == key else original
        number = database.execute(
            "INSERT INTO sources (hash, key, original, length) VALUES (?, ?, ?, 0)", values
        ).lastrowid
    else:
        database.execute(
            "UPDATE sources SET original = ? WHERE id = ? AND coalesce(original, key) <> ?",
            (None if original == key else original, number, original),
        )
    database.execute("INSERT INTO pairs (source, target, context) VALUES (?, ?, ?)", (number, target.strip(), context))
    return number if is_new else None


def _source(database: sqlite3.Connection, key: str) -> int | None:
    rows = database.execute("SELECT id, key FROM sources WHERE hash = ?", (_hash(key),))
    return next((number for number, own in rows if own == key), None)


def _hash(key: str) -> int:
    digest = hashlib.blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


def _words(key: str) -> list[_Word]:
    """Return the words of a text; one that occurs again, with the number of its occurrence."""
    seen = Counter[str]()
    words: list[_Word] = []
    for word in term_words(key):
        seen[word.text] += 1
        words.append((word.text,) if seen[word.text] == 1 else (word.text, seen[word.text]))
    return words


def _marks(values: Collection[object]) -> str:
    """Return the marks of values in a statement."""
    return ", ".join("?" * len(values))


def _blob(word: _Word) -> bytes:
    text, *times = word
    return text.encode("utf-8", "surrogatepass") + b"".join(b"\0%d" % number for number in times)


@contextmanager
def _transaction(database: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    database.execute(f"BEGIN {kind}")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:  # SQLite has ended it where the disk is full
            database.execute("ROLLBACK")
        raise
