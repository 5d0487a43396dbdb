"""The model and the languages for each text of a request: as given, or with the source language detected."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from clearhead.serving.http_errors import HTTPError, bad_request
from clearhead.serving.languages import AUTO, matching, possible_languages
from clearhead.serving.models import Models, ServedModel
from clearhead.translation.result import Translation

SURE_PERCENT = 80.0
"""Confidence in per cent from which on the detected language of a text is used.

Of 1,200 captions of Multi30k's test2016 in German, English, French and Czech, every one that reaches it is detected
correctly, also when cut to its first word (38 % reach it), two (62 %), three (88 %) or five words (99 %). With 70 per
cent there are errors.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """The model and languages chosen for a text."""

    model: ServedModel
    source: str | None
    """The model's own code of the language; None if unknown."""
    target: str | None

    @property
    def settings(self) -> dict[str, Any]:
        """Language arguments of `Translator.translate` that this model needs."""
        target = self.target if self.model.is_tagged else None
        source = self.source if len(self.model.sources) > 1 else None
        return {"target_lang": target, "source_lang": source}


class Detected(NamedTuple):
    """A detected source language."""

    language: str
    confidence: float
    """In per cent. Below `SURE_PERCENT` the language is not the text's likeliest, but one that can be translated."""


class TextChoice(NamedTuple):
    """What is done with a text."""

    choice: Choice | None
    """None for a text that is already in the target language, and is returned unchanged."""
    detected: Detected | None
    """None if the source language was given or is unknown."""


def choose(
    models: Models, texts: Sequence[str], source: str | None, target: str | None, name: str | None = None
) -> TextChoice:
    """Choose the model for texts in one language.

    Args:
        models: The served models.
        texts: Texts for language detection, used if `source` is `auto`.
        source: Language of the texts.
        target: Language to translate into.
        name: Name of the model; a language may then be omitted if the model has only one on that side.

    Raises:
        HTTPError: If there is no such model, or the languages must be given.
    """
    if name is not None:
        return TextChoice(_choose_named(models.named(name), source, target), None)
    if source is None or target is None:
        raise bad_request("say source and target, or model")
    if source != AUTO:
        return TextChoice(_choose_pair(models, source, target), None)
    return choose_each(models, ["\n".join(texts)], source, target)[0]


def choose_each(
    models: Models, texts: Sequence[str], source: str | None, target: str | None, name: str | None = None
) -> list[TextChoice]:
    """Choose the model for each text; arguments and errors as for `choose`.

    If `source` is `auto`, the language of each text is detected. A text whose language is uncertain, below
    `SURE_PERCENT`, is translated from the likeliest language of all texts together, or if no model translates that into
    the target language, from the server's first language that one does; it is never returned unchanged.
    """
    if name is not None or source != AUTO or target is None:
        return [choose(models, texts, source, target, name)] * len(texts)

    known = detectable_languages(models, target)

    @cache
    def likeliest() -> str | None:
        together, _ = possible_languages("\n".join(texts), known)[0]
        return next((language for language in (together, *models.sources) if models.find(language, target)), None)

    @cache
    def choice(language: str, *, is_sure: bool) -> Choice | None:
        return _choose_pair(models, language, target) if is_sure else Choice(*models.choose(language, target))

    chosen = {}
    for number, text in enumerate(texts, 1):
        if text in chosen:
            continue
        language, confidence = (ranking := possible_languages(text, known))[0]
        if not (is_sure := confidence >= SURE_PERCENT):
            language = likeliest() or language
        detected = Detected(language, dict(ranking).get(language, 0.0))
        try:
            chosen[text] = TextChoice(choice(language, is_sure=is_sure), detected)
        except HTTPError as refusal:
            where = f"text {number}: " if len(texts) > 1 else ""
            raise bad_request(f"{where}{refusal.message} (detected: {language}, {detected.confidence:.0f} %)") from None
    return [chosen[text] for text in texts]


def detectable_languages(models: Models, target: str = "") -> list[str]:
    """Return the languages that a text may have: every source language, and the target language.

    Args:
        models: The served models.
        target: Language to translate into, if known.

    Raises:
        HTTPError: If no model has a known source language.
    """
    if not models.sources:
        raise bad_request(models.unknown_languages)
    own = matching(target, models.all_languages())
    return list(dict.fromkeys([*models.sources, *filter(None, [own])]))


def group_by_choice(chosen: Sequence[TextChoice]) -> list[tuple[Choice, list[int]]]:
    """Return each choice with the numbers of its texts, without the texts that are returned unchanged."""
    groups: dict[tuple[str, str | None, str | None], tuple[Choice, list[int]]] = {}
    for place, (choice, _) in enumerate(chosen):
        if choice is not None:
            groups.setdefault((choice.model.name, choice.source, choice.target), (choice, []))[1].append(place)
    return list(groups.values())


def translate_each(
    chosen: Sequence[TextChoice],
    texts: Sequence[str],
    translate: Callable[[Choice, list[str]], Sequence[Translation]],
) -> list[Translation]:
    """Return the translations of texts in their order; the texts of each choice are translated together."""
    by_place: dict[int, Translation] = {}
    for choice, places in group_by_choice(chosen):
        by_place.update(zip(places, translate(choice, [texts[place] for place in places]), strict=True))
    return [by_place[place] if place in by_place else unchanged(text) for place, text in enumerate(texts)]


def model_log_fields(chosen: Sequence[TextChoice]) -> dict[str, str]:
    """Return the names of the models, as the field of the log; empty if there is none."""
    names = dict.fromkeys(choice.model.name for choice, _ in group_by_choice(chosen))
    return {"model": ", ".join(names)} if names else {}


def unchanged(text: str) -> Translation:
    """Return a text that is already in the target language as its translation, without a score."""
    return Translation(text, text, None, ())


def _choose_named(model: ServedModel, source: str | None, target: str | None) -> Choice:
    if source in (None, AUTO) and len(model.sources) <= 1:
        source = next(iter(model.sources), None)
    if target is None and len(model.targets) <= 1:
        target = next(iter(model.targets), None)
    if target is None and model.is_tagged:
        target = model.translator.bundle.decode.target_lang
    if model.is_tagged and target is None:
        raise bad_request(f"say target; this model writes {', '.join(model.targets)}")
    if source not in (None, AUTO) and target is not None and model.sources:
        return Choice(*Models({model.name: model}).choose(str(source), target))
    return Choice(model, None if source == AUTO else source, target)


def _choose_pair(models: Models, source: str, target: str) -> Choice | None:
    """Return the choice for two languages; None if a text is returned unchanged."""
    return None if models.leaves_unchanged(source, target) else Choice(*models.choose(source, target))
