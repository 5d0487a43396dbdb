"""Run the search, and return its hypotheses as unique, canonically tokenized, rescored texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from clearhead.config import DecodePrecision
from clearhead.decoding import (
    Engine,
    Ensemble,
    Hypothesis,
    Prefix,
    SearchOptions,
    decode,
    make_engine,
    score,
)
from clearhead.decoding.utf8 import CharacterParts
from clearhead.errors import ConfigError
from clearhead.model.stored import StoredModel
from clearhead.runtime.lazy import cached_property
from clearhead.runtime.pytorch import needing_pytorch
from clearhead.text.line_ends import on_one_line
from clearhead.text.unicode_forms import TextForm
from clearhead.tokenizers import Vocabulary

if TYPE_CHECKING:
    from clearhead.decoding import Required
    from clearhead.model.transformer import Transformer

    Model = StoredModel | Transformer | Ensemble

Decode = Callable[
    [
        Engine,
        list[list[int]],
        SearchOptions,
        Callable[[int], None] | None,
        Sequence[Prefix],
        Sequence["Required"],
    ],
    list[list[Hypothesis]],
]
"""A search function, called as `decoding.decode` is."""


class Engines:
    """The engines of a model by precision; each is built when first needed, and again when the weights have changed.

    Args:
        model: Returns the model, or an ensemble.
        tokenizer: Its vocabulary.
        is_plain: Whether plain code alone searches and scores, in fp32 whatever the precision.
    """

    def __init__(self, model: Callable[[], Model], tokenizer: Vocabulary, *, is_plain: bool = False) -> None:
        self._model = model
        self._tokenizer = tokenizer
        self._is_plain = is_plain
        self._built: dict[DecodePrecision, tuple[Model, Engine]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what is pickled: no engine, which holds memory of the compiled core; a copy builds its own."""
        return {**self.__dict__, "_built": {}}

    def of(self, precision: DecodePrecision) -> Engine:
        """Return the engine of a precision.

        Raises:
            ConfigError: If the model is encoder-only, or plain code is asked of an ensemble.
        """
        model = self._model()
        if not model.config.num_decoder_layers:
            raise ConfigError(
                "this model is an encoder alone, which writes nothing; in Python, bundle.model.hidden_states of the "
                "translator gives what it makes of a text"
            )
        built_from, engine = self._built.get(precision, (None, None))
        if engine is None or built_from != model or not engine.is_current():
            engine = _plain_engine(model) if self._is_plain else make_engine(model, precision)
            engine.parts = self.parts
            self._built[precision] = model, engine
        return engine

    @cached_property
    def parts(self) -> CharacterParts | None:
        """The tokens that are parts of characters; None if there are none."""
        return CharacterParts.of(self._tokenizer)


def _plain_engine(model: Model) -> Engine:
    if isinstance(model, Ensemble):
        raise ConfigError("an ensemble has no plain form; leave out plain")
    with needing_pytorch("plain code"):
        from clearhead.decoding.pytorch.plain_engine import PlainEngine

    return PlainEngine(model.own_module if isinstance(model, StoredModel) else model)


@dataclass(slots=True)
class DecodedText:
    """A hypothesis of the search and its text."""

    source: list[int]
    """Source ids."""
    tokens: tuple[int, ...]
    log_prob: float
    was_ended: bool
    text: str
    utility: float | None = None
    given: int = 0
    """Number of leading tokens that are not text; see `Prefix`."""
    has_placed_markup: bool = False
    """Whether its markup was restored after the search."""
    unmarked: tuple[str, str, float] | None = None
    """Source and text without that markup, and their log-probability if requested; None if none was restored."""
    follows_blank: bool = False
    """Whether a better hypothesis was left out because it is blank."""
    without_terms: str | None = None
    """The text that was found without its terms, if they made it much less probable."""


class TextSearch:
    """Runs searches on one engine and returns texts.

    Args:
        tokenizer: The vocabulary.
        engine: The engine that searches.
        scorer: Returns the engine that scores texts; called only when there is one to score.
        max_length: Tokens that the model can write at most; None for no limit.
        one_line: Replace line ends in texts by spaces.
        form: Unicode form of the texts.
        decode: The search function.
    """

    def __init__(
        self,
        tokenizer: Vocabulary,
        engine: Engine,
        scorer: Callable[[], Engine],
        max_length: int | None,
        one_line: bool,
        form: TextForm,
        decode: Decode = decode,
    ) -> None:
        self.tokenizer, self.engine, self.scorer = tokenizer, engine, scorer
        self.max_length, self.one_line, self.form, self.decode = max_length, one_line, form, decode

    def __call__(
        self,
        sources: list[list[int]],
        prefixes: list[Prefix],
        options: SearchOptions,
        *,
        scores: bool,
        on_progress: Callable[[int], None] | None = None,
        required: Sequence[Required] = (),
    ) -> list[list[DecodedText]]:
        """Return the texts of each source, best first.

        If duplicates leave fewer than `num_best` texts, the search is run again with all hypotheses of the beam.

        Args:
            sources: Source ids, no longer than the model reads.
            prefixes: Prefix of each translation.
            options: Options of the search.
            scores: Whether the log-probabilities must be those of the texts.
            on_progress: Called with the number of sources finished, batch by batch.
            required: Terms that each translation must contain, as for `decode`.
        """
        options = replace(options, scores=scores)
        groups = self.decode(self.engine, sources, options, on_progress, prefixes, required)
        found = self._texts(sources, groups, options)
        num_best, most = options.num_best, options.config.beam_size
        short = [row for row, group in enumerate(groups) if len(found[row]) < len(group) == num_best < most]
        if short and options.sampling is None:
            # Rare. Asking for more at once would keep beams of every line running that can no longer win.
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
        every = [one for group in found for one in group]  # tokenized even if unused: 1 % of the time
        self._retokenize(every, options.config.batch_tokens, score_all=scores and not is_own, score_retokenized=scores)
        return found

    def _texts(
        self, sources: list[list[int]], groups: Sequence[Sequence[Hypothesis]], options: SearchOptions
    ) -> list[list[DecodedText]]:
        """Convert hypotheses to texts: all samples, the best samples by utility for `mbr`, else each text once."""
        texts = self.tokenizer.decode_batch([hypothesis.tokens for group in groups for hypothesis in group])
        if self.one_line:
            texts = list(map(on_one_line, texts))
        texts = list(map(self.form, texts))
        remaining = iter(texts)
        found = [
            [DecodedText(ids, h.tokens, h.log_prob, h.was_ended, next(remaining)) for h in group]
            for ids, group in zip(sources, groups, strict=True)
        ]
        if options.are_samples:
            return found
        if options.mbr is not None:
            return [_most_expected(group, options.num_best) for group in found]
        return list(map(distinct, found))

    def _retokenize(
        self, found: Sequence[DecodedText], batch_tokens: int, *, score_all: bool, score_retokenized: bool
    ) -> None:
        """Set the tokens of every text to its canonical tokenization; rescore texts as requested.

        About one search in a hundred splits a word into other pieces than the tokenizer does (`b` + `ra` for `bra`).
        Only the text is returned, so its canonical tokenization is scored: the reported score equals what `score`
        returns. A vocabulary that loses text has no canonical tokenization; there the tokens found are kept.
        `score_all` is for searches whose log-probabilities are not the model's own.
        """
        longest = self.max_length or math.inf
        wanted = []
        for one, ids in zip(found, self.tokenizer.encode_targets([one.text for one in found]), strict=True):
            # If the canonical tokenization is longer than the model can write, keep the tokens found.
            is_retokenized = self.tokenizer.is_lossless and tuple(ids) != one.tokens and len(ids) <= longest
            if is_retokenized:
                one.tokens = tuple(ids)
            if score_all or (score_retokenized and is_retokenized):
                wanted.append(one)
        self._score(wanted, batch_tokens)

    def retokenize(
        self, found: Sequence[DecodedText], languages: Sequence[str | None], batch_tokens: int, most_scored: float
    ) -> None:
        """Tokenize texts that were changed, and score them.

        Args:
            found: The changed texts.
            languages: Target language of each text; None if neither its line nor a setting names one.
            batch_tokens: Tokens scored at once.
            most_scored: Tokens of the longest text to score.
        """
        texts = [one.text for one in found]
        for one, ids in zip(found, self.tokenizer.encode_targets(texts, languages), strict=True):
            one.tokens = tuple(ids)
        self._score([one for one in found if len(one.tokens) <= most_scored], batch_tokens)

    def _score(self, wanted: Sequence[DecodedText], batch_tokens: int) -> None:
        if wanted:
            sources, targets = [one.source for one in wanted], [list(one.tokens) for one in wanted]
            given = [one.given for one in wanted]
            log_probs = score(self.scorer(), sources, targets, batch_tokens=batch_tokens, given=given)
            for one, log_prob in zip(wanted, log_probs, strict=True):
                one.log_prob = log_prob


def distinct(group: list[DecodedText]) -> list[DecodedText]:
    """Return the first of each distinct text, in order."""
    first: dict[str, DecodedText] = {}
    for one in group:
        first.setdefault(one.text, one)
    return list(first.values())


def _most_expected(samples: list[DecodedText], count: int) -> list[DecodedText]:
    """Return the distinct texts with the highest utility; ties go to the more probable."""
    from clearhead.decoding import expected_chrf

    for one, utility in zip(samples, expected_chrf([one.text for one in samples]), strict=True):
        one.utility = utility
    return sorted(distinct(samples), key=lambda one: -(one.utility or 0.0))[:count]
