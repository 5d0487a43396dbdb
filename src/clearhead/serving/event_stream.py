"""Server-sent events: stream translations part by part, each as soon as it is done.

A line that is translated as a whole gives one event; a line that is split gives one per sentence (`Translator.parts`).
The sources of a text's events, joined, are the text; their translations, joined, are its translation. White space
between two parts belongs to the start of the second, and white space at the end of a text to its last part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import groupby, islice
from typing import Any

from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from clearhead.errors import ClearheadError
from clearhead.serving.admission import Admission
from clearhead.serving.batched_search import Job
from clearhead.serving.http_errors import HTTPError
from clearhead.serving.middleware import answer_of
from clearhead.serving.text_translation import Match, translate_lines
from clearhead.text.language_tags import split_tag
from clearhead.text.sentence_splitting import CutLine, join_sentences
from clearhead.translation.documents import text_lines
from clearhead.translation.json_output import json_line, translation_object
from clearhead.translation.result import Translation
from clearhead.translation.translator import Translator

MOST_PARTS_AT_ONCE = 16
"""Most parts translated together. The first group has one part, so that the first event is sent early."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of a text that is translated in one piece."""

    text: int
    """Index of the text."""
    start: int
    """Offset in the text, including the white space before it."""
    end: int
    line: str
    """The line to translate."""
    before: str
    """White space before it, kept in the translation."""
    order: int | None = None
    """Index of the sentence in a line that is split; None for a whole line."""
    after: str = ""
    """White space after it; only at the end of a text."""


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
    translator: Translator,
    work: Admission,
    job: Job,
    texts: Sequence[str],
    is_gone: Callable[[], Awaitable[object]],
    *,
    said: Mapping[str, Any],
    match: Match | None = None,
    **how: Any,
) -> AsyncIterator[str]:
    """Yield a `translation` event for every part of the texts, in growing groups; then `done`, or `error`.

    Args:
        translator: The model.
        work: Runs the translation in a thread.
        job: The admitted request.
        texts: The texts.
        is_gone: Completes when the client has disconnected; the remaining parts are then not translated.
        said: Data of the `done` event.
        match: Looks a line up in the translation memory.
        **how: Keyword arguments of `Translator.translate`.

    Raises:
        ClientGone: If the client has disconnected.
    """
    known = None if match is None else cache(match)

    def translated(parts: Sequence[_Part]) -> list[Translation]:
        lines = [part.line for part in parts]
        if parts[0].order is None:
            return translate_lines(translator, lines, known, **how)
        return translator.translate(lines, **{**how, "split": "never", "familiar": False})

    names = "source_lang", "target_lang", "protect_numbers"
    told: dict[str, Any] = {name: how[name] for name in names if name in how}
    try:
        written = ""  # translation so far of the current line
        for group in _groups(await work.run(job, partial(_cut, translator, texts, known, told), is_gone)):
            for part, made in zip(group, await work.run(job, partial(translated, group), is_gone), strict=True):
                if part.order:
                    line = join_sentences([written, made.text], [part.before])
                    new, written = line[len(written) :], line
                else:
                    new, written = part.before + made.text, made.text
                own = {"source": texts[part.text][part.start : part.end], "text": new + part.after}
                where = {"index": part.text, "start": part.start, "end": part.end}
                yield _event("translation", {**where, **translation_object(made), **own})
    except HTTPError as refusal:
        yield _event("error", {**answer_of(refusal)[2], "status": int(refusal.status)})
    except ClearheadError as error:
        yield _event("error", {"error": str(error), "status": 400})
    else:
        yield _event("done", said)


def _cut(translator: Translator, texts: Sequence[str], match: Match | None, settings: Mapping[str, Any]) -> list[_Part]:
    """Split texts into parts, at least one per text."""
    parts: list[_Part] = []
    for number, text in enumerate(texts):
        lines = list(text_lines(text))
        cut = iter(translator.parts([line.text for line in lines if line.text], **settings))
        found: list[_Part] = []
        at, before = 0, ""
        for line in lines:
            before += line.before
            if line.text:
                own = next(cut)
                if match is not None and (entry := match(line.text)) is not None and entry.is_reused:
                    own = CutLine((line.text,), ())
                found += _parts_of_line(translator, text, line.text, own, _Part(number, at, at, "", before))
                at, before = found[-1].end, ""
            before += line.after
        found = found or [_Part(number, 0, 0, "", "")]
        found[-1] = replace(found[-1], end=len(text), after=before)
        parts += found
    return parts


def _parts_of_line(translator: Translator, text: str, line: str, cut: CutLine, begin: _Part) -> Iterator[_Part]:
    """Yield the parts of a line.

    Args:
        translator: The model.
        text: The text that holds the line.
        line: The line.
        cut: Its sentences and gaps.
        begin: An empty part at the start of the line.
    """
    tags = translator.bundle.tokenizer.language_tags
    if not cut.gaps:
        yield replace(begin, end=begin.start + len(begin.before) + len(line), line=line)
        return
    at = begin.start
    for order, (sentence, gap) in enumerate(zip(cut.sentences, (begin.before, *cut.gaps), strict=True)):
        # The text has the line's language tag once, before the first sentence.
        end = _end(sentence if order == 0 else split_tag(sentence, tags)[1], text, at)
        yield _Part(begin.text, at, end, sentence, gap, order)
        at = end


def _end(sentence: str, text: str, begin: int) -> int:
    """Return the offset in a text where a sentence ends; the text may differ in white space and capitalization.

    Both have the same number of letters.

    Args:
        sentence: The sentence after normalization.
        text: The original text.
        begin: Offset where the sentence begins, or white space before it.
    """
    letters = (place for place in range(begin, len(text)) if not text[place].isspace())
    return next(islice(letters, len("".join(sentence.split())) - 1, None)) + 1


def _groups(parts: Sequence[_Part]) -> Iterator[list[_Part]]:
    """Yield groups of parts to translate together, each all sentences or all lines; their sizes double."""
    size = 1
    for _, alike in groupby(parts, lambda part: part.order is not None):
        own = list(alike)
        while own:
            yield own[:size]
            del own[:size]
            size = min(2 * size, MOST_PARTS_AT_ONCE)


def _event(name: str, data: Mapping[str, Any]) -> str:
    return f"event: {name}\ndata: {json_line(data)}\n\n"
