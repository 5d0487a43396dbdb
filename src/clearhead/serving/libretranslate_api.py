"""LibreTranslate-compatible HTTP API: its clients find the same fields and errors.

Modelled on LibreTranslate's `app.py`, with these differences: the character limit applies to all texts together;
`format=html` answers with markup that stays escaped, and without alternatives; a field that should be text but has
another type is refused instead of causing a 500.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from fastapi.routing import APIRoute

from clearhead.formats.document_files import refuse_foreign_extension
from clearhead.serving.batched_search import Job
from clearhead.serving.document_process import memory_of
from clearhead.serving.files import EXTENSIONS, file_options, safe_name, split_name, uploaded
from clearhead.serving.forms import FormFile
from clearhead.serving.http_errors import HTTPError, bad_request
from clearhead.serving.kept_reviews import ReviewStart
from clearhead.serving.languages import AUTO, possible_languages
from clearhead.serving.model_choice import (
    Choice,
    TextChoice,
    choose,
    choose_each,
    detectable_languages,
    model_log_fields,
    translate_each,
)
from clearhead.serving.requests import ServiceDep, client_of, read_fields, require_within_limits, run_admitted
from clearhead.serving.schemas import (
    HEALTHY,
    REFUSALS,
    DetectFields,
    Detection,
    DownloadUrl,
    FileFields,
    FrontendSettings,
    Health,
    Language,
    Suggested,
    SuggestFields,
    TranslatedTexts,
    TranslateFields,
    described,
)
from clearhead.serving.service import Service
from clearhead.serving.text_translation import translate_html, translate_texts
from clearhead.text.languages import english_name
from clearhead.translation.documents import fillings, lines_to_translate, translate_document
from clearhead.translation.report import TranslationReport
from clearhead.translation.result import Translation

FILE_PATH = "/translate_file"
KEY_FIELD_PATHS = frozenset({"/translate", "/detect", "/suggest", FILE_PATH})
"""Paths whose requests may have their API key in the field `api_key`."""
FRONTEND_TIMEOUT = 500
"""Milliseconds that a page waits after a keystroke before it sends a request."""
FILE_TOKENS_FACTOR = 10
"""Factor of the token limit for files, relative to other requests."""
MARKDOWN_BYTES = 5
"""Bytes of Markdown read per allowed character: nearly all of Markdown is translated, and parsing 1 MB takes 15 s."""

_REPORT_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
"""Content security policy of a report, which is one file: its own style, and nothing else."""


router = APIRouter(tags=["LibreTranslate"], responses=REFUSALS)


@router.get("/languages", response_model=list[Language])
async def languages(service: ServiceDep) -> Any:
    """List the supported languages with their target languages."""
    targets = service.models.languages()
    return [
        {"code": code, "name": english_name(code) or code, "targets": targets.get(code, [])}
        for code in service.models.all_languages()
    ]


@router.get("/frontend/settings", response_model=FrontendSettings)
async def frontend_settings(service: ServiceDep) -> Any:
    """Return the settings for a web page that uses this API."""
    target = next(iter(t for targets in service.models.languages().values() for t in targets), "")
    return {
        "charLimit": service.config.max_characters,
        "frontendTimeout": FRONTEND_TIMEOUT,
        "apiKeys": service.keys.are_required,
        "keyRequired": service.keys.are_required,
        "suggestions": service.resources.takes_suggestions,
        "filesTranslation": service.takes_files,
        "supportedFilesFormat": list(EXTENSIONS),
        "language": {
            "source": {"code": AUTO, "name": "Auto Detect"},
            "target": {"code": target, "name": english_name(target) or target},
        },
    }


@router.get("/spec", response_model=dict[str, Any])
async def spec(request: Request) -> Any:
    """Return the OpenAPI document of these endpoints, at the path that LibreTranslate uses."""
    document = request.app.openapi()
    own = {route.path for route in router.routes if isinstance(route, APIRoute)}
    return {**document, "paths": {path: operations for path, operations in document["paths"].items() if path in own}}


@router.get("/health", response_model=Health)
async def health(service: ServiceDep) -> Any:
    """Health check: 503 while models are being loaded and during shutdown."""
    service.require_ready()
    return HEALTHY


@router.post("/detect", response_model=list[Detection] | list[list[Detection]], openapi_extra=described(DetectFields))
async def detect(request: Request, service: ServiceDep) -> Any:
    """Detect the language of a text: the possible languages, most likely first; of a list, those of each text."""
    fields = await read_fields(request)
    client = client_of(request, service.keys, fields)
    texts = _texts(fields)
    require_within_limits(texts, service.config)

    def work(_: Job) -> list[list[dict[str, Any]]]:
        known = detectable_languages(service.models)
        return [[_detected(*guess) for guess in possible_languages(text, known)] for text in texts]

    detected = await run_admitted(request, service, client, work)
    return JSONResponse(detected if isinstance(fields["q"], list) else detected[0])


@router.post("/translate", response_model=TranslatedTexts, openapi_extra=described(TranslateFields))
async def translate(request: Request, service: ServiceDep) -> Any:
    """Translate a text or a list of texts; with `source` = `auto` the language of each text is detected."""
    fields = await read_fields(request)
    client = client_of(request, service.keys, fields)
    texts, source, target = _texts(fields), _required(fields, "source"), _required(fields, "target")
    num_alternatives = _alternatives(fields, service.config.max_alternatives)
    require_within_limits(texts, service.config)
    form = fields.get("format") or "text"
    if form not in ("text", "html"):
        raise bad_request(f"{str(form)[:40]} format is not supported")
    log_fields = request.state.log_fields
    log_fields |= {"texts": len(texts), "characters": sum(map(len, texts))}

    def work(job: Job) -> tuple[list[TextChoice], list[Translation]]:
        chosen = choose_each(service.models, texts, source, target)
        log_fields.update(model_log_fields(chosen))
        with service.prepared(job, texts):
            return chosen, translate_each(chosen, texts, partial(_translate, service, job, form, num_alternatives))

    chosen, translations = await run_admitted(request, service, client, work)
    answer: dict[str, Any] = {"translatedText": [translation.text for translation in translations]}
    if source == AUTO:
        answer["detectedLanguage"] = [_detected(*choice.detected) for choice in chosen if choice.detected is not None]
    if num_alternatives:
        answer["alternatives"] = [_others(translation) for translation in translations]
    if any(problems := [translation.problems for translation in translations]):
        answer["warnings"] = problems
    if not isinstance(fields["q"], list):
        answer = {name: of_texts[0] for name, of_texts in answer.items()}
    return JSONResponse(answer)


@router.post("/suggest", response_model=Suggested, openapi_extra=described(SuggestFields))
async def suggest(request: Request, service: ServiceDep) -> Any:
    """Suggest a translation; it is stored for a review, and changes no translation by itself."""
    fields = await read_fields(request)
    client = client_of(request, service.keys, fields)
    text, suggestion, source, target = (_required(fields, name) for name in ("q", "s", "source", "target"))
    require_within_limits([text, suggestion], service.config)
    if not service.resources.takes_suggestions:
        raise HTTPError(HTTPStatus.FORBIDDEN, "Suggestions are disabled on this server.")

    def work(_: Job) -> None:
        file = service.resources.suggestions(*service.models.choose(source, target))
        if file is None:
            raise HTTPError(HTTPStatus.FORBIDDEN, "Suggestions are disabled for these languages on this server.")
        file.add(text, suggestion)

    await run_admitted(request, service, client, work)
    return {"success": True}


@router.post(FILE_PATH, response_model=DownloadUrl, openapi_extra=described(FileFields, "multipart/form-data"))
async def translate_file(request: Request, service: ServiceDep) -> Any:
    """Translate a file; the response has URLs of the translation and of a report, which exist for a limited time.

    A file that is already in the target language comes back unchanged.
    """
    fields = await read_fields(request)
    client = client_of(request, service.keys, fields)
    upload = _upload(fields, takes_files=service.takes_files)
    request.state.log_fields["bytes"] = len(upload.data)
    service.models  # noqa: B018 - raises before any work if no models are loaded
    config = service.config
    limits = config.file_seconds, FILE_TOKENS_FACTOR * config.max_request_tokens
    kept, report = await run_admitted(request, service, client, partial(_translate_file, service, upload), limits)
    return {
        "translatedFileUrl": str(request.url_for("download_file", filename=kept)),
        "reportUrl": str(request.url_for("file_report", filename=kept)),
        "segments": report.num_segments,
        "toCheck": report.num_flagged,
    }


@router.get("/download_file/{filename}", response_class=Response, responses={200: {"description": "The file."}})
async def download_file(filename: str, service: ServiceDep) -> Response:
    """Download a translated file.

    No key is asked for, since a link in a browser cannot send one: the name itself is the permission. It has 128
    random bits, and only the answer to the translation contains it.
    """
    data = service.files.get(filename)
    own = filename.partition(".")[2]
    headers = {"content-disposition": f'attachment; filename="{own}"'}
    return Response(data, media_type="application/octet-stream", headers=headers)


@router.get("/file_report/{filename}", response_class=Response, responses={200: {"description": "The page."}})
async def file_report(filename: str, service: ServiceDep) -> Response:
    """Show the report on a translated file: the translations to check first, as `clearhead translate --report`.

    As for the download of the file, the name is the permission, and no key is asked for.
    """
    return HTMLResponse(service.files.report(filename), headers={"content-security-policy": _REPORT_POLICY})


def _required(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not value:
        raise bad_request(f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise bad_request(f"Invalid request: {name} parameter is not a text")
    return value


def _texts(fields: dict[str, Any]) -> list[str]:
    """Return the texts of the field `q`."""
    value = fields.get("q")
    if not value:
        raise bad_request("Invalid request: missing q parameter")
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise bad_request("Invalid request: q parameter is neither a text nor a list of texts")
    return texts


def _alternatives(fields: dict[str, Any], limit: int) -> int:
    given = fields.get("alternatives", 0)
    try:
        if isinstance(given, list | dict) or (isinstance(given, str) and len(given) > 20):
            raise ValueError
        count = max(0, int(given or 0))
    except (ValueError, OverflowError):
        raise bad_request("Invalid request: alternatives parameter is not a number") from None
    if count > limit:
        raise bad_request(f"Invalid request: alternatives parameter must be <= {limit}")
    return count


def _detected(code: str, confidence: float) -> dict[str, Any]:
    return {"confidence": round(confidence, 2), "language": code}


def _translate(
    service: Service, job: Job, form: str, num_alternatives: int, choice: Choice, texts: Sequence[str]
) -> list[Translation]:
    """Return the translation of each text, with its alternatives."""
    translator = service.translator(choice, job)
    # A memory match is a single translation; with alternatives the model translates.
    memory = {} if form == "text" and num_alternatives else service.memory(choice, job)
    known = {**choice.settings, "terms": service.terms(choice), **memory}
    if form == "html":
        return [translate_html(translator, text, **known) for text in texts]
    num_best = num_alternatives + 1
    beam = max(num_best, translator.bundle.decode.beam_size) if num_alternatives else None
    options: dict[str, Any] = {"scores": num_best > 1, "one_line": True, "beam_size": beam, **known}
    return translate_texts(translator, texts, num_best=num_best, **options)


def _others(translation: Translation) -> list[str]:
    return [other.text for other in translation.alternatives if other.text != translation.text]


@dataclass(frozen=True, slots=True)
class _Upload:
    """A file to translate."""

    name: str
    """As `safe_name` returns it."""
    data: bytes
    source: str
    target: str
    options: dict[str, Any]
    """Options of its format, from `file_options`."""


def _upload(fields: dict[str, Any], *, takes_files: bool) -> _Upload:
    """Return the file of a request.

    Raises:
        HTTPError: If a field is missing or invalid, or no files are translated.
    """
    file, source, target = fields.get("file"), _required(fields, "source"), _required(fields, "target")
    if not takes_files:
        raise HTTPError(HTTPStatus.FORBIDDEN, "Files translation are disabled on this server.")
    if not isinstance(file, FormFile):
        raise bad_request("Invalid request: missing file parameter")
    if not file.name:
        raise bad_request("Invalid request: empty file")
    name = safe_name(file.name)
    refuse_foreign_extension(name)
    options = file_options(name, fields.get("columns"), fields.get("keys"))
    return _Upload(name, file.data, source, target, options)


def _translate_file(service: Service, upload: _Upload, job: Job) -> tuple[str, TranslationReport]:
    """Translate a file and store the result; return its download name, and the report on it."""
    name, report = upload.name, TranslationReport()
    is_same = upload.source != AUTO and choose(service.models, [], upload.source, upload.target).choice is None
    stem, dot, extension = split_name(name)
    own = safe_name(f"{stem}_{upload.target}{dot}{extension}")
    filled, review = None, b""
    if not is_same:
        with service.file_memory.taken(memory_of(name, len(upload.data)), job.require_time):
            filled, review = _filled(service, upload, own, job, report)
    if filled is None:
        report.add_file(f"{name}: already in the target language, unchanged")
        filled = upload.data
    return service.files.add(job.client, own, filled, report.page(name), review), report


def _filled(
    service: Service, upload: _Upload, output: str, job: Job, report: TranslationReport
) -> tuple[bytes | None, bytes]:
    """Return the translation of a file, and what its review begins with, if it can be reviewed; report on it.

    There is no translation if it is detected to be in the target language.
    """
    name, data, source, target = upload.name, upload.data, upload.source, upload.target
    limit = service.config.max_file_characters
    size = len(data)
    if name.lower().endswith((".md", ".markdown")) and size > MARKDOWN_BYTES * limit:
        raise bad_request(f"Invalid request: request ({size} bytes) exceeds text limit ({limit})")
    is_packed = name.lower().endswith(".docx")
    if not is_packed and (size := max(data.count(b"\n"), data.count(b"\r"))) > limit:
        raise bad_request(f"Invalid request: request ({size} lines) exceeds text limit ({limit})")
    read = {"from_lang": None if source == AUTO else source, "to_lang": target, **upload.options}
    with uploaded(name, data, service.files.directory, job.require_time, limit, **read) as document:
        only_missing = document.keeps_finished
        lines = lines_to_translate(document, only_missing=only_missing)
        choice, _ = choose(service.models, lines, source, target)
        if choice is None:
            return None, b""
        options: dict[str, Any] = {"name": name, "only_missing": only_missing, "quality": True, **choice.settings}
        options |= {"terms": service.terms(choice), **service.memory(choice, job)}
        translated = translate_document(service.translator(choice, job), document, **options)
        report.add_document(translated, name=name, remarks=document.remarks)
        filled, review = document.filled(fillings(translated)), b""
        if service.reviews is not None and report.num_segments:
            file = {"name": name, "output": output, "data": data, "options": read}
            review = ReviewStart.of(translated, choice, document.language, **file).model_dump_json().encode()
        return filled, review
