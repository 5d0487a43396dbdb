"""The kinds of findings of the data doctor (meaning, importance, remedy), and the findings of one corpus."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.formats import SentencePair
from clearhead.pages.parts import Severity
from clearhead.text.lines import shortened

NUM_EXAMPLES = 5
"""Number of examples kept of each finding: the first ones."""

SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class FindingKind:
    """A kind of defect."""

    title: str
    severity: Severity
    meaning: str
    """When a pair has the defect; docs/data-doctor.md has the thresholds."""
    why: str
    """Why it matters."""
    remedy: str
    """What to do."""


KINDS = {
    "unequal_files": FindingKind(
        "Files of unequal length",
        "serious",
        "two line-aligned files do not have the same number of lines; what follows the end of the shorter is not read",
        "from the place where lines were lost or added, every line is beside the wrong translation",
        "find the place (see also shifted rows), and mend the file that lost or gained lines",
    ),
    "shifted": FindingKind(
        "Rows shifted against each other",
        "serious",
        "in a block of rows the sources fit the targets some rows further up or down clearly better than their own, by "
        "lengths, numbers, names and signs; up to 20 rows are tried",
        "the model learns from pairs that are no translations",
        "restore the line that was lost or added at the first row, or pair the block anew: "
        "`clearhead corpus clean --fix shifted`",
    ),
    "leakage": FindingKind(
        "In validation or test text as well",
        "serious",
        "a side is also a side of the validation or test text, but for case, spacing and punctuation",
        "scores on text that was trained on promise more than the model can do",
        "name the test text as data.exclude in training, which drops these pairs; `train` does so for validation text",
    ),
    "overlap": FindingKind(
        "Test text in the validation text",
        "serious",
        "a side of a pair of the test text is also a side of the validation text, compared in the same way",
        "the best model is chosen by text that it is tested on afterwards",
        "remove these pairs from the validation text",
    ),
    "mojibake": FindingKind(
        "Garbled characters",
        "serious",
        "UTF-8 that was read in another encoding (Ã¤ for ä, â€™ for ’), once or twice, or what was lost by decoding "
        "(U+FFFD)",
        "the model learns to write such characters",
        "decode the original file as what it is, or mend the text: `clearhead corpus clean --fix mojibake`",
    ),
    "swapped": FindingKind(
        "Source and target exchanged",
        "serious",
        "each side is in the language of the other; recognized as one side is",
        "the model learns to translate in the wrong direction",
        "exchange the two sides: `clearhead corpus clean --fix swapped`",
    ),
    "wrong_language": FindingKind(
        "In the language of the other side",
        "serious",
        "one side is clearly in the language of the other side: by the letters that usually follow each other there "
        "(from 200 pairs on), or by the identifier of languages",
        "the model learns to copy, or to answer in the wrong language",
        "translate or remove these pairs",
    ),
    "other_language": FindingKind(
        "In a third language",
        "serious",
        "a side is in neither of the two languages: the identifier of languages finds another one clearly "
        "likelier than its own; names and words that are on both sides do not count",
        "the model learns to translate from or into that language now and then",
        "remove these pairs, or train a model of that language with them",
    ),
    "wrong_script": FindingKind(
        "In another script",
        "serious",
        "most letters of a side, and at least 4, are of scripts that have less than 2 % of the letters of that side",
        "it is another language, a transliteration, or text that was decoded wrongly",
        "remove these pairs, unless it should be so, as in names",
    ),
    "no_translation": FindingKind(
        "Sides that do not mean the same",
        "serious",
        "by sentence embeddings, the two sides are no more alike than texts of the corpus that have nothing to do with "
        "each other",
        "the model learns from pairs that are no translations",
        "look at some, very free translations may be among them; remove the others",
    ),
    "empty": FindingKind(
        "A blank side",
        "moderate",
        "source, target or both have nothing but white space",
        "there is nothing to learn from it; many of them are a sign that rows are shifted",
        "nothing: `train` drops them; look whether their translations were lost",
    ),
    "placeholders": FindingKind(
        "Placeholders that differ",
        "moderate",
        "a placeholder, tag, character reference or address is on one side more often than on the other",
        "a model that drops placeholders breaks the programs and pages that its translations go into",
        "mend the translation, or remove the pair",
    ),
    "identical": FindingKind(
        "Identical sides",
        "moderate",
        "both sides are the same, and have words beside placeholders, addresses and code",
        "the model learns to copy what it should translate; names and code are rightly the same",
        "remove what was left untranslated",
    ),
    "length_ratio": FindingKind(
        "Unusual ratio of lengths",
        "moderate",
        "one side is more than three times as long as is usual beside the other, 20 characters added to both",
        "one side says more than the other: a translation that is cut off, or not of this text",
        "look at the pairs; `train` drops those beyond data.max_ratio (6)",
    ),
    "too_long": FindingKind(
        "Very long",
        "moderate",
        "a side has more than 3,000 characters",
        "it is more than a segment, and often text whose line ends were lost",
        "cut it into sentences or paragraphs; `train` drops it (data.max_characters)",
    ),
    "duplicate": FindingKind(
        "The same pair again",
        "moderate",
        "both sides are letter for letter those of an earlier pair",
        "what is there a hundred times is learned a hundred times, and fills validation text with what is known",
        "nothing: `train` keeps the first of them (data.drop_duplicates)",
    ),
    "control_characters": FindingKind(
        "Control characters",
        "moderate",
        "a side holds a character that is no text: a control character other than tab and line feed, or one of private "
        "use",
        "they take up room in the vocabulary, and come out again in translations",
        "remove them, or look what they stood for in the program that wrote the file",
    ),
    "invisible": FindingKind(
        "Invisible characters",
        "mild",
        "a side holds a zero-width space, soft hyphen, byte order mark, direction mark or the like",
        "a word with one inside is another word to the model",
        "remove them where the language does not need them",
    ),
    "entities": FindingKind(
        "Character references",
        "mild",
        "a side holds a reference such as &amp; or &#39; where the text should have the character itself",
        "the model learns to write them, and readers see them",
        "resolve them, unless the text is the source of a page: `clearhead corpus clean --fix entities`",
    ),
    "numbers": FindingKind(
        "Numbers that differ",
        "mild",
        "a number of one side is not on the other; up to 31 only if there is another instead, for it may be a word",
        "one of the two is mistaken, or the pair is none; units and calendars differ rightly",
        "look at some; mend or remove what is wrong",
    ),
    "brackets": FindingKind(
        "Brackets that do not match",
        "mild",
        "brackets are opened and closed equally often on one side, and not on the other",
        "often a sign that a side is cut off",
        "look at some; mend or remove what is wrong",
    ),
    "several_targets": FindingKind(
        "Several translations of a source",
        "mild",
        "the source is that of an earlier pair, and the target is another",
        "variety is welcome in training text; where one source has very many, the model averages over them",
        "nothing, if they are all right",
    ),
}
"""Every kind of finding, in order of importance for equal numbers of pairs."""


@dataclass(frozen=True)
class Example:
    """An example pair of a finding."""

    origin: str
    """`file:line`."""
    source: str
    """Shortened, with invisible characters as ‹U+200B›."""
    target: str
    detail: str
    """Description of the defect."""


@dataclass
class Finding:
    """Number of pairs with a defect, and examples."""

    name: str
    """One of `KINDS`."""
    count: int = 0
    examples: list[Example] = field(default_factory=list)
    unchecked: str | None = None
    """Reason why it was not checked."""
    note: str | None = None
    """What could not be told, or how it was."""

    @property
    def kind(self) -> FindingKind:
        """The kind of defect."""
        return KINDS[self.name]

    def add(self, pair: SentencePair, detail: str, *, pairs: int = 1) -> None:
        """Count pairs, and keep one as an example if there are still few."""
        self.count += pairs
        if len(self.examples) < NUM_EXAMPLES:
            self.examples.append(Example(pair.origin, shown(pair.source), shown(pair.target), shown(detail)))

    def add_all(self, pairs: list[SentencePair], places: NDArray[np.int64], detail: Callable[[int], str]) -> None:
        """Count the pairs at some indices; `detail` is called only for examples."""
        room = max(0, NUM_EXAMPLES - len(self.examples))
        for place in places[:room].tolist():
            self.add(pairs[place], detail(place))
        self.count += max(0, places.size - room)

    def share(self, pairs: int) -> float | None:
        """Return the share of the examined pairs that have it; None if unchecked or not counted per examined pair."""
        if self.unchecked is not None or self.name in ("unequal_files", "overlap"):
            return None
        return self.count / pairs if pairs else 0.0

    def to_dict(self, pairs: int) -> dict[str, Any]:
        """Return it as plain values; `pairs` is the number of examined pairs."""
        return {
            "name": self.name,
            **asdict(self.kind),
            "count": None if self.unchecked else self.count,
            "share": self.share(pairs),
            "unchecked": self.unchecked,
            "note": self.note,
            "examples": list(map(asdict, self.examples)),
        }


def shown(text: str) -> str:
    r"""Return a text on one line, shortened, with characters that a terminal would not show as code points.

    >>> shown("a\u200bb\x1b[0m")
    'a‹U+200B›b‹U+001B›[0m'
    """
    cut = shortened(text, SHOWN_CHARACTERS)
    if cut.isprintable():
        return cut
    return "".join(
        char if char.isprintable() else " " if char in "\t\u00a0\u3000\u202f\u2009" else f"‹U+{ord(char):04X}›"
        for char in cut
    )
