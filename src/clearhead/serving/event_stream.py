"""Server-sent events: stream translations part by part, each as soon as it is done.

A line that is translated as a whole gives one event; a line that is split gives one per sentence (`translate_parts`).
The sources of a text's events, joined, are the text; their translations, joined, are its translation. White space
between two parts belongs to the start of the second, and white space at the end of a text to its last part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from clearhead.errors import ClearheadError
from clearhead.serving.admission import Admission
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.model_choice import unchanged
from clearhead.text.translatable_lines import text_lines
from clearhead.translation.parts import translate_parts
from clearhead.translation.result import json_line, translation_object
from clearhead.translation.translator import Translator

EventGroup = list[dict[str, Any]]
"""The data of the events that are sent together."""


class EventStream(StreamingResponse):
    """The event stream of an admitted request; ends with its events, on disconnect, or at its deadline.

    Args:
        content: The encoded events.
        entered: Contexts of the request's admission; closed at the end.
        deadline: On the clock of `time.monotonic`; the stream is cut off then.
    """

    def __init__(self, content: AsyncIterator[str], entered: ExitStack, deadline: float) -> None:
        super().__init__(content, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._entered = entered
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._entered:
            async with asyncio.timeout_at(self._deadline):
                await self.stream_response(send)


async def events(
    admission: Admission,
    job: Job,
    groups: Iterator[EventGroup],
    disconnected: Callable[[], Awaitable[object]],
    *,
    done: Mapping[str, Any],
) -> AsyncIterator[str]:
    """Yield a `translation` event for every part of the texts as soon as it is translated; then `done`, or `error`.

    Args:
        admission: Runs the translation in a thread.
        job: The admitted request.
        groups: Translates; yields the data of events, from `text_events`.
        disconnected: Completes when the client has disconnected; the remaining parts are then not translated.
        done: Data of the `done` event.

    Raises:
        ClientDisconnected: If the client has disconnected.
    """
    try:
        while group := await admission.run(job, partial(next, groups, None), disconnected):
            for data in group:
                yield _event("translation", data)
    except HTTPError as refusal:
        yield _event("error", {"error": refusal.message, "status": int(refusal.status)})
    except ClearheadError as error:
        yield _event("error", {"error": str(error), "status": 400})
    else:
        yield _event("done", done)


def text_events(translator: Translator, texts: Mapping[int, str], **options: Any) -> Iterator[EventGroup]:
    """Yield the data of the events of texts, in groups, as soon as their parts are translated.

    Args:
        translator: The model.
        texts: The texts, by their number in the request.
        **options: Keyword arguments of `translate_parts`.

    Raises:
        ClearheadError: As `translate_parts`.
    """
    lines = [(index, *line) for index, text in texts.items() for line in _lines(text)]
    ends = dict.fromkeys(texts, 0)
    for parts in translate_parts(translator, [line for _, _, line, _ in lines], **options):
        group = []
        for part in parts:
            index, before, line, after = lines[part.number]
            before, after = "" if part.start else before, after if part.end == len(line) else ""
            start, ends[index] = ends[index], ends[index] + len(before) + part.end - part.start + len(after)
            own = {"source": texts[index][start : ends[index]], "text": before + part.text + after}
            where = {"index": index, "start": start, "end": ends[index]}
            group.append({**where, **translation_object(part.translation), **own})
        yield group


def unchanged_events(texts: Mapping[int, str]) -> Iterator[EventGroup]:
    """Yield the data of the events of texts that are returned unchanged, by their number in the request."""
    for index, text in texts.items():
        yield [{"index": index, "start": 0, "end": len(text), **translation_object(unchanged(text))}]


def _lines(text: str) -> list[tuple[str, str, str]]:
    """Return the lines of a text that are not blank, at least one, with what is before each and behind the last."""
    lines, before = [], ""
    for line in text_lines(text):
        before += line.before
        if line.text:
            lines.append((before, line.text, ""))
            before = ""
        before += line.after
    *others, (ahead, last, _) = lines or [("", "", "")]
    return [*others, (ahead, last, before)]


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json_line(data)}\n\n"
