"""Links of words that stand in files of their own, a line for each line of text, as word aligners write them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from clearhead.errors import DataError
from clearhead.files.streams import display_name, read_lines
from clearhead.formats.pair import SentencePair
from clearhead.text.language_tags import split_tag
from clearhead.text.word_links import Link, spaced_words, words_of

__all__ = ["GivenLinks"]

_LINK = re.compile(r"([0-9]{1,6})-([0-9]{1,6})")


@dataclass(frozen=True, slots=True)
class GivenLinks:
    """Files of links in Pharaoh form, `0-0 1-2`: a word of the first text and one of the second."""

    paths: Sequence[str]
    """One for each pair of files, in their order."""
    base: int = 0
    """Number of the first word."""
    by_character: bool = False
    """Whether in scripts without spaces every character counts as a word, as in what clearhead writes (`words_of`);
    otherwise a word is what white space parts."""
    tagged: Sequence[str] = ()
    """Languages whose tag may head a source line; it is no word."""
    is_swapped: bool = False
    """Whether the lines are read in the other direction afterwards, so that a tag heads the second text."""

    def refuse_others(self, sources: Sequence[str], subtitles: Sequence[str]) -> None:
        """Refuse links of files that cannot have them.

        Args:
            sources: Files of source lines.
            subtitles: Those of them that are paired by time.

        Raises:
            DataError: If there are not as many files of links as of lines, or some lines are subtitles.
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
        """Stream the pairs of two files with their links.

        Args:
            pairs: Line by line.
            number: Of the files among all.
            source: Where their sources stand.
            target: Where their targets stand.

        Raises:
            DataError: If the numbers of lines differ, or a line holds something else than links, or a word that its
                texts have not; with the file and the line.
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
        found: set[Link] = set()
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
            found.update((left, right) for left in words[0][link[0]] for right in words[1][link[1]])
        return tuple(sorted(found))


def _inner_words(text: str, *, by_character: bool) -> list[range]:
    """Return for each word that is counted in a text which of `words_of` it is made of."""
    words = words_of(text)
    if by_character:
        return [range(number, number + 1) for number in range(len(words))]
    found, first = [], 0
    for _, end in spaced_words(text):
        last = first
        while last < len(words) and words[last][1] <= end:
            last += 1
        found.append(range(first, last))
        first = last
    return found
