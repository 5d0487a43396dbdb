"""Native HTTP API: translate, score, explain, models, health; translations as in the command line's JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import Any

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response

from clearhead.serving.event_stream import EventStream, events, text_events, unchanged_events
from clearhead.serving.http_errors import bad_request
from clearhead.serving.model_choice import (
    Choice,
    TextChoice,
    choose,
    choose_each,
    groups,
    noted_models,
    translate_each,
)
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
from clearhead.serving.service import Service
from clearhead.serving.text_translation import translate_html, translate_texts
from clearhead.translation.result import Translation, translation_object
from clearhead.translation.translator import Translator


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
        service.require_ready()
        return {"status": "ok"}

    @router.get("/v1/models", response_model=ModelList, tags=["clearhead"])
    async def models() -> Any:
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
        if body.format == "html" and (body.num_best > 1 or body.alignments or body.stream):
            raise bad_request("num_best, alignments and stream are for the format text")
        noted, config, is_gone = request.state.noted, service.config, partial(wait_until_gone, request)
        noted |= {"texts": len(texts), "characters": sum(map(len, texts))}

        def chosen() -> list[TextChoice]:
            found = choose_each(service.models, texts, body.source, body.target, body.model)
            noted.update(noted_models(found))
            return found

        def how(choice: Choice) -> dict[str, Any]:
            uses_memory = _uses_memory(service, choice, body)
            memory = service.memory(choice, job, body.fuzzy) if uses_memory else None
            return {**_settings(service, choice, body), "memory": memory}

        best: dict[str, Any] = {"num_best": body.num_best, "alignments": body.alignments, "quality": body.quality}

        def translated(choice: Choice, own: list[str]) -> list[Translation]:
            translator, settings = service.translator(choice, job), how(choice)
            if body.format == "html":
                return [translate_html(translator, text, scores=True, quality=body.quality, **settings) for text in own]
            return translate_texts(translator, own, **best, **settings)

        def work() -> dict[str, Any]:
            found = chosen()
            with service.prepared(job, texts):
                made = translate_each(found, texts, translated)
            objects = [{**translation_object(one), **_of_text(of)} for one, of in zip(made, found, strict=True)]
            return {**_said(found, body.target), "translations": objects}

        def planned() -> tuple[list[TextChoice], list[tuple[list[int], Translator, dict[str, Any]]]]:
            found = chosen()
            return found, [(places, service.translator(choice, job), how(choice)) for choice, places in groups(found)]

        with ExitStack() as entered:
            admitted = service.admission.admitted(client, config.request_seconds, config.max_request_tokens)
            job = entered.enter_context(admitted)
            if not body.stream:
                return JSONResponse(await service.admission.run(job, work, is_gone))
            found, plan = await service.admission.run(job, planned, is_gone)
            kept = {place: texts[place] for place, one in enumerate(found) if one.choice is None}
            parts = [unchanged_events(kept)] if kept else []
            for places, translator, settings in plan:
                parts.append(text_events(translator, {place: texts[place] for place in places}, **best, **settings))

            def translated_in_parts() -> Iterator[list[dict[str, Any]]]:
                groups = chain(*parts)
                while True:
                    with service.prepared(job, texts):  # given back while the client reads, which may be slow
                        group = next(groups, None)
                    if group is None:
                        return
                    yield [{**data, **_of_text(found[data["index"]])} for data in group]

            sent = events(service.admission, job, translated_in_parts(), is_gone, said=_said(found, body.target))
            return EventStream(sent, entered.pop_all(), job.deadline + config.answer_seconds)

    @router.post("/v1/score", response_model=Scores, tags=["clearhead"])
    async def score(body: ScoreRequest, request: Request, client: str = known_client) -> Any:
        """Score given translations by their log-probability, as `clearhead score` does."""
        require_few([*body.texts, *body.translations], service.config)
        choice = _one_model(service, body.texts, body)
        request.state.noted |= {"model": choice.model.name, "texts": len(body.texts)}

        def work() -> list[float]:
            translator = service.translator(choice, job)
            with service.unshared(job):
                parts = translator.pair_encoder.split_sources(body.texts, choice.settings["target_lang"])
                if len(body.texts) == len(body.translations):  # otherwise `Translator.score` below raises the error
                    ids = translator.pair_encoder.encode(
                        parts, body.translations, translator.decode_config(choice.settings)
                    )
                    job.spend(sum(len(one) for side in ids for one in side))
                return translator.score(body.texts, body.translations, **choice.settings)

        with service.admission.admitted(
            client, service.config.request_seconds, service.config.max_request_tokens
        ) as job:
            scores = await service.admission.run(job, work, partial(wait_until_gone, request))
        return {"model": choice.model.name, "scores": scores}

    @router.post("/v1/explain", response_model=Explained, tags=["clearhead"])
    async def explanation(body: ExplainRequest, request: Request, client: str = known_client) -> Response:
        """Explain the translation of a sentence: attention weights of each head, and probabilities of each step."""
        require_few([body.text, body.translation or ""], service.config)
        choice = _one_model(service, [body.text], body)
        request.state.noted |= {"model": choice.model.name, "characters": len(body.text)}

        def work() -> dict[str, Any]:
            from clearhead.inspection.explain import explain

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

        with service.admission.admitted(
            client, service.config.request_seconds, service.config.max_request_tokens
        ) as job:
            return JSONResponse(await service.admission.run(job, work, partial(wait_until_gone, request)))

    return router


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


def _settings(service: Service, choice: Choice, body: TranslateRequest) -> dict[str, Any]:
    """Return the request's options as keyword arguments of `Translator.translate`.

    Raises:
        HTTPError: If there is no such list of terms, or a term is invalid.
    """
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


def _said(chosen: Sequence[TextChoice], target: str | None) -> dict[str, Any]:
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


def _of_text(chosen: TextChoice) -> dict[str, Any]:
    """Return the fields about one text, if its language was detected."""
    choice, detected = chosen
    if detected is None:
        return {}
    found = {"language": detected.language, "confidence": round(detected.confidence, 2)}
    return {"model": choice.model.name if choice else None, "detected": found}
