"""The interface of clearhead itself: what `clearhead translate --format jsonl`, `score` and an explanation tell."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from clearhead.errors import ClearheadError
from clearhead.inspection.explain import explain
from clearhead.serving.gate import answer_of
from clearhead.serving.libre import ready
from clearhead.serving.refusal import Refusal
from clearhead.serving.requests import client_of, require_few, wait_until_gone
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
from clearhead.serving.shared_search import Job
from clearhead.serving.texts import translate_texts
from clearhead.translation_objects import translation_object

__all__ = ["native_router"]

MOST_LINES_AT_ONCE = 16
"""Of a stream; it begins with one, so that the first is there soon."""


def native_router(service: Service) -> APIRouter:
    """Return the endpoints of clearhead."""
    router = APIRouter(responses=REFUSALS)

    @router.get("/livez", response_model=Health, tags=["operation"])
    async def alive() -> Any:
        """Tell that the process lives; it need not be ready."""
        return {"status": "ok"}

    @router.get("/readyz", response_model=Health, tags=["operation"])
    async def readiness() -> Any:
        """Tell whether requests are served: all models are loaded, and translate as when they were made."""
        return ready(service)

    @router.get("/v1/models", response_model=ModelList, tags=["clearhead"])
    async def models() -> Any:
        """List the models."""
        return {
            "models": [
                {
                    "name": model.name,
                    "sources": model.sources,
                    "targets": model.targets,
                    "parameters": model.translator.bundle.model.num_parameters(),
                }
                for model in service.models.served.values()
            ]
        }

    events: dict[int | str, dict[str, Any]] = {
        200: {"content": {"text/event-stream": {}}, "description": "The translations, or a stream of them"}
    }

    @router.post("/v1/translate", response_model=Translations, responses=events, tags=["clearhead"])
    async def translate(body: TranslateRequest, request: Request) -> Response:
        """Translate texts, and tell what `clearhead translate --format jsonl` does of each."""
        client = client_of(request, service.keys)
        texts = [body.text] if isinstance(body.text, str) else body.text
        require_few(texts, service.config)
        most = service.config.max_alternatives + 1
        if max(body.num_best, body.beam_size or 1) > most:
            raise Refusal(HTTPStatus.BAD_REQUEST, f"num_best and beam_size must be at most {most}")
        choice = service.choose(texts, body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "texts": len(texts), "characters": sum(map(len, texts))}
        beam = body.beam_size or choice.model.translator.bundle.decode.beam_size
        how = {"num_best": body.num_best, "beam_size": max(beam, body.num_best), **choice.settings}
        how["alignments"] = body.alignments
        config = service.config
        admitted = service.work.admitted(client, config.request_seconds, config.max_request_tokens)
        if body.stream:
            entered = ExitStack()
            job = entered.enter_context(admitted)
            seconds = config.request_seconds + config.answer_seconds
            return _Stream(_events(service, job, choice, texts, how), entered, seconds)

        def work() -> dict[str, Any]:
            found = translate_texts(service.translator(choice, job), texts, **how)
            return {**_said(choice), "translations": [translation_object(one) for one in found]}

        with admitted as job:
            return JSONResponse(await service.work.run(job, work, partial(wait_until_gone, request)))

    @router.post("/v1/score", response_model=Scores, tags=["clearhead"])
    async def score(body: ScoreRequest, request: Request) -> Any:
        """Tell how probable the model finds given translations, as `clearhead score` does."""
        client = client_of(request, service.keys)
        require_few([*body.texts, *body.translations], service.config)
        choice = service.choose(body.texts, body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "texts": len(body.texts)}

        def work() -> list[float]:
            translator = service.translator(choice, job)
            parts = translator.speller.split_sources(body.texts, choice.settings["target_lang"])
            if len(body.texts) == len(body.translations):  # if not, it is said below
                ids = translator.speller.spell(parts, body.translations, translator.decode_config(choice.settings))
                job.spend(sum(len(one) for side in ids for one in side))
            with service.unshared(job):
                return translator.score(body.texts, body.translations, **choice.settings)

        with service.work.admitted(client, service.config.request_seconds, service.config.max_request_tokens) as job:
            scores = await service.work.run(job, work, partial(wait_until_gone, request))
        return {"model": choice.model.name, "scores": scores}

    @router.post("/v1/explain", response_model=Explained, tags=["clearhead"])
    async def explanation(body: ExplainRequest, request: Request) -> Response:
        """Tell what each head looked at while a sentence was translated."""
        client = client_of(request, service.keys)
        require_few([body.text, body.translation or ""], service.config)
        choice = service.choose([body.text], body.source, body.target, body.model)
        request.state.noted |= {"model": choice.model.name, "characters": len(body.text)}

        def work() -> dict[str, Any]:
            translator = service.translator(choice, job)
            parts = translator.speller.split_sources([body.text], choice.settings["target_lang"])
            sides = translator.speller.spell(parts, [body.translation or ""], translator.decode_config(choice.settings))
            most = service.config.max_explain_tokens
            if (longest := max(len(one) for side in sides for one in side)) > most:
                raise Refusal(
                    HTTPStatus.BAD_REQUEST, f"a side has {longest} tokens, and at most {most} are explained; split it"
                )
            with service.unshared(job):
                found = explain(translator, body.text, body.translation, search=body.search, **choice.settings)
            return {"model": choice.model.name, "explanation": found.to_dict()}

        with service.work.admitted(client, service.config.request_seconds, service.config.max_request_tokens) as job:
            return JSONResponse(await service.work.run(job, work, partial(wait_until_gone, request)))

    return router


def _said(choice: Choice) -> dict[str, Any]:
    return {
        "model": choice.model.name,
        "source": choice.source,
        "target": choice.target,
        "confidence": None if choice.detected is None else round(choice.detected, 2),
    }


class _Stream(StreamingResponse):
    """Server-sent events of a request that was let in, until it ends or its client goes away or takes too long."""

    def __init__(self, events: AsyncIterator[str], entered: ExitStack, seconds: float) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
        self._entered = entered
        self._seconds = seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._entered:
            async with asyncio.timeout(self._seconds):
                await super().__call__(scope, receive, send)


async def _events(
    service: Service, job: Job, choice: Choice, texts: list[str], how: dict[str, Any]
) -> AsyncIterator[str]:
    """Yield the translation of every line as an event, some lines at a time; then `done`, or `error`."""

    def work(lines: list[str]) -> list[dict[str, Any]]:
        return [translation_object(one) for one in translate_texts(service.translator(choice, job), lines, **how)]

    try:
        for number, lines in _groups(texts):
            found = await service.work.run(job, partial(work, lines), asyncio.Event().wait)
            for one in found:
                yield _event("translation", {"index": number, **one})
    except Refusal as refusal:
        yield _event("error", {**answer_of(refusal)[2], "status": int(refusal.status)})
    except ClearheadError as error:
        yield _event("error", {"error": str(error), "status": 400})
    else:
        yield _event("done", _said(choice))


def _groups(texts: list[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each text, with their ends, in groups that grow; with the number of the text."""
    for number, text in enumerate(texts):
        lines, size = text.splitlines(keepends=True) or [""], 1
        while lines:
            yield number, lines[:size]
            del lines[:size]
            size = min(2 * size, MOST_LINES_AT_ONCE)


def _event(name: str, data: dict[str, Any]) -> str:
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n"
