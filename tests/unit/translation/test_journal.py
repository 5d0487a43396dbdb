from __future__ import annotations

import os
from threading import Thread

import pytest

from clearhead.errors import DataError
from clearhead.text.quality_flags import Flag
from clearhead.translation.journal import Journal, TranslationJournal, journal_path
from clearhead.translation.result import Translation

ORIGIN = {"model": "a", "settings": {"beam_size": 4}}
PART = Translation("Ein Hund.", "A dog.\n", -1.1, ("A", " dog"), warnings=(Flag("copied", "é"),), utility=0.1)
WHOLE = Translation("Ja. Nein.", "Yes. No.", None, ("x",), (), True, True, (PART, PART))


@pytest.fixture
def path(tmp_path):
    return tmp_path / ".out.json.progress.jsonl"


@pytest.fixture
def opened(path):
    """Return a function that opens the journal and returns it with what was said."""

    def open_journal(origin=ORIGIN):
        said = []
        return TranslationJournal(path, origin, notice=said.append), said

    return open_journal


def test_values_of_two_threads_are_both_kept(path, monkeypatch):
    journal, threads = Journal(path, ORIGIN, kept="values"), []

    def fsync(number):
        if not threads:
            threads.append(Thread(target=journal.add, args=([b"second"],)))
            threads[0].start()
            threads[0].join(0.3)  # where nothing makes it wait, it ends in this time

    monkeypatch.setattr(os, "fsync", fsync)
    journal.add([b"first"])
    threads[0].join()
    assert Journal(path, ORIGIN, kept="values").values == [b"first", b"second"]


def test_reopened_journal_has_its_translations_and_remove_deletes_it(opened, path):
    journal, said = opened()
    assert not path.exists()
    journal.add([PART])
    journal.add([WHOLE])
    assert opened()[0].translations == {PART.source: PART, WHOLE.source: WHOLE}
    assert said == []
    journal.remove()
    journal.remove()
    assert not path.exists()


def test_journal_of_another_origin_is_started_anew(opened, path):
    opened()[0].add([PART])
    journal, said = opened({**ORIGIN, "model": "b"})
    assert journal.translations == {}
    assert said == [f"{path} was made with another model, version or other settings; the work begins anew"]
    journal.add([WHOLE])
    assert opened()[0].translations == {}


def test_a_last_line_that_is_cut_off_is_written_again(opened, path):
    opened()[0].add([PART, WHOLE])
    content = path.read_bytes()
    for size in [*range(0, len(content), 41), content.index(b"\n"), content.index(b"\n") + 1, len(content) - 1]:
        path.write_bytes(content[:size])
        journal, said = opened()
        assert said == []
        assert len(journal.translations) == max(0, content[:size].count(b"\n") - 1)
        journal.add([PART, WHOLE])
        assert opened()[0].translations == {PART.source: PART, WHOLE.source: WHOLE}


@pytest.mark.parametrize("damage", [b"\0", b"\xff", b"[]\n", b'{"source": "x"}\n', b'{"source": 1}\n'])
def test_a_damaged_line_is_not_used(opened, path, damage):
    opened()[0].add([PART, WHOLE])
    head, first, last = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(head + damage + first + last)
    journal, said = opened()
    assert journal.translations == {one.source: one for one in ([PART] if damage.endswith(b"\n") else []) + [WHOLE]}
    assert said == [f"{path}: 1 lines of it were changed or damaged, and are not used"]
    journal.add([PART])
    assert opened()[0].translations == {PART.source: PART, WHOLE.source: WHOLE}


def test_a_changed_translation_is_noticed_and_not_used(opened, path):
    opened()[0].add([PART, WHOLE])
    path.write_bytes(path.read_bytes().replace(b"Ein Hund.", b"Ein Boot.", 1))
    journal, said = opened()
    assert journal.translations == {WHOLE.source: WHOLE}
    assert len(said) == 1
    opened({**ORIGIN, "model": "b"})[0].add([PART])
    lines = path.read_bytes().splitlines(keepends=True)
    opened()[0].add([WHOLE])
    path.write_bytes(path.read_bytes() + lines[1])  # of a journal of another model
    assert opened()[0].translations == {WHOLE.source: WHOLE}


@pytest.mark.parametrize(
    "content", [b"my thesis\n", b"\0" * 10 + b"\n", b"{}\n", b'{"origin": "x"}\n', b'{"journal_origin": "', b"x"]
)
def test_foreign_file_at_the_journal_path_is_rejected_unchanged(opened, path, content):
    path.write_bytes(content)
    if content.startswith(b'{"journal_origin'):  # the beginning of a journal that a kill cut off
        assert opened()[0].translations == {}
        return
    with pytest.raises(DataError, match=r"progress.jsonl is not a journal of this program.*; move that file away, or"):
        opened()
    assert path.read_bytes() == content


@pytest.mark.skipif(os.name != "posix", reason="makes links and pipes")
@pytest.mark.parametrize("content", ["journal", b"precious", None])
def test_a_link_is_not_followed(opened, path, tmp_path, content):
    other = tmp_path / "other"
    if content == "journal":
        opened()[0].add([PART])
        path.rename(other)
    elif content is not None:
        other.write_bytes(content)
    before = other.read_bytes() if other.exists() else None
    path.symlink_to(other)
    with pytest.raises(DataError, match=r"cannot use .*progress.jsonl.*: it is a link to another file; remove it"):
        opened()
    assert (other.read_bytes() if other.exists() else None) == before
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DataError, match="it must be a regular file"):
        opened()


def test_a_file_made_or_put_there_meanwhile_is_left_as_it_is(opened, path):
    journal = opened()[0]
    path.write_text("precious")
    with pytest.raises(DataError, match=r"cannot write .*: File exists"):
        journal.add([PART])
    journal.remove()
    assert path.read_text() == "precious"
    path.unlink()
    journal.add([PART])
    path.rename(path.with_name("aside"))
    path.write_text("precious")
    with pytest.raises(DataError, match="it is another file by now"):
        journal.add([WHOLE])
    assert path.read_text() == "precious"


def test_journal_path_that_is_not_writable_is_rejected(opened, path, tmp_path):
    path.mkdir()
    with pytest.raises(DataError, match=r"cannot use .*progress.jsonl, which keeps the progress"):
        opened()
    journal = TranslationJournal(tmp_path / "none" / "x", ORIGIN, notice=pytest.fail)
    with pytest.raises(DataError, match=r"cannot write .*none/x, which keeps the progress of this work: No such file"):
        journal.add([PART])


def test_journal_path_is_beside_the_output_also_for_long_names(tmp_path):
    assert journal_path(tmp_path / "a.json") == tmp_path / ".a.json.progress.jsonl"
    long, other = journal_path(tmp_path / ("é" * 120 + ".json")), journal_path(tmp_path / ("é" * 119 + "a.json"))
    assert long != other
    long.touch()
