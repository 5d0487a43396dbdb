"""Markdown files (CommonMark with GitHub's tables): their prose as segments, and the insertion of translations.

Code, tags, addresses and front matter are unchanged. Containers of documentation sites are read, see `containers`.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from markdown_it.common.utils import normalizeReference
from markdown_it.token import Token

from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText, Line
from clearhead.formats.html.document import html_of, html_passages
from clearhead.formats.html.references import habits
from clearhead.formats.html.tokens import html_tokens
from clearhead.formats.inline_tags import Tag, tokens
from clearhead.formats.markdown.containers import LITERAL
from clearhead.formats.markdown.heading_ids import has_own_ids, heading_ids, linked_ids
from clearhead.formats.markdown.inline import InlineEvent, scanned
from clearhead.formats.markdown.writing import BLOCKS, MarkdownPart, Surroundings, escapes, meaning, written
from clearhead.formats.passages import Passage, Run, changes
from clearhead.text.lines import first_few

LONGEST_BLOCK = 100_000
"""Maximum characters of a paragraph; nobody writes longer ones, and they are left unchanged."""

SHOWN_LINES = 10
"""Lines that a remark names."""

_SPACE = " \t"
_BLANK = " \t\r\n"
_SPACES = re.compile(r"[ \t\r\n]+")
_FRONT_MATTER = re.compile(r"(---|\+\+\+)[ \t]*\n(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\n|\Z)")
_NO_PROSE = re.compile(
    r"""^(?: \$\$ | -+8<-+[ \t] | \[TOC\]$
    | import[ \t](?:[^\n]*[ \t]from[ \t]+)?["'][^"'\n]+["'];?[ \t]*$
    | export[ \t]+(?:async|class|const|default|function|let|var)\b )""",
    re.MULTILINE | re.VERBOSE,
)
"""Start of lines in Markdown extensions: formulas, inclusions, tables of contents, and the code of MDX."""
_DIRECTIVE_IN_FENCE = re.compile(rf"\{{(?!{LITERAL})[a-z]")
"""Info of fenced code that is a directive of MyST, with text in it."""
_CODE_STARTS = ("```", "~~~", "===")
_HEADINGS = ("heading", "underlined")
_MARKDOWN = frozenset("*_~`[!")
"""Beginnings of inline markup of Markdown, which is literal in a block of HTML, except in MDX."""
_LEADING = re.compile(r"\[[ xX]\][ \t]+|\[![A-Za-z]+\][^\n]*\n")
"""Prefix of a block that is not prose: a task-list checkbox, or the kind of an alert."""
_BORDER = re.compile(r"^(?:\[\^[^\]\s]+\]:[ \t]*|:[ \t]+|\{(?::[^\n]*|%[^\n]*%)\}[ \t]*$)", re.MULTILINE)
"""Lines that end a paragraph in many programs, but not in CommonMark: a line that begins with the mark of a footnote or
of a definition; a line of attributes (kramdown's `{: .note}`) or of a template (`{% if x %}`)."""
_SHORT_END = re.compile(r"\](?:\[\s*\])?")
"""End of a link whose text is also the label of its reference."""
_PLAIN_LABEL = re.compile(r"[\w .,:+-]+")


def read_markdown(path: str) -> MarkdownDocument:
    """Read a Markdown file of UTF-8 text, or of UTF-16 text with a byte order mark.

    Args:
        path: The file; `-` is standard input.

    Raises:
        DataError: If the file cannot be read, is too large, or is not valid text.
    """
    return MarkdownDocument(FileText.read(path))


@dataclass(frozen=True)
class _Block:
    """Text of a paragraph, heading or cell: its lines without the prefixes of enclosing blocks."""

    text: str
    kind: str
    """Kind of block, see `Surroundings.kind`."""
    starts: tuple[int, ...]
    """Start of each line in `text`."""
    file_starts: tuple[int, ...]
    """Start of each line in the file."""

    def in_file(self, at: int) -> int:
        """Convert a position in the text to a position in the file."""
        line = bisect_right(self.starts, at) - 1
        return self.file_starts[line] + at - self.starts[line]

    def in_text(self, at: int) -> int:
        """Convert a position in the file to a position in the text."""
        line = bisect_right(self.file_starts, at) - 1
        return self.starts[line] + at - self.file_starts[line]

    def between(self, at: int, end: int, kind: str) -> _Block:
        """Return the part of the block between two positions in the text."""
        first, last = bisect_right(self.starts, at), bisect_left(self.starts, end)
        starts = (0, *(start - at for start in self.starts[first:last]))
        return _Block(self.text[at:end], kind, starts, (self.in_file(at), *self.file_starts[first:last]))

    def pieces(self) -> Iterator[_Block]:
        """Yield the prose of the block, split at `_BORDER` lines and without its `_LEADING` prefix."""
        leading = _LEADING.match(self.text)
        at = leading.end() if leading else 0
        kind = self.kind
        for start, end in [border.span() for border in _BORDER.finditer(self.text, at)] + [(len(self.text),) * 2]:
            piece = self.text[at:start]
            if any(map(str.isalpha, piece)):
                yield self.between(start - len(piece.lstrip(_BLANK)), at + len(piece.rstrip(_BLANK)), kind)
            at, kind = end, self.kind if self.text.startswith("\n", end) else "definition"


class MarkdownDocument(Document):
    """A Markdown file; its segments are paragraphs, headings, table cells and image descriptions."""

    format = "Markdown text"

    def __init__(self, file: FileText) -> None:
        self._file = file
        self.remarks: list[str] = []
        self._habits = {code: reference for code, reference in habits(file.text).items() if code > 127}
        environment: dict[str, Any] = {}
        left: list[int] = []
        blocks = list(_blocks(file, environment, left))
        self._labels = frozenset(environment.get("references", ()))
        passages = [(passage, block) for block in blocks for passage in self._passages(block, left)]
        if left:
            lines = first_few([str(line) for line in sorted(left)], SHOWN_LINES)
            self.remarks.append(
                f"{len(left):,} paragraphs are left as they are, for their markup is not read: lines {lines}"
            )
        passages.sort(key=lambda both: (both[0].start, -both[0].end))
        self._blocks = {(passage.start, passage.end): block for passage, block in passages}
        self._ids = dict(self._linked_headings(blocks))
        is_written = any(block.kind in _HEADINGS and has_own_ids(block.text) for block in blocks)
        if self._ids and not is_written:
            ids = first_few([f"#{own}" for own in sorted(self._ids.values())], SHOWN_LINES)
            self.remarks.append(
                f"{len(self._ids):,} headings that links of the page name get other ids with their translation, unless "
                f"their ids are written, such as # Words {{#id}}: {ids}"
            )
            self._ids = {}
        self._translatable = [passage for passage, _ in passages]
        self._descriptions = [(passage.start, passage.end) for passage, _ in passages if passage.kind == "description"]
        self.segments = [
            self.watched(DocumentSegment(passage.text, file.line(passage.start), links=passage.links))
            for passage in self._translatable
        ]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted; see `Document.filled`.

        A translated paragraph is written on one line, apart from hard line breaks. Characters of a translation that
        would be read as Markdown are escaped. Emphasis that cannot be written with `*` or `_` is written as HTML. Every
        translation is parsed again before it is inserted; a text whose translation is not read back stays unchanged. If
        the page gives headings their ids as `{#id}`, a translated heading that a link names gets the id that it had.
        """
        done = changes(self._file.text, self._translatable, fillings, self._written)
        changed = [start for start, end, text in done if text != self._file.text[start:end]]
        for heading, own in self._ids.items():
            if bisect_left(changed, heading[0]) < bisect_left(changed, heading[1]):
                done.append((heading[1], heading[1], f" {{#{own}}}"))
        return self._file.replaced(sorted(done))

    def _linked_headings(self, blocks: Sequence[_Block]) -> Iterator[tuple[tuple[int, int], str]]:
        """Yield the places of the headings that links of the page name, with the ids that they have so far."""
        linked = linked_ids(self._file.text)
        headings = [block for block in blocks if block.kind in _HEADINGS] if linked else []
        for block, ids in zip(headings, heading_ids(map(self._shown, headings)), strict=True):
            if targets := sorted(ids & linked):
                yield (block.file_starts[0], block.in_file(len(block.text))), targets[0]

    def _shown(self, block: _Block) -> str:
        """Return the words and the code of a block."""
        events = scanned(block.text, self._is_label).events
        code = (block.text[one.start : one.end].strip("`") if one.form == "alone" else one.words for one in events)
        return "".join(
            part for part, event in zip(code, events, strict=True) if event.form in ("alone", "words") and event.is_seen
        )

    def problem(self, number: int, translation: str) -> str:
        """Return why Markdown cannot express a translation; see `Document.problem`."""
        if problem := super().problem(number, translation):
            return problem
        passage = self._translatable[number]
        if self._blocks[passage.start, passage.end].kind == "html":
            return ""
        if self._proven(passage, translation, lambda place: self._file.text[slice(*place)]) is not None:
            return ""
        return "Markdown cannot express its translation with the links and code in this order"

    def _is_label(self, label: str) -> bool:
        return normalizeReference(label) in self._labels

    def _passages(self, block: _Block, left: list[int]) -> Iterator[Passage]:
        if block.kind == "html":
            cut = [token.shifted(block.file_starts[0]) for token in html_tokens(block.text)]
            for passage in html_passages(self._file.text, cut):
                events = scanned(own := self._file.text[passage.start : passage.end], self._is_label).events
                if passage.kind == "text" and any(
                    event.form != "words" and own[event.start] in _MARKDOWN for event in events
                ):
                    left.append(self._file.line(passage.start))
                else:
                    yield passage
            return
        inline = scanned(block.text, self._is_label)
        yield from _passage(block, inline.events, block.kind)
        for start, end in inline.descriptions:
            words = scanned(block.text[start:end], self._is_label).events
            events = [event._replace(start=event.start + start, end=event.end + start) for event in words]
            yield from _passage(block, events, "description")

    def _written(self, passage: Passage, translation: str, source: Callable[[tuple[int, int]], str]) -> str:
        if self._blocks[passage.start, passage.end].kind == "html":
            return html_of(self._file, self._habits, passage, _SPACES.sub(" ", translation), source)
        proven = self._proven(passage, translation, source)
        return source((passage.start, passage.end)) if proven is None else proven

    def _proven(self, passage: Passage, translation: str, source: Callable[[tuple[int, int]], str]) -> str | None:
        """Return the simplest Markdown that is parsed as the translation; None if there is none."""
        block = self._blocks[passage.start, passage.end]
        parts: list[MarkdownPart] = []
        begun: dict[int, int] = {}  # index in `parts` of the start of each pair
        for token in _tidied(passage.tokens_of(_SPACES.sub(" ", translation))):
            element = passage.elements[token.number - 1] if isinstance(token, Tag) else None
            if element is None or isinstance(element.opening, str):
                parts.append(MarkdownPart("words", str(token if element is None else element.opening)))
                continue
            assert isinstance(token, Tag)
            place = element.closing if token.form == "close" else element.opening
            assert place is not None
            original = self._in_block(block, place, source)
            if token.form == "open":
                begun[token.number] = len(parts)
            elif token.form == "close" and _SHORT_END.fullmatch(original):
                label = block.text[block.in_text(element.opening[1]) : block.in_text(place[0])]
                words = "".join(part.text for part in parts[begun[token.number] + 1 :])
                if words != label or not _PLAIN_LABEL.fullmatch(label):
                    original = f"][{_SPACES.sub(' ', label)}]"
                    parts.append(MarkdownPart("close", original, original))
                    continue
            parts.append(MarkdownPart(token.form, original, source(place)))
        return written(parts, self._surroundings(passage, block), self._habits)

    def _in_block(self, block: _Block, place: tuple[int, int], source: Callable[[tuple[int, int]], str]) -> str:
        """Return a range of the file as in the text of its block, with the translations of descriptions in it."""
        at, end = map(block.in_text, place)
        parts = []
        for index in range(bisect_left(self._descriptions, place), len(self._descriptions)):
            start, behind = self._descriptions[index]
            if behind > place[1]:
                break
            parts += [block.text[at : block.in_text(start)], source((start, behind))]
            at = block.in_text(behind)
        return "".join([*parts, block.text[at:end]])

    def _surroundings(self, passage: Passage, block: _Block) -> Surroundings:
        start, end = block.in_text(passage.start), block.in_text(passage.end)
        if passage.kind == "description":
            own = scanned(words := block.text[start:end], self._is_label).events
            return Surroundings("description", "", "", (), (), self._is_label, escapes(own, words))
        events = scanned(block.text, self._is_label).events
        return Surroundings(
            block.kind,
            block.text[:start],
            block.text[end:],
            meaning(_clipped(events, block.text, 0, start), block.text),
            meaning(_clipped(events, block.text, end, len(block.text)), block.text),
            self._is_label,
            escapes(_clipped(events, block.text, start, end), block.text),
        )


def _clipped(events: Sequence[InlineEvent], text: str, start: int, end: int) -> list[InlineEvent]:
    """Return the events of a range; an event that exceeds it is words, such as those before a space at an edge."""
    parts = [event for event in events if event.end > start and event.start < end]
    return [
        event
        if start <= event.start and event.end <= end
        else InlineEvent("words", first := max(start, event.start), last := min(end, event.end), text[first:last])
        for event in parts
    ]


def _passage(block: _Block, events: Sequence[InlineEvent], kind: str) -> Iterator[Passage]:
    run = Run()
    # Such a link is kept in its segment, even if it is the whole segment, because its end changes with its text.
    short = {event.words for event in events if event.form == "close" and _is_short_end(block, event)}
    for event in events:
        start, end = block.in_file(event.start), block.in_file(event.end)
        match event.form:
            case "words" if event.words == block.text[event.start : event.end]:
                # White space at an edge must stay outside the segment.
                first = len(event.words) - len(event.words.lstrip(_SPACE))
                last = len(event.words.rstrip(_SPACE))
                for piece in ((0, first), (first, last), (max(first, last), len(event.words))):
                    run.words(event.words[slice(*piece)], start + piece[0], start + piece[1])
            case "words" if "\n" in block.text[event.start : event.end]:
                run.line_end(start, end)
            case "words":
                run.words(event.words, start, end)
            case "alone":
                run.alone(start, end, is_seen=event.is_seen)
            case "open":
                is_link = block.text.startswith("[", event.start) or event.words == "<a>"
                run.opening(event.words, start, end, is_seen=event.words in short, is_link=is_link)
            case _:
                run.closing(event.words, start, end)
    if (passage := run.passage(kind)) is not None:
        yield passage


def _is_short_end(block: _Block, event: InlineEvent) -> bool:
    return _SHORT_END.fullmatch(block.text, event.start, event.end) is not None


def _tidied(parts: Sequence[str | Tag]) -> list[str | Tag]:
    """Move white space at the edges of pairs outside of them, because Markdown reads `** bold **` as plain text."""
    in_front = _spaces_first(parts, "open", str.lstrip)
    outside = _spaces_first(in_front[::-1], "close", str.rstrip)[::-1]
    return tokens(_SPACES.sub(" ", "".join(map(str, outside))).strip(" "))


def _spaces_first(parts: Sequence[str | Tag], form: str, stripped: Callable[[str], str]) -> list[str | Tag]:
    """Move white space that follows tags of one form before them."""
    kept: list[str | Tag] = []
    tags: list[str | Tag] = []
    for part in parts:
        if isinstance(part, Tag) and part.form == form:
            tags.append(part)
            continue
        if isinstance(part, str) and tags and (words := stripped(part)) != part:
            kept.append(" ")
            part = words
        kept += [*tags, part] if part else tags
        tags = []
    return kept + tags


def _blocks(file: FileText, environment: dict[str, Any], left: list[int]) -> Iterator[_Block]:
    """Yield the blocks of prose in a file.

    Args:
        file: The file.
        environment: Its link reference definitions are added.
        left: Lines of paragraphs that cannot be read are added.
    """
    lines = list(file.lines())
    text = "\n".join(file.text[line.start : line.end] for line in lines)
    if front_matter := _FRONT_MATTER.match(text):
        text = "\n" * front_matter[0].count("\n") + text[front_matter.end() :]
    position = 0  # position in the file from which the next cell is searched
    kind = ""  # of the last block
    for before, token in pairwise([Token("", "", 0), *BLOCKS.parse(text, environment)]):
        content = token.content
        if token.map is None or not any(map(str.isalpha, content)):
            continue
        first, block = lines[token.map[0]], None
        if token.type == "code_block":
            # In many programs it continues the definition or the footnote before it.
            if kind != "definition" or content.startswith(_CODE_STARTS):
                continue
        elif token.type == "fence":
            if not _DIRECTIVE_IN_FENCE.match(token.info):
                continue
        elif token.type == "container":
            if token.info != "unread":
                block = _on_one_line(file, content, first, token.info)
        elif token.type == "html_block":
            block = _html(file.text, content, lines[slice(*token.map)])
        elif token.type != "inline":
            continue
        elif (code := _NO_PROSE.search(content)) is not None:
            if not code.start():
                continue
        elif len(content) > LONGEST_BLOCK:
            pass
        elif before.type in ("th_open", "td_open"):
            position = max(position, first.start)
            if (place := _cell(file.text, content, position, first)) is not None:
                block = _Block(file.text[slice(*place)], "cell", (0,), (place[0],))
                position = place[1]
        elif before.type == "heading_open" and before.markup.startswith("#"):
            block = _on_one_line(file, content, first, "heading")
        else:
            form = "paragraph" if before.type == "paragraph_open" else "underlined"
            block = _lined(file.text, content, lines[slice(*token.map)], form)
        if block is None:
            left.append(first.number)
        elif block.kind == "html":
            yield block
        else:
            for piece in block.pieces():
                kind = piece.kind
                yield piece


def _on_one_line(file: FileText, content: str, line: Line, kind: str) -> _Block | None:
    """Return a block that is part of a line; None if it is not found."""
    start = file.text.rfind(content, line.start, line.end)
    return _Block(content, kind, (0,), (start,)) if start >= 0 else None


def _html(text: str, content: str, lines: Sequence[Line]) -> _Block | None:
    """Return a block of HTML; None if its lines begin with prefixes of enclosing blocks, or it is no HTML but MDX."""
    contents = content.rstrip("\n").split("\n")
    prefixes = [text[line.start : line.end].removesuffix(part) for line, part in zip(lines, contents, strict=False)]
    if any(prefix.strip(_SPACE) for prefix in prefixes) or "={" in content:
        return None
    start, end = lines[0].start, lines[len(contents) - 1].end
    return _Block(text[start:end], "html", (0,), (start,))


def _lined(text: str, content: str, lines: Sequence[Line], kind: str) -> _Block | None:
    """Return a block with the positions of its lines in the file; None if they differ from what the parser returned."""
    contents = [line.strip(_SPACE) for line in content.split("\n")]
    starts, file_starts, parts, size = [], [], [], 0
    for index, (part, line) in enumerate(zip(contents, lines, strict=False)):
        end = line.start + len(text[line.start : line.end].rstrip(_SPACE))
        start = end - len(part)
        if not part or start < line.start or text[start:end] != part:
            return None
        parts.append(text[start : line.end if index < len(contents) - 1 else end])
        starts.append(size)
        file_starts.append(start)
        size += len(parts[-1]) + 1
    return _Block("\n".join(parts), kind, tuple(starts), tuple(file_starts)) if len(parts) == len(contents) else None


def _cell(text: str, content: str, position: int, line: Line) -> tuple[int, int] | None:
    """Return the start and end of a table cell in its line; None if it is not found."""
    wanted = content.replace("|", r"\|")
    while (start := text.find(wanted, position, line.end)) >= 0:
        end = start + len(wanted)
        if text[end : line.end].lstrip(_SPACE)[:1] in ("", "|"):
            return start, end
        position = start + 1
    return None
