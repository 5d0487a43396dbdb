"""HTML files: text of blocks and of some attributes as segments; tags, code, scripts and styles stay."""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice

from clearhead.errors import DataError
from clearhead.formats.document import Document, DocumentSegment, Filling
from clearhead.formats.file_text import FileText, read_bytes
from clearhead.formats.html.references import habits, resolved
from clearhead.formats.html.tokens import RUBY, VOID_ELEMENTS, HtmlToken, html_tokens
from clearhead.formats.languages import is_variant
from clearhead.formats.passages import Change, Passage, Run, changes
from clearhead.text.languages import is_right_to_left
from clearhead.text.placeholders import pair_role

MOST_TOKENS = 2_000_000
"""Maximum number of tags and texts in a page: about 50 MB of a page written by people."""

# ruff: noqa: SIM905  (as a list, the formatter would give every name a line)
_BLOCKS = frozenset(
    "address article aside audio blockquote body button canvas caption center col colgroup dd details dialog dir div "
    "dl dt fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html label "
    "legend li main menu nav noscript ol optgroup option p pre search section select summary table tbody td template "
    "tfoot th thead title tr ul video".split()
)
"""Block elements, whose tags end a segment; all other elements, also unknown ones, are inline."""

_UNSEEN = frozenset("base link meta noembed noframes param script source style track wbr xmp".split())

MOST_EXCEPTIONS = 10
"""Maximum nesting of elements that are not translated around one that is; deeper ones are kept."""
_KEPT = frozenset("code iframe math object pre rp rt ruby svg".split())
"""Elements whose content is not translated; of a `ruby` with one base and its reading, the base is, see `RUBY`."""

# For elements with an optional end tag: the elements whose start tag ends them implicitly.
_ENDED_BY = {
    "p": _BLOCKS - {"button", "label", "option", "select", "title", "caption", "col", "audio", "video", "canvas"},
    "li": frozenset({"li"}),
    "dt": frozenset({"dt", "dd"}),
    "dd": frozenset({"dt", "dd"}),
    "option": frozenset({"option", "optgroup"}),
    "td": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "th": frozenset({"td", "th", "tr", "tbody", "tfoot"}),
    "tr": frozenset({"tr", "tbody", "tfoot"}),
}

_TRANSLATED = frozenset({"alt", "aria-label", "placeholder", "title"})
_DESCRIPTIONS = frozenset({"description", "og:description", "og:title", "twitter:description", "twitter:title"})
_BUTTONS = frozenset({"button", "reset", "submit"})

_SPACES = re.compile(r"[ \t\n\r\f]+")
_EDGES = re.compile(r"([ \t\n\r\f]*+)((?:[ \t\n\r\f]*+[^ \t\n\r\f]++)*+)([ \t\n\r\f]*+)")
_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s{0,9}=\s{0,9}["']?\s{0,9}([a-zA-Z0-9_:.-]{1,40})""", re.IGNORECASE)
_CHARSET_BYTES = 1024  # first bytes of the file, in which browsers look for the declaration

# Labels for which browsers use a larger encoding than Python does.
_LABELS = {
    **dict.fromkeys(("ascii", "us-ascii", "iso-8859-1", "iso8859-1", "latin1", "l1"), "cp1252"),
    **dict.fromkeys(("iso-8859-9", "latin5"), "cp1254"),
    **dict.fromkeys(("gb2312", "gbk"), "gb18030"),
    **dict.fromkeys(("shift_jis", "shift-jis", "sjis"), "cp932"),
    "euc-kr": "cp949",
}


def read_html(path: str, *, target_language: str | None = None) -> HtmlDocument:
    """Read an HTML file or fragment.

    The encoding is that of a byte order mark, else the one that a `meta` element in the first 1024 bytes declares, else
    UTF-8.

    Args:
        path: The file; `-` is standard input.
        target_language: Language to write to the `html` element (`Document.language`); None leaves it unchanged.

    Raises:
        DataError: If the file cannot be read, is too large, or is not text in its encoding.
    """
    return HtmlDocument(_file_text(path), target_language)


class HtmlDocument(Document):
    """An HTML file; its segments are the runs of text within blocks and the human-readable attributes."""

    format = "HTML page"

    def __init__(self, file: FileText, target_language: str | None = None) -> None:
        self._file = file
        self._habits = habits(file.text)
        cut = list(islice(html_tokens(file.text), MOST_TOKENS + 1))
        if len(cut) > MOST_TOKENS:
            raise DataError(f"{file.path} has more than {MOST_TOKENS:,} tags and texts; divide it")
        self._passages = sorted(html_passages(file.text, cut), key=lambda passage: (passage.start, -passage.end))
        self._page = next((token for token in cut if token.form == "start" and token.name == "html"), None)
        self.language = target_language or ""
        self.segments = [
            self.watched(DocumentSegment(passage.text, file.line(passage.start), links=passage.links))
            for passage in self._passages
        ]

    def filled(self, fillings: Sequence[Filling | None]) -> bytes:
        """Return the file's bytes with the translations inserted; see `Document.filled`.

        White space in a translated text collapses to single spaces. Characters that the file writes as references, such
        as `&nbsp;`, are written in the same way; characters that the file's encoding lacks become numeric references.
        The language is written to the `html` element, and its direction where it has one or needs one.
        """
        done = changes(self._file.text, self._passages, fillings, partial(html_of, self._file, self._habits))
        if self.language and self._page is not None:
            done = sorted([*done, *_language_changes(self._file.text, self._page, self.language)])
        return self._file.replaced(done)


def html_of(
    file: FileText,
    habits: Mapping[int, str],
    passage: Passage,
    translation: str,
    source: Callable[[tuple[int, int]], str],
) -> str:
    """Return the HTML of a translation.

    Args:
        file: The file.
        habits: Character references that the file uses, see `references.habits`.
        passage: A passage of the file.
        translation: Its translation.
        source: Returns the text of a range of the file, see `passages.changes`.

    Raises:
        DataError: If the translation contains half of a surrogate pair.
    """
    try:
        translation.encode()
    except UnicodeEncodeError:
        raise file.refuse(passage.start, "the translation holds half of a surrogate pair, no character") from None

    def escaped(words: str) -> str:
        must = {ord("&"): "&amp;", ord("<"): "&lt;"}
        if passage.kind != "text":
            must |= {ord("'"): "&#39;"} if passage.kind == "'" else {ord('"'): "&quot;"}
        written = words.translate({**habits, **must})
        return written.encode(file.encoding, "xmlcharrefreplace").decode(file.encoding)

    parts = []
    for token in passage.tokens_of(translation):
        if isinstance(token, str):
            parts.append(escaped(token))
            continue
        element = passage.elements[token.number - 1]
        place = element.closing if token.form == "close" else element.opening
        assert place is not None
        parts.append(escaped(place) if isinstance(place, str) else source(place))
    written = "".join(parts)
    return f'"{written}"' if passage.kind == "bare" else written


def html_passages(text: str, cut: Sequence[HtmlToken], depth: int = 0) -> Iterator[Passage]:
    """Yield the passages of a text.

    Args:
        text: The text of the file.
        cut: Its tokens, or those of an element in it.
        depth: How many elements around it are not translated.
    """
    run = Run()
    index = 0
    while index < len(cut):
        token = cut[index]
        is_block = token.name in _BLOCKS
        if token.form in ("start", "end") and is_block:
            yield from _finished(run)
            run = Run()
        if token.form == "start" and (ruby := RUBY.match(text, token.start)) and not _is_untranslated(text, token):
            run.opening("ruby", token.start, ruby.start("base"))
            _add(run, text, *ruby.span("base"))
            run.closing("ruby", ruby.start("reading"), ruby.end())
            index = bisect_left(cut, ruby.end(), key=lambda token: token.start)
            continue
        if token.form == "start" and (token.name in _KEPT or _is_untranslated(text, token)):
            behind = _behind_element(text, cut, index)
            if not is_block:
                run.alone(token.start, cut[behind - 1].end, is_seen=token.name not in _UNSEEN)
            if token.name not in _KEPT and depth < MOST_EXCEPTIONS:
                yield from _exceptions(text, cut[index + 1 : behind], depth + 1)
            index = behind
            continue
        if token.form == "start":
            yield from _attribute_passages(text, token)
        if token.form == "text" or (token.form == "raw" and token.name == "title"):
            _add(run, text, token.start, token.end)
        elif token.form == "code" and (role := pair_role(text[token.start : token.end])) is not None:
            name, is_closing = role
            (run.closing if is_closing else run.opening)(name, token.start, token.end)
        elif token.form in ("raw", "other", "code") or token.name in _UNSEEN:
            run.alone(token.start, token.end, is_seen=token.form == "code")
        elif not is_block and token.name in VOID_ELEMENTS:
            run.alone(token.start, token.end, is_seen=token.name not in ("br", "input"))
        elif not is_block and token.form == "start":
            run.opening(token.name, token.start, token.end, is_link=token.name == "a")
        elif not is_block:
            run.closing(token.name, token.start, token.end)
        index += 1
    yield from _finished(run)


def _exceptions(text: str, cut: Sequence[HtmlToken], depth: int) -> Iterator[Passage]:
    """Yield the passages of the elements with `translate="yes"` in an element that is not translated."""
    index = 0
    while index < len(cut):
        behind = index + 1
        if cut[index].form == "start" and _says(text, cut[index], "yes"):
            behind = _behind_element(text, cut, index)
            yield from html_passages(text, cut[index:behind], depth)
        index = behind


def _finished(run: Run) -> Iterator[Passage]:
    if (passage := run.passage()) is not None:
        yield passage


def _add(run: Run, text: str, start: int, end: int, *, is_attribute: bool = False) -> None:
    """Add text as browsers show it; white space at its edges, and its line ends, are added separately."""
    for gap in _SPACES.finditer(text, start, end):
        if "\n" in gap[0] or "\r" in gap[0]:
            _add_line(run, text, start, gap.start(), is_attribute)
            run.line_end(gap.start(), gap.end())
            start = gap.end()
    _add_line(run, text, start, end, is_attribute)


def _add_line(run: Run, text: str, start: int, end: int, is_attribute: bool) -> None:
    edges = _EDGES.match(text, start, end)
    assert edges is not None
    for group in (1, 2, 3):
        run.words(
            resolved(_SPACES.sub(" ", edges[group]), is_attribute=is_attribute), edges.start(group), edges.end(group)
        )


def _attribute_passages(text: str, token: HtmlToken) -> Iterator[Passage]:
    values = {name: text[start:end].lower() for name, start, end, _ in token.attributes}
    for attribute in token.attributes:
        is_read = attribute.name in _TRANSLATED
        if attribute.name == "content" and token.name == "meta":
            is_read = values.get("name", values.get("property")) in _DESCRIPTIONS
        elif attribute.name == "value" and token.name == "input":
            is_read = values.get("type") in _BUTTONS
        if is_read:
            run = Run()
            _add(run, text, attribute.start, attribute.end, is_attribute=True)
            if (passage := run.passage(attribute.quote or "bare")) is not None:
                yield passage


def _is_untranslated(text: str, token: HtmlToken) -> bool:
    return _says(text, token, "no") or any(
        name == "class" and "notranslate" in _SPACES.split(text[start:end]) for name, start, end, _ in token.attributes
    )


def _says(text: str, token: HtmlToken, translate: str) -> bool:
    return any(name == "translate" and text[start:end].lower() == translate for name, start, end, _ in token.attributes)


def _behind_element(text: str, cut: Sequence[HtmlToken], first: int) -> int:
    """Return the index of the token after an element whose start tag is at a given index.

    The element ends at its end tag, where its end tag is implied, or at the end of an enclosing element.
    """
    tag = cut[first]
    if tag.name in VOID_ELEMENTS or (tag.name in ("svg", "math") and text[tag.end - 2] == "/"):
        return first + 1
    stack = [tag.name]
    num_open = Counter(stack)
    for index in range(first + 1, len(cut)):
        token = cut[index]
        if token.form == "start":
            while stack and token.name in _ENDED_BY.get(stack[-1], ()):
                num_open[stack.pop()] -= 1
            if not stack:
                return index
            if token.name not in VOID_ELEMENTS:
                stack.append(token.name)
                num_open[token.name] += 1
        elif token.form == "end" and num_open[token.name]:
            while (ended := stack.pop()) != token.name:
                num_open[ended] -= 1
            num_open[ended] -= 1
            if not stack:
                return index + 1
        elif token.form == "end" and token.name in _BLOCKS:
            return index
    return len(cut)


def _language_changes(text: str, page: HtmlToken, language: str) -> Iterator[Change]:
    """Yield the changes that make `lang`, `xml:lang` and `dir` of an `html` element those of a language.

    `lang` is added if it is missing, `dir` if the language is written from right to left.
    """
    tag, is_reversed = language.replace("_", "-"), is_right_to_left(language)
    there = {name: text[start:end] for name, start, end, _ in page.attributes}
    wanted = {"lang": tag, "dir": "rtl" if is_reversed else "ltr"}
    if is_variant(there.get("lang", ""), tag):
        del wanted["lang"]
    if "dir" not in there and not is_reversed:
        del wanted["dir"]
    if "xml:lang" in there and not is_variant(there["xml:lang"], tag):
        wanted["xml:lang"] = tag
    for name, start, end, quote in page.attributes:
        if (value := wanted.pop(name, None)) is not None:
            yield start, end, value if quote or text[start - 1] == "=" else f'="{value}"'
    if wanted:
        behind_name = page.start + len("<html")
        yield behind_name, behind_name, "".join(f' {name}="{value}"' for name, value in wanted.items())


def _file_text(path: str) -> FileText:
    data = read_bytes(path)
    name = "standard input" if path == "-" else path
    declared = _CHARSET.search(data[:_CHARSET_BYTES])
    label = declared[1].decode("ascii").lower() if declared else "utf-8"
    try:
        encoding = codecs.lookup(_LABELS.get(label, label)).name
        if encoding.startswith("utf-16"):
            encoding = "utf-8"  # the declaration was readable as ASCII, so it is not UTF-16
        file = FileText.of(data, path, encoding)
        is_exact = file.is_exact
    except LookupError:
        is_exact = False
    if not is_exact:
        raise DataError(
            f"{name} says that it is in {label!r}, which cannot be kept; convert it to UTF-8, also where it says so"
        )
    return file
