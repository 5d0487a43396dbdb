"""A review: the translated segments of a document, which a person accepts or edits, the most doubtful first.

Every change is in the journal when `Review.change` returns, and in the document about a second later. A segment whose
source was reviewed elsewhere in the document gets that translation, until it is reviewed itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from threading import Lock, RLock, Timer
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from clearhead.errors import DataError
from clearhead.formats.document import Document, Filling
from clearhead.text.placeholders import is_blank
from clearhead.text.quality_flags import placeholders_kept
from clearhead.translation.correction_memory import CorrectionMemory
from clearhead.translation.documents import (
    TranslatedSegment,
    fillings,
)
from clearhead.translation.memory import Lookup
from clearhead.translation.report import severity_and_doubt
from clearhead.translation.result import MemoryMatch
from clearhead.translation.review_checks import EditChecks, flag_objects, note_of
from clearhead.translation.review_files import ReviewFiles
from clearhead.translation.terminology import Terms

State = Literal["open", "accepted", "edited", "finished"]
"""`open`: to be reviewed. `finished`: the document had a finished translation, and it is unchanged."""
REVIEWED: Sequence[State] = ("accepted", "edited")
Origin = Literal["machine", "memory", "repaired", "file"]
"""Where a translation is from; `repaired`: from the memory, with other numbers or words."""

SECONDS_TO_WRITE = 1.0
"""Seconds after a change until the document is written, and after a failure until it is tried again."""
_SHARE = 4
"""Time between two writings, in times of the last one: writing a large document must not slow the review."""


class RefusedEditError(DataError):
    """The document cannot have a text."""


class StaleRevisionError(DataError):
    """A segment was changed meanwhile, such as in another tab."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a segment, as it is in the journal."""

    number: int
    """Place of the segment in the document, counted from 0."""
    text: str
    """Its text from now on."""
    state: State
    """Its state from now on."""
    adds: bool = False
    """Whether its pair is added to the memory, which did not have it."""
    undoes: bool = False
    """Whether it undoes the last change."""


_CHANGE = TypeAdapter(Change)


class Review:
    """An open review; it may be used from several threads.

    Args:
        files: The journal and the document.
        document: The document, read from `files.source`.
        translated: Its translated segments, with scores or qualities.
        terms: Terms that translations must use.
        memory: Looks up the matches that are shown; without that of the corrections.
        corrections: The memory that accepted and edited pairs are added to.

    Raises:
        DataError: If the changes in the journal do not fit the document, or a file cannot be read or written.
    """

    def __init__(
        self,
        files: ReviewFiles,
        document: Document,
        translated: Sequence[TranslatedSegment],
        *,
        terms: Terms | None = None,
        memory: Lookup | None = None,
        corrections: CorrectionMemory | None = None,
    ) -> None:
        self.files, self.document, self.translated = files, document, translated
        self._memory, self._corrections = memory, corrections
        self._lock, self._writing = RLock(), Lock()
        self._timer: Timer | None = None
        self._is_closed = False
        self._seconds = 0.0
        """Seconds that the last writing took."""
        self._problem: str | None = None
        self._memory_problem: str | None = None
        self._checks = EditChecks(translated, terms)
        self._first_states = [self._first_state(one) for one in translated]
        self.num_done = len(translated) - self._first_states.count("open")
        """Number of segments that are not open."""
        self._alike: dict[tuple[str, str | None], list[int]] = {}
        """The open segments of each source and context."""
        for number, one in enumerate(translated):
            if self._first_states[number] == "open":
                self._alike.setdefault((one.segment.text, one.segment.context), []).append(number)
        self._own: dict[int, Change] = {}
        """The last change of each segment that was changed."""
        self._reviewed: dict[tuple[str, str | None], list[int]] = {}
        """The reviewed segments of each source and context, the last one at the end."""
        self._history: list[tuple[Change, Change | None]] = []
        """The changes that can be undone, each with the one of its segment before it."""
        self._revisions = [0] * len(translated)
        self._fillings: list[Filling | None] = [None] * len(translated)
        self._changed = set(range(len(translated)))
        """The segments whose filling may be another one."""
        self._last: list[tuple[Change | None, Change]] = []
        """The last change of the journal, and that of its segment before it."""
        self._machine = fillings(translated)
        for value in files.changes:
            self._replay(value)
        self._is_dirty = True
        weights = [self._order_key(number) for number in range(len(translated))]
        self.order = sorted(range(len(translated)), key=weights.__getitem__)
        """The segments, the most doubtful first."""
        self.places = sorted(range(len(translated)), key=self.order.__getitem__)
        """Place of each segment in that order."""
        self._complete_memory()

    def __len__(self) -> int:
        return len(self.translated)

    @property
    def problem(self) -> str | None:
        """What keeps the document or the memory from being written; None if nothing does."""
        return self._problem or self._memory_problem

    @property
    def is_saved(self) -> bool:
        """Whether the document has all changes."""
        return not self._is_dirty

    def state(self, number: int) -> State:
        """Return the state of a segment."""
        own = self._own.get(number)
        return self._first_states[number] if own is None else own.state

    def text(self, number: int) -> str:
        """Return the present translation of a segment."""
        own = self._own.get(number)
        return self.proposal(number) if own is None else own.text

    def proposal(self, number: int) -> str:
        """Return the translation that a segment has before it is changed itself."""
        one = self.translated[number]
        same = self._reviewed.get((one.segment.text, one.segment.context), ())
        last = next((other for other in reversed(same) if other != number), None)
        if last is not None and self._first_states[number] == "open":
            return self._own[last].text
        if one.translation is not None:
            return one.translation.text
        return one.segment.translation or one.segment.text

    def in_state(self, which: Literal["open", "done", "all"], text: str = "") -> list[int]:
        """Return the open segments, the others or all, the most doubtful first.

        Args:
            which: Which ones.
            text: A text that is in their source or present translation, in capital or small letters.
        """
        wanted, folded = {"open": (True,), "done": (False,), "all": (True, False)}[which], text.casefold()

        def has_text(number: int) -> bool:
            sides = (self.translated[number].segment.text, self.text(number))
            return any(folded in side.casefold() for side in sides)

        found = [number for number in self.order if (self.state(number) == "open") in wanted]
        return [*filter(has_text, found)] if folded else found

    def change(self, number: int, text: str, state: State, revision: int) -> None:
        """Change a segment; the change is on disk when this returns.

        A text that is accepted but differs from the proposal is edited, and conversely. A finished translation with its
        own text stays finished.

        Args:
            number: Place of the segment in the document.
            text: Its translation.
            state: `open`, `accepted` or `edited`.
            revision: Its revision that the person saw.

        Raises:
            StaleRevisionError: If there is a newer revision.
            RefusedEditError: If the document cannot have the text.
            ChangedOutsideError: If another program has changed the document.
            DataError: If the journal cannot be written.
        """
        with self._lock:
            if revision != self._revisions[number]:
                raise StaleRevisionError("this segment was changed meanwhile, such as in another tab")
            if problem := self.refusal(number, text):
                raise RefusedEditError(f"{self.translated[number].segment.shown_place}: {problem}")
            self.files.require_unchanged()
            state = self._settled(number, text, state)
            if (text, state) != (self.text(number), self.state(number)):
                self._commit(Change(number, text, state, adds=state in REVIEWED and self._is_new_pair(number, text)))

    def undo(self) -> int | None:
        """Undo the last change; return the number of its segment, None if there is none.

        Raises:
            ChangedOutsideError: As `change`.
            DataError: As `change`.
        """
        with self._lock:
            if not self._history:
                return None
            self.files.require_unchanged()
            change = self._undoing()
            self._commit(change)
            return change.number

    def _undoing(self) -> Change:
        """Return the change that undoes the last one."""
        last, before = self._history[-1]
        return replace(before or Change(last.number, "", self._first_states[last.number]), undoes=True)

    def refusal(self, number: int, text: str) -> str:
        """Return why the document cannot have a text in place of a segment; empty if it can."""
        segment = self.translated[number].segment
        if not text.isascii() and any("\ud800" <= sign <= "\udfff" for sign in text):
            return "the translation holds half of a surrogate pair, which is no character"
        is_missing = is_blank(text) and not is_blank(segment.text)
        if not is_missing and text in (self.text(number), segment.translation):
            return ""
        problem = self.document.problem_of_edit(number, text).replace(str(self.files.source), self.files.path)
        if is_missing and not problem:
            return "a translation cannot be empty; leave the segment open, or keep its source"
        return problem

    def flags(self, number: int, text: str) -> list[dict[str, str]]:
        """Return what looks wrong with a text in place of a segment, by both texts alone, the most damage first."""
        return self._checks.flags(number, text, self.text)

    def check(self, number: int, text: str) -> dict[str, Any]:
        """Return the flags, terms and placeholders of a text in place of a segment, and why it cannot be written."""
        kept = placeholders_kept(self.translated[number].segment.text, text)
        return {
            "flags": self.flags(number, text),
            "terms": self._checks.terms(number, text),
            "placeholders": [{"text": code, "found": found} for code, found in kept.items()],
            "problem": self.refusal(number, text) or None,
        }

    def object(self, number: int) -> dict[str, Any]:
        """Return a segment as a JSON object."""
        with self._lock:
            one, text, state = self.translated[number], self.text(number), self.state(number)
            segment, translation = one.segment, one.translation
            is_machine = translation is not None and text == translation.text
            if is_machine and translation is not None and state == "open":
                flags = flag_objects(translation.problems)
            else:
                flags = [] if state == "finished" else self.flags(number, text)
            return {
                "number": number,
                "place": segment.shown_place,
                "source": segment.text,
                "text": text,
                "machine": None if translation is None else translation.text,
                "file": segment.translation or None,
                "origin": self._origin(number, text),
                "state": state,
                "flags": flags,
                "quality": translation.quality if is_machine and translation is not None else None,
                "score_per_token": one.score_per_token if is_machine else None,
                "matches": [
                    {"source": match.source, "target": match.target, "similarity": match.similarity}
                    for match in self._matches(number)
                ],
                "terms": self._checks.terms(number, text),
                "placeholders": [*placeholders_kept(segment.text, text)],
                "context": segment.context,
                "revision": self._revisions[number],
            }

    def save(self) -> None:
        """Write the document now, if it lacks a change; what prevents it becomes the `problem`, and is tried again."""
        with self._writing:
            with self._lock:
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
                if not self._is_dirty:
                    return
                for number in self._changed:
                    self._fillings[number] = self._filling(number)
                self._changed.clear()
                new, self._is_dirty = [*self._fillings], False
            began = time.monotonic()
            try:
                self.files.write(self.document.filled(new))
                self._problem = None
            except Exception as error:
                self._is_dirty, self._problem = True, str(error)
                if not isinstance(error, DataError):
                    raise
            self._seconds = time.monotonic() - began
            if self._is_dirty:
                self._save_later()

    def close(self) -> None:
        """Write the document if it lacks a change, and no more afterwards."""
        with self._lock:
            self._is_closed = True
        self.save()

    def _commit(self, change: Change) -> None:
        """Write a change into the journal, then make it; the document and the memory follow."""
        self.files.add(_CHANGE.dump_json(change))
        before = self._own.get(change.number)
        self._apply(change)
        self._update_memory(before, change)
        self._is_dirty = True
        self._save_later()

    def _save_later(self) -> None:
        with self._lock:
            if self._timer is None and not self._is_closed:
                self._timer = Timer(max(SECONDS_TO_WRITE, _SHARE * self._seconds), self.save)
                self._timer.daemon = True
                self._timer.start()

    def _replay(self, value: bytes) -> None:
        try:
            change = _CHANGE.validate_json(value)
            self.translated[change.number]
        except (ValidationError, IndexError):
            raise DataError(
                f"{self.files.journal} does not fit {self.files.path}; move it away to begin anew"
            ) from None
        self._last = [(self._own.get(change.number), change)]
        self._apply(change)

    def _apply(self, change: Change) -> None:
        new: Change | None = change
        if change.undoes:
            if not self._history or change != self._undoing():
                return  # the change that it undoes was damaged in the journal
            change, new = self._history.pop()
        else:
            self._history.append((change, self._own.get(change.number)))
        number, was_open = change.number, self.state(change.number) == "open"
        if new is None:
            del self._own[number]
        else:
            self._own[number] = new
        self.num_done += was_open - (self.state(number) == "open")
        segment = self.translated[number].segment
        key = segment.text, segment.context
        reviewed = [other for other in self._reviewed.get(key, ()) if other != number]
        self._reviewed[key] = [*reviewed, number] if self.state(number) in REVIEWED else reviewed
        untouched = (other for other in self._alike.get(key, ()) if other not in self._own)
        for changed in {number, *untouched}:
            self._revisions[changed] += 1
            self._changed.add(changed)

    def _filling(self, number: int) -> Filling | None:
        """Return what is written for a segment; None leaves it as it is."""
        machine, text, state = self._machine[number], self.text(number), self.state(number)
        if state == "finished" or (machine is None and state == "open" and number not in self._own):
            return None
        translation = self.translated[number].translation
        is_machine = machine is not None and text == machine.text
        quality = translation.quality if is_machine and translation is not None else None
        if state == "open" and is_machine and machine is not None and translation is not None:
            notes = [machine.note, note_of(flag_objects(translation.problems))]
            return replace(machine, note="\n".join(filter(None, notes)), confidence=quality)
        note = note_of(self.flags(number, text))
        return Filling(text, note, is_reviewed=state in REVIEWED, confidence=quality)

    def _settled(self, number: int, text: str, state: State) -> State:
        one = self.translated[number]
        is_kept = self._first_states[number] == "finished" and text == (one.segment.translation or one.segment.text)
        if is_kept:
            return "finished"
        if state == "open":
            return state
        proposals = {self.proposal(number), one.translation.text if one.translation is not None else None}
        return "accepted" if text in proposals else "edited"

    def _first_state(self, one: TranslatedSegment) -> State:
        """Return the state of a segment before it is changed."""
        is_open = one.status in ("translated", "reused", "left")
        return "open" if is_open or (self.document.keeps_finished and not one.segment.is_finished) else "finished"

    def _origin(self, number: int, text: str) -> Origin:
        translation = self.translated[number].translation
        if translation is None:
            return "file"
        if text != translation.text and number not in self._own:
            return "memory"  # it was reviewed elsewhere in the document
        match = translation.memory
        if match is None or not match.is_reused:
            return "machine"
        return "memory" if match.repaired is None else "repaired"

    def _order_key(self, number: int) -> tuple[float, float, int]:
        translation = self.translated[number].translation
        if translation is None or self._first_states[number] == "finished":
            return 0.0, 0.0, number
        severity, doubt = severity_and_doubt(translation)
        return -severity, -doubt, number

    def _matches(self, number: int) -> list[MemoryMatch]:
        """Return the memory matches of a segment, the nearest first."""
        segment = self.translated[number].segment
        lookups: list[Callable[..., MemoryMatch | None] | None] = [self._memory]
        lookups.append(None if self._corrections is None else self._corrections.match)
        found: dict[tuple[str, str], MemoryMatch] = {}
        own = self.text(number).strip() if self.state(number) in REVIEWED else None
        for lookup in filter(None, lookups if self._first_states[number] == "open" else ()):
            try:
                match = lookup(segment.text, context=segment.context)
            except DataError as error:
                self._memory_problem = str(error)
                continue
            if match is not None and not (match.similarity == 1.0 and match.target == own):
                found.setdefault((match.source, match.target), match)
        return sorted(found.values(), key=lambda match: -match.similarity)

    def _is_new_pair(self, number: int, text: str) -> bool:
        """Return whether the memory of corrections lacks a pair."""
        if self._corrections is None:
            return False
        segment = self.translated[number].segment
        try:
            return not self._corrections.has(segment.text, text, segment.context)
        except DataError as error:
            self._memory_problem = str(error)
            return True

    def _update_memory(self, before: Change | None, after: Change) -> None:
        """Take the pair of a segment that was added before from the memory, and add its new one."""
        if self._corrections is None:
            return
        segment = self.translated[after.number].segment
        try:
            others = self._reviewed.get((segment.text, segment.context), ())
            is_used = before is not None and any(self._own[other].text == before.text for other in others)
            if before is not None and before.adds and not is_used:
                self._corrections.remove(segment.text, before.text, segment.context)
            if after.adds and not self._corrections.has(segment.text, after.text, segment.context):
                self._corrections.add(segment.text, after.text, segment.context)
            self._memory_problem = None
        except DataError as error:
            self._memory_problem = str(error)

    def _complete_memory(self) -> None:
        """Bring the memory up to date, because a session was killed or the memory could not be written."""
        for before, change in [*((None, own) for own in self._own.values()), *self._last]:
            self._update_memory(before, change)
