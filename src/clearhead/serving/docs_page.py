"""HTML page of the API reference, generated from the OpenAPI document, without external requests."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from clearhead.pages import Html, fill, joined
from clearhead.pages.parts import table


def description_page(document: Mapping[str, Any]) -> Html:
    """Return the HTML page.

    Args:
        document: The OpenAPI document.
    """
    schemas = document.get("components", {}).get("schemas", {})
    endpoints = [
        fill(
            "api_parts.html#endpoint",
            method=method.upper(),
            path=path,
            summary=operation.get("description", ""),
            request=_request(operation, schemas),
            answers=joined(
                fill("api_parts.html#answer", status=status, description=answer.get("description", ""))
                for status, answer in sorted(operation["responses"].items())
            ),
            answer=_table(_schema_of(operation["responses"].get("200", {}), schemas), schemas),
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return fill("api.html", version=document["info"]["version"], endpoints=joined(endpoints))


def _request(operation: Mapping[str, Any], schemas: Mapping[str, Any]) -> Html:
    body = operation.get("requestBody")
    if body is None:
        return Html()
    kinds = ", ".join(body["content"])
    return fill("api_parts.html#request", kinds=kinds, fields=_table(_schema_of(body, schemas), schemas))


def _schema_of(part: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    content: Mapping[str, Any] = next(iter(part.get("content", {}).values()), {})
    return _resolved(content.get("schema", {}), schemas)


def _resolved(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the object schema that a schema refers to; of a list, that of its items; of several, the first."""
    while "anyOf" in schema or schema.get("type") == "array":
        schema = schema["anyOf"][0] if "anyOf" in schema else schema["items"]
    name = schema.get("$ref", "").rpartition("/")[2]
    return schemas.get(name, schema)


def _table(schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Html:
    rows = [
        (
            fill("api_parts.html#name", name=name),
            _kind(field) + (", required" if name in schema.get("required", ()) else ""),
            "" if "default" not in field else json.dumps(field["default"]),
            field.get("description", ""),
        )
        for name, field in schema.get("properties", {}).items()
    ]
    return table(("text",) * 4, rows, heads=("Field", "Type", "Default", "Meaning")) if rows else Html()


def _kind(field: Mapping[str, Any]) -> str:
    """Return the type of a field in words."""
    if "$ref" in field:
        return field["$ref"].rpartition("/")[2].lstrip("_")
    if "enum" in field:
        return " or ".join(json.dumps(value) for value in field["enum"])
    if "anyOf" in field:
        return " or ".join(_kind(one) for one in field["anyOf"])
    if field.get("type") == "array":
        return f"list of {_kind(field['items'])}"
    return str(field.get("type", "object"))
