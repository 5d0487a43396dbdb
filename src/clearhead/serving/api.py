"""Native HTTP API: translate, score, explain, models, health; translations as in the command line's JSON."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from clearhead.inspection.explain import explain
from clearhead.serving.event_stream import EventStream, events
from clearhead.serving.http_errors import bad_request
from clearhead.serving.libretranslate_api import ready
from clearhead.serving.request_fields import client_of, given_terms, require_few, wait_until_gone
from clearhead.serving.schemas import (
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
from clearhead.serving.service import Choice, Service
from clearhead.serving.text_translation import translate_html, translate_texts
from clearhead.translation.json_output import translation_object


def native_router(service: Service) -> APIRouter:
    """Return the router with clearhead's own endpoints."""
    router = APIRouter(responses=REFUSALS)

    async def client_of_key(request: Request) -> str:
        return client_of(request, service.keys)

    known_client = Depends(client_of_key)  # before the body is validated

    @router.get("/livez", response_model=Health, tags=["operation"])
    async def alive() -> Any:
        """Liveness check: the process is running, but not necessarily ready."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=Health, tags=["operation"])
    async def readiness() -> Any:
        """Readiness check: all models are loaded and verified, and requests are served."""
        return ready(service)

    @router.get("/v1/models", response_model=ModelList, tags=["clearhead"])
    async def models() -> Any:
        """List the available models and term lists."""
        return {
            "models": [
                {
                    "name": model.name,
                    "sources": model.sources,
                    "targets": model.targets,
                    "parameters": model.translator.bundle.model.num_parameters(),
                }
                for model in service.models.served.values()
            ],
            "terms": [{"name": name, "size": size} for name, size in service.resources.sizes().items()],
        }

    two_kinds: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The translations, or a stream of events."}
    }

    @router.post("/v1/translate", response_model=Translations, responses=two_kinds, tags=["clearhead"])
    async def translate(body: TranslateRequest, request: Request, client: str = known_client) -> Response:
        """Translate texts; each result has the fields of `clearhead translate --format jsonl`."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        require_few(texts, service.config)
        most = service.config.max_alternatives + 1
        if max(body.num_best, body.beam_size or 1) > most:
            raise bad_request(f"num_best and beam_size must be at most {most}")
        choice = service.choose(texts, body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "texts": len(texts), "characters": sum(map(len, texts))}
        how = _settings(service, choice, body)
        uses_memory = _uses_memory(service, choice, body)
        best: dict[str, Any] = {"num_best": body.num_best, "alignments": body.alignments}
        config, is_gone = service.config, partial(wait_until_gone, request)

        def work() -> dict[str, Any]:
            translator = service.translator(choice, job)
            if body.format == "html":
                found = [translate_html(translator, text, scores=True, **how) for text in texts]
            else:
                found = translate_texts(translator, texts, **best, **how)
            return {**_said(choice), "translations": [translation_object(one) for one in found]}

        with ExitStack() as entered:
            admitted = service.work.admitted(client, config.request_seconds, config.max_request_tokens)
            job = entered.enter_context(admitted)
            how["memory"] = service.memory(choice, job, body.fuzzy) if uses_memory else None
            if not body.stream:
                return JSONResponse(await service.work.run(job, work, is_gone))
            translator, said = service.translator(choice, job), _said(choice)
            sent = events(translator, service.work, job, texts, is_gone, said=said, **best, **how)
            return EventStream(sent, entered.pop_all(), job.deadline + config.answer_seconds)

    @router.post("/v1/score", response_model=Scores, tags=["clearhead"])
    async def score(body: ScoreRequest, request: Request, client: str = known_client) -> Any:
        """Score given translations by their log-probability, as `clearhead score` does."""
        require_few([*body.texts, *body.translations], service.config)
        choice = service.choose(body.texts, body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "texts": len(body.texts)}

        def work() -> list[float]:
            translator = service.translator(choice, job)
            parts = translator.pair_encoder.split_sources(body.texts, choice.settings["target_lang"])
            if len(body.texts) == len(body.translations):  # otherwise `Translator.score` below raises the error
                ids = translator.pair_encoder.encode(
                    parts, body.translations, translator.decode_config(choice.settings)
                )
                job.spend(sum(len(one) for side in ids for one in side))
            with service.unshared(job):
                return translator.score(body.texts, body.translations, **choice.settings)

        with service.work.admitted(client, service.config.request_seconds, service.config.max_request_tokens) as job:
            scores = await service.work.run(job, work, partial(wait_until_gone, request))
        return {"model": choice.model.name, "scores": scores}

    @router.post("/v1/explain", response_model=Explained, tags=["clearhead"])
    async def explanation(body: ExplainRequest, request: Request, client: str = known_client) -> Response:
        """Explain the translation of a sentence: attention weights of each head, and probabilities of each step."""
        require_few([body.text, body.translation or ""], service.config)
        choice = service.choose([body.text], body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "characters": len(body.text)}

        def work() -> dict[str, Any]:
            translator = service.translator(choice, job)
            parts = translator.pair_encoder.split_sources([body.text], choice.settings["target_lang"])
            sides = translator.pair_encoder.encode(
                parts, [body.translation or ""], translator.decode_config(choice.settings)
            )
            most = service.config.max_explain_tokens
            if (longest := max(len(one) for side in sides for one in side)) > most:
                raise bad_request(f"a side has {longest} tokens, and at most {most} are explained; split it")
            with service.unshared(job):
                found = explain(translator, body.text, body.translation, search=body.search, **choice.settings)
                return {"model": choice.model.name, "explanation": found.to_dict(packed=body.packed)}

        with service.work.admitted(client, service.config.request_seconds, service.config.max_request_tokens) as job:
            return JSONResponse(await service.work.run(job, work, partial(wait_until_gone, request)))

    return router


def _settings(service: Service, choice: Choice, body: TranslateRequest) -> dict[str, Any]:
    """Return the request's options as keyword arguments of `Translator.translate`.

    Raises:
        HTTPError: If the options cannot be combined.
    """
    if body.format == "html" and (body.num_best > 1 or body.alignments or body.stream):
        raise bad_request("num_best, alignments and stream are for the format text")
    beam = body.beam_size or choice.model.translator.bundle.decode.beam_size
    return {
        "beam_size": max(beam, body.num_best),
        "protect_numbers": body.protect_numbers,
        "terms": given_terms(body.terms, service.config)
        if isinstance(body.terms, list)
        else service.terms(choice, body.terms),
        **choice.settings,
    }


def _uses_memory(service: Service, choice: Choice, body: TranslateRequest) -> bool:
    """Return whether matches of the translation memory are reused.

    Raises:
        HTTPError: If the request demands the memory and it cannot be used.
    """
    has_memory, is_one = service.has_memory(choice), body.num_best == 1
    if body.memory and not has_memory:
        raise bad_request("there is no translation memory for these languages")
    if body.memory and not is_one:
        raise bad_request("what a translation memory has is one translation; ask for one (num_best)")
    return has_memory and is_one and body.memory is not False


def _said(choice: Choice) -> dict[str, Any]:
    return {
        "model": choice.model.name,
        "source": choice.source,
        "target": choice.target,
        "confidence": None if choice.detected is None else round(choice.detected, 2),
    }
