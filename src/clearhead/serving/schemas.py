"""Pydantic models of requests and responses, from which the OpenAPI document is generated."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Fields(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Request(_Fields):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", strict=True)


class Failure(_Fields):
    """Why a request was not served."""

    error: str
    """What is wrong, and what to do."""


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The request asks for what cannot be."},
    403: {"model": Failure, "description": "The API key is unknown, or files are not translated here."},
    404: {"model": Failure, "description": "There is nothing here."},
    405: {"model": Failure, "description": "There is nothing here for this method."},
    408: {"model": Failure, "description": "The body did not come in time."},
    413: {"model": Failure, "description": "The request is too large."},
    429: {"model": Failure, "description": "The client asks for too much; `Retry-After` says when to ask again."},
    503: {"model": Failure, "description": "The server has too much to do; `Retry-After` says when to ask again."},
    504: {"model": Failure, "description": "The translation took too long."},
}


class Language(_Fields):
    """A language."""

    code: str
    name: str
    """In English."""
    targets: list[str]
    """Codes of the languages into which it is translated."""


class Detection(_Fields):
    """A language that a text may be in."""

    confidence: float
    """In per cent."""
    language: str


class Health(_Fields):
    """The server is well."""

    status: Literal["ok"]


class _NamedLanguage(_Fields):
    code: str
    name: str


class _Default(_Fields):
    source: _NamedLanguage
    target: _NamedLanguage


class FrontendSettings(_Fields):
    """What a page needs to know."""

    charLimit: int
    frontendTimeout: int
    """Milliseconds."""
    apiKeys: bool
    keyRequired: bool
    suggestions: bool
    filesTranslation: bool
    supportedFilesFormat: list[str]
    language: _Default


class DetectFields(_Fields):
    """As JSON or as a form."""

    q: str | list[str]
    """The text."""
    api_key: str | None = None


class TranslateFields(_Fields):
    """As JSON or as a form."""

    q: str | list[str]
    """The text, or the texts."""
    source: str
    """Code of the language of the text, or `auto`."""
    target: str
    """Code of the language to translate into."""
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Field(ge=0)] = 0
    """How many other translations are wanted beside the best one; of `text` alone."""
    api_key: str | None = None


class TranslatedTexts(_Fields):
    """A text where `q` was a text, a list where it was a list."""

    translatedText: str | list[str]
    detectedLanguage: Detection | list[Detection] | None = None
    """If the source was `auto`."""
    alternatives: list[str] | list[list[str]] | None = None
    """If some were asked for."""


class FileFields(_Fields):
    """As `multipart/form-data`."""

    file: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    source: str
    target: str
    api_key: str | None = None


class DownloadUrl(_Fields):
    """Where a translated file is."""

    translatedFileUrl: str


class _Chosen(_Request):
    source: str | None = None
    """Code of the language of the text, or `auto`."""
    target: str | None = None
    """Code of the language to translate into."""
    model: str | None = None
    """Name of the model, in the place of the languages or beside them; `GET /v1/models` lists them."""


class GivenTerm(_Request):
    """A term, and what translates it."""

    source: str
    """The term, as of docs/terms.md: in small letters found in any case, at the borders of words."""
    target: str | list[str]
    """Its translation, or forms that do as well."""


class TranslateRequest(_Chosen):
    """Texts to translate."""

    text: str | list[str]
    format: Literal["text", "html"] = "text"
    """`html`: pages or fragments, of which the texts alone are translated, each a sentence of the answer; one
    translation, without alignments, and no stream."""
    num_best: Annotated[int, Field(ge=1)] = 1
    """How many translations of each are wanted, the best included."""
    beam_size: Annotated[int, Field(ge=1)] | None = None
    """Hypotheses that the search keeps; the model's own number if not given, and no less than `num_best`."""
    alignments: bool = False
    """Link the words of each text with those of its translation."""
    protect_numbers: bool | None = None
    """Copy numbers to the letter, by a model that has tokens for placeholders; the model's own setting if not given."""
    terms: list[GivenTerm] | str | None = None
    """What translations must use for terms of the texts, or the name of a list of terms that the server has
    (`GET /v1/models`). If not given, the server's terms for these languages, where there are any; an empty list is
    none."""
    memory: bool | None = None
    """Reuse what the server's translation memory has; if not given, where there is one and one translation is
    wanted."""
    fuzzy: Annotated[float, Field(gt=0.0, le=1.0)] = 0.75
    """Similarity from which on an entry of the memory is shown."""
    stream: bool = False
    """Answer with server-sent events: a `translation` for every sentence as soon as it is done, as far as lines are
    translated by sentence."""


class ScoreRequest(_Chosen):
    """Pairs of texts to score."""

    texts: list[str]
    translations: list[str]
    """One for each text."""


class ExplainRequest(_Chosen):
    """A sentence to explain."""

    text: str
    translation: str | None = None
    """A translation to explain; the model's own if not given."""
    search: bool = False
    """Tell also what the search went through."""
    packed: bool = False
    """Write arrays in base 64 and add queries, keys and values of all heads, as the page of an explanation has them."""


class _Judged(_Fields):
    text: str
    score: float | None
    """Log-probability of the text given the source, in nats; none of what a translation memory had."""


class _Memory(_Fields):
    source: str
    """The most similar source that the memory has."""
    target: str
    similarity: float
    is_reused: bool


class _Term(_Fields):
    source: str
    """As it is in the text."""
    target: str
    form: str
    """As it is in the translation; empty if it is missing."""
    reason: Literal["unspellable", "unmet", "left"] | None = None
    """Why it is not there."""


class _Sentence(_Judged):
    source: str
    memory: _Memory | None = None
    """What the translation memory has, if it was asked and has something similar."""


class _Translation(_Sentence):
    terms: list[_Term] | None = None
    """What became of each term, if there were any to use."""
    tokens: list[str]
    """Pieces of the text."""
    alignment: list[tuple[int, int]] | None = None
    """Pairs of a word of the source and a word of the text, counted from 0, if they were asked for."""
    alternatives: list[_Judged]
    """The best `num_best`, this one included, if more than one was asked for."""
    truncated: bool
    """Whether the source or the translation was cut."""
    source_truncated: bool
    output_truncated: bool
    sentences: list[_Sentence]
    """The sentences, where the text was split, or its lines; of `html` its texts, with tags as `<g1>`."""
    warnings: list[str]
    """Kinds of what looks wrong."""
    warning_details: dict[str, str]


class Translations(_Fields):
    """Translations of the texts, in their order."""

    model: str
    source: str | None
    target: str | None
    confidence: float | None = None
    """In per cent, if the source was `auto`."""
    translations: list[_Translation]


class Scores(_Fields):
    """Log-probabilities of the translations given their texts, in nats."""

    model: str
    scores: list[float]


class Explained(_Fields):
    """What each head looked at, and how sure each step was; docs/explanation-json.md says what each field means."""

    model: str
    explanation: dict[str, Any]


class _Model(_Fields):
    name: str
    sources: list[str]
    targets: list[str]
    parameters: int


class _TermList(_Fields):
    name: str
    size: int
    """How many terms it has."""


class ModelList(_Fields):
    """The models that are served."""

    models: list[_Model]
    terms: list[_TermList]
    """Lists of terms that requests can name."""


def described(fields: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Return the OpenAPI description of a request body whose fields are parsed by hand.

    Args:
        fields: The model of its fields.
        kinds: The accepted content types; JSON and a URL-encoded form if not given.
    """
    schema = fields.model_json_schema()
    written = kinds or ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in written}}}
