from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from threading import Thread

import pytest

from clearhead.errors import DataError
from clearhead.files import locked
from clearhead.files.streams import whole_or_absent
from clearhead.formats.document_files import read_document
from clearhead.text.quality_flags import Flag
from clearhead.translation import review as module
from clearhead.translation import review_files
from clearhead.translation.correction_memory import CorrectionMemory, first_of
from clearhead.translation.documents import TranslatedSegment
from clearhead.translation.memory import TranslationMemory
from clearhead.translation.memory_file import MemoryFile
from clearhead.translation.result import Translation
from clearhead.translation.review import RefusedEditError, Review, StaleRevisionError
from clearhead.translation.review_files import ChangedOutsideError, open_review
from clearhead.translation.terminology import Term, Terms

CATALOGUE = """\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

msgid "one"
msgstr ""

#, fuzzy, c-format
#| msgid "two %s"
msgid "two %d"
msgstr "zwo"

msgid "three"
msgstr "drei"

msgctxt "menu"
msgid "one"
msgstr ""

msgid "done"
msgstr ""
"""
MACHINE = {"one": "EINS", "two %d": "ZWEI %d", "done": "FERTIG"}


def translated(document, machine=MACHINE):
    """Return the segments as a model has translated them; it doubts the short ones, and flags `done`."""
    made = []
    for segment in document.segments:
        if segment.is_finished:
            made.append(TranslatedSegment(segment, "kept"))
            continue
        flags = (Flag("too_short", "0.3"),) if segment.text == "done" else ()
        text = machine.get(segment.text, segment.text.upper())
        translation = Translation(segment.text, text, -1.0, (), warnings=flags, quality=len(segment.text) / 10)
        made.append(TranslatedSegment(segment, "translated", translation))
    return made


@pytest.fixture
def catalogue(tmp_path) -> Path:
    path = tmp_path / "messages.po"
    path.write_text(CATALOGUE, encoding="utf-8")
    return path


@pytest.fixture
def opened():
    """Return a function that opens a review; all are closed at the end."""
    contexts, reviews = [], []

    def open_it(path, output=None, *, closes=False, **options):
        context = open_review(str(path), output and str(output), {})
        files = context.__enter__()
        contexts.append(context)
        document = files.read(read_document)
        reviews.append(Review(files, document, translated(document), **options))
        return reviews[-1]

    def close(review):
        review.close()
        contexts.pop().__exit__(None, None, None)

    open_it.close = close
    yield open_it
    for review in reviews:
        review.close()
    for context in contexts:
        context.__exit__(None, None, None)


def revision(review, number):
    return review.object(number)["revision"]


def accept(review, number, text=None):
    review.change(number, review.text(number) if text is None else text, "accepted", revision(review, number))


def test_accepted_and_edited_entries_are_not_fuzzy_and_open_ones_are(opened, catalogue):
    review = opened(catalogue)
    accept(review, 1)
    review.change(4, "erledigt", "edited", 0)
    review.save()
    assert (
        catalogue.read_text(encoding="utf-8")
        == """\
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8\\n"

#, fuzzy
msgid "one"
msgstr "EINS"

#, c-format
msgid "two %d"
msgstr "ZWEI %d"

msgid "three"
msgstr "drei"

#, fuzzy
msgctxt "menu"
msgid "one"
msgstr "EINS"

msgid "done"
msgstr "erledigt"
"""
    )
    assert [review.state(number) for number in range(5)] == ["open", "accepted", "finished", "open", "edited"]
    assert review.num_done == 3


def test_the_most_doubtful_come_first_and_the_finished_last(opened, catalogue):
    review = opened(catalogue)
    assert review.order == [4, 0, 3, 1, 2]  # flagged, then by quality
    assert review.in_state("open") == [4, 0, 3, 1]
    accept(review, 0)
    assert (review.in_state("open"), review.in_state("done")) == ([4, 3, 1], [0, 2])


def test_flags_are_notes_of_open_entries_and_texts_that_break_a_placeholder_are_saved_and_flagged(opened, catalogue):
    review = opened(catalogue)
    review.change(1, "zwei", "edited", 0)
    review.save()
    written = catalogue.read_text(encoding="utf-8")
    assert "# to check, the translation is shorter than its source makes likely: 0.3\n#, fuzzy\nmsgid" in written
    assert "# to check, a placeholder" in written.partition("two %d")[0]
    flags = review.object(1)["flags"]
    assert [flag["kind"] for flag in flags] == ["placeholders"]
    assert "%d" in flags[0]["detail"]
    assert "argument 1 (integer) is missing" in flags[0]["detail"]
    again = read_document(str(catalogue))
    assert again.segments[1].translation == "zwei"
    assert again.segments[1].is_finished


def test_undo_goes_back_to_the_document_as_it_was_translated(opened, catalogue):
    review = opened(catalogue)
    review.save()
    before = catalogue.read_bytes()
    accept(review, 0)
    review.change(2, "DREI", "edited", 0)
    review.change(0, "eins", "edited", revision(review, 0))
    assert review.text(0) == "eins"
    assert review.state(2) == "edited"
    assert review.num_done == 2
    assert [review.undo() for _ in range(4)] == [0, 2, 0, None]
    assert review.num_done == 1
    review.save()
    assert catalogue.read_bytes() == before
    assert review.state(2) == "finished"


def test_finished_targets_change_only_when_they_are_edited(opened, catalogue):
    review = opened(catalogue)
    for state in ("accepted", "edited", "open"):
        review.change(2, "drei", state, 0)
    assert (review.state(2), revision(review, 2)) == ("finished", 0)
    assert review.undo() is None  # nothing was changed
    review.change(2, "die Drei", "accepted", 0)
    assert review.state(2) == "edited"
    review.save()
    assert 'msgstr "die Drei"' in catalogue.read_text(encoding="utf-8")


def test_a_reviewed_text_is_proposed_for_equal_segments_in_the_same_context(opened, tmp_path):
    page = tmp_path / "page.html"
    page.write_text("<p>yes</p><p>no</p><p>yes</p>", encoding="utf-8")
    review = opened(page, tmp_path / "out.html")
    review.change(0, "ja", "edited", 0)
    assert (review.text(2), review.state(2), review.object(2)["origin"]) == ("ja", "open", "memory")
    assert revision(review, 2) == 1  # another tab must look again
    review.change(2, "jawohl", "edited", 1)
    assert review.text(0) == "ja"
    review.undo()
    review.undo()
    assert (review.text(0), review.text(2)) == ("YES", "YES")


def test_a_killed_review_continues_from_its_journal(opened, catalogue):
    script = """
import os, sys
sys.path.insert(0, sys.argv[2])
from test_review import *
with open_review(sys.argv[1], None, {}) as files:
    document = read_document(str(files.source))
    review = Review(files, document, translated(document))
    review.save()
    review.change(0, "eins", "edited", 0)
    review.change(4, "erledigt", "edited", 0)
    review.undo()
    os.kill(os.getpid(), 9)
"""
    done = subprocess.run([sys.executable, "-c", script, str(catalogue), str(Path(__file__).parent)], check=False)
    assert done.returncode == -9
    assert 'msgstr "eins"' not in catalogue.read_text(encoding="utf-8")  # not yet written
    review = opened(catalogue)
    assert (review.text(0), review.state(0), review.state(4)) == ("eins", "edited", "open")
    assert review.num_done == 2
    review.save()
    assert 'msgstr "eins"' in catalogue.read_text(encoding="utf-8")
    assert [review.undo(), review.undo()] == [0, None]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_review_that_was_killed_while_writing_knows_both_versions(opened, catalogue, is_written, monkeypatch):
    review = opened(catalogue)
    before = catalogue.read_bytes()
    accept(review, 0)
    review.save()
    opened.close(review)
    if not is_written:
        catalogue.write_bytes(before)
    assert opened(catalogue).state(0) == "accepted"


def test_a_change_while_the_document_is_written_is_not_taken_for_one_of_another_program(opened, catalogue, monkeypatch):
    review = opened(catalogue)
    accept(review, 0)

    @contextmanager
    def replaced(path):
        with whole_or_absent(path) as written:
            yield written
        thread = Thread(target=accept, args=(review, 1))  # the document is written, and the review does not know yet
        thread.start()
        thread.join()

    monkeypatch.setattr(review_files, "whole_or_absent", replaced)
    review.save()
    monkeypatch.undo()
    assert (review.state(1), review.problem) == ("accepted", None)
    opened.close(review)
    assert opened(catalogue).state(1) == "accepted"


def test_the_undo_of_a_damaged_change_takes_no_other_change_back(opened, catalogue):
    review = opened(catalogue)
    accept(review, 0)
    accept(review, 1, "zwei %d")
    review.undo()
    opened.close(review)
    journal = review.files.journal
    journal.write_bytes(journal.read_bytes().replace(b"zwei", b"drei"))
    again = opened(catalogue)
    assert (again.state(0), again.state(1)) == ("accepted", "open")


def test_a_document_changed_outside_is_not_overwritten(opened, catalogue):
    review = opened(catalogue)
    accept(review, 0)
    review.save()
    ours = catalogue.read_bytes()
    catalogue.write_text("mine", encoding="utf-8")
    for change in (lambda: accept(review, 1), review.undo):
        with pytest.raises(ChangedOutsideError, match="was changed by another program; it is not overwritten"):
            change()
    assert catalogue.read_text(encoding="utf-8") == "mine"
    assert review.state(1) == "open"
    catalogue.write_bytes(ours)
    accept(review, 1)
    review.save()
    assert review.problem is None
    assert review.is_saved
    opened.close(review)
    catalogue.write_text("mine", encoding="utf-8")
    with pytest.raises(ChangedOutsideError, match=r"was changed since its review.*\.messages\.po\.review\.jsonl"):
        opened(catalogue)
    assert catalogue.read_text(encoding="utf-8") == "mine"


def test_a_change_between_the_check_and_the_writing_becomes_the_problem(opened, catalogue):
    review = opened(catalogue)
    accept(review, 0)
    catalogue.write_text("mine", encoding="utf-8")
    review.save()
    assert "not overwritten" in review.problem
    assert not review.is_saved
    assert catalogue.read_text(encoding="utf-8") == "mine"


def test_an_error_of_reading_names_the_document_and_leaves_nothing(catalogue):
    catalogue.write_text("msgid 1", encoding="utf-8")
    with open_review(str(catalogue), None, {}) as files, pytest.raises(DataError) as refused:
        files.read(read_document)
    assert str(refused.value).startswith(f"{catalogue}, line 1")
    assert {one.name for one in catalogue.parent.iterdir()} == {"messages.po", "..messages.po.review.jsonl.lock"}


def test_a_review_that_ends_before_it_writes_leaves_nothing(catalogue):
    with open_review(str(catalogue), None, {}) as files:
        assert files.read(read_document).segments
    assert {one.name for one in catalogue.parent.iterdir()} == {"messages.po", "..messages.po.review.jsonl.lock"}


def test_a_document_that_could_not_be_made_is_not_saved(opened, catalogue, monkeypatch):
    review = opened(catalogue)
    monkeypatch.setattr(review.document, "filled", lambda fillings: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        review.save()
    assert (review.is_saved, review.problem) == (False, "division by zero")
    monkeypatch.undo()
    review.save()
    assert (review.is_saved, review.problem) == (True, None)


def test_a_second_review_of_a_file_is_refused(opened, catalogue, tmp_path):
    opened(catalogue)
    link = tmp_path / "link.po"
    link.symlink_to(catalogue)
    for path in (catalogue, link):
        with pytest.raises(DataError, match=r"messages\.po is being reviewed by another process"):
            opened(path)


def test_a_stale_revision_is_refused(opened, catalogue):
    review = opened(catalogue)
    review.change(0, "eins", "edited", 0)
    with pytest.raises(StaleRevisionError):
        review.change(0, "ein", "edited", 0)
    assert review.text(0) == "eins"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("\ud800", "half of a surrogate pair"),
        (" \n", "cannot be empty"),
        ("a\0", "NUL"),
    ],
)
def test_texts_that_no_document_can_have_are_refused(opened, catalogue, text, problem):
    review = opened(catalogue)
    with pytest.raises(RefusedEditError, match=f"entry 1, line 4: .*{problem}"):
        review.change(0, text, "edited", 0)
    assert review.check(0, text)["problem"]
    assert review.state(0) == "open"


def test_an_invisible_character_that_xml_lacks_is_refused_by_its_name(opened, tmp_path):
    path = tmp_path / "a.xlf"
    unit = '<trans-unit id="1"><source>eins</source></trans-unit>'
    namespace = "urn:oasis:names:tc:xliff:document:1.2"
    path.write_text(f'<xliff version="1.2" xmlns="{namespace}"><file><body>{unit}</body></file></xliff>', "utf-8")
    review = opened(path)
    assert review.refusal(0, "\0") == "its translation holds U+0000, which the format does not have"
    assert review.refusal(0, "").startswith("a translation cannot be empty")


def test_a_character_that_the_encoding_lacks_is_refused_and_the_original_named(opened, catalogue):
    catalogue.write_text(CATALOGUE.replace("UTF-8", "ISO-8859-1"), encoding="latin-1")
    review = opened(catalogue)
    with pytest.raises(RefusedEditError, match=r"messages\.po, line 4: .*U\+20AC"):
        review.change(0, "1 €", "edited", 0)
    assert "before-review" not in review.check(0, "€")["problem"]


def test_plural_forms_that_differ_are_not_overwritten_by_one_text(opened, tmp_path):
    path = tmp_path / "plural.po"
    header = '"Plural-Forms: nplurals=3; plural=n%10==1 ? 0 : n%10<5 ? 1 : 2;\\n"\n'
    forms = 'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d a"\nmsgstr[1] "%d b"\nmsgstr[2] "%d c"\n'
    path.write_text(f'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n{header}\n{forms}', "utf-8")
    review = opened(path)
    with pytest.raises(RefusedEditError, match="2 plural forms that differ"):
        review.change(1, "%d d", "edited", 0)
    review.change(0, "%d d", "edited", 0)
    review.save()
    assert 'msgstr[0] "%d d"\nmsgstr[1] "%d b"\n' in path.read_text("utf-8")


def test_a_full_disk_loses_no_change_that_was_told_as_done(opened, catalogue, monkeypatch):
    review = opened(catalogue)
    accept(review, 0)
    fsync = os.fsync

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="No space left on device"):
        accept(review, 1)
    assert review.state(1) == "open"
    assert b"ZWEI" not in review.files.journal.read_bytes()  # a kill would make it be read
    review.save()
    assert "No space left" in review.problem
    assert not review.is_saved
    monkeypatch.setattr(os, "fsync", fsync)
    accept(review, 4)
    review.save()
    assert review.problem is None
    assert review.is_saved
    opened.close(review)
    again = opened(catalogue)
    assert [again.state(number) for number in (0, 1, 4)] == ["accepted", "open", "accepted"]


def test_the_journal_of_another_document_and_a_damaged_one(opened, catalogue):
    review = opened(catalogue)
    accept(review, 0)
    accept(review, 1)
    opened.close(review)
    journal, copy = review.files.journal, review.files.source
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join([*lines[:1], lines[1].replace(b"EINS", b"ZWEI"), *lines[2:]]))
    again = opened(catalogue)
    assert (again.files.num_damaged, again.state(0), again.state(1)) == (1, "open", "accepted")
    opened.close(again)
    kept = copy.read_bytes()
    copy.write_bytes(kept + b"\n")
    with pytest.raises(DataError, match="is the journal of a review of another document"):
        opened(catalogue)
    copy.unlink()
    with pytest.raises(DataError, match="the document as it was before the review"):
        opened(catalogue)
    copy.write_bytes(kept)
    journal.write_bytes(b"my notes\n")
    with pytest.raises(DataError, match="is not a journal"):
        opened(catalogue)
    assert journal.read_bytes() == b"my notes\n"


def test_an_output_that_exists_is_not_overwritten(opened, tmp_path):
    page, out = tmp_path / "page.html", tmp_path / "out.html"
    page.write_text("<p>yes</p>", encoding="utf-8")
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(DataError, match=r"out\.html exists, and is not of an unfinished review"):
        opened(page, out)
    out.unlink()
    review = opened(page, out)
    review.save()
    assert out.read_text(encoding="utf-8") == "<p>YES</p>"
    assert page.read_text(encoding="utf-8") == "<p>yes</p>"


def test_a_complete_review_in_place_leaves_the_document_alone(opened, catalogue):
    review = opened(catalogue)
    for number in (0, 1, 3, 4):
        accept(review, number)
    review.save()
    review.files.remove()
    kept = {one.name for one in catalogue.parent.iterdir()}
    assert kept == {"messages.po", "..messages.po.review.jsonl.lock"}


def test_corrections_are_in_the_memory_at_once_and_leave_it_with_undo(opened, catalogue, tmp_path):
    memory = CorrectionMemory(tmp_path / "own.sqlite", ("en", "de"))
    review = opened(catalogue, corrections=memory)
    review.change(0, "eins", "edited", 0)
    assert MemoryFile(tmp_path / "own.sqlite").exact("one").target == "eins"
    review.change(0, "ein", "edited", revision(review, 0))
    assert memory.match("one").target == "ein"
    assert not memory.has("one", "eins", None)
    accept(review, 3, "Eins")
    assert memory.has("one", "Eins", "menu")
    for _ in range(3):
        review.undo()
    assert len(memory) == 0
    assert memory.match("one") is None
    accept(review, 0, "eins")
    assert memory.match("one").target == "eins"
    assert review.object(3)["matches"] == [{"source": "one", "target": "eins", "similarity": 1.0}]


def test_a_pair_that_the_memory_had_stays_there_after_undo(opened, catalogue, tmp_path):
    memory = CorrectionMemory(tmp_path / "own.sqlite", (None, None))
    memory.add("one", "EINS", None)
    review = opened(catalogue, corrections=memory)
    accept(review, 0)
    review.undo()
    assert memory.has("one", "EINS", None)


def test_a_memory_that_lacks_what_the_journal_has_gets_it(opened, catalogue, tmp_path):
    class Killed(CorrectionMemory):
        def add(self, *pair):
            raise DataError("the disk is full")

    path = tmp_path / "own.sqlite"
    review = opened(catalogue, corrections=Killed(path, (None, None)))
    accept(review, 0, "eins")
    assert review.problem == "the disk is full"
    opened.close(review)
    memory = CorrectionMemory(path, (None, None))
    assert opened(catalogue, corrections=memory).problem is None
    assert memory.has("one", "eins", None)


def test_terms_and_placeholders_are_checked_without_a_model(opened, catalogue):
    review = opened(catalogue, terms=Terms([Term("two", ("zwei", "zwo"))]))
    checked = review.check(1, "zwo")
    assert checked["terms"] == [{"source": "two", "target": ["zwei", "zwo"], "found": True}]
    assert checked["placeholders"] == [{"text": "%d", "found": False}]
    assert checked["problem"] is None
    assert [flag["kind"] for flag in review.check(1, "dwa %d")["flags"]] == ["terms"]
    assert review.check(1, "zwei %d")["flags"] == []


def test_a_fuzzy_translation_of_the_document_is_shown_beside_the_machines(opened, catalogue):
    review = opened(catalogue)
    assert [review.object(number)["file"] for number in range(3)] == [None, "zwo", "drei"]


def test_matches_are_the_nearest_of_both_memories(opened, catalogue, tmp_path):
    given = TranslationMemory([("two %s", "zwei %s")])
    own = CorrectionMemory(tmp_path / "own.sqlite", (None, None), least=0.4)
    review = opened(catalogue, corrections=own, memory=lambda text, context=None: given.match(text, 0.4))
    own.add("two %d and", "zwei %d und", None)
    found = [(match["source"], match["similarity"]) for match in review.object(1)["matches"]]
    assert found == [("two %d and", pytest.approx(2 / 3, abs=1e-4)), ("two %s", 0.5)]
    lookup = first_of([own.match, lambda text, context=None: given.match(text, 0.4)])
    assert lookup("two %d").source == "two %d and"
    assert lookup("two %s").source == "two %s"


def test_states_and_estimates_in_xliff(opened, tmp_path):
    unit = '<trans-unit id="{}"{}><source>{}</source>{}</trans-unit>'
    units = [
        unit.format("a", "", "one", ""),
        unit.format("b", "", "five", '<target state="needs-translation" its:mtConfidence="0.1">x</target>'),
        unit.format("c", ' approved="yes"', "three", "<target>drei</target>"),
        unit.format("d", "", "done", '<target state="final">fertig</target>'),
    ]
    path = tmp_path / "a.xlf"
    path.write_text(
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2" xmlns:its="http://www.w3.org/2005/11/its">'
        f'<file source-language="en"><body>{"".join(units)}</body></file></xliff>',
        encoding="utf-8",
    )
    review = opened(path)
    accept(review, 0)
    review.change(1, "fünf", "edited", 0)
    review.change(2, "DREI", "edited", 0)
    review.save()
    written = path.read_text(encoding="utf-8")
    estimate = 'xmlns:its="http://www.w3.org/2005/11/its" its:annotatorsRef="mt-confidence|clearhead"'
    assert f'<target state="translated" {estimate} its:mtConfidence="0.3000">EINS</target>' in written
    assert '<target state="translated">fünf</target>' in written
    assert '<trans-unit id="c" approved="no"><source>three</source><target state="translated">DREI</target>' in written
    assert '<target state="final">fertig</target>' in written
    review.undo()
    review.save()
    assert '<trans-unit id="c" approved="yes"><source>three</source><target>drei</target>' in path.read_text("utf-8")
    assert [one.is_finished for one in read_document(str(path)).segments] == [True] * 4


def test_segments_of_a_unit_are_reviewed_one_by_one(opened, tmp_path):
    marks = '<mrk mtype="seg" mid="1">{}</mrk> <mrk mtype="seg" mid="2">{}</mrk>'
    path = tmp_path / "a.xlf"
    path.write_text(
        '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file><body><trans-unit id="a">'
        f"<source>one five</source><seg-source>{marks.format('one', 'five')}</seg-source>"
        "</trans-unit></body></file></xliff>",
        encoding="utf-8",
    )
    review = opened(path)
    accept(review, 1, "fünf")
    review.save()
    half = read_document(str(path)).segments
    assert [(one.translation, one.is_finished) for one in half] == [("EINS", False), ("fünf", True)]
    accept(review, 0)
    review.save()
    written = path.read_text(encoding="utf-8")
    assert [one.is_finished for one in read_document(str(path)).segments] == [True, True]
    assert "needs-review" not in written


def test_states_of_xliff_2(opened, tmp_path):
    path = tmp_path / "a.xliff"
    segments = "".join(f'<segment state="initial"><source>{text}</source></segment>' for text in ("one", "done"))
    path.write_text(
        '<xliff version="2.0" xmlns="urn:oasis:names:tc:xliff:document:2.0" srcLang="en"><file id="f"><unit id="u">'
        f"{segments}</unit></file></xliff>",
        encoding="utf-8",
    )
    review = opened(path)
    accept(review, 1)
    review.save()
    written = path.read_text(encoding="utf-8")
    assert '<segment state="translated"><source>one</source><target>EINS</target>' in written
    assert '<segment state="reviewed"><source>done</source><target>FERTIG</target>' in written


def test_lengths_of_a_unit_count_together(opened, catalogue):
    catalogue.write_text(CATALOGUE.replace("#, fuzzy, c", "#. max-length:7\n#, fuzzy, c"), encoding="utf-8")
    review = opened(catalogue)
    assert [flag["detail"] for flag in review.flags(1, "zwei und %d")] == ["11 characters, and the file allows 7"]
    assert review.flags(1, "zwei %d") == []


@pytest.fixture
def waited(monkeypatch) -> list[float]:
    """Return the seconds of each timer of a review; `review._timer.call()` ends the last one."""
    waited: list[float] = []

    class Now:
        def __init__(self, seconds, call):
            waited.append(seconds)
            self.call = call

        def start(self):
            pass

        def cancel(self):
            pass

    monkeypatch.setattr(module, "Timer", Now)
    return waited


def test_a_document_is_written_a_while_after_a_change_without_being_asked(opened, catalogue, waited):
    review = opened(catalogue)
    accept(review, 0)
    accept(review, 1)
    assert waited == [module.SECONDS_TO_WRITE]  # one writing for both
    review._timer.call()
    assert 'msgstr "ZWEI %d"' in catalogue.read_text(encoding="utf-8")
    review._seconds = 5.0
    accept(review, 4)
    assert waited[1] > 5.0  # a large document is written less often


def test_a_document_that_could_not_be_written_is_written_later_without_another_change(
    opened, catalogue, waited, monkeypatch
):
    review = opened(catalogue)
    accept(review, 1)

    def full(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(review_files, "whole_or_absent", full)
    sizes = []
    for attempt in (1, 2):
        review._timer.call()
        assert (review.is_saved, len(waited)) == (False, attempt + 1)
        assert "No space left" in review.problem
        sizes.append(review.files.journal.stat().st_size)
    assert sizes[0] == sizes[1]  # the journal does not grow with every attempt
    monkeypatch.setattr(review_files, "whole_or_absent", whole_or_absent)
    review._timer.call()
    assert (review.is_saved, review.problem, len(waited)) == (True, None, 3)
    assert 'msgstr "ZWEI %d"' in catalogue.read_text(encoding="utf-8")
    accept(review, 4)
    monkeypatch.setattr(review_files, "whole_or_absent", full)
    review.close()
    assert (review.is_saved, len(waited)) == (False, 4)  # of the change; none after the end
    monkeypatch.setattr(review_files, "whole_or_absent", whole_or_absent)


def test_a_change_of_a_large_document_looks_at_its_own_segments_alone(opened, tmp_path, monkeypatch):
    page = tmp_path / "page.html"
    page.write_text("".join(f"<p>number {place}</p>" for place in range(2_000)), encoding="utf-8")
    review = opened(page, tmp_path / "out.html")
    review.save()
    filled = []
    original = review._filling
    monkeypatch.setattr(review, "_filling", lambda number: filled.append(number) or original(number))
    accept(review, 1_234)
    assert filled == []
    review.save()
    assert filled == [1_234]


def test_a_journal_keeps_every_change_on_a_line_of_json(opened, catalogue):
    review = opened(catalogue)
    accept(review, 0, "eins\u2028\x1b[2J")
    with locked(catalogue):  # another lock
        lines = review.files.journal.read_text(encoding="utf-8").split("\n")
    assert json.loads(lines[1].partition(" ")[2]) == {
        "number": 0, "text": "eins\u2028\x1b[2J", "state": "edited", "adds": False, "undoes": False,
    }  # fmt: skip
    review.save()
    assert read_document(str(catalogue)).segments[0].translation == "eins\u2028\x1b[2J"


def test_segments_that_have_no_words_are_done_in_documents_of_one_language(opened, tmp_path):
    page = tmp_path / "page.json"
    page.write_text('{"a": "42", "b": "yes"}', encoding="utf-8")
    context = open_review(str(page), str(tmp_path / "out.json"), {})
    with context as files:
        document = read_document(str(files.source))
        made = translated(document)
        made[0] = replace(made[0], status="without_words", translation=None)
        review = Review(files, document, made)
        assert [review.state(number) for number in (0, 1)] == ["finished", "open"]
        review.change(0, "43", "edited", 0)
        review.save()
    assert (tmp_path / "out.json").read_text(encoding="utf-8") == '{"a": "43", "b": "YES"}'
