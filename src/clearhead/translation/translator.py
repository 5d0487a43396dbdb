"""The translator: text in, text out. Translation, scoring and word alignment with a loaded model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Self, Unpack

from clearhead.bundle import Bundle, load_bundle
from clearhead.bundle.model_directory import model_directory
from clearhead.bundle.side_files import SHORTLIST_FILE, side_file_path
from clearhead.config import DecodeChanges, DecodeConfig, ModelConfig
from clearhead.decoding import Ensemble, Sampling, SearchOptions, decode, require_computable
from clearhead.errors import ConfigError, ModelError, nearest_name
from clearhead.model.stored import StoredModel
from clearhead.runtime.device import resolve_device
from clearhead.runtime.lazy import cached_property
from clearhead.text.lines import first_few
from clearhead.text.word_links import Link, Span, parts_of_words, words_of
from clearhead.tokenizers import require_texts
from clearhead.translation.alignment import Aligner
from clearhead.translation.markup_restoration import MarkupRestorer, places_markup
from clearhead.translation.memory import Lookup, Retrieve, left_to_translate, matches_of, recalled
from clearhead.translation.options import TranslateOptions, require_types
from clearhead.translation.pair_encoding import PairEncoder, score_pairs
from clearhead.translation.postprocessing import Postprocessor, replace_blank
from clearhead.translation.preprocessing import Preprocessor
from clearhead.translation.quality import QualityEstimator
from clearhead.translation.result import Translation
from clearhead.translation.retrieval import NeighbourFinder, consults
from clearhead.translation.search import Decode, Engines, TextSearch, align_samples, lines_done
from clearhead.translation.term_constraints import TermEncoder, search_with_terms
from clearhead.translation.terminology import Terms

if TYPE_CHECKING:
    from clearhead.decoding.shortlist import Shortlist
    from clearhead.model.own_model import OwnModel
    from clearhead.model.transformer import Transformer
    from clearhead.translation.match_repair import MatchRepairer


_OF_TRANSFORMERS = {"num_beams": "beam_size", "num_return_sequences": "num_best", "do_sample": "sampling"}
"""Arguments of `generate` in transformers, and ours."""

SHOWN_LANGUAGES = 3


class Translator:
    """A model ready to translate.

    Args:
        bundle: The model.
        path: The path it was loaded from.
        shortlist: The shortlist used with the setting `shortlist`; by default the one in the model directory.
        ensemble: Further models with the same vocabulary, whose probabilities are averaged with this one's.

    Example:
        translator = Translator.load("runs/de-en")
        translator.translate(["Ein Hund rennt."], beam_size=4)[0].text
    """

    def __init__(
        self,
        bundle: Bundle,
        path: Path | None = None,
        shortlist: Shortlist | None = None,
        ensemble: tuple[Bundle, ...] = (),
    ) -> None:
        self.bundle, self.path, self.shortlist, self.ensemble = bundle, path, shortlist, ensemble
        # What follows is for the package itself; copies of this translator share it, with all that is cached there.
        self.decode: Decode = decode
        """The search function; a server's combines the sentences of all clients into batches."""
        self.engines = Engines(self._weights, bundle.tokenizer)
        self._plain_engines = Engines(self._weights, bundle.tokenizer, is_plain=True)
        self.aligner = Aligner((bundle, *ensemble), partial(self.engines.of, "fp32"))
        """Aligns words of translations."""
        self.pair_encoder = PairEncoder(bundle.tokenizer, bundle.line_statistics)
        """Tokenizes sources and given translations."""
        self.term_encoder = TermEncoder(bundle.tokenizer, self.pair_encoder.target_form)
        self.preprocessor = Preprocessor(self.pair_encoder, bundle.tokenizer, self.config, bundle.line_statistics)
        self.find_neighbours = NeighbourFinder(self.pair_encoder, self.preprocessor.normalize, self.config)
        self._postprocessor = Postprocessor(bundle.tokenizer, self.config, bundle.line_statistics)

    def __repr__(self) -> str:
        sources, targets = (first_few(languages, SHOWN_LANGUAGES) for languages in self.bundle.languages)
        weights, config = self.bundle.weights, self.bundle.config
        facts = [
            *([f"from {sources}"] if sources else []),
            *([f"to {targets}"] if targets else []),
            f"{config.num_encoder_layers}+{config.num_decoder_layers} layers of width {config.d_model}",
            f"{weights.num_parameters():,} parameters",
            f"{self.bundle.tokenizer.vocab_size:,} pieces",
            *([f"averaged with {len(self.ensemble)} more"] if self.ensemble else []),
            f"{self.bundle.decode.precision} on {self.bundle.device}",
        ]
        name = "" if self.path is None else f" {self.path}"
        return f"<Translator{name}: {', '.join(facts)}>"

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        ensemble: Sequence[str | Path] = (),
        model: OwnModel | None = None,
    ) -> Self:
        """Read a model directory, or the model of a run directory.

        Args:
            path: A model directory or a run directory.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.
            ensemble: Further models with the same vocabulary. The probability of each token is the mean over all
                models. The first model's decode settings are used.
            model: A model of your own, as for `clearhead.train`, which gets the weights. Nothing is imported by a name
                in a file, so what was trained with an own model needs it here again.

        Raises:
            ModelError: If a directory is missing, damaged, mixed, or in another format; or if a further model has a
                different vocabulary.
            ConfigError: If `ensemble` is not a list or combined with `model`, or `model` has other settings.
            DeviceError: If the device is not available.
            ClearheadError: If the compiled core does not compute the model, and PyTorch is not installed.
        """
        if isinstance(ensemble, str | Path) or not isinstance(ensemble, Sequence):
            raise ConfigError(f"ensemble must be a list of models; for one write ['{ensemble}']")
        if model is not None and ensemble:
            raise ConfigError("an ensemble is loaded without a model of your own; leave out one of them")
        chosen_device = resolve_device(device)
        for directory in (path, *ensemble):
            model_directory(directory)  # what is not there is refused before anything is loaded
        bundle = load_bundle(path, device=chosen_device, model=model)
        others = [load_bundle(other, device=chosen_device) for other in ensemble]
        for weights in (member.weights for member in (bundle, *others)):
            if isinstance(weights, StoredModel):
                require_computable(weights, bundle.decode.precision)
        for other in others:
            if other.tokenizer.sha256 != bundle.tokenizer.sha256:
                raise ModelError(
                    f"{_tokenizer_of(other)} is not the vocabulary of {_tokenizer_of(bundle)}, and an ensemble "
                    f"averages the probabilities of the same tokens; models share a vocabulary if they are "
                    f"fine-tuned with --from, or trained on the same training and validation files, with another "
                    f"train.seed or shape"
                )
        return cls(bundle, Path(path), ensemble=tuple(others))

    @property
    def model(self) -> Transformer | Ensemble:
        """The model as a module of PyTorch, or the ensemble."""
        others = (bundle.model for bundle in self.ensemble)
        return Ensemble((self.bundle.model, *others)) if self.ensemble else self.bundle.model

    @property
    def config(self) -> ModelConfig:
        """The settings of the model; of an ensemble, see `Ensemble.config`."""
        return self._weights().config

    def _weights(self) -> StoredModel | Transformer | Ensemble:
        """Return the model or the ensemble, as stored where it was read."""
        others = (bundle.weights for bundle in self.ensemble)
        return Ensemble((self.bundle.weights, *others)) if self.ensemble else self.bundle.weights

    @cached_property
    def _quality_estimator(self) -> QualityEstimator:
        """The estimator of quality.

        Raises:
            ModelError: If the calibration of the model is damaged.
        """
        return QualityEstimator.of(self.bundle)

    @property
    def plain(self) -> Self:
        """The same translator by the readable code alone; see `translate`."""
        other = copy(self)
        other.engines = self._plain_engines
        other.aligner = Aligner((self.bundle, *self.ensemble), partial(other.engines.of, "fp32"))
        return other

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
        memory: Lookup | None = None,
        neighbours: Retrieve | None = None,
        reuse_from: float | None = None,
        scores: bool = True,
        alignments: bool = False,
        quality: bool = False,
        one_line: bool = False,
        raw: bool = False,
        plain: bool = False,
        name: str = "",
        first: int = 1,
        on_progress: Callable[[int], None] | None = None,
        **settings: Unpack[DecodeChanges],
    ) -> list[Translation]:
        """Translate lines; return one translation for each line, in order, independent of the others.

        A line longer than the lines the model was trained on is translated sentence by sentence, unless
        `split="never"`. Its sentences, with their own scores, are in `Translation.sentences`.

        Args:
            lines: Source lines; blank ones give empty translations, and those without words are left as they are
                (`translates`). A line may start with a language tag.
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
            memory: Looks a line up in a translation memory, such as `TranslationMemory.match`; the match is in
                `Translation.memory`. A line with a match that is reused is not translated.
            neighbours: Returns the pairs most similar to a text, such as `TranslationMemory.nearest`. The model
                consults them at every step, by the setting `memory_weight`; scores stay those of the model alone.
            reuse_from: Minimum similarity of a match that is reused if what differs can be replaced in its translation
                for certain (`translation.match_repair`), which gives it the flag `repaired`. By default,
                `match_repair.EXACT_FROM` where only numbers, placeholders or a removed end mark differ; 1 repairs none.
            scores: Score the translations. In float32, the compiled core computes the scores during the search;
                otherwise the model scores the results afterwards.
            alignments: Align the words of each line with those of its translation (`Translation.alignment`), by the
                method in the setting `align_by`.
            quality: Estimate the quality of each translation (`Translation.quality`); implies `scores`.
            one_line: Replace line ends in translations by spaces, for files with one translation a line.
            raw: Return what the model wrote, even where that is blank and for lines without words, to measure the
                model. Otherwise the next hypothesis that is not blank takes the place of a blank one, or else the
                source, without a score.
            plain: Search and score by the readable code alone (`beam_search`, `greedy_search`, `Transformer`), so that
                changes of it count; many times slower.
            name: Name of the file of the lines, for messages.
            first: Number of the first line in that file.
            on_progress: Called with the number of lines finished, batch by batch.
            **settings: Fields of `DecodeConfig` to change, such as `beam_size=1` or `split="always"`.

        Raises:
            ConfigError: If an argument has the wrong type, a setting is unknown or impossible, or the model has
                language tags and a line has no target language.
            DataError: If `lines` is not a list of texts, or one starts with an unknown language tag or contains an
                unpaired surrogate; if prefixes are not texts, not one for each line, or too long for the model.
            ModelError: If `shortlist` is set, and the model's is missing, damaged or another model's; or if the
                calibration that `quality` uses is damaged or another model's.
        """
        lines = require_texts(lines, "lines")
        options = TranslateOptions(
            num_best=num_best,
            sampling=sampling,
            mbr=mbr,
            diversity=diversity,
            terms=terms,
            memory=memory,
            neighbours=neighbours,
            reuse_from=reuse_from,
            scores=scores,
            alignments=alignments,
            quality=quality,
            one_line=one_line,
            raw=raw,
            plain=plain,
            name=name,
            first=first,
            on_progress=on_progress,
        )
        if memory is None:
            return self._translate(lines, prefix, options, settings)
        self._search_options(options, settings)  # reject bad settings before the memory is asked
        repairer = match_repairer(self, reuse_from, terms, settings)
        matches = {number: repairer(lines[number], match) for number, match in matches_of(memory, lines).items()}
        translations = self._translate(left_to_translate(lines, matches), prefix, options, settings)
        for number, match in matches.items():
            matches[number] = repairer.by_model(lines[number], match, translations[number].text)
        return recalled(lines, matches, translations, one_line=one_line)

    def _translate(
        self, lines: list[str], prefix: str | Sequence[str], options: TranslateOptions, settings: DecodeChanges
    ) -> list[Translation]:
        """Translate lines in seven stages: read, find terms, search, place markup, replace blanks, align, finish."""
        search_options = self._search_options(options, settings)  # reject bad settings before reading
        estimate = self._quality_estimator if options.quality else None
        by = self.plain if options.plain else self

        read = self.preprocessor(lines, search_options.config, prefix, options)
        segments = [segment for line in read for segment in line.to_translate]
        search = by._text_search(search_options, options.one_line)
        if options.neighbours is not None and consults(search.engine, search_options.config):
            self.find_neighbours(segments, options.neighbours, search_options.config)
        if options.terms is not None:
            self.term_encoder.find_terms(read, options.terms, search_options, self.config)
        run_search = search if options.terms is None else partial(search_with_terms, search)
        run_search(segments, search_options, on_progress=lines_done(read, options.on_progress))
        if search_options.are_samples:
            align_samples(read, search_options)
        elif places_markup(self.bundle.tokenizer, self.config, search_options.config):
            MarkupRestorer(self.config, search, by.aligner)(segments, search_options, scores_unmarked=options.quality)
        if not self._postprocessor.keeps_blank(options):
            replace_blank(segments, search_options, run_search)
        if options.alignments:
            by.aligner.align_segments(segments, search_options.config)
        return self._postprocessor(read, options, search_options, estimate)

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        plain: bool = False,
        name: str = "",
        first: int = 1,
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
            plain: Score by the readable code alone, in float32, so that changes of it count.
            name: Name of the file of the sources, for messages.
            first: Number of the first line in that file.
            on_progress: Called with the number of pairs finished, batch by batch.
            **settings: Fields of `DecodeConfig` to change; only `target_lang`, `source_lang`, `protect_numbers`,
                `max_input_tokens` and `batch_tokens` have an effect.

        Raises:
            ConfigError: If an argument has the wrong type, a setting is unknown or impossible, or the model has
                language tags and a line has no target language.
            DataError: If a side is not a list of texts, the numbers of lines differ, or a line exceeds the limit or
                starts with an unknown language tag.
        """
        require_types(plain=plain, name=name, first=first, on_progress=on_progress)
        config = self.decode_config(settings, Translator.score)
        engine = (self.plain if plain else self).engines.of("fp32")
        return score_pairs(
            engine, self.pair_encoder, sources, targets, config, name=name, first=first, on_progress=on_progress
        )

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
        require_types(words=words, name=name, on_progress=on_progress)
        self.aligner.require()
        config = self.decode_config(settings, Translator.align)
        pairs = self.pair_encoder.pairs(sources, targets, config, words=words, name=name)
        return self.aligner(pairs, by=config.align_by, batch_tokens=config.batch_tokens, on_progress=on_progress)

    def _search_options(self, options: TranslateOptions, settings: DecodeChanges) -> SearchOptions:
        """Return the options of the search.

        Raises:
            ConfigError: If a setting is unknown or impossible, or alignments are requested of a model without
                cross-attention.
            ModelError: If `shortlist` is set, and the model's is missing, damaged or another model's.
        """
        num_best, sampling, mbr = options.num_best, options.sampling, options.mbr
        if mbr is not None and sampling is None:
            sampling = Sampling()
        config = self.decode_config(settings, Translator.translate)
        scores = options.scores or options.quality
        search = SearchOptions(config, num_best, sampling, mbr, options.diversity, scores=scores)
        if config.protect_numbers and not self.bundle.tokenizer.num_placeholders:
            raise ConfigError(
                "protect_numbers: this model has no tokens for placeholders; train one with "
                "decode.protect_numbers = true"
            )
        if config.shortlist:
            search = replace(search, shortlist=self._learned_shortlist())
        if options.alignments:
            self.aligner.require()
        return search

    def translates(self, text: str, terms: Terms | None = None) -> bool:
        """Return whether a text is translated, not left as it is; see `Preprocessor.translates`."""
        return self.preprocessor.translates(text, terms)

    def _text_search(self, options: SearchOptions, one_line: bool) -> TextSearch:
        scorer = partial(self.engines.of, "fp32")
        form, max_length = self.pair_encoder.target_form, self.config.max_length
        # Rounding would change the samples; in float32 a seed gives the same samples for every precision setting.
        engine = self.engines.of("fp32" if options.sampling else options.config.precision)
        return TextSearch(self.bundle.tokenizer, engine, scorer, max_length, one_line, form, self.decode)

    def decode_config(
        self, settings: Mapping[str, object], method: Callable[..., object] | None = None
    ) -> DecodeConfig:
        """Return this model's decode settings with some changed; a setting that is None is not changed.

        Args:
            settings: Names and values, given as keyword arguments.
            method: What they were given to; its other keyword arguments are offered for a name that is unknown.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        if unknown := settings.keys() - DecodeConfig.model_fields.keys():
            others = signature(method).parameters.values() if method is not None else ()
            own = [other.name for other in others if other.kind is Parameter.KEYWORD_ONLY]
            names = [*DecodeConfig.model_fields, *own]
            meant = {name: nearest_name(_OF_TRANSFORMERS.get(name, name), names) for name in sorted(unknown)}
            raise ConfigError("; ".join(f"no argument {name!r}{words}" for name, words in meant.items()))
        changes = {name: value for name, value in settings.items() if value is not None}
        config = self.bundle.decode.with_changes(changes) if changes else self.bundle.decode
        longest = self.config.max_length or config.max_input_tokens
        return config if longest >= config.max_input_tokens else config.with_changes({"max_input_tokens": longest})

    def _learned_shortlist(self) -> Shortlist:
        """Return the shortlist learned for the model.

        Raises:
            ConfigError: If it is an ensemble.
            ModelError: If the shortlist is missing, damaged or another model's.
        """
        from clearhead.decoding.shortlist import Shortlist

        if self.ensemble:
            raise ConfigError("a shortlist is learned from one model; an ensemble translates without --shortlist")
        if self.shortlist is None:
            if self.path is None:
                raise ModelError("this model has no shortlist; learn one with clearhead.decoding.learn_shortlist")
            path = side_file_path(model_directory(self.path), SHORTLIST_FILE)
            self.shortlist = Shortlist.load(path, self.bundle.identity())
        return self.shortlist


def searching_by(translator: Translator, decode: Decode) -> Translator:
    """Return a copy of a translator with another search function; all else is shared."""
    other = copy(translator)
    other.decode = decode
    return other


def match_repairer(
    translator: Translator, reuse_from: float | None, terms: Terms | None, settings: DecodeChanges
) -> MatchRepairer:
    """Return what repairs memory matches; the arguments are those of `Translator.translate`.

    Raises:
        ConfigError: If `reuse_from` is not above 0 and at most 1.
    """
    from clearhead.translation.match_repair import MatchRepairer

    def align(sources: list[str], targets: list[str]) -> list[list[Link]]:
        return translator.align(sources, targets, words=parts_of_words, **settings)

    return MatchRepairer(reuse_from, target_language(translator, settings), terms, align)


def target_language(translator: Translator, settings: Mapping[str, object]) -> str:
    """Return the language that a translator translates into with some settings; empty if it is unknown."""
    asked = translator.decode_config(settings).target_lang
    known = [asked] if asked else translator.bundle.languages[1]
    return known[0] if len(known) == 1 else ""


def _tokenizer_of(bundle: Bundle) -> str:
    return str(Path(bundle.directory or "") / "tokenizer.json")
