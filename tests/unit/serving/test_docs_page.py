"""What the description of the interface allows, and what it does not, is asked: every answer is as it is described."""

from __future__ import annotations

from collections import Counter

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
ONE_TEXT = {"type": "array", "items": {"type": "string", "maxLength": 40}, "minItems": 1, "maxItems": 1}
KNOWN = {
    "source": {"enum": ["de", "en", "fr", "auto"]},
    "target": {"enum": ["de", "en", "fr"]},
    "model": {"const": "many"},
    "num_best": {"enum": [1, 3]},
    "beam_size": {"enum": [1, 4]},
    "alternatives": {"enum": [0, 2]},
    "protect_numbers": {"const": False},
    "memory": {"enum": [None, False]},
    "terms": {"enum": [None, [], "pets", [{"source": "Hund", "target": "dog"}]]},
    "texts": ONE_TEXT,
    "translations": ONE_TEXT,
}
"""What the server serves and can do; of other values it says little but that they cannot be."""
HOW = settings(
    max_examples=4,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
ANSWERED = {"/detect", "/translate", "/v1/translate", "/v1/score", "/v1/explain"}


def narrowed(document):
    """Return the document with what the server knows in the place of any value."""
    described = [*document["components"]["schemas"].values()]
    for methods in document["paths"].values():
        for operation in methods.values():
            described += [kind["schema"] for kind in operation.get("requestBody", {}).get("content", {}).values()]
    for schema in described:
        if schema.get("title", "").endswith(("Fields", "Request")):
            schema["properties"] |= {name: KNOWN[name] for name in KNOWN.keys() & schema["properties"].keys()}
            needed = {"model", "source", "target", *schema.get("required", ())}
            schema["required"] = sorted(needed & schema["properties"].keys())
    return document


@pytest.fixture(scope="module")
def described(server):
    document = httpx.get(f"{server.url}/openapi.json").json()
    schema = schemathesis.openapi.from_dict(narrowed(document))
    schema.config.update(base_url=server.url)
    return [operation.ok() for operation in schema.get_all_operations()]


def asked(operation, mode):
    """Ask what an operation allows, or does not; return how often each status was answered."""
    statuses = Counter()

    @HOW
    @given(case=operation.as_strategy(generation_mode=mode))
    def ask(case):
        answer = case.call()
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=CHECKS)

    ask()
    return statuses


def test_valid_requests_are_answered_as_the_openapi_schema_describes(described):
    statuses = {operation.path: asked(operation, GenerationMode.POSITIVE) for operation in described}
    assert {path for path, seen in statuses.items() if seen[200]} >= ANSWERED, statuses


def test_invalid_requests_are_refused_as_the_openapi_schema_describes(described):
    statuses = {one.path: asked(one, GenerationMode.NEGATIVE) for one in described if one.path in ANSWERED}
    assert {path for path, seen in statuses.items() if seen[400]} >= ANSWERED, statuses
