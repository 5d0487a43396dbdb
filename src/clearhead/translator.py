"""Text in, text out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

from clearhead.bundle import SHORTLIST_FILE, Bundle, load_bundle, model_directory
from clearhead.config import DecodeConfig
from clearhead.decoding import (
    CompiledModel,
    Hypothesis,
    PackedModel,
    Sampling,
    SearchOptions,
    Shortlist,
    decode,
    pack,
    score,
)
from clearhead.device import resolve_device
from clearhead.errors import ConfigError, DataError, ModelError
from clearhead.tokenizer import require_texts, split_tag

__all__ = ["Alternative", "Translation", "Translator"]


@dataclass(frozen=True, slots=True)
class Alternative:
    """One of the n best translations of a line."""

    text: str
    score: float


@dataclass(frozen=True, slots=True)
class Translation:
    """The translation of one line."""

    source: str
    text: str
    """The translation; empty for an empty line."""
    score: float
    """Log-probability of the translation given the source, in nats; with a shortlist, mostly a little above the model's
    own: what it does not allow has no share."""
    tokens: tuple[str, ...]
    """The pieces of the text, the end token left out."""
    alternatives: tuple[Alternative, ...] = ()
    """The n best, this one included, in the order the search ranked them, if more than one was asked for."""
    truncated: bool = False
    """The source was longer than the limit, and only its beginning is translated."""


@dataclass
class Translator:
    """A model ready to translate.

    Example:
        translator = Translator.load("runs/de-en")
        translator.translate(["Ein Hund rennt."], beam_size=4)[0].text
    """

    bundle: Bundle
    path: Path | None = field(default=None)
    """Where it was loaded from."""
    shortlist: Shortlist | None = field(default=None, repr=False)
    """What it writes where the setting `shortlist` asks for it; read from the model directory when first needed."""
    _packed: PackedModel | CompiledModel | None = field(default=None, init=False, repr=False)

    @classmethod
    def load(cls, path: str | Path, *, device: str = "auto") -> Self:
        """Read a model directory, or the model of a run directory.

        Args:
            path: A model directory or a run directory.
            device: `auto`, `cpu`, `cuda` or `cuda:1`.

        Raises:
            ModelError: If the directory is missing, damaged, mixed, or from a newer version.
            DeviceError: If the device is not there.
        """
        return cls(load_bundle(path, device=resolve_device(device)), Path(path))

    def translate(
        self,
        lines: Sequence[str],
        *,
        num_best: int = 1,
        sampling: Sampling | None = None,
        on_progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> list[Translation]:
        """Translate lines; one line in is one translation out, in order, whatever else is among them.

        Args:
            lines: Source lines; blank ones give empty translations. A line may start with a language tag.
            num_best: Translations of each line.
            sampling: Draw translations at random instead of searching for the best.
            on_progress: Called with the number of lines finished, batch by batch.
            **settings: Fields of `DecodeConfig` other than the model's own, such as `beam_size=1`.

        Raises:
            ConfigError: If a setting is unknown or impossible.
            DataError: If `lines` is not a list of texts, or one holds an unpaired surrogate.
            ModelError: If `shortlist` is set, and the model's is missing, damaged or another model's.
        """
        lines = require_texts(lines, "lines")
        if not isinstance(num_best, int):
            raise ConfigError(f"num_best must be a whole number, not {type(num_best).__name__}")
        if not isinstance(sampling, Sampling | None):
            raise ConfigError(f"sampling must be a clearhead.decoding.Sampling, not {type(sampling).__name__}")
        config = self.decode_config(settings)
        shortlist = self.learned_shortlist() if config.shortlist else None
        options = SearchOptions(config, num_best=num_best, sampling=sampling, shortlist=shortlist)
        tokenizer = self.bundle.tokenizer
        filled = [index for index, line in enumerate(lines) if split_tag(line, tokenizer.language_tags)[1].strip()]
        spelled = tokenizer.encode_sources(lines, config.target_lang)
        sources = [spelled[index] for index in filled]
        limit = config.max_input_tokens
        cut = [ids if len(ids) <= limit else [*ids[: limit - 1], tokenizer.eos_id] for ids in sources]
        found = decode(self._packed_model(config), cut, options, on_progress)
        found = self._as_spelled(cut, found, config)

        results = [Translation(line, "", 0.0, ()) for line in lines]
        for index, ids, hypotheses in zip(filled, sources, found, strict=True):
            translation = self._translation(lines[index], hypotheses)
            results[index] = replace(translation, truncated=len(ids) > limit)
        return results

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        on_progress: Callable[[int], None] | None = None,
        **settings: Any,
    ) -> list[float]:
        """Return the log-probability of each target given its source, in nats.

        Args:
            sources: Source lines.
            targets: Their translations.
            on_progress: Called with the number of pairs finished, batch by batch.
            **settings: Fields of `DecodeConfig` other than the model's own; `target_lang` and `batch_tokens` matter.

        Raises:
            DataError: If a side is not a list of texts, the numbers of lines differ, or a line is longer than the
                limit.
        """
        sources, targets = require_texts(sources, "sources"), require_texts(targets, "targets")
        if len(sources) != len(targets):
            raise DataError(f"{len(sources)} source lines but {len(targets)} target lines; they must pair up")
        config = self.decode_config(settings)
        source_ids = self.bundle.tokenizer.encode_sources(sources, config.target_lang)
        target_ids = self.bundle.tokenizer.encode_targets(targets)
        for number, ids in enumerate(map(max, zip(map(len, source_ids), map(len, target_ids), strict=True)), start=1):
            if ids > config.max_input_tokens:
                raise DataError(
                    f"pair {number} has {ids:,} tokens on one side; scoring takes at most {config.max_input_tokens:,} "
                    f"(decode.max_input_tokens)"
                )
        return score(
            self.bundle.model, source_ids, target_ids, batch_tokens=config.batch_tokens, on_progress=on_progress
        )

    def _as_spelled(
        self, sources: list[list[int]], found: list[list[Hypothesis]], config: DecodeConfig
    ) -> list[list[Hypothesis]]:
        """Give every translation the tokens and the score of its text.

        About one search in a hundred spells a word in other pieces than the tokenizer would (`b` + `ra` for `bra`). Its
        text is what leaves us, so the text's own spelling is scored: what `score` says of it is what is reported.
        """
        tokenizer = self.bundle.tokenizer
        longest = self.bundle.model.config.max_length or math.inf
        places = [(row, rank) for row, hypotheses in enumerate(found) for rank in range(len(hypotheses))]
        texts = tokenizer.decode_batch([found[row][rank].tokens for row, rank in places])
        spelled = {
            place: ids
            for place, ids in zip(places, tokenizer.encode_targets(texts), strict=True)
            if tuple(ids) != found[place[0]][place[1]].tokens and len(ids) <= longest
        }
        scores = score(
            self.bundle.model,
            [sources[row] for row, _ in spelled],
            list(spelled.values()),
            batch_tokens=config.batch_tokens,
        )
        for (row, rank), ids, log_prob in zip(spelled, spelled.values(), scores, strict=True):
            found[row][rank] = replace(found[row][rank], tokens=tuple(ids), log_prob=log_prob)
        return found

    def decode_config(self, settings: Mapping[str, Any]) -> DecodeConfig:
        """Return how this model translates, with some settings changed; those that are None are left as they are.

        Raises:
            ConfigError: If a setting is unknown or impossible.
        """
        config = self.bundle.decode.with_changes({name: value for name, value in settings.items() if value is not None})
        longest = self.bundle.model.config.max_length
        if longest is None or longest >= config.max_input_tokens:
            return config
        return config.with_changes({"max_input_tokens": longest})

    def _packed_model(self, config: DecodeConfig) -> PackedModel | CompiledModel:
        """Return the model ready to decode; packed once, and again when its weights have changed."""
        packed = self._packed
        if packed is None or packed.precision != config.precision or not packed.is_current():
            self._packed = packed = pack(self.bundle.model, config.precision)
        return packed

    def learned_shortlist(self) -> Shortlist:
        """Return what the model's sentences may be written in."""
        if self.shortlist is None:
            if self.path is None:
                raise ModelError("this model has no shortlist; learn one with clearhead.decoding.learn_shortlist")
            self.shortlist = Shortlist.load(model_directory(self.path) / SHORTLIST_FILE, self.identity())
        return self.shortlist

    def identity(self) -> dict[str, str]:
        """Return what tells this model from all others: the hashes of its weights' file and of its tokenizer."""
        return {
            "model_sha256": self.bundle.model_sha256 or "",
            "tokenizer_sha256": self.bundle.tokenizer.sha256,
        }

    def _translation(self, line: str, hypotheses: list[Hypothesis]) -> Translation:
        tokenizer = self.bundle.tokenizer
        texts = tokenizer.decode_batch([hypothesis.tokens for hypothesis in hypotheses])
        best = hypotheses[0]
        return Translation(
            source=line,
            text=texts[0],
            score=best.log_prob,
            tokens=tuple(tokenizer.pieces(best.tokens[:-1])),
            alternatives=tuple(
                Alternative(text, hypothesis.log_prob) for text, hypothesis in zip(texts, hypotheses, strict=True)
            )
            if len(hypotheses) > 1
            else (),
        )
