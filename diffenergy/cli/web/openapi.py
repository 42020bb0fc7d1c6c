"""The service as OpenAPI describes it, from the requests and the page of JSON keys."""

import dataclasses
import json
from pathlib import Path
from typing import Any

from ... import __version__
from ...keys import schema
from ...requests import Argument, choices, is_switch
from ..app import QUESTIONS
from ..refusal import to_json
from .jobs import POSTED, fields_of

_VALUE: Any = {"type": ["string", "number"]}
_REFUSALS = {
    "400": "a field, value or host that is refused",
    "409": "no solution keeps the limits",
    "413": "a body over 2 MB",
    "415": "a body that is not application/json",
    "429": "a full queue",
    "503": "a process that ended, or took too much time or memory",
}


def document(names: list[str], folder: Path | None) -> dict[str, Any]:
    """OpenAPI 3.1 of the commands `names`."""
    records: dict[str, Any] = {"Error": _ERROR}
    paths = {f"/api/v1/{name}": _path(name, folder, records) for name in names}
    return {
        "openapi": "3.1.0",
        "info": {"title": "diffenergy", "version": __version__},
        "paths": paths,
        "components": {"schemas": records},
    }


_PARTS = {
    x: {"type": "string" if x in ("kind", "message") else ["string", "null"]}
    for x in to_json("", 2)["error"]
}
_ERROR: Any = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {"type": "object", "required": [*_PARTS], "properties": _PARTS}
    },
}


def _path(name: str, folder: Path | None, records: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps(schema(name)).replace("#/$defs/", "#/components/schemas/")
    answer = json.loads(text)
    records.update(answer.pop("$defs"))
    answer.pop("$schema")
    error = {"schema": {"$ref": "#/components/schemas/Error"}}
    lines = {x: y for group in QUESTIONS.values() for x, y in group.items()}
    return {
        "post": {
            "summary": lines.get(name, name),
            "operationId": name,
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": request(name, folder)}},
            },
            "responses": {
                "200": {
                    "description": f"what `diffenergy {name} --json` prints",
                    "content": {"application/json": {"schema": answer}},
                },
                **{
                    x: {"description": y, "content": {"application/json": error}}
                    for x, y in _REFUSALS.items()
                },
            },
        }
    }


def request(name: str, folder: Path | None) -> dict[str, Any]:
    """JSON Schema of the request of a command."""
    fields = fields_of(name, folder).values()
    properties = {x.name: _field(x, flag) for x, flag in fields}
    properties[POSTED] = {
        "type": "object",
        "additionalProperties": {"type": ["string", "object"]},
        "description": "Files that fields name: contents by name.",
    }
    return {
        "type": "object",
        "required": [x.name for x, _ in fields if x.default is dataclasses.MISSING],
        "properties": properties,
        "additionalProperties": False,
    }


def _field(field: Any, flag: Any) -> dict[str, Any]:
    text = {"description": flag.help}
    if is_switch(field):
        return {"type": "boolean", **text}
    words = choices(field.type)
    if words:
        return {"enum": [*words, None], **text}
    if flag.metavar and not isinstance(flag, Argument):
        text["x-unit"] = flag.metavar
    listed = {"type": "array", "items": _VALUE}
    by_name = {"type": "object", "additionalProperties": _VALUE}
    defined = [{"type": "object"}] if field.name in ("gpu", "model") else [by_name]
    return {"anyOf": [_VALUE, listed, *defined, {"type": "null"}], **text}
