"""Translate lines of text chunk by chunk, and write the translations as text or as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import compress, islice
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

from clearhead.files.output_parts import SHARD_LINES
from clearhead.text.word_links import pharaoh
from clearhead.translation.result import Alternative, Translation, digits, json_line, translation_object
from clearhead.translation.translator import Translator

if TYPE_CHECKING:
    from clearhead.translation.report import TranslationReport

CHUNK_LINES = SHARD_LINES
"""Lines read, translated and written at a time: enough to sort by length, few enough to limit memory use."""


class TranslatedLines(NamedTuple):
    """Translations of the lines of a chunk."""

    first: int
    """Number of the first line in its file, counted from 1."""
    translations: list[Translation]
    """As the model made them."""
    only_if: float = 0.0

    @property
    def places(self) -> list[str]:
        """Where each line is in the file."""
        return [f"line {number}" for number in range(self.first, self.first + len(self.translations))]

    @property
    def left(self) -> list[str]:
        """Where lines are left untranslated because of their quality."""
        return list(compress(self.places, (translation.is_below(self.only_if) for translation in self.translations)))

    @property
    def kept(self) -> list[Translation]:
        """The translations to write: those that are left out are blank."""
        return [line.left_out() if line.is_below(self.only_if) else line for line in self.translations]


def translate_lines(
    translator: Translator,
    lines: Iterable[str],
    *,
    chunk_lines: int = CHUNK_LINES,
    only_if: float = 0.0,
    on_first: Callable[[list[str]], None] | None = None,
    **arguments: Any,
) -> Iterator[TranslatedLines]:
    """Translate lines, of which a chunk is read and translated at a time.

    Args:
        translator: The translator.
        lines: The lines.
        chunk_lines: Lines of a chunk.
        only_if: Leave lines untranslated whose translation has a lower quality.
        on_first: Called with the first chunk before it is translated.
        **arguments: Further arguments of `Translator.translate`.
    """
    rest, first = iter(lines), 1
    while chunk := list(islice(rest, chunk_lines)):
        if on_first is not None and first == 1:
            on_first(chunk)
        yield TranslatedLines(first, translator.translate(chunk, first=first, **arguments), only_if)
        first += len(chunk)


class LineWriter:
    """Writes translations of lines to files.

    Args:
        out: File of the translations.
        is_jsonl: Write them as JSON.
        num_best: Translations of each line; with more than one, the text is in the Moses format.
        links: File of word alignments.
        report: Report of the translations to review first.
    """

    def __init__(
        self,
        out: TextIO,
        *,
        is_jsonl: bool = False,
        num_best: int = 1,
        links: TextIO | None = None,
        report: TranslationReport | None = None,
    ) -> None:
        self.out, self.is_jsonl, self.num_best, self.links, self.report = out, is_jsonl, num_best, links, report
        self.count = 0
        """Lines written."""

    def write(self, lines: TranslatedLines, name: str) -> None:
        """Write a chunk.

        Args:
            lines: The chunk.
            name: Name of its file.
        """
        if self.report is not None:
            self.report.add(zip(lines.places, lines.translations, strict=True), name=name)
        kept = lines.kept
        self.out.writelines(self._text(translation, index) for index, translation in enumerate(kept, start=self.count))
        if self.links is not None:
            self.links.writelines(pharaoh(translation.alignment or ()) + "\n" for translation in kept)
        self.out.flush()
        self.count += len(kept)

    def _text(self, translation: Translation, index: int) -> str:
        if self.is_jsonl:
            return json_line(translation_object(translation)) + "\n"
        if self.num_best == 1:
            return translation.text + "\n"
        best: Sequence[Translation | Alternative] = translation.alternatives or [translation]
        return "".join(f"{index} ||| {alternative.text} ||| {digits(alternative.score)}\n" for alternative in best)
