"""Memory files as files of pairs: every pair in order, with languages and contexts; foreign and damaged files."""

from __future__ import annotations

import os
import sqlite3

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.formats import Wanted, expand_paths, read_pairs
from clearhead.formats.memory_database import is_database, is_memory
from clearhead.translation.memory_file import write_memory

PAIRS = [("Open", "Öffnen", "verb"), ("Fu\u0308nf", "five", None), ("Open", "Offen", None)]


@pytest.fixture
def path(tmp_path):
    write_memory(str(tmp_path / "m.sqlite"), PAIRS, ("en", "de"))
    return str(tmp_path / "m.sqlite")


def changed(path, statement):
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


def test_every_pair_is_read_in_order_with_its_context(path, monkeypatch):
    monkeypatch.setattr("clearhead.formats.memory_database._NUM_ROWS", 2)  # in parts
    opened = []
    found = list(read_pairs([path], Wanted(from_lang="en-GB"), on_open=opened.extend))
    assert [(pair.source, pair.target, pair.context) for pair in found] == PAIRS
    assert [pair.line for pair in found] == [1, 2, 3]
    assert opened[0].languages == ("en", "de")
    assert opened[0].read_as == "translation memory in SQLite; from en to de"
    assert [pair.source for pair in read_pairs([path], swap=True)] == ["Öffnen", "five", "Offen"]


def test_a_memory_of_other_languages_is_refused(path):
    with pytest.raises(ConfigError, match=r"m\.sqlite is a memory for en to de, and fr is asked for \(to\)"):
        read_pairs([path], Wanted(to_lang="fr"))


def test_a_directory_gives_its_memories_and_no_other_databases(path, tmp_path):
    other = str(tmp_path / "other.sqlite")
    changed(other, "CREATE TABLE words (text)")
    assert expand_paths([str(tmp_path)]) == [path]
    assert is_database(other)
    assert not is_memory(other)
    with pytest.raises(DataError, match=r"other\.sqlite is a database, but not a translation memory; make one with"):
        read_pairs([other])


def test_the_pairs_of_the_first_version_are_read_and_not_those_of_a_later_one(path):
    changed(path, "PRAGMA user_version = 1")
    assert len(list(read_pairs([path]))) == len(PAIRS)
    changed(path, "PRAGMA user_version = 3")
    with pytest.raises(DataError, match="of version 3, and this clearhead uses version 2"):
        read_pairs([path])


@pytest.mark.parametrize("statement", ["DELETE FROM sources", "UPDATE pairs SET target = x'07'", "DROP TABLE sources"])
def test_damage_is_reported(path, statement):
    changed(path, statement)
    with pytest.raises(DataError, match=r"m\.sqlite is damaged \("):
        list(read_pairs([path]))


def test_files_of_other_kinds_are_refused(tmp_path):
    (tmp_path / "a.sqlite").write_text("no database, but long enough for a header" * 9, encoding="utf-8")
    with pytest.raises(DataError, match=r"a\.sqlite is damaged"):
        read_pairs([str(tmp_path / "a.sqlite")])
    with pytest.raises(DataError, match=r"none\.sqlite: there is no such file, or it is a directory or a pipe"):
        list(read_pairs([str(tmp_path / "none.sqlite")]))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_refused_without_waiting_for_its_writer(tmp_path):
    os.mkfifo(tmp_path / "pipe.sqlite")
    with pytest.raises(DataError, match="a directory or a pipe"):
        list(read_pairs([str(tmp_path / "pipe.sqlite")]))
