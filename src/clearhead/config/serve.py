"""What `clearhead serve` allows: the bounds of a request, of its time, and of what is done at once."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, PositiveFloat, PositiveInt

from clearhead.config.settings import Settings

Count = Annotated[PositiveInt, Field(le=100_000_000)]
Seconds = Annotated[PositiveFloat, Field(le=86_400.0)]


class ServeConfig(Settings):
    """Limits of the server; each is on unless it is raised."""

    max_body_bytes: Count = 1_048_576
    """Bytes of a request's body (413 beyond)."""
    max_file_bytes: Count = 10_485_760
    """Bytes of the body of `/translate_file` (413 beyond)."""
    max_held_bytes: Annotated[PositiveInt, Field(le=1_000_000_000_000)] = 268_435_456
    """Bytes of the bodies of all requests that are read or worked on (503 with `Retry-After` beyond)."""
    max_texts: Count = 128
    """Texts of one request (400 beyond)."""
    max_characters: Count = 20_000
    """Characters of all texts of one request (400 beyond)."""
    max_file_characters: Count = 200_000
    """Characters that are translated of a file (400 beyond)."""
    max_alternatives: Annotated[int, Field(ge=0, le=100)] = 10
    """Alternatives beside the best translation (400 beyond); the beam grows with them."""
    max_terms: Count = 100
    """Terms that a request brings along, each form of their translations counted (400 beyond)."""
    max_term_characters: Count = 200
    """Characters of such a term, and of each form (400 beyond)."""
    max_request_tokens: Count = 50_000
    """Tokens of one request: those it reads, and the most it may write (413 beyond); of a file ten times as many."""
    max_explain_tokens: Count = 150
    """Tokens of either side of what `/v1/explain` shows (400 beyond)."""
    max_requests: Annotated[PositiveInt, Field(le=10_000)] = 64
    """Requests that are worked on at once or wait for it (503 with `Retry-After` beyond, and for 20 seconds from
    then on beyond half as many)."""
    max_requests_per_client: Annotated[PositiveInt, Field(le=10_000)] = 48
    """Of them those of one API key, or of one address where there is no key (429 with `Retry-After` beyond)."""
    max_connections: Annotated[PositiveInt, Field(le=100_000)] = 1_000
    """Connections that are open at once; beyond, the one that has asked for nothing for longest is closed, or if all
    are asking, the new one (503)."""
    max_batch: Annotated[PositiveInt, Field(le=10_000)] = 64
    """Sentences that a thread translates at once, of all clients; `decode.batch_tokens` bounds them too."""
    max_searches: Annotated[PositiveInt, Field(le=1_000)] = 8
    """Batches at once, beside one of each model: requests that ask for alternatives or another number of beams have
    batches of their own (503 beyond)."""
    request_seconds: Seconds = 30.0
    """Until a request must be answered (504 beyond)."""
    file_seconds: Seconds = 300.0
    """Until a file must be translated (504 beyond)."""
    header_seconds: Seconds = 10.0
    """Until the headers of a request must be there, or the connection is closed."""
    body_seconds: Seconds = 20.0
    """Until the body must be there (408 beyond)."""
    answer_seconds: Seconds = 30.0
    """That a client may leave what was sent to it untaken, or the connection is closed."""
    idle_seconds: Seconds = 30.0
    """That a connection stays open between two requests."""
    grace_seconds: Seconds = 20.0
    """That requests have to end in after SIGTERM; then they are refused (503)."""
    keep_file_seconds: Seconds = 600.0
    """That a translated file can be fetched."""
