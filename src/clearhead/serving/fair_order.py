"""Sentences of several clients in a fair order: who has had least of the work is next.

Start-time fair queueing (Goyal, Vin and Cheng 1996): each client has a time of its own, which moves on by the tokens of
what is taken of it, and the client whose time is earliest is next. One that comes anew begins at the time of the last
one that was served, so nobody saves up turns.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

from clearhead.decoding.sentence import Sentence

__all__ = ["FairOrder"]


class FairOrder:
    """Sentences that wait, for a `SentenceQueue`.

    Args:
        client_of: Whose a sentence is, by its number.
        on_leave: Called with the number of each sentence that is taken.
    """

    def __init__(self, client_of: Callable[[int], str], on_leave: Callable[[int], None]) -> None:
        self._client_of = client_of
        self._on_leave = on_leave
        self._waiting: dict[str, deque[Sentence]] = {}
        self._times: dict[str, float] = {}
        self._now = 0.0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Literal[0], /) -> Sentence:
        return self._waiting[self._next()][index]

    def popleft(self) -> Sentence:
        """Take the next sentence."""
        client = self._next()
        sentences = self._waiting[client]
        sentence = sentences.popleft()
        self._count -= 1
        self._now = self._times[client]
        self._times[client] += len(sentence.source)
        if not sentences:
            del self._waiting[client], self._times[client]
        self._on_leave(sentence.number)
        return sentence

    def extend(self, sentences: Iterable[Sentence], /) -> None:
        """Add sentences, each behind the others of its client."""
        for sentence in sentences:
            client = self._client_of(sentence.number)
            if client not in self._waiting:
                self._waiting[client] = deque()
                self._times[client] = self._now
            self._waiting[client].append(sentence)
            self._count += 1

    def _next(self) -> str:
        return min(self._times, key=self._times.__getitem__)
