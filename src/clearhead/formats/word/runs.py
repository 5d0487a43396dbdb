"""A Word paragraph as text with numbered tags, and its runs rebuilt from a translation (ECMA-376, part 1, 17.3)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from xml.sax.saxutils import escape

from clearhead.formats.passages import Passage, Run
from clearhead.formats.word.paragraphs import WORD
from clearhead.formats.xml.elements import XmlElement


def _named(*names: str) -> frozenset[str]:
    return frozenset(f"{WORD}{name}" for name in names)


_WRAPPERS = _named("bdo", "customXml", "dir", "hyperlink", "ins", "moveTo", "sdt", "smartTag")
"""Elements that enclose runs of ordinary text."""
_DROPPED = _named("lastRenderedPageBreak", "proofErr")
"""Internal marks of Word, which it recreates."""
_SEEN = _named("fldSimple", "object", "sym")
_UNSHOWN = _named("lang", "noProof")
"""Run properties without visible effect; the language is that of the source."""
_CHARACTERS = {f"{WORD}noBreakHyphen": "\u2011", f"{WORD}softHyphen": "\u00ad"}
_DEEPEST_FIELDS = 20
_SPACES = re.compile(r"[ \t\n\r]+")
_EDGES = re.compile(r"( *)(.*?)( *)", re.DOTALL)

_Part = tuple[tuple[int, int] | str, bytes | None]
"""A range of the file, or words; and the properties of the run that contains it, None outside of runs."""


@dataclass(frozen=True, slots=True)
class _Unit:
    """Words or markup of a paragraph, in order."""

    form: str
    """`words`; `alone`; `open` and `close`, for an element around runs; `format` and `plain`, around runs with
    different formatting; `begin`, `separate`, `end` and `code`, for a field."""
    parts: tuple[_Part, ...] = ()
    words: str = ""
    properties: bytes | None = None
    """Formatting of the words; for `open` and `format`, the formatting of words inside that do not have their own."""
    is_seen: bool = False
    is_link: bool = False


class WordParagraph:
    """A Word paragraph: its text with numbered tags, and its content rebuilt from a translation.

    Args:
        data: Bytes of the part that contains it.
        element: The paragraph.
    """

    def __init__(self, data: bytes, element: XmlElement) -> None:
        content = [child for child in element.elements if child.tag.name != f"{WORD}pPr"]
        start = content[0].start if content else element.content_end
        name = re.split(rb"[\s/>]", data[element.start + 1 : element.content], maxsplit=1)[0]
        self._prefix = name.removesuffix(b"p")
        self._units, self._properties = _with_formats(_with_fields(_units(data, content)))
        self._passage = _gathered(self._units)
        self.passage = self._passage and Passage(start, element.content_end, self._passage.text)
        """Its content as a segment; None if it has no letter."""

    def filled(self, translation: str, source: Callable[[tuple[int, int]], bytes]) -> bytes:
        """Return the content with a translation: runs of words, and the original markup.

        Args:
            translation: Text with numbered tags, without characters that XML forbids.
            source: Returns the bytes of a range of the part, with the translations of paragraphs in it inserted.
        """
        passage, looks = self._passage, [self._properties]
        assert passage is not None
        done: list[bytes] = []

        def write(unit: _Unit) -> None:
            if unit.form in ("close", "plain"):
                looks.pop()
            if unit.form == "words":
                done.append(self._run(unit.properties or b"", self._text(unit.words)))
            for part, properties in unit.parts:
                inner = self._text(part) if isinstance(part, str) else source(part)
                done.append(inner if properties is None else self._run(properties, inner))
            if unit.form in ("open", "format"):
                looks.append(unit.properties or b"")

        for unit in self._units[: passage.start]:
            write(unit)
        for token in passage.tokens_of(_SPACES.sub(" ", translation)):
            if isinstance(token, str):
                done.append(self._run(looks[-1], self._text(token)))
                continue
            element = passage.elements[token.number - 1]
            place = element.closing if token.form == "close" else element.opening
            assert place is not None
            if isinstance(place, str):
                done.append(self._run(looks[-1], self._text(place)))
                continue
            for unit in self._units[slice(*place)]:
                write(unit)
        for unit in self._units[passage.end :]:
            write(unit)
        return b"".join(done)

    def _run(self, properties: bytes, content: bytes) -> bytes:
        return b"<%br>%b%b</%br>" % (self._prefix, properties, content, self._prefix)

    def _text(self, words: str) -> bytes:
        return b'<%bt xml:space="preserve">%b</%bt>' % (self._prefix, escape(words).encode(), self._prefix)


def _units(data: bytes, elements: Sequence[XmlElement]) -> Iterator[_Unit]:
    for element in elements:
        if base := _ruby_base(element):
            yield _Unit("open", (((element.start, base[0].start), None),))
            yield from _units(data, base)
            yield _Unit("close", (((base[-1].end, element.end), None),))
        elif element.tag.name == f"{WORD}r":
            yield from _run_units(data, element)
        elif element.tag.name in _WRAPPERS and (inner := _inside(element)):
            last = inner[-1].end
            is_link = element.tag.name == f"{WORD}hyperlink"
            yield _Unit("open", (((element.start, inner[0].start), None),), is_link=is_link)
            yield from _units(data, inner)
            yield _Unit("close", (((last, element.end), None),))
        elif element.tag.name not in _DROPPED:
            is_seen = element.tag.name in _SEEN or element.tag.name.endswith(" oMath")
            yield _Unit("alone", ((element.place, None),), is_seen=is_seen)


def _ruby_base(element: XmlElement) -> list[XmlElement]:
    """Return the runs below the reading of a `w:ruby`, or of a run that has nothing else; empty for other elements."""
    shown = [element]
    if element.tag.name == f"{WORD}r":
        shown = [part for part in element.elements if part.tag.name != f"{WORD}rPr" and part.tag.name not in _DROPPED]
    if [part.tag.name for part in shown] != [f"{WORD}ruby"]:
        return []
    return next((part.elements for part in shown[0].elements if part.tag.name == f"{WORD}rubyBase"), [])


def _inside(element: XmlElement) -> list[XmlElement]:
    """Return the content of a wrapper element, without its properties."""
    children = element.elements
    if element.tag.name == f"{WORD}sdt":
        children = next((child.elements for child in children if child.tag.name == f"{WORD}sdtContent"), [])
    first = next((index for index, child in enumerate(children) if not child.tag.name.endswith("Pr")), len(children))
    return children[first:]


def _run_units(data: bytes, run: XmlElement) -> Iterator[_Unit]:
    if b"xmlns" in data[run.start : run.content]:  # declares a prefix that is unknown elsewhere
        yield _Unit("alone", ((run.place, None),), is_seen=True)
        return
    raw = look = b""
    for child in run.elements:
        if child.tag.name == f"{WORD}rPr":
            raw, look = data[slice(*child.place)], _look(data, child)
        elif child.tag.name == f"{WORD}t" and len(child.text) > 1 and child.text.isspace():
            yield _Unit("alone", ((child.place, raw),), properties=look)  # a gap, or a blank to fill in
        elif child.tag.name == f"{WORD}t" or child.tag.name in _CHARACTERS:
            words = _CHARACTERS.get(child.tag.name) or _SPACES.sub(" ", child.text)
            if child.tag.name == f"{WORD}t" and child.tag.attributes.get("xml:space") != "preserve":
                words = words.strip(" ")
            edges = _EDGES.fullmatch(words)
            assert edges is not None
            for piece in filter(None, edges.groups()):
                yield _Unit("words", words=piece, properties=look)
        elif child.tag.name == f"{WORD}fldChar":
            form = child.tag.attributes.get(f"{WORD}fldCharType", "")
            form = form if form in ("begin", "separate", "end") else "alone"
            yield _Unit(form, ((child.place, raw),), properties=look)
        elif child.tag.name == f"{WORD}instrText":
            yield _Unit("code", ((child.place, raw),), child.text, properties=look)
        elif child.tag.name not in _DROPPED:
            yield _Unit("alone", ((child.place, raw),), properties=look, is_seen=child.tag.name in _SEEN)


def _look(data: bytes, properties: XmlElement) -> bytes:
    """Return run properties without those that have no visible effect; empty if there are no others."""
    shown = [child for child in properties.elements if child.tag.name not in _UNSHOWN]
    if not shown:
        return b""
    kept = b"".join(data[slice(*child.place)] for child in shown)
    return data[properties.start : properties.content] + kept + data[properties.content_end : properties.end]


def _with_fields(units: Iterator[_Unit]) -> list[_Unit]:
    """Merge each field, a value that Word computes such as a page number, into one unit; a link becomes a pair."""
    done: list[_Unit] = []
    begun: list[int] = []  # indices in `done`
    for unit in units:
        done.append(unit)
        if unit.form == "begin":
            begun.append(len(done) - 1)
        elif unit.form == "end" and begun:
            first = begun.pop()
            if len(begun) >= _DEEPEST_FIELDS or not _is_balanced(done[first:]):
                continue
            inside = done[first:]
            del done[first:]
            middle = next((index for index, inner in enumerate(inside) if inner.form == "separate"), -1)
            code = "".join(inner.words for inner in inside[:middle] if inner.form == "code")
            if middle > 0 and code.strip().upper().startswith("HYPERLINK"):
                done.append(replace(_together("open", inside[: middle + 1]), is_link=True))
                done += [*inside[middle + 1 : -1], replace(unit, form="close")]
            else:
                done.append(_together("alone", inside))
    return [
        replace(unit, form="alone", words="") if unit.form in ("begin", "separate", "end", "code") else unit
        for unit in done
    ]


def _is_balanced(units: Sequence[_Unit]) -> bool:
    depth = 0
    for unit in units:
        depth += {"open": 1, "close": -1}.get(unit.form, 0)
        if depth < 0:
            return False
    return depth == 0


def _together(form: str, units: Sequence[_Unit]) -> _Unit:
    parts: list[_Part] = []
    for unit in units:
        parts += [(unit.words, unit.properties)] if unit.form == "words" else unit.parts
    is_seen = any(unit.is_seen or (unit.form == "words" and not unit.words.isspace()) for unit in units)
    return _Unit(form, tuple(parts), properties=units[0].properties, is_seen=is_seen)


def _with_formats(units: Sequence[_Unit]) -> tuple[list[_Unit], bytes]:
    """Mark runs with a formatting unlike most of their element's text; return also the paragraph's main formatting."""
    usual: dict[int, bytes] = {}  # by the index of the unit that opens the element; -1 is the paragraph
    levels: list[tuple[int, Counter[bytes]]] = [(-1, Counter())]
    for index, unit in enumerate([*units, _Unit("close")]):
        if unit.form == "open":
            levels.append((index, Counter()))
        elif unit.form == "close":
            place, sizes = levels.pop()
            usual[place] = max(sizes, key=sizes.__getitem__, default=b"")
        elif unit.form == "words":
            levels[-1][1][unit.properties or b""] += len(unit.words.strip())
    done: list[_Unit] = []
    looks = [usual[-1]]
    other: bytes | None = None
    behind = 0  # index after the last words with this formatting
    for index, unit in enumerate(units):
        is_words = unit.form == "words" and not unit.words.isspace()
        is_neutral = unit.form in ("words", "alone") and not is_words and (unit.words or unit.properties is None)
        if other is not None and not is_neutral and (unit.form in ("open", "close") or unit.properties != other):
            done.insert(behind, _Unit("plain"))
            other = None
        if is_words and other is None and unit.properties != looks[-1]:
            other = unit.properties or b""
            done.append(_Unit("format", properties=other))
        if unit.form == "open":
            looks.append(usual[index])
            unit = replace(unit, properties=usual[index])
        elif unit.form == "close":
            looks.pop()
        done.append(unit)
        if not is_neutral:
            behind = len(done)
    if other is not None:
        done.insert(behind, _Unit("plain"))
    return done, usual[-1]


def _gathered(units: Sequence[_Unit]) -> Passage | None:
    """Return units as a passage, whose positions are indices of units."""
    run = Run()
    begun: list[str] = []
    for index, unit in enumerate(units):
        if unit.form == "words":
            run.words(unit.words, index, index + 1)
        elif unit.form in ("open", "format"):
            begun.append(str(index))
            run.opening(begun[-1], index, index + 1, is_link=unit.is_link)
        elif unit.form in ("close", "plain"):
            run.closing(begun.pop(), index, index + 1)
        else:
            run.alone(index, index + 1, is_seen=unit.is_seen)
    return run.passage()
