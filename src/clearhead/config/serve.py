"""Limits of `clearhead serve`: request sizes, timeouts and concurrency."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from clearhead.config.settings import Settings

Count = Annotated[PositiveInt, Field(le=100_000_000)]
Seconds = Annotated[PositiveFloat, Field(le=86_400.0)]


class ServeConfig(Settings):
    """Limits of the server: request sizes, timeouts and concurrency; all of them are active by default."""

    max_body_bytes: Count = 1_048_576
    """Maximum bytes of a request body (larger: status 413)."""
    max_file_bytes: Count = 10_485_760
    """Maximum bytes of a form sent to `/translate_file` (larger: status 413)."""
    max_held_bytes: Annotated[PositiveInt, Field(le=1_000_000_000_000)] = 268_435_456
    """Maximum total bytes of the bodies of all requests that are being received or processed (more: status 503 with
    `Retry-After`); bodies without a known API key are read up to a quarter of it."""
    max_texts: Count = 128
    """Maximum number of texts in a request (more: status 400)."""
    max_characters: Count = 20_000
    """Maximum total characters of the texts of a request (more: status 400)."""
    max_file_characters: Count = 200_000
    """Maximum number of characters to translate in a file, and of its lines and texts (more: status 400)."""
    max_file_memory: Annotated[PositiveInt, Field(le=1_000_000_000_000)] = 2_147_483_648
    """Maximum total bytes of memory that the files being translated may take, estimated from their sizes; files beyond
    it wait."""
    max_alternatives: Annotated[int, Field(ge=0, le=100)] = 10
    """Maximum number of alternatives beside the best translation (more: status 400). The beam size grows with the
    number of alternatives."""
    max_terms: Count = 100
    """Maximum number of terms in a request; each form of a term's translation counts (more: status 400)."""
    max_term_characters: Count = 200
    """Maximum characters of a term in a request, and of each form of its translation (more: status 400)."""
    max_suggestions: Count = 10_000
    """Maximum number of suggested translations in a file of `--suggestions` (more: status 403)."""
    max_reviews: Count = 1_000
    """Maximum number of reviews in the directory of `--reviews`; a client may begin a quarter of them (more: status
    403)."""
    max_review_bytes: Count = 50_000_000
    """Maximum bytes of the files of a review, beyond which it takes no more changes (status 403)."""
    max_request_tokens: Count = 50_000
    """Maximum tokens of a request: its input tokens plus the maximum number of its output tokens (more: status 413).
    For a file the limit is ten times as high."""
    max_explain_tokens: Count = 150
    """Maximum tokens of the source, and of the target, of a `/v1/explain` request (more: status 400)."""
    max_requests: Annotated[PositiveInt, Field(le=10_000)] = 64
    """Maximum number of requests that are being processed or waiting (more: status 503 with `Retry-After`). When the
    limit is hit, half of it applies for the next 20 seconds."""
    max_requests_per_client: Annotated[PositiveInt, Field(le=10_000)] = 48
    """Maximum number of concurrent requests of one API key, or of one address if the client has no key (more: status
    429 with `Retry-After`)."""
    max_connections: Annotated[PositiveInt, Field(le=100_000)] = 1_000
    """Maximum number of open connections. Beyond that, the connection that has been idle for longest is closed; if none
    is idle, the new one is rejected (status 503)."""
    max_batch: Annotated[PositiveInt, Field(le=10_000)] = 64
    """Maximum number of sentences that a thread translates at once, over all clients; `decode.batch_tokens` limits them
    too."""
    max_searches: Annotated[PositiveInt, Field(le=1_000)] = 8
    """Maximum number of concurrent batches in addition to one batch for each model. Requests that ask for alternatives
    or for another beam size need batches of their own (more: status 503)."""
    request_seconds: Seconds = 30.0
    """Timeout of a request, in seconds (longer: status 504)."""
    file_seconds: Seconds = 300.0
    """Timeout of the translation of a file, in seconds (longer: status 504)."""
    header_seconds: Seconds = 10.0
    """Timeout for receiving the headers of a request, in seconds; then the connection is closed."""
    body_seconds: Seconds = 20.0
    """Timeout for receiving the body of a request, in seconds (longer: status 408)."""
    answer_seconds: Seconds = 30.0
    """Seconds that a client may leave a response unread; then the connection is closed."""
    idle_seconds: Seconds = 30.0
    """Keep-alive time: seconds that a connection stays open between two requests."""
    grace_seconds: Seconds = 20.0
    """Seconds that running requests have to finish after SIGTERM; then they are aborted (status 503)."""
    keep_file_seconds: Seconds = 600.0
    """Seconds for which a translated file can be downloaded."""
