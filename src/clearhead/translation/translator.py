"""The translator: text in, text out. Translation, scoring and word alignment with a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Self, Unpack

from clearhead.bundle import SHORTLIST_FILE, Bundle, load_bundle, model_directory
from clearhead.config import DecodeChanges, DecodeConfig, DecodePrecision
from clearhead.decoding import (
    Engine,
    Ensemble,
    Sampling,
    SearchOptions,
    Shortlist,
    decode,
    make_engine,
    score,
)
from clearhead.decoding.cross_attention import AlignmentHead
from clearhead.errors import ConfigError, ModelError
from clearhead.model.transformer import Transformer
from clearhead.runtime.device import resolve_device
from clearhead.runtime.lazy import cached_property
from clearhead.text.line_ends import on_one_line
from clearhead.text.quality_flags import MOST_SHOWN, Flag, SeenInTraining, find_flags, placeholders_of
from clearhead.text.sentence_splitting import CutLine
from clearhead.text.word_links import Link, Span, words_of
from clearhead.tokenizers import require_texts
from clearhead.translation.alignment import align, alignment_head, encoded_pair
from clearhead.translation.markup_restoration import MarkupRestorer
from clearhead.translation.pair_encoding import PairEncoder, require_continuations
from clearhead.translation.preprocessing import PreprocessedLines, Preprocessor
from clearhead.translation.result import Alternative, Translation
from clearhead.translation.search import Decode, DecodedText, TextSearch
from clearhead.translation.segmentation import Piece
from clearhead.translation.term_constraints import TermEncoder, WantedTerms, search_with_terms
from clearhead.translation.terminology import Terms

_ARGUMENTS: Mapping[str, tuple[Any, str]] = {
    "num_best": (int, "a whole number"),
    "sampling": (Sampling | None, "a clearhead.Sampling"),
    "mbr": (int | None, "a whole number of samples"),
    "diversity": (int | float, "a number"),
    "terms": (Terms | None, "a clearhead.Terms"),
    "scores": (bool, "True or False"),
    "alignments": (bool, "True or False"),
    "one_line": (bool, "True or False"),
    "name": (str, "text"),
    "first": (int, "a whole number"),
    "on_progress": (Callable | None, "a function"),
    "words": (Callable, "a function"),
}
"""Type of each argument of the methods, other than texts, and its name in messages."""


@dataclass
class Translator:
    """A model ready to translate.

    Example:
        translator = Translator.load("runs/de-en")
        translator.translate(["Ein Hund rennt."], beam_size=4)[0].text
    """

    bundle: Bundle
    path: Path | None = field(default=None)
    """The path it was loaded from."""
    shortlist: Shortlist | None = field(default=None, repr=False)
    """The shortlist used with the setting `shortlist`; read from the model directory when first needed."""
    ensemble: tuple[Bundle, ...] = field(default=(), repr=False)
    """Further models with the same vocabulary, whose probabilities are averaged with this one's."""
    decode: Decode = field(default=decode, repr=False)
    """The search function; a server's combines the sentences of all clients into batches."""
    _engines: dict[DecodePrecision, Engine] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto", ensemble: Sequence[str | Path] = ()) -> Self:
        """Read a model directory, or the model of a run directory.

        Args:
            path: A model directory or a run directory.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.
            ensemble: Further models with the same vocabulary. The probability of each token is the mean over all
                models. The first model's decode settings are used.

        Raises:
            ModelError: If a directory is missing, damaged, mixed, or from a newer version; or if a further model has a
                different vocabulary.
            ConfigError: If `ensemble` is not a list.
            DeviceError: If the device is not available.
        """
        if isinstance(ensemble, str | Path) or not isinstance(ensemble, Sequence):
            raise ConfigError(f"ensemble must be a list of models; for one write ['{ensemble}']")
        found = resolve_device(device)
        bundle, others = load_bundle(path, device=found), [load_bundle(other, device=found) for other in ensemble]
        for other, own in zip(ensemble, others, strict=True):
            if own.tokenizer.sha256 != bundle.tokenizer.sha256:
                raise ModelError(
                    f"{_tokenizer_of(other)} is not the vocabulary of {_tokenizer_of(path)}, and an ensemble averages "
                    f"the probabilities of the same tokens; models of one vocabulary are those of the same training "
                    f"text, with another train.seed or shape, and those that were begun with --from"
                )
        return cls(bundle, Path(path), ensemble=tuple(others))

    @property
    def model(self) -> Transformer | Ensemble:
        """The model, or the ensemble."""
        others = (bundle.model for bundle in self.ensemble)
        return Ensemble((self.bundle.model, *others)) if self.ensemble else self.bundle.model

    def translate(
        self,
        lines: Sequence[str],
        *,
        num_best: int = 1,
        sampling: Sampling | None = None,
        mbr: int | None = None,
        diversity: float = 0.0,
        prefix: str | Sequence[str] = "",
        terms: Terms | None = None,
        scores: bool = True,
        alignments: bool = False,
        one_line: bool = False,
        name: str = "",
        first: int = 1,
        on_progress: Callable[[int], None] | None = None,
        **settings: Unpack[DecodeChanges],
    ) -> list[Translation]:
        """Translate lines; return one translation for each line, in order, independent of the others.

        A line longer than the lines the model was trained on is translated sentence by sentence, unless
        `split="never"`. Its sentences, with their own scores, are in `Translation.sentences`.

        Args:
            lines: Source lines; blank ones give empty translations. A line may start with a language tag.
            num_best: Translations of each line; fewer if the search finds fewer texts.
            sampling: Draw translations at random instead of searching for the best.
            mbr: Minimum Bayes risk decoding: draw this many samples of each line, and return the one most similar to
                all the others by chrF. `sampling` sets how they are drawn; by default, `Sampling()`.
            diversity: Diverse beam search: a token is penalised by this many nats for each earlier hypothesis with the
                same token at the same step. 0.2 to 0.8 are usual; 0 is ordinary search.
            prefix: Text that every translation must begin with exactly, or one text for each line; its last word may be
                completed. Blank lines stay blank. If a line is split, its first sentence gets the prefix; a line whose
                prefix has several sentences is not split.
            terms: Terms that translations must use; the outcome is in `Translation.terms`.
            scores: Score the translations. In float32, the compiled core computes the scores during the search;
                otherwise the model scores the results afterwards.
            alignments: Align the words of each line with those of its translation (`Translation.alignment`), by the
                method in the setting `align_by`.
            one_line: Replace line ends in translations by spaces, for files with one translation a line.
            name: Name of the file of the lines, for messages.
            first: Number of the first line in that file.
            on_progress: Called with the number of lines finished, batch by batch.
            **settings: Fields of `DecodeConfig` to change, such as `beam_size=1` or `split="always"`.

        Raises:
            ConfigError: If an argument has the wrong type, a setting is unknown or impossible, or the model has
                language tags and a line has no target language.
            DataError: If `lines` is not a list of texts, or one starts with an unknown language tag or contains an
                unpaired surrogate; if prefixes are not texts, not one for each line, or too long for the model.
            ModelError: If `shortlist` is set, and the model's is missing, damaged or another model's.
        """
        lines = require_texts(lines, "lines")
        _require_arguments(num_best=num_best, sampling=sampling, mbr=mbr, diversity=diversity, terms=terms)
        _require_arguments(scores=scores, alignments=alignments, one_line=one_line, name=name, first=first)
        _require_arguments(on_progress=on_progress)
        options = self._options(num_best, sampling, mbr, diversity, settings)  # reject bad settings before reading
        if alignments:
            self._require_alignments()
        read = self._read(lines, prefix, options.config, one_line=one_line, name=name, first=first)
        search = self._text_search(options, one_line)
        wanted = self._wanted(read, terms, options)
        done = read.cut_up.lines_done(on_progress)
        if terms is None:
            groups = search(read.ids, read.prefixes, options, scores=scores, on_progress=done)
        else:
            to_search = read.ids, read.prefixes, options
            groups = search_with_terms(search, wanted, *to_search, scores=scores, on_progress=done)
        filled = read.filled_pieces
        if self.places_markup(options.config) and not options.are_samples:
            with_markup = MarkupRestorer(self.model.config, search, lambda: self._aligning)
            groups = with_markup(filled, read.ids, read.prefixes, wanted, groups, options, scores=scores)
        if options.sampling is not None and options.are_samples:
            groups = read.aligned(groups, options.sampling.seed)
        blank = Translation(
            "",
            "",
            0.0 if scores else None,
            (),
            terms=None if terms is None else (),
            alignment=() if alignments else None,
        )
        results = [replace(blank, source=piece.source) for piece in read.cut_up.pieces]
        for index, piece, ids, group, own in zip(read.filled, filled, read.ids, groups, wanted, strict=True):
            made = self._translation(piece, ids, group, num_best, scores, one_line)
            if terms is not None:
                made = replace(made, terms=own.uses(group[0].text))
            results[index] = made
        if alignments:
            for index, links in zip(read.filled, self._linked(filled, read.ids, groups, options.config), strict=True):
                results[index] = replace(results[index], alignment=tuple(links))
        return read.joined(results, num_best=num_best, are_samples=options.are_samples, one_line=one_line)

    def parts(
        self, lines: Sequence[str], *, name: str = "", first: int = 1, **settings: Unpack[DecodeChanges]
    ) -> list[CutLine]:
        """Return the units that `translate` translates of each line: the whole line, or its sentences if it is split.

        Each sentence is a line of its own, with the line's language tag. With `split="never"` and `familiar=False`,
        `translate` gives it the same translation as within its line. The sentences are normalized (`decode.familiar`),
        so white space and capitals may differ from the line's, but nothing else. A line in capitals that is normalized
        is a single unit, because the case of its translation depends on the whole.

        Args:
            lines: Source lines.
            name: Name of the file of the lines, for messages.
            first: Number of the first line in that file.
            **settings: Fields of `DecodeConfig` to change.

        Raises:
            ConfigError: If a setting is unknown or impossible, or the model has language tags and a line has no target
                language.
            DataError: If `lines` is not a list of texts, or one starts with an unknown language tag or contains an
                unpaired surrogate.
        """
        lines = require_texts(lines, "lines")
        read = self._read(lines, "", self.decode_config(settings), name=name, first=first)
        return read.parts(list(self.bundle.tokenizer.language_tags))

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        name: str = "",
        on_progress: Callable[[int], None] | None = None,
        **settings: Unpack[DecodeChanges],
    ) -> list[float]:
        """Return the model's own log-probability of each target given its source, in nats.

        A line is scored whole, however many sentences it has. The score that `translate` reports for a line that it
        split is the sum over its `sentences`, and equals the sum of the scores of these sentences here.

        Scores are computed over the whole vocabulary, in float32 by the compiled core, or in float64 by PyTorch if the
        core is not available. A blank source with an empty target scores 0 without running the model.

        Args:
            sources: Source lines.
            targets: Their translations.
            name: Name of the file of the sources, for messages.
            on_progress: Called with the number of pairs finished, batch by batch.
            **settings: Fields of `DecodeConfig` to change; only `target_lang`, `source_lang`, `protect_numbers`,
                `max_input_tokens` and `batch_tokens` have an effect.

        Raises:
            ConfigError: If an argument has the wrong type, a setting is unknown or impossible, or the model has
                language tags and a line has no target language.
            DataError: If a side is not a list of texts, the numbers of lines differ, or a line exceeds the limit or
                starts with an unknown language tag.
        """
        _require_arguments(name=name, on_progress=on_progress)
        config = self.decode_config(settings)
        parts, source_ids, target_ids = self.pair_encoder.encoded(sources, targets, config, name=name)
        if self.model.config.is_decoder_alone:
            most = self.model.config.max_length
            require_continuations(source_ids, target_ids, targets, most=most, name=name)
        rows = [row for row, (_, text) in enumerate(parts) if text.strip() or targets[row]]
        if on_progress is not None and len(rows) < len(parts):
            on_progress(len(parts) - len(rows))
        scores = score(
            self._engine_for("fp32"),
            [source_ids[row] for row in rows],
            [target_ids[row] for row in rows],
            batch_tokens=config.batch_tokens,
            on_progress=on_progress,
            given=[len(self.bundle.tokenizer.given(parts[row][0])) for row in rows],
        )
        found = dict(zip(rows, scores, strict=True))
        return [found.get(row, 0.0) for row in range(len(parts))]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        words: Callable[[str], list[Span]] = words_of,
        name: str = "",
        on_progress: Callable[[int], None] | None = None,
        **settings: Unpack[DecodeChanges],
    ) -> list[list[Link]]:
        """Return the word alignment of each source with its given translation (forced alignment).

        A line is aligned whole, as `score` scores it.

        Args:
            sources: Source lines; a language tag is not counted as a word.
            targets: Their translations.
            words: Returns the spans of the words of a text.
            name: Name of the file of the sources, for messages.
            on_progress: Called with the number of pairs finished, batch by batch.
            **settings: Fields of `DecodeConfig` to change; only `align_by` and the settings that `score` uses have an
                effect.

        Raises:
            ConfigError: If a setting is unknown or impossible, the model has language tags and a line has no target
                language, or the model has no cross-attention.
            DataError: As `score`.
            ModelError: If the file naming the alignment head is damaged or belongs to another model.
        """
        _require_arguments(words=words, name=name, on_progress=on_progress)
        self._require_alignments()
        config = self.decode_config(settings)
        pairs = self.pair_encoder.pairs(sources, targets, config, words=words, name=name)
        return align(
            self._aligning, pairs, by=config.align_by, batch_tokens=config.batch_tokens, on_progress=on_progress
        )

    def searching_by(self, decode: Decode) -> Self:
        """Return a copy of this translator with another search function; its engines are shared.

        Args:
            decode: The search function.
        """
        other = copy(self)
        other.decode = decode
        return other

    def _options(
        self,
        num_best: int,
        sampling: Sampling | None,
        mbr: int | None,
        diversity: float,
        settings: Mapping[str, Any],
    ) -> SearchOptions:
        """Return the options of the search.

        Raises:
            ConfigError: If a setting is unknown or impossible.
            ModelError: If `shortlist` is set, and the model's is missing, damaged or another model's.
        """
        if mbr is not None and sampling is None:
            sampling = Sampling()
        options = SearchOptions(self.decode_config(settings), num_best, sampling, mbr, diversity)
        if options.config.protect_numbers and not self.bundle.tokenizer.num_placeholders:
            raise ConfigError(
                "protect_numbers: this model has no tokens for placeholders; train one with "
                "decode.protect_numbers = true"
            )
        return replace(options, shortlist=self.learned_shortlist()) if options.config.shortlist else options

    def _read(
        self,
        lines: Sequence[str],
        prefix: str | Sequence[str],
        config: DecodeConfig,
        *,
        one_line: bool = False,
        name: str,
        first: int,
    ) -> PreprocessedLines:
        parts = self.pair_encoder.split_sources(lines, config.target_lang, name=name, first=first)
        return self._reader(lines, parts, prefix, config, one_line=one_line)

    def _text_search(self, options: SearchOptions, one_line: bool) -> TextSearch:
        # Rounding would change the samples; in float32 a seed gives the same samples for every precision setting.
        engine = self._engine_for("fp32" if options.sampling else options.config.precision)
        scorer = partial(self._engine_for, "fp32")
        return TextSearch(self.bundle.tokenizer, engine, scorer, self.model.config.max_length, one_line, self.decode)

    def _wanted(self, read: PreprocessedLines, terms: Terms | None, options: SearchOptions) -> list[WantedTerms]:
        """Return the terms that the translation of each piece must contain.

        Raises:
            ConfigError: If terms cannot be combined with the kind of search or model.
        """
        if terms is None:
            return [WantedTerms()] * len(read.filled)
        idle = {
            "samples (sampling, mbr), which are drawn": options.sampling is not None,
            "diverse search": options.diversity > 0,
            "a shortlist, which may lack their tokens": options.config.shortlist,
            "a decoder alone, which continues a text": self.model.config.is_decoder_alone,
        }
        if found := next((what for what, is_so in idle.items() if is_so), None):
            raise ConfigError(
                f"terms are met by searching the whole vocabulary for translations; they cannot be with {found}"
            )
        pieces = zip(read.filled_pieces, read.prefixes, read.are_in_capitals(), strict=True)
        return [
            self._term_encoder.wanted(terms, piece.protected.text, prefix.given, any_case=in_capitals)
            for piece, prefix, in_capitals in pieces
        ]

    def _translation(
        self, piece: Piece, ids: list[int], group: Sequence[DecodedText], num_best: int, scores: bool, one_line: bool
    ) -> Translation:
        def restored(text: str) -> str:
            original = piece.protected.restored(text)
            return on_one_line(original) if one_line else original  # a tag may contain a line end

        best = [Alternative(restored(one.text), one.log_prob if scores else None, one.utility) for one in group]
        text_ids = group[0].tokens[group[0].given : -1]
        return Translation(
            source=piece.source,
            text=best[0].text,
            score=best[0].score,
            utility=best[0].utility,
            tokens=tuple(map(restored, self.bundle.tokenizer.pieces(text_ids))),  # even if unused: at most 2 % of time
            alternatives=tuple(best) if num_best > 1 else (),
            source_truncated=len(piece.ids) > len(ids),
            output_truncated=group[0].was_ended,
            warnings=self._flags(piece, best[0].text, has_placed_markup=group[0].has_placed_markup),
        )

    def _linked(
        self,
        pieces: Sequence[Piece],
        ids: Sequence[list[int]],
        groups: Sequence[Sequence[DecodedText]],
        config: DecodeConfig,
    ) -> list[list[Link]]:
        """Return the word links of each piece with its best translation."""
        texts = self.bundle.tokenizer.decode_batch([group[0].tokens for group in groups])
        pairs = [
            encoded_pair(self.bundle.tokenizer, piece.protected, own, text, list(group[0].tokens))
            for piece, own, text, group in zip(pieces, ids, texts, groups, strict=True)
        ]
        return align(self._aligning, pairs, by=config.align_by, batch_tokens=config.batch_tokens)

    @cached_property
    def pair_encoder(self) -> PairEncoder:
        """Tokenizes sources and given translations."""
        return PairEncoder(self.bundle.tokenizer)

    @cached_property
    def _aligning(self) -> list[tuple[Transformer, AlignmentHead]]:
        """The models that compute alignments, each with its alignment head."""
        return [(bundle.model, alignment_head(bundle)) for bundle in (self.bundle, *self.ensemble)]

    def _require_alignments(self) -> None:
        """Require a model with cross-attention.

        Raises:
            ConfigError: If it is encoder-only or decoder-only.
        """
        if not self.model.config.is_encoder_decoder:
            raise ConfigError("words are aligned by cross-attention, which an encoder or a decoder alone has not")

    def decode_config(self, settings: Mapping[str, Any]) -> DecodeConfig:
        """Return this model's decode settings with some changed; a setting that is None is not changed.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        config = self.bundle.decode.with_changes({name: value for name, value in settings.items() if value is not None})
        longest = self.model.config.max_length
        if longest is None or longest >= config.max_input_tokens:
            return config
        return config.with_changes({"max_input_tokens": longest})

    def places_markup(self, config: DecodeConfig) -> bool:
        """Return whether markup must be restored: if configured, for a model without tokens for placeholders."""
        is_kept = self.bundle.tokenizer.num_placeholders > 0
        return config.place_markup and not is_kept and self.model.config.is_encoder_decoder

    def _engine_for(self, precision: DecodePrecision) -> Engine:
        """Return the engine of a precision; it is cached, and rebuilt when the model's weights have changed."""
        if not self.bundle.model.config.num_decoder_layers:
            raise ConfigError(
                "this model is an encoder alone, which writes nothing; in Python, bundle.model.hidden_states of the "
                "translator gives what it makes of a text"
            )
        engine = self._engines.get(precision)
        if engine is None or not engine.is_current():
            self._engines[precision] = engine = make_engine(self.model, precision)
        return engine

    def _flags(self, piece: Piece, text: str, *, has_placed_markup: bool) -> tuple[Flag, ...]:
        if self.bundle.model.config.is_decoder_alone:
            return ()  # the continuation of a text need not contain what the text contains
        tokens = len(piece.ids)
        found = find_flags(piece.text, text, tokens=tokens, sentences=piece.sentences, seen=self._seen)
        if not has_placed_markup:
            return found
        return (*found, Flag("placed_markup", " ".join(list(placeholders_of(piece.text))[:MOST_SHOWN])))

    @cached_property
    def _term_encoder(self) -> TermEncoder:
        return TermEncoder(self.bundle.tokenizer)

    @cached_property
    def _reader(self) -> Preprocessor:
        return Preprocessor(self.bundle.tokenizer, self.model.config, self.bundle.line_statistics)

    @cached_property
    def _seen(self) -> SeenInTraining:
        tokenizer = self.bundle.tokenizer
        return SeenInTraining.of(self.bundle.line_statistics, lambda: tokenizer.pieces(range(tokenizer.vocab_size)))

    def learned_shortlist(self) -> Shortlist:
        """Return the shortlist learned for the model.

        Raises:
            ConfigError: If it is an ensemble.
            ModelError: If the shortlist is missing, damaged or another model's.
        """
        if self.ensemble:
            raise ConfigError("a shortlist is learned from one model; an ensemble translates without --shortlist")
        if self.shortlist is None:
            if self.path is None:
                raise ModelError("this model has no shortlist; learn one with clearhead.decoding.learn_shortlist")
            self.shortlist = Shortlist.load(model_directory(self.path) / SHORTLIST_FILE, self.identity())
        return self.shortlist

    def identity(self) -> dict[str, str]:
        """Return the hashes that identify the model; see `Bundle.identity`."""
        return self.bundle.identity()


def _tokenizer_of(path: str | Path) -> Path:
    return model_directory(path) / "tokenizer.json"


def _require_arguments(**given: object) -> None:
    """Check the types of arguments.

    Raises:
        ConfigError: Naming the first argument of a wrong type.
    """
    for name, value in given.items():
        kind, words = _ARGUMENTS[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise ConfigError(f"{name} must be {words}, not {type(value).__name__}")
