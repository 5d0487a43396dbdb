"""HTTP API of the reviews that a server keeps: `POST /reviews` begins one; `/reviews/KEY/` is its page, with its parts.

A review is served as `clearhead review` does, by `ReviewServer`. The link is the permission, as for a download.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from clearhead.errors import DataError
from clearhead.files import os_error_as
from clearhead.serving.api import ClientDep
from clearhead.serving.batched_search import Job
from clearhead.serving.files import client_message
from clearhead.serving.http_errors import HTTPError, unavailable
from clearhead.serving.kept_reviews import KeptReviews, ReviewStart
from clearhead.serving.log import log_event
from clearhead.serving.model_choice import Choice
from clearhead.serving.models import ServedModel
from clearhead.serving.requests import ServiceDep, run_admitted, spend_tokens, wait_for_disconnect
from clearhead.serving.review import NUM_ALTERNATIVES, AskModel, ReviewServer
from clearhead.serving.review_page import page_data
from clearhead.serving.schemas import REFUSALS, BegunReview, ReviewRequest
from clearhead.serving.service import Service
from clearhead.translation.memory import LEAST_SIMILARITY, Lookup
from clearhead.translation.result import MemoryMatch
from clearhead.translation.review import Review
from clearhead.translation.terminology import Terms

REVIEWS = "/reviews"
"""Path of the endpoint; reviews are below it."""

router = APIRouter(tags=["clearhead"], responses=REFUSALS)


@router.post(REVIEWS, response_model=BegunReview)
async def begin_review(body: ReviewRequest, request: Request, service: ServiceDep, client: ClientDep) -> Any:
    """Begin the review of a translated file, as long as that can be downloaded; the review has no time limit."""
    assert service.reviews is not None
    reviews = service.reviews

    def work(job: Job) -> str:
        start = service.files.review(body.file)
        if not start:
            raise HTTPError(HTTPStatus.NOT_FOUND, "nothing in this file was translated")
        return reviews.begin(ReviewStart.model_validate_json(start), job)

    key = await run_admitted(request, service, client, work)
    return {"reviewUrl": str(request.url_for("review", key=key, path="/"))}


class ReviewPages:
    """ASGI application of all reviews, mounted with the path parameter `key`."""

    def __init__(self, service: Service, reviews: KeptReviews) -> None:
        self._service, self._reviews = service, reviews

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request to a review, which is opened if need be."""
        service, reviews, key = self._service, self._reviews, scope["path_params"]["key"]
        begun_by = reviews.client(key)
        service.models  # noqa: B018 - raises while they are being loaded
        config, admission = service.config, service.admission
        client = scope["state"]["client"] or begun_by  # a link needs no key
        with admission.admitted(client, config.file_seconds, config.max_request_tokens) as job:
            if scope["method"] == "POST" and not scope["path"].endswith("/check"):
                reviews.require_room(key)
            opening = partial(reviews.open, key, job, self._lookups, self._app)
            while (opened := reviews.enter(key)) is None:
                await admission.run(job, opening, asyncio.Event().wait)  # to the end, for whoever comes next
            job.deadline = time.monotonic() + config.request_seconds
            try:
                scope["state"]["job"] = job
                await opened.app(scope, receive, send)
            finally:
                reviews.leave(opened)

    def _app(self, review: Review, start: ReviewStart) -> ASGIApp:
        output = review.files.output

        def download(request: Request) -> Response:
            review.save()
            try:
                if review.problem and not review.is_saved:
                    raise DataError(review.problem)
                review.files.require_unchanged()
                with os_error_as(DataError, f"cannot read {output}"):
                    content = output.read_bytes()
            except DataError as error:
                raise unavailable(client_message(str(error), output.parent)) from None
            headers = {"content-disposition": f'attachment; filename="{output.name}"'}
            return Response(content, media_type="application/octet-stream", headers=headers)

        page = page_data(start.name, (start.source, start.target), f"{output.parent.name}/{output.name}")
        server = ReviewServer(
            review,
            self._asking(start),
            {**page, "is_download": True},
            num_alternatives=min(NUM_ALTERNATIVES, self._service.config.max_alternatives + 1),
            shown=partial(client_message, directory=output.parent),
        )
        return Router([*server.routes(), Route("/download", download)])

    def _asking(self, start: ReviewStart) -> AskModel:
        service = self._service

        async def ask(request: Request, pair: tuple[str, str], answer: Any, *, explains: bool) -> Response:
            job = request.state.job

            def work() -> Response:
                choice = Choice(service.models.named(start.model), start.source, start.target)
                translator = service.translator(choice, job)
                most = service.config.max_explain_tokens if explains else None
                spend_tokens(job, translator, [pair[0]], [pair[1]], choice.settings, most)
                turn = service.outside_batches(job) if explains else nullcontext()  # alternatives wait for batches
                with turn:
                    return answer(translator, **choice.settings)

            return await service.admission.run(job, work, partial(wait_for_disconnect, request))

        return ask

    def _lookups(self, start: ReviewStart) -> tuple[Terms | None, Lookup]:
        """Return the terms of the server for the languages of a review, and what finds matches in its memory."""
        resources = self._service.resources

        def meant_model() -> tuple[ServedModel, str | None, str | None] | None:
            model = self._service.models.served.get(start.model)  # perhaps replaced, or served no more
            return None if model is None else (model, start.source, start.target)

        def match(text: str, /, *, context: str | None = None) -> MemoryMatch | None:
            memory = resources.memory(*meant) if (meant := meant_model()) else None
            try:
                return None if memory is None else memory.match(text, LEAST_SIMILARITY, context=context)
            except DataError as error:
                log_event(logging.ERROR, event="memory", result="unreadable", error=str(error))
                raise DataError("the translation memory of this server cannot be read") from None

        return resources.terms(*meant) if (meant := meant_model()) else None, match
