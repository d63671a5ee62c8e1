"""The arguments of a call as its tool will see them: with the defaults that its schema gives to what the model left out. Pure.

Rules judge those, and a person is asked about those: a call that leaves an argument out is the call that names its default.
"""

import json
from functools import lru_cache
from typing import Any

from semel.core.values import JSON, clean_json

SCHEMAS_CACHED_MAX = 512

_REFERENCE = "#/"


def with_defaults(schema_text: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """A copy with the defaults of the schema, those within objects and lists too; the same where the schema gives none.

    Arguments fit the schema. Where that allows several shapes of an object, none is filled, since it is the tool that chooses.
    """
    root = _schema(schema_text)
    filled = arguments if root is None else _filled(root, root, arguments)
    return filled if isinstance(filled, dict) else arguments


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _schema(schema_text: str) -> dict[str, Any] | None:
    """The schema, None for one without any default."""
    if '"default"' not in schema_text:
        return None
    found: dict[str, Any] = json.loads(schema_text)
    return found


def _filled(root: dict[str, Any], schema: Any, value: JSON) -> JSON:
    schema = _shape(root, schema, value)
    if isinstance(value, dict):
        return _object(root, schema.get("properties", {}), value)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [_filled(root, schema["items"], item) for item in value]
    return value


def _object(root: dict[str, Any], properties: dict[str, Any], value: dict[str, JSON]) -> dict[str, JSON]:
    filled = dict(value)
    for name, schema in properties.items():
        if name in value:
            filled[name] = _filled(root, schema, value[name])
        elif isinstance(schema, dict) and "default" in schema:
            filled[name] = clean_json(schema["default"])  # whole as it stands: a schema may name itself
    return filled


def _shape(root: dict[str, Any], schema: Any, value: JSON) -> dict[str, Any]:
    """What a schema says of a value, behind references and what may also be null; empty where that is not one thing."""
    followed = 0
    while isinstance(schema, dict) and isinstance(reference := schema.get("$ref"), str):
        followed += 1
        if not reference.startswith(_REFERENCE) or followed > len(root.get("$defs", {})):
            return {}
        schema = root
        for part in reference.removeprefix(_REFERENCE).split("/"):
            schema = schema.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(schema, dict) else None
    if not isinstance(schema, dict):
        return {}
    choices = [one for word in ("anyOf", "oneOf") for one in schema.get(word, ())]
    if choices:
        fitting = [shape for one in choices if _is_of(shape := _shape(root, one, value), value)]
        return fitting[0] if len(fitting) == 1 else {}
    return schema


def _is_of(shape: dict[str, Any], value: JSON) -> bool:
    """Whether a shape is one of an object or of a list, as the value is."""
    return shape.get("type") == ("object" if isinstance(value, dict) else "array" if isinstance(value, list) else None)
