"""Pydantic models of requests and responses, for the OpenAPI document and to validate the native API's requests."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from clearhead.config.words import SameAs
from clearhead.translation.memory import LEAST_SIMILARITY

_Similarity = Annotated[float, Field(gt=0.0, le=1.0)]


class _Fields(BaseModel):
    model_config = ConfigDict(use_attribute_docstrings=True)


class _Request(_Fields):
    model_config = ConfigDict(use_attribute_docstrings=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def refuse_at_first(cls, values: Any) -> Any:
        """Refuse a field that is unknown; pydantic would list them all, at seconds for a body of a megabyte."""
        if isinstance(values, dict) and (
            unknown := next((name for name in values if name not in cls.model_fields), None)
        ):
            shown = unknown[:40].encode(errors="backslashreplace").decode()  # half of a surrogate pair cannot be sent
            raise ValueError(f"there is no field {shown}")
        return values


Texts = Annotated[list[str], Field(fail_fast=True)]
"""Texts, refused at the first that is none."""


class Failure(_Fields):
    """Error response."""

    error: str
    """Error message: the problem, and how to solve it."""


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Failure, "description": "The request is invalid."},
    403: {
        "model": Failure,
        "description": "The API key is invalid, or this server takes no files or suggestions, or no more of them.",
    },
    404: {"model": Failure, "description": "Not found."},
    405: {"model": Failure, "description": "The method is not allowed for this path."},
    408: {"model": Failure, "description": "The request body was not received in time."},
    413: {"model": Failure, "description": "The request body or the text is too large."},
    429: {"model": Failure, "description": "Too many requests from this client; see `Retry-After`."},
    503: {"model": Failure, "description": "The server is overloaded, starting or shutting down; see `Retry-After`."},
    504: {"model": Failure, "description": "The translation exceeded the time limit."},
}


class Language(_Fields):
    """A supported language."""

    code: str
    """Language code, such as `de`."""
    name: str
    """English name of the language."""
    targets: list[str]
    """Codes of the available target languages."""


class Detection(_Fields):
    """A detected language."""

    confidence: float
    """Confidence in percent."""
    language: str
    """Language code."""


class Health(_Fields):
    """Health status."""

    status: Literal["ok"]


HEALTHY = Health(status="ok")


class _NamedLanguage(_Fields):
    code: str
    """Language code, or `auto`."""
    name: str
    """English name of the language."""


class _Default(_Fields):
    source: _NamedLanguage
    """Default source language."""
    target: _NamedLanguage
    """Default target language."""


class FrontendSettings(_Fields):
    """Settings for a web page that uses this API."""

    charLimit: int
    """Maximum number of characters per request."""
    frontendTimeout: int
    """Milliseconds to wait after the last keystroke before a request is sent."""
    apiKeys: bool
    """Whether the server uses API keys."""
    keyRequired: bool
    """Whether an API key is required."""
    suggestions: bool
    """Whether users may suggest translations."""
    filesTranslation: bool
    """Whether file translation is enabled."""
    supportedFilesFormat: list[str]
    """Extensions of the supported file formats."""
    language: _Default
    """Default source and target language."""


class DetectFields(_Fields):
    """Request body, as JSON or as a form."""

    q: str | list[str]
    """Text or texts whose language is detected."""
    api_key: str | None = None
    """API key, if the server requires one."""


class TranslateFields(_Fields):
    """Request body, as JSON or as a form."""

    q: str | list[str]
    """Text or texts to translate."""
    source: str
    """Code of the source language, or `auto` to detect it."""
    target: str
    """Code of the target language."""
    format: Literal["text", "html"] = "text"
    """Format of the text."""
    alternatives: Annotated[int, Field(ge=0)] = 0
    """Number of alternative translations besides the best one; only with the format `text`."""
    api_key: str | None = None
    """API key, if the server requires one."""


class TranslatedTexts(_Fields):
    """Translations: single values if `q` is a text, lists if `q` is a list."""

    translatedText: str | list[str]
    """The translation of each text."""
    detectedLanguage: Detection | list[Detection] | None = None
    """The source language of each text, if `source` is `auto`; if it is uncertain, the one that the text is translated
    from (docs/serving.md)."""
    alternatives: list[str] | list[list[str]] | None = None
    """Alternative translations, if requested."""
    warnings: dict[str, str] | list[dict[str, str]] | None = None
    """What to check in each translation: the kind of each problem, with its details. The kinds are those of
    `/v1/translate`, `source_truncated` and `output_truncated` for text that was cut, and `terms` for terms that are
    missing or met at a price. The field is absent if there is no problem in any of them."""


class SuggestFields(_Fields):
    """Request body, as JSON or as a form."""

    q: str
    """The text."""
    s: str
    """The suggested translation, with as many lines."""
    source: str
    """Code of the source language."""
    target: str
    """Code of the target language."""
    api_key: str | None = None
    """API key, if the server requires one."""


class Suggested(_Fields):
    """Acknowledgement: the suggestion is stored."""

    success: bool


class FileFields(_Fields):
    """Request body, as `multipart/form-data`."""

    file: Annotated[str, Field(json_schema_extra={"format": "binary"})]
    """The file to translate."""
    source: str
    """Code of the source language, or `auto` to detect it."""
    target: str
    """Code of the target language."""
    columns: str | None = None
    """Columns of a CSV or TSV file, by number or name, separated by commas, as `clearhead translate --columns`."""
    keys: str | None = None
    """Keys of a JSON file whose strings are text, separated by commas, as `clearhead translate --keys`."""
    api_key: str | None = None
    """API key, if the server requires one."""


class DownloadUrl(_Fields):
    """Location of a translated file."""

    translatedFileUrl: str
    """URL from which the file can be downloaded for a limited time."""
    reportUrl: str
    """URL of a page that shows the translations to check first, for the same time."""
    segments: int
    """Number of translated segments; 0 for a file that is already in the target language."""
    toCheck: int
    """Number of these segments that the report marks as suspicious."""


class ReviewRequest(_Request):
    """A translated file to review."""

    file: str
    """Name of the file: the last part of its `translatedFileUrl`."""


class BegunReview(_Fields):
    """Location of a review."""

    reviewUrl: str
    """URL of the page of the review; whoever has it can read and change the translation, without an API key."""


class _Chosen(_Request):
    source: str | None = None
    """Code of the source language, or `auto` to detect it."""
    target: str | None = None
    """Code of the target language."""
    model: str | None = None
    """Name of the model, with or instead of the languages; `GET /v1/models` lists the models."""


class GivenTerm(_Request):
    """A term with its translations."""

    source: str
    """The source term; a lowercase term matches any case, and only whole words match (docs/terms.md)."""
    target: str | Texts
    """Its translation, or a list of accepted forms of the translation."""


class TranslateRequest(_Chosen):
    """A translation request."""

    text: str | Texts
    """Text or texts to translate."""
    format: Literal["text", "html"] = "text"
    """Format of the texts. With `html`, the text nodes of pages or fragments are translated, and `sentences` of the
    response has an item for each; `num_best`, `alignments` and `stream` are not available."""
    num_best: Annotated[int, Field(ge=1)] = 1
    """Number of translations of each text, including the best one."""
    beam_size: Annotated[
        Annotated[int, Field(ge=1)] | None, SameAs("decode.beam_size", "At least `num_best`; by default the model's.")
    ] = None
    alignments: bool = False
    """Whether to return word alignments."""
    quality: bool = False
    """Whether to estimate the quality of each translation (docs/translation.md)."""
    protect_numbers: Annotated[bool | None, SameAs("decode.protect_numbers", "By default the model's.")] = None
    terms: Annotated[list[GivenTerm], Field(fail_fast=True)] | str | None = None
    """Terminology that the translations must use, or the name of a term list of the server (`GET /v1/models`). If not
    given, the server's terms for the language pair are used, if there are any; an empty list disables them."""
    memory: bool | None = None
    """Whether to reuse translations from the server's translation memory; by default they are reused if there is a
    memory and `num_best` is 1."""
    fuzzy: _Similarity = LEAST_SIMILARITY
    """Minimum similarity of the translation memory entries that are returned."""
    reuse_from: _Similarity | None = None
    """Minimum similarity of the entries that are repaired and reused (docs/terms.md); by default 0.75 where only
    numbers or placeholders differ. 1 repairs none."""
    stream: bool = False
    """Whether to respond with server-sent events: a `translation` event for each sentence as soon as it is translated,
    or for each line that is translated as a whole."""

    @property
    def texts(self) -> list[str]:
        """The texts as a list."""
        return [self.text] if isinstance(self.text, str) else self.text


class ScoreRequest(_Chosen):
    """A scoring request."""

    texts: Texts
    """The source texts."""
    translations: Texts
    """The translations to score, one for each text."""


class ExplainRequest(_Chosen):
    """An explanation request."""

    text: str
    """The sentence to explain."""
    translation: str | None = None
    """The translation to explain; the model's own translation if not given."""
    search: bool = False
    """Whether to include the steps of the beam search."""
    packed: bool = False
    """Whether to encode arrays in base 64 and to include the queries, keys and values of all heads, as the web page of
    an explanation needs them."""


class _Judged(_Fields):
    text: str
    """The translation."""
    score: float | None
    """Log-probability of the translation given the source, in nats; null if no model translated it."""


class _Memory(_Fields):
    source: str
    """Source text of the most similar entry."""
    target: str
    """Translation of the entry."""
    similarity: float
    """Similarity of the source texts, from 0 to 1."""
    is_reused: bool
    """Whether the translation of the entry was reused."""
    repaired: str | None = None
    """The translation of the entry with what differs from the text replaced, if it was reused so."""


class _Term(_Fields):
    source: str
    """The term as it occurs in the text."""
    target: str
    """The required translation."""
    form: str
    """The form used in the translation; empty if the term is missing."""
    reason: Literal["unspellable", "unmet", "left", "costly"] | None = None
    """Reason why the term is missing; `costly` if it was met at a price (docs/terms.md)."""
    without: str | None = None
    """Of a term met at a price: the translation of its sentence without it."""


class _Sentence(_Judged):
    source: str
    """The source text."""
    quality: float | None = None
    """How sure the model is of the translation, from 0 to 1, if requested; null if no model translated it."""
    memory: _Memory | None = None
    """The most similar entry of the translation memory, if one was found."""


class _Translation(_Sentence):
    terms: list[_Term] | None = None
    """The terms found in the source, if terminology was used."""
    tokens: list[str]
    """Tokens of the translation."""
    alignment: list[tuple[int, int]] | None = None
    """Word alignment, if requested: pairs of source word and target word, both counted from 0."""
    alternatives: list[_Judged]
    """The `num_best` best translations, including the first one; empty if `num_best` is 1."""
    truncated: bool
    """Whether the source or the translation was truncated."""
    source_truncated: bool
    """Whether the source was truncated."""
    output_truncated: bool
    """Whether the translation was truncated."""
    sentences: list[_Sentence]
    """The sentences or lines of the text, if it was split; with the format `html` its text nodes, with tags as
    `<g1>`."""
    warnings: list[str]
    """Kinds of possible problems found in the translation."""
    warning_details: dict[str, str]
    """Details of each warning, by kind."""
    model: str | None = None
    """Name of the model, if `source` is `auto`; null for a text that is already in the target language: it is returned
    unchanged."""
    detected: Detection | None = None
    """The source language of the text, if `source` is `auto`; if it is uncertain, the one that the text is translated
    from (docs/serving.md)."""


class Translations(_Fields):
    """Translations of the texts, in the same order."""

    model: str | None
    """Name of the model; null if not all texts have the same."""
    source: str | None
    """Code of the source language; null if unknown, or if not all texts have the same."""
    target: str | None
    """Code of the target language; null if unknown."""
    confidence: float | None = None
    """Confidence of the language detection in percent, if `source` is `auto`: the lowest of all texts."""
    translations: list[_Translation]
    """A translation for each text."""


class Scores(_Fields):
    """Scores of the translations."""

    model: str
    """Name of the model."""
    scores: list[float]
    """Log-probability of each translation given its source text, in nats."""


class Explained(_Fields):
    """Explanation of a translation."""

    model: str
    """Name of the model."""
    explanation: dict[str, Any]
    """Attention weights of each head and probabilities of each step; docs/explanation-json.md defines the fields."""


class _Model(_Fields):
    name: str
    """Name of the model."""
    sources: list[str]
    """Codes of the source languages."""
    targets: list[str]
    """Codes of the target languages."""
    parameters: int
    """Number of parameters."""


class _TermList(_Fields):
    name: str
    """Name of the term list."""
    size: int
    """Number of terms."""


class _DefaultTerms(_TermList):
    name: str
    """Name of the term list; empty if it has none."""
    model: str
    """Name of the model to whose requests it applies."""
    source: str | None
    """Code of the source language; null for every language of the model."""
    target: str | None
    """Code of the target language; null for every language of the model."""


class ModelList(_Fields):
    """Available models and term lists."""

    models: list[_Model]
    """The available models."""
    terms: list[_TermList]
    """The term lists that requests can name."""
    default_terms: list[_DefaultTerms]
    """The term lists that apply to requests without `terms`; of several for the same request, the first."""


def described(fields: type[BaseModel], *kinds: str) -> dict[str, Any]:
    """Return the OpenAPI description of a request body whose fields are parsed by hand.

    Args:
        fields: The model of its fields.
        kinds: The accepted content types; JSON and a URL-encoded form if not given.
    """
    schema = fields.model_json_schema()
    written = kinds or ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in written}}}
