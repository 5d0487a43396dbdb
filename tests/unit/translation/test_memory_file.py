"""Memory files: the same matches as in memory, additions that last, several processes, damaged and foreign files."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from clearhead.errors import ConfigError, DataError
from clearhead.translation.memory import MOST_USES, TranslationMemory, in_place
from clearhead.translation.memory_file import MemoryFile, load_memory, write_memory
from clearhead.translation.result import MemoryMatch

PAIRS = [
    ("Open the file.", "Öffne die Datei.", None),
    (" Close the window now. ", "Schließe das Fenster jetzt.", None),
    ("blank", " ", None),
    ("Fu\u0308nf %s", "five %s", None),
    ("Open the file.", "Öffnen Sie die Datei.", None),
]


@pytest.fixture
def path(tmp_path):
    assert write_memory(str(tmp_path / "m.sqlite"), PAIRS, ("en", "de")) == 4
    return str(tmp_path / "m.sqlite")


def drawn(draw, size):
    words = ["a", "b", "c", "d", "e", "f", "g", "h", "%s", "7"]
    weights = [1 / number for number in range(1, len(words) + 1)]
    return " ".join(draw.choices(words, weights, k=draw.randint(1, size)))


@pytest.mark.parametrize("seed", range(4))
def test_a_file_has_the_matches_of_a_memory_in_ram(tmp_path, seed):
    draw = random.Random(seed)
    pairs = [(drawn(draw, 9), draw.choice("xyz"), draw.choice([None, None, "v", "n"])) for _ in range(130)]
    in_ram, path = TranslationMemory(pairs), str(tmp_path / "m.sqlite")
    write_memory(path, pairs[:120], (None, None))
    file = MemoryFile(path)
    for pair in pairs[120:]:
        file.add(*pair)
    assert len(file) == len(in_ram)
    for _ in range(60):
        text = drawn(draw, 12) + draw.choice(["", " new", "  "])
        for least in (0.2, 0.5, 0.6, 0.75, 0.9, 1.0):
            for context in (None, "v", "other"):
                expected, found = (memory.match(text, least, context=context) for memory in (in_ram, file))
                assert found == expected
                assert found is None or found.uses == expected.uses
    file.close()


def test_a_source_with_many_uses_has_the_last_ones_in_ram_and_in_a_file(tmp_path):
    pairs = [
        pair for number in range(MOST_USES + 7) for pair in (("Go", f"a{number}", None), (f"b {number}", "c", None))
    ]
    write_memory(str(tmp_path / "m.sqlite"), pairs, (None, None))
    file = MemoryFile(tmp_path / "m.sqlite")
    found, expected = file.match("Go"), TranslationMemory(pairs).match("Go")
    assert found == expected
    assert [use.target for use in found.uses] == [f"a{number}" for number in range(7, MOST_USES + 7)]
    assert found.uses == expected.uses
    assert in_place("Go", found, None, ("b 6", None)).target == "a7"
    assert in_place("Go", found, None, ("b 5", None)).target == f"a{MOST_USES + 6}"  # too long ago: the last one
    file.close()


def test_removed_pairs_are_found_no_more_and_their_numbers_used_again(tmp_path):
    draw = random.Random(7)
    pairs = [(drawn(draw, 9), draw.choice("xyz"), None) for _ in range(90)]
    write_memory(str(tmp_path / "m.sqlite"), pairs, (None, None))
    file = MemoryFile(tmp_path / "m.sqlite")
    removed = [pair for pair in pairs if pairs.count(pair) == 1][::-2]  # the last source among them
    for pair in removed:
        file.remove(*pair)
    new = [(drawn(draw, 9), "new", None) for _ in range(11)]
    for pair in new:
        file.add(*pair)
    in_ram = TranslationMemory([*(pair for pair in pairs if pair not in removed), *new])
    assert len(file) == len(in_ram)
    for least in (0.2, 0.5, 0.75):
        for text in (drawn(draw, 12) for _ in range(60)):
            found, expected = file.match(text, least), in_ram.match(text, least)
            assert (found and found.similarity) == (expected and expected.similarity)
            assert found is None or in_ram.exact(found.source).target == found.target
    file.close()


def test_a_pair_with_more_words_than_a_statement_of_sqlite_takes_is_removed(tmp_path):
    long = " ".join(f"w{number}" for number in range(11))
    write_memory(str(tmp_path / "m.sqlite"), [(long, "a", None), ("w7 w5", "b", None)], (None, None))
    file = MemoryFile(tmp_path / "m.sqlite")
    file._database.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, 5)
    for _ in range(2):  # of the lists with which the file was made, and of what was added
        file.remove(long, "a")
        assert (file.exact(long), len(file), file.exact("w7 w5").target) == (None, 1, "b")
        file.add(long, "a")
    file.close()


def test_exact_and_similar_matches_of_a_file(path):
    memory = load_memory([path], from_lang="en-GB", to_lang="de")
    assert memory.match("Open the file.\n") == MemoryMatch("Open the file.", "Öffnen Sie die Datei.", 1.0, True)
    assert memory.match("Fünf %s").source == "Fu\u0308nf %s"
    assert memory.match("Close the door now.", 0.8) == MemoryMatch(
        "Close the window now.", "Schließe das Fenster jetzt.", 0.8
    )
    assert memory.match("Close the door now.", 0.81) is memory.match("blank") is memory.match("") is None
    assert memory.match("\udc80") is None
    with pytest.raises(ConfigError, match="must be above 0"):
        memory.match("x", 0.0)
    with pytest.raises(DataError, match="one side is blank"):
        memory.add("x", " ")
    with pytest.raises(DataError, match="half of a surrogate pair"):
        memory.add("x", "a\udc80")
    memory.close()


ADDING = """
import sys
from clearhead.translation.memory_file import MemoryFile
memory = MemoryFile(sys.argv[1])
for number in range(10**6):
    memory.add(f"text {number}", f"Text {number}")
    print(number, flush=True)
    if number < 3:
        sys.stdin.readline()  # while another process looks it up
"""


def test_added_pairs_survive_a_kill_and_are_seen_by_others_at_once(path):
    reader = MemoryFile(path)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", ADDING, path], **pipes, text=True) as process:
        for number in range(3):
            assert int(process.stdout.readline()) == number
            assert reader.exact(f"text {number}").target == f"Text {number}"
            print(file=process.stdin, flush=True)
        process.send_signal(signal.SIGKILL)
        added = [int(line) for line in process.stdout.read().split()]
    assert all(reader.exact(f"text {number}") for number in added)
    reader.add("after", "danach")  # the journal of the killed process is rolled back
    assert reader.match("after").target == "danach"
    assert reader._database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader.close()


def test_threads_share_a_file(path):
    memory, found = MemoryFile(path), []

    def use(number):
        memory.add(f"Row {number} of the table", f"Zeile {number}")
        found.append(memory.match(f"Row {number} of the table").target)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [f"Zeile {number}" for number in range(5)]
    assert len(memory) == 3 + 5
    memory.close()


def test_a_memory_of_other_languages_or_beside_other_files_is_refused(path, tmp_path):
    with pytest.raises(ConfigError, match="a memory for en to de, and fr is asked for"):
        load_memory([path], from_lang="en", to_lang="fr")
    (tmp_path / "a.tsv").write_text("a\tb\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="used alone"):
        load_memory([str(tmp_path / "a.tsv"), path])
    assert isinstance(load_memory([str(tmp_path / "a.tsv")]), TranslationMemory)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_read_from_its_start(tmp_path):
    os.mkfifo(pipe := tmp_path / "pairs.tsv")
    writer = threading.Thread(target=pipe.write_text, args=("Open the file.\tÖffne die Datei.\n", "utf-8"))
    writer.start()
    assert load_memory([str(pipe)]).match("Open the file.").target == "Öffne die Datei."
    writer.join()


def changed(path, statement):
    with sqlite3.connect(path) as database:
        database.execute(statement)
    database.close()


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("PRAGMA user_version = 1", "of version 1, and this clearhead uses version 2"),
        ("PRAGMA application_id = 1", "a database, but not a translation memory"),
        ("DROP TABLE facts", r"is damaged \(no such table: facts\); make one with `clearhead corpus convert"),
    ],
)
def test_another_version_or_database_is_refused(path, statement, message):
    changed(path, statement)
    with pytest.raises(DataError, match=message):
        MemoryFile(path)


@pytest.mark.parametrize("statement", ["UPDATE sources SET words = x'00'", "DELETE FROM sources", "DROP TABLE pairs"])
def test_damage_found_by_a_look_up_is_reported(path, statement):
    memory = MemoryFile(path)
    changed(path, statement)
    if statement.startswith("DELETE"):
        assert memory.exact("Open the file.") is None
    with pytest.raises(DataError, match="is damaged"):
        memory.match("Close the door now.", 0.5)
    memory.close()


def test_a_cut_file_is_damaged(path):
    os.truncate(path, os.path.getsize(path) // 2)
    with pytest.raises(DataError, match="is damaged"):
        MemoryFile(path).match("Close the door now.")


def test_a_file_without_pairs_is_not_written(tmp_path):
    with pytest.raises(DataError, match="no pair to write"):
        write_memory(str(tmp_path / "m.sqlite"), [("a", " ", None)], (None, None))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(sys.platform == "win32", reason="limits of file sizes are of Unix")
def test_a_full_disk_is_named_and_the_file_is_used_again_when_there_is_room(path):
    program = """
import resource, sys
from clearhead.errors import DataError
from clearhead.translation.memory_file import MemoryFile

file = MemoryFile(sys.argv[1])
for name, most in (("small", 1_000), ("none", 0), ("room", resource.RLIM_INFINITY)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    for number in range(2):
        try:
            file.add(f"new {name} {number}", "neu", None)
        except DataError as error:
            assert str(error).startswith(f"cannot use {sys.argv[1]}: "), error
            assert name != "room"
        else:
            assert name == "room"
"""
    subprocess.run([sys.executable, "-c", program, path], check=True)
    with closing(MemoryFile(path)) as file:
        added = [
            file.has(f"new {name} {number}", "neu", None) for name in ("small", "none", "room") for number in (0, 1)
        ]
    assert added == [False] * 4 + [True] * 2
