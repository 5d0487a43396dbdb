"""Lines of a text or of a document's segment that are translated each by itself, and what is around them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from clearhead.text.icu_messages import MessageRun, message_runs
from clearhead.text.placeholders import has_words


class TextLine(NamedTuple):
    """A line of a text, or of a translatable run of an ICU message with branches."""

    before: str
    """White space; in a message also its syntax."""
    text: str
    after: str
    """White space and the line end; in a message also its syntax."""
    is_translated: bool
    run: MessageRun | None = None
    """The run of the ICU message that the line belongs to; None outside such a message."""

    def written(self, translation: str) -> str | None:
        """Return a translation as written into the segment; None if it does not fit into the message."""
        return translation if self.run is None else self.run.written(translation, self.text)


def segment_lines(text: str, translates: Callable[[str], bool] = has_words) -> Iterator[TextLine]:
    """Yield the lines of a segment: those of its text, or of the translatable runs of an ICU message with branches."""
    at = 0
    for run in message_runs(text):
        for number, part in enumerate(text_lines(run.text, translates)):
            before = text[at : run.start] if number == 0 else ""
            yield part._replace(before=before + part.before, run=run)
        at = run.end
    if at:
        yield TextLine(text[at:], "", "", is_translated=False)
    else:
        yield from text_lines(text, translates)


def text_lines(text: str, translates: Callable[[str], bool] = has_words) -> Iterator[TextLine]:
    """Yield the lines of a text, each with its surrounding white space."""
    for line in text.splitlines(keepends=True):
        own = line.strip()
        start = len(line) - len(line.lstrip())
        yield TextLine(line[:start], own, line[start + len(own) :], translates(own))
