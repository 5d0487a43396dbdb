"""Native HTTP API: translate, score, explain, models, health; translations as in the command line's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from clearhead.config import ServeConfig
from clearhead.serving.batched_search import Job
from clearhead.serving.event_stream import EventGroup, EventStream, events, text_events, unchanged_events
from clearhead.serving.http_errors import bad_request
from clearhead.serving.model_choice import (
    Choice,
    TextChoice,
    choose,
    choose_each,
    group_by_choice,
    model_log_fields,
    translate_each,
)
from clearhead.serving.requests import (
    ServiceDep,
    client_of,
    given_terms,
    require_within_limits,
    run_admitted,
    spend_tokens,
    wait_for_disconnect,
)
from clearhead.serving.schemas import (
    HEALTHY,
    REFUSALS,
    Explained,
    ExplainRequest,
    Health,
    ModelList,
    ScoreRequest,
    Scores,
    TranslateRequest,
    Translations,
)
from clearhead.serving.service import Service
from clearhead.serving.text_translation import translate_html, translate_texts
from clearhead.translation.result import Translation, translation_object

router = APIRouter(responses=REFUSALS)


async def _client_of_header(request: Request, service: ServiceDep) -> str:
    return client_of(request, service.keys)


ClientDep = Annotated[str, Depends(_client_of_header)]
"""The client of a request, which is known before the body is validated."""


@router.get("/livez", response_model=Health, tags=["operation"])
async def alive() -> Any:
    """Liveness check: the process is running, but not necessarily ready."""
    return HEALTHY


@router.get("/readyz", response_model=Health, tags=["operation"])
async def readiness(service: ServiceDep) -> Any:
    """Readiness check: all models are loaded and verified, and requests are served."""
    service.require_ready()
    return HEALTHY


@router.get("/v1/models", response_model=ModelList, tags=["clearhead"])
async def models(service: ServiceDep) -> Any:
    """List the available models and term lists."""
    return {
        "models": [
            {
                "name": model.name,
                "sources": model.sources,
                "targets": model.targets,
                "parameters": model.translator.bundle.weights.num_parameters(),
            }
            for model in service.models.served.values()
        ],
        "terms": [{"name": name, "size": size} for name, size in service.resources.sizes().items()],
        "default_terms": service.resources.default_terms(service.models),
    }


_JSON_OR_EVENTS: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/event-stream": {}}, "description": "The translations, or a stream of events."}
}


@router.post("/v1/translate", response_model=Translations, responses=_JSON_OR_EVENTS, tags=["clearhead"])
async def translate(body: TranslateRequest, request: Request, service: ServiceDep, client: ClientDep) -> Response:
    """Translate texts; each result has the fields of `clearhead translate --format jsonl`."""
    config, admission = service.config, service.admission
    _require_valid(body, config)
    log_fields = request.state.log_fields
    log_fields |= {"texts": len(body.texts), "characters": sum(map(len, body.texts))}
    disconnected = partial(wait_for_disconnect, request)
    with ExitStack() as entered:
        job = entered.enter_context(admission.admitted(client, config.request_seconds, config.max_request_tokens))
        work = _TranslateWork(service, job, body, log_fields)
        if not body.stream:
            return JSONResponse(await admission.run(job, work.response, disconnected))
        chosen, parts = await admission.run(job, work.event_data, disconnected)
        content = events(admission, job, parts, disconnected, done=_common_fields(chosen, body.target))
        return EventStream(content, entered.pop_all(), job.deadline + config.answer_seconds)


@router.post("/v1/score", response_model=Scores, tags=["clearhead"])
async def score(body: ScoreRequest, request: Request, service: ServiceDep, client: ClientDep) -> Any:
    """Score given translations by their log-probability, as `clearhead score` does."""
    require_within_limits([*body.texts, *body.translations], service.config)
    choice = _one_model(service, body.texts, body)
    request.state.log_fields |= {"model": choice.model.name, "texts": len(body.texts)}
    scores = await run_admitted(request, service, client, partial(_scores, service, choice, body))
    return {"model": choice.model.name, "scores": scores}


@router.post("/v1/explain", response_model=Explained, tags=["clearhead"])
async def explanation(body: ExplainRequest, request: Request, service: ServiceDep, client: ClientDep) -> Response:
    """Explain the translation of a sentence: attention weights of each head, and probabilities of each step."""
    require_within_limits([body.text, body.translation or ""], service.config)
    choice = _one_model(service, [body.text], body)
    request.state.log_fields |= {"model": choice.model.name, "characters": len(body.text)}
    result = await run_admitted(request, service, client, partial(_explanation, service, choice, body))
    return JSONResponse({"model": choice.model.name, "explanation": result})


def _require_valid(body: TranslateRequest, config: ServeConfig) -> None:
    """Raise `HTTPError` for options beyond the limits, or that cannot be combined.

    Raises:
        HTTPError: If there are any.
    """
    require_within_limits(body.texts, config)
    most = config.max_alternatives + 1
    if max(body.num_best, body.beam_size or 1) > most:
        raise bad_request(f"num_best and beam_size must be at most {most}")
    if body.format == "html" and (body.num_best > 1 or body.alignments or body.stream):
        raise bad_request("num_best, alignments and stream are for the format text")


@dataclass(frozen=True, slots=True)
class _TranslateWork:
    """The work of an admitted translation request, in a thread."""

    service: Service
    job: Job
    body: TranslateRequest
    log_fields: dict[str, Any]

    def response(self) -> dict[str, Any]:
        """Translate the texts, and return the response."""
        chosen = self._choose()
        with self.service.prepared(self.job, self.body.texts):
            translations = translate_each(chosen, self.body.texts, self._translate)
        results = zip(translations, chosen, strict=True)
        objects = [{**translation_object(translation), **_detection_fields(choice)} for translation, choice in results]
        return {**_common_fields(chosen, self.body.target), "translations": objects}

    def event_data(self) -> tuple[list[TextChoice], Iterator[EventGroup]]:
        """Return the choice for each text, and what translates the texts and yields the data of their events."""
        chosen, texts = self._choose(), self.body.texts
        parts = [unchanged_events({place: texts[place] for place, one in enumerate(chosen) if one.choice is None})]
        for choice, places in group_by_choice(chosen):
            options = {**self._result_options, **self._options(choice)}
            translator = self.service.translator(choice, self.job)
            parts.append(text_events(translator, {place: texts[place] for place in places}, **options))
        return chosen, self._prepared(chosen, chain(*parts))

    def _prepared(self, chosen: Sequence[TextChoice], parts: Iterator[EventGroup]) -> Iterator[EventGroup]:
        while True:
            with self.service.prepared(self.job, self.body.texts):  # given back while the client reads, perhaps slowly
                group = next(parts, None)
            if group is None:
                return
            yield [{**data, **_detection_fields(chosen[data["index"]])} for data in group]

    def _choose(self) -> list[TextChoice]:
        body = self.body
        chosen = choose_each(self.service.models, body.texts, body.source, body.target, body.model)
        self.log_fields.update(model_log_fields(chosen))
        return chosen

    def _translate(self, choice: Choice, texts: list[str]) -> list[Translation]:
        translator, options = self.service.translator(choice, self.job), self._options(choice)
        if self.body.format == "html":
            options["quality"] = self.body.quality
            return [translate_html(translator, text, scores=True, **options) for text in texts]
        return translate_texts(translator, texts, **self._result_options, **options)

    @property
    def _result_options(self) -> dict[str, Any]:
        """The request's options about what is returned, as keyword arguments of `Translator.translate`."""
        return {"num_best": self.body.num_best, "alignments": self.body.alignments, "quality": self.body.quality}

    def _options(self, choice: Choice) -> dict[str, Any]:
        """Return the request's options about the search, as keyword arguments of `Translator.translate`.

        Raises:
            HTTPError: If there is no such list of terms, a term is invalid, or the memory cannot be used.
        """
        body, service = self.body, self.service
        beam = body.beam_size or choice.model.translator.bundle.decode.beam_size
        memory = self._memory(choice)
        given = body.terms
        terms = given_terms(given, service.config) if isinstance(given, list) else service.terms(choice, given)
        options = {"beam_size": max(beam, body.num_best), "protect_numbers": body.protect_numbers}
        return {**options, "terms": terms, **memory, "reuse_from": body.reuse_from, **choice.settings}

    def _memory(self, choice: Choice) -> dict[str, Any]:
        """Return the functions of the translation memory that is used, as `Service.memory` does; empty for none.

        Raises:
            HTTPError: If the request demands the memory and it cannot be used.
        """
        memory, is_one = self.service.memory(choice, self.job, self.body.fuzzy), self.body.num_best == 1
        if self.body.memory and not memory:
            raise bad_request("there is no translation memory for these languages")
        if self.body.memory and not is_one:
            raise bad_request("what a translation memory has is one translation; ask for one (num_best)")
        return memory if is_one and self.body.memory is not False else {}


def _scores(service: Service, choice: Choice, body: ScoreRequest, job: Job) -> list[float]:
    translator = service.translator(choice, job)
    with service.outside_batches(job):
        if len(body.texts) == len(body.translations):  # otherwise `Translator.score` below raises the error
            spend_tokens(job, translator, body.texts, body.translations, choice.settings)
        return translator.score(body.texts, body.translations, **choice.settings)


def _explanation(service: Service, choice: Choice, body: ExplainRequest, job: Job) -> dict[str, Any]:
    from clearhead.inspection.explain import explain

    translator = service.translator(choice, job)
    most = service.config.max_explain_tokens
    spend_tokens(job, translator, [body.text], [body.translation or ""], choice.settings, most)
    with service.outside_batches(job):
        explained = explain(translator, body.text, body.translation, search=body.search, **choice.settings)
        return explained.to_dict(packed=body.packed)


def _one_model(service: Service, texts: Sequence[str], body: ScoreRequest | ExplainRequest) -> Choice:
    """Return the model for texts in one language.

    Raises:
        HTTPError: If there is none.
    """
    choice, detected = choose(service.models, texts, body.source, body.target, body.model)
    if choice is None:
        source = detected.language if detected else body.source
        return Choice(*service.models.choose(str(source), str(body.target)))
    return choice


def _common_fields(chosen: Sequence[TextChoice], target: str | None) -> dict[str, Any]:
    """Return the fields about all texts: a model and languages only if they are the same for all."""
    choices = [choice for choice, _ in chosen]
    confidences = [detected.confidence for _, detected in chosen if detected is not None]
    sources = [choice.source if choice else detected.language if detected else None for choice, detected in chosen]
    return {
        "model": _common(choice.model.name if choice else None for choice in choices),
        "source": _common(sources),
        "target": _common(choice.target if choice else target for choice in choices),
        "confidence": round(min(confidences), 2) if confidences else None,
    }


def _common(values: Iterable[str | None]) -> str | None:
    distinct = set(values)
    return distinct.pop() if len(distinct) == 1 else None


def _detection_fields(chosen: TextChoice) -> dict[str, Any]:
    """Return the fields about one text, if its language was detected."""
    choice, detected = chosen
    if detected is None:
        return {}
    fields = {"language": detected.language, "confidence": round(detected.confidence, 2)}
    return {"model": choice.model.name if choice else None, "detected": fields}
