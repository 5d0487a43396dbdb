"""Searches that find texts: each text once, spelled as the tokenizer spells it, with the score of that spelling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from clearhead.decoding import Engine, Hypothesis, Prefix, Required, SearchOptions, decode, expected_chrf, score
from clearhead.tokenizers import Vocabulary
from clearhead.translation.result import on_one_line

__all__ = ["Decode", "FoundText", "TextSearch", "distinct"]

Decode = Callable[
    [
        Engine,
        list[list[int]],
        SearchOptions,
        Callable[[int], None] | None,
        Sequence[Prefix],
        Sequence[Required],
    ],
    list[list[Hypothesis]],
]
"""What searches, as `decoding.decode` does."""


@dataclass(slots=True)
class FoundText:
    """What a search found for a line, and its text."""

    source: list[int]
    """Ids of the line."""
    tokens: tuple[int, ...]
    log_prob: float
    was_ended: bool
    text: str
    utility: float | None = None
    given: int = 0
    """How many of the tokens, the first, are no text; see `Prefix`."""
    has_placed_markup: bool = False
    """Whether its markup was put into it afterwards."""


@dataclass(frozen=True, slots=True)
class TextSearch:
    """Searches of one engine."""

    tokenizer: Vocabulary
    engine: Engine
    scorer: Callable[[], Engine]
    """Makes what scores a text when there is one to score."""
    max_length: int | None
    """Tokens that the model writes at most; None is any number."""
    one_line: bool
    """Make the ends of lines in texts spaces."""
    decode: Decode = decode
    """What searches."""

    def __call__(
        self,
        sources: list[list[int]],
        prefixes: list[Prefix],
        options: SearchOptions,
        *,
        scores: bool,
        on_progress: Callable[[int], None] | None = None,
        required: Sequence[Required] = (),
    ) -> list[list[FoundText]]:
        """Return the texts of each source, the best first; a search that leaves fewer than asked for looks further.

        Args:
            sources: Ids, no more than the model reads.
            prefixes: What each translation begins with.
            options: What to search for.
            scores: Whether the log-probabilities must be those of the texts.
            on_progress: Called with the number of sources finished, batch by batch.
            required: What each translation must contain, as of `decode`.
        """
        groups = self.decode(self.engine, sources, options, on_progress, prefixes, required)
        found = self._texts(sources, groups, options)
        num_best, most = options.num_best, options.config.beam_size
        short = [row for row, group in enumerate(groups) if len(found[row]) < len(group) == num_best < most]
        if short and options.sampling is None:
            # Rare: as wide at once, every line would keep beams in flight that can no longer win.
            wider = replace(options, num_best=most)
            again = [sources[row] for row in short]
            of_short = [required[row] for row in short] if required else []
            groups = self.decode(self.engine, again, wider, None, [prefixes[row] for row in short], of_short)
            for row, group in zip(short, self._texts(again, groups, wider), strict=True):
                found[row] = group[:num_best]
        for group, prefix in zip(found, prefixes, strict=True):
            for one in group:
                one.given = prefix.given
        is_own = self.engine.finds_scores and options.shortlist is None
        every = [one for group in found for one in group]  # spelled though nobody may ask: 1 % of the time
        self._spell(every, options.config.batch_tokens, score_all=scores and not is_own, score_respelled=scores)
        return found

    def _texts(
        self, sources: list[list[int]], groups: Sequence[Sequence[Hypothesis]], options: SearchOptions
    ) -> list[list[FoundText]]:
        """Read what was found: samples as they are, of those for `mbr` the best; else each text where it ranks best."""
        texts = self.tokenizer.decode_batch([hypothesis.tokens for group in groups for hypothesis in group])
        if self.one_line:
            texts = list(map(on_one_line, texts))
        remaining = iter(texts)
        found = [
            [FoundText(ids, h.tokens, h.log_prob, h.was_ended, next(remaining)) for h in group]
            for ids, group in zip(sources, groups, strict=True)
        ]
        if options.are_samples:
            return found
        if options.mbr is not None:
            return [_most_expected(group, options.num_best) for group in found]
        return list(map(distinct, found))

    def _spell(self, found: Sequence[FoundText], batch_tokens: int, *, score_all: bool, score_respelled: bool) -> None:
        """Give all that was found the tokens and the score of its text.

        About one search in a hundred spells a word in other pieces than the tokenizer would (`b` + `ra` for `bra`). Its
        text is what leaves us, so the text's own spelling is scored: what `score` says of it is what is reported. A
        vocabulary that loses text has none to prefer; what was found stays.
        `score_all` is for searches whose log-probabilities are not the model's own.
        """
        longest = self.max_length or math.inf
        wanted = []
        for one, ids in zip(found, self.tokenizer.encode_targets([one.text for one in found]), strict=True):
            # Where the positions end before the spelling does, the tokens found stand for the text.
            is_respelled = self.tokenizer.is_lossless and tuple(ids) != one.tokens and len(ids) <= longest
            if is_respelled:
                one.tokens = tuple(ids)
            if score_all or (score_respelled and is_respelled):
                wanted.append(one)
        self._score(wanted, batch_tokens)

    def respell(
        self, found: Sequence[FoundText], languages: Sequence[str | None], batch_tokens: int, *, scores: bool
    ) -> None:
        """Give texts that were changed their tokens and, if they are asked for, their scores.

        Args:
            found: What was changed.
            languages: Of each text, where its line or a setting says so.
            batch_tokens: Tokens scored at once.
            scores: Whether to score them; those that are longer than the model writes never are.
        """
        texts = [one.text for one in found]
        for one, ids in zip(found, self.tokenizer.encode_targets(texts, languages), strict=True):
            one.tokens = tuple(ids)
        if scores:
            self._score([one for one in found if len(one.tokens) <= (self.max_length or math.inf)], batch_tokens)

    def _score(self, wanted: Sequence[FoundText], batch_tokens: int) -> None:
        if wanted:
            sources, targets = [one.source for one in wanted], [list(one.tokens) for one in wanted]
            given = [one.given for one in wanted]
            log_probs = score(self.scorer(), sources, targets, batch_tokens=batch_tokens, given=given)
            for one, log_prob in zip(wanted, log_probs, strict=True):
                one.log_prob = log_prob


def distinct(group: list[FoundText]) -> list[FoundText]:
    """Return the first of each text, in order."""
    first: dict[str, FoundText] = {}
    for one in group:
        first.setdefault(one.text, one)
    return list(first.values())


def _most_expected(samples: list[FoundText], count: int) -> list[FoundText]:
    """Return the first of each text, by its utility; of equal ones the more probable first."""
    for one, utility in zip(samples, expected_chrf([one.text for one in samples]), strict=True):
        one.utility = utility
    return sorted(distinct(samples), key=lambda one: -(one.utility or 0.0))[:count]
