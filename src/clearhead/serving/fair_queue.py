"""Fair queue of sentences: the client that has received the least work is served next.

Start-time fair queueing (Goyal, Vin and Cheng 1996): each client has a virtual time, which advances by the source
tokens of its sentences as they are taken. The client with the earliest time is served next. A new client starts at the
time of the client served last, so nobody saves up turns. Nor does a client gain turns by submitting one sentence at a
time: the time of a client without waiting sentences is kept until the others have caught up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable
from typing import Literal

from clearhead.decoding.sentence import Sentence


class FairOrder:
    """Fair order of the waiting sentences of a `SentenceQueue`.

    Args:
        client_of: Returns the client of a sentence, given its number.
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
        """Remove and return the next sentence."""
        client = self._next()
        sentences = self._waiting[client]
        sentence = sentences.popleft()
        self._count -= 1
        self._now = self._times[client]
        self._times[client] += len(sentence.source)
        if not sentences:
            self._forget(client)
        self._on_leave(sentence.number)
        return sentence

    def extend(self, sentences: Iterable[Sentence], /) -> None:
        """Add sentences, each behind the others of its client."""
        for sentence in sentences:
            client = self._client_of(sentence.number)
            if client not in self._waiting:
                self._waiting[client] = deque()
                self._times[client] = max(self._now, self._times.get(client, self._now))
            self._waiting[client].append(sentence)
            self._count += 1

    def discard(self, numbers: Container[int], /) -> list[int]:
        """Remove sentences as if they had never been added; return the numbers of those found."""
        gone: list[int] = []
        for client, sentences in list(self._waiting.items()):
            kept = deque(sentence for sentence in sentences if sentence.number not in numbers)
            if len(kept) < len(sentences):
                gone += (sentence.number for sentence in sentences if sentence.number in numbers)
                self._waiting[client] = kept
                if not kept:
                    self._forget(client)
        self._count -= len(gone)
        return gone

    def _next(self) -> str:
        return min(self._waiting, key=self._times.__getitem__)

    def _forget(self, client: str) -> None:
        """Remove a client without waiting sentences, and all virtual times that the others have reached."""
        del self._waiting[client]
        if not self._waiting:
            self._times.clear()
        self._times = {other: time for other, time in self._times.items() if other in self._waiting or time > self._now}
