"""Reader of word alignments in files beside line-aligned text (Pharaoh format), added to the sentence pairs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from clearhead.errors import DataError
from clearhead.files.streams import display_name, read_lines
from clearhead.formats.pair import SentencePair
from clearhead.text.languages import split_tag
from clearhead.text.word_links import Link, spaced_words, words_of

_LINK = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class GivenLinks:
    """Alignment files in Pharaoh format, such as `0-0 1-2`: word numbers of the first and of the second text."""

    paths: Sequence[str]
    """One alignment file per pair of text files, in the same order."""
    base: int = 0
    """Number of a text's first word in these files."""
    by_character: bool = False
    """How words are counted: if true, every character in scripts without spaces is a word, as in the alignments that
    clearhead writes (`words_of`); otherwise words are separated by white space."""
    tagged: Sequence[str] = ()
    """Languages whose tag may precede a source line; the tag does not count as a word."""
    is_swapped: bool = False
    """Whether source and target are exchanged after reading, so that the tag is in the second text."""

    def refuse_others(self, sources: Sequence[str], subtitles: Sequence[str]) -> None:
        """Raise `DataError` if the alignment files do not fit the text files.

        Args:
            sources: Files of source lines.
            subtitles: Those of `sources` that are subtitles, paired by time.

        Raises:
            DataError: If the numbers of alignment files and source files differ, or a source file is subtitles.
        """
        if len(self.paths) != len(sources):
            raise DataError(
                f"files of links (data.alignments): {', '.join(self.paths)}; source files: "
                f"{', '.join(sources) or 'none'}; there must be as many. Only text line by line (--source, --target) "
                f"can have links, a file of them for each of its files; `cut -f1 F.tsv` and `cut -f2 F.tsv` make such "
                f"text of a table"
            )
        if subtitles:
            raise DataError(f"{subtitles[0]}: subtitles are paired by their times, so no line of links belongs to them")

    def beside(self, pairs: Iterable[SentencePair], number: int, source: str, target: str) -> Iterator[SentencePair]:
        """Yield the pairs of two files with their word alignments.

        Args:
            pairs: Pairs of the two files, line by line.
            number: Index in `paths` of their alignment file.
            source: Path of the source file, for messages.
            target: Path of the target file, for messages.

        Raises:
            DataError: If the numbers of lines differ, a line contains anything but links, or a link names a word that
                the texts do not have; the message gives the file and the line.
        """
        path = self.paths[number]
        lines, count = read_lines(path), 0
        name, sides = display_name(path), (display_name(source), display_name(target))
        for count, pair in enumerate(pairs, start=1):
            line = next(lines, None)
            if line is None:
                raise DataError(
                    f"{name} ends after line {count - 1}, but {sides[0]} has a line {count}; every line of text needs "
                    f"its line of links, a blank one where it has none"
                )
            yield replace(pair, links=self._links(line, pair, f"{name}, line {count}", sides))
        if surplus := sum(1 for _ in lines):
            raise DataError(
                f"{name} has {count + surplus} lines of links, but {sides[0]} and {sides[1]} have {count} of text"
            )

    def _links(self, line: str, pair: SentencePair, where: str, sides: tuple[str, str]) -> tuple[Link, ...]:
        texts = [pair.source, pair.target]
        texts[self.is_swapped] = split_tag(texts[self.is_swapped], self.tagged)[1]
        words = [_inner_words(text, by_character=self.by_character) for text in texts]
        links: set[Link] = set()
        for written in line.split():
            match = _LINK.fullmatch(written)
            if match is None:
                raise DataError(f"{where}: {written[:40]!r} is no link such as 3-5")
            link = int(match[1]) - self.base, int(match[2]) - self.base
            for word, known, side in zip(link, words, sides, strict=True):
                if not 0 <= word < len(known):
                    raise DataError(
                        f"{where}: {written} names word {word + self.base} of {side}, whose line has {len(known)} "
                        f"words counted from {self.base}; data.alignment_base and data.alignment_words say how they "
                        f"are counted, or is the text spaced otherwise?"
                    )
            links.update((left, right) for left in words[0][link[0]] for right in words[1][link[1]])
        return tuple(sorted(links))


def _inner_words(text: str, *, by_character: bool) -> list[range]:
    """Return, for each counted word of a text, the range of `words_of` words that it covers."""
    words = words_of(text)
    if by_character:
        return [range(number, number + 1) for number in range(len(words))]
    ranges, first = [], 0
    for _, end in spaced_words(text):
        last = first
        while last < len(words) and words[last][1] <= end:
            last += 1
        ranges.append(range(first, last))
        first = last
    return ranges
