"""Precision, recall and alignment error rate (AER) of word alignments, and the reader of manual alignments.

Och and Ney 2003, "A Systematic Comparison of Various Statistical Alignment Models", section 5: annotators mark links as
sure or as possible. A predicted link that is not even possible is wrong, and every sure link must be found.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass

from clearhead.errors import DataError
from clearhead.files import display_name, read_lines
from clearhead.text.word_links import Link, spaced_words

_LINK = re.compile(r"([0-9]{1,6})([-p?])([0-9]{1,6})")
_NAACL = re.compile(r"\s*([0-9]{1,9})\s+([0-9]{1,6})\s+([0-9]{1,6})(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?\s*")


@dataclass(frozen=True, slots=True)
class GoldLinks:
    """Manually annotated links of a sentence."""

    sure: frozenset[Link]
    possible: frozenset[Link]
    """All possible links, including the sure ones."""


@dataclass(frozen=True, slots=True)
class AlignmentScores:
    """Agreement of predicted links with manual ones, over all sentences."""

    precision: float
    """Fraction of the predicted links that are possible; 1 if there are no predicted links."""
    recall: float
    """Fraction of the sure links that were predicted; 1 if there are no sure links."""
    error_rate: float
    """1 - (sure links found + links that are possible) / (links + sure links); 0 is best."""
    links: int
    sure: int
    possible: int
    """Number of possible links, including the sure ones."""


def alignment_scores(links: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> AlignmentScores:
    """Return the precision, recall and error rate of predicted links.

    >>> alignment_scores([[(0, 0), (1, 1)]], [GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (0, 1)}))])
    AlignmentScores(precision=0.5, recall=1.0, error_rate=0.33333333333333337, links=2, sure=1, possible=2)
    """
    predicted = sum(len(set(some)) for some in links)
    right = sum(len(reference.possible.intersection(some)) for some, reference in zip(links, gold, strict=True))
    sure_found = sum(len(reference.sure.intersection(some)) for some, reference in zip(links, gold, strict=True))
    sure = sum(len(reference.sure) for reference in gold)
    return AlignmentScores(
        precision=right / predicted if predicted else 1.0,
        recall=sure_found / sure if sure else 1.0,
        error_rate=1 - (right + sure_found) / (predicted + sure) if predicted + sure else 0.0,
        links=predicted,
        sure=sure,
        possible=sum(len(reference.possible) for reference in gold),
    )


def read_gold_links(
    path: str, sources: Sequence[str], targets: Sequence[str], *, base: int | None = None
) -> list[GoldLinks]:
    """Read manually annotated links.

    There are two formats. One has a line for each sentence, with `3-5` for a sure link and `3?5` or `3p5` for a
    possible one. The other, that of the NAACL 2003 shared task, has a line for each link: sentence, source word, target
    word, and S or P (sure if missing). If its words are counted from 1, a link to word 0 means that a word has no
    counterpart.

    Args:
        path: The file.
        sources: The sentences, without language tags.
        targets: Translations of the sentences.
        base: Number of the first word; None is 0 with a line for each sentence, and 1 with a line for each link.

    Raises:
        DataError: If a line is invalid, names a word that its sentence lacks, or the number of sentences differs.
    """
    name, lines = display_name(path), list(read_lines(path))
    is_naacl = _NAACL.fullmatch(next(filter(str.strip, lines), "")) is not None
    first = base if base is not None else int(is_naacl)
    read = _naacl_links(lines, name, len(sources), first) if is_naacl else _pharaoh_links(lines, name)
    gold = []
    sides = [[len(spaced_words(text)) for text in side] for side in (sources, targets)]
    for number, (links, *sizes) in enumerate(zip(read, *sides, strict=False), start=1):
        moved = {(left - first, right - first): is_sure for (left, right), is_sure in links.items()}
        for link in moved:
            if outside := [
                f"word {word + first} of the {side}, which has {size} words"
                for word, size, side in zip(link, sizes, ("source", "target"), strict=True)
                if not 0 <= word < size
            ]:
                raise DataError(
                    f"{name}: a link of sentence {number} names {outside[0]}, counted from {first}; are they counted "
                    f"from {1 - first} (--gold-base {1 - first}), or is the text spaced otherwise? White space parts "
                    f"words, in Chinese or Japanese too"
                )
        gold.append(GoldLinks(frozenset(link for link, is_sure in moved.items() if is_sure), frozenset(moved)))
    if len(read) != len(sources):
        raise DataError(f"{name} has links of {len(read):,} sentences, but there are {len(sources):,}")
    return gold


def _pharaoh_links(lines: Iterable[str], name: str) -> list[dict[Link, bool]]:
    """Return the links of each line, with True for sure ones."""
    links_of_lines = []
    for number, line in enumerate(lines, start=1):
        links: dict[Link, bool] = {}
        for word in line.split():
            match = _LINK.fullmatch(word)
            if match is None:
                raise DataError(
                    f"{name}, line {number}: {word[:40]!r} is no link such as 3-5, or 3?5 if it is possible"
                )
            link = int(match[1]), int(match[3])
            links[link] = links.get(link, False) or match[2] == "-"
        links_of_lines.append(links)
    return links_of_lines


def _naacl_links(lines: Iterable[str], name: str, sentences: int, first: int) -> list[dict[Link, bool]]:
    links: defaultdict[int, dict[Link, bool]] = defaultdict(dict)
    for number, sentence, link, is_sure in _read_naacl(lines, name):
        if not 1 <= sentence <= sentences:
            raise DataError(f"{name}, line {number}: there is no sentence {sentence}; they are 1 to {sentences:,}")
        if first == 0 or 0 not in link:
            links[sentence][link] = links[sentence].get(link, False) or is_sure
    return [links[sentence] for sentence in range(1, sentences + 1)]


def _read_naacl(lines: Iterable[str], name: str) -> Iterator[tuple[int, int, Link, bool]]:
    for number, line in enumerate(lines, start=1):
        match = _NAACL.fullmatch(line)
        if match is not None:
            yield number, int(match[1]), (int(match[2]), int(match[3])), match[4] != "P"
        elif line.strip():
            raise DataError(
                f"{name}, line {number}: {line[:40]!r} is no link such as 17 3 5 S: a sentence, two words, S or P"
            )
