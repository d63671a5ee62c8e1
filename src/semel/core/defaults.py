"""The arguments of a call as its tool will see them: with the defaults that its schema gives to what the model left out. Pure.

Rules judge those, and a person is asked about those: a call that leaves an argument out is the call that names its default.
"""

import json
from functools import lru_cache
from typing import Any

from semel.core.values import JSON, clean_json

SCHEMAS_CACHED_MAX = 512
_REFERENCE = "#/"
_STEPS_MOST = 400  # parts of a schema that are looked at for a value; the interpreter can go as deep as that


class TooEntangled(Exception):
    """Raised for a schema whose defaults cannot be told in bounded time, as one that names itself many times over."""


def with_defaults(schema_text: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """A copy with the defaults of the schema, those within objects and lists too; the same where the schema gives none.

    Arguments fit the schema. Of several shapes of an object that one is filled which its constants choose, as the tag of a union
    does; none where they choose none, since it is the tool that chooses then. Raises TooEntangled.
    """
    root = _schema(schema_text)
    filled = arguments if root is None else _Filling(root).filled(root, arguments)
    return filled if isinstance(filled, dict) else arguments


@lru_cache(maxsize=SCHEMAS_CACHED_MAX)
def _schema(schema_text: str) -> dict[str, Any] | None:
    """The schema, None for one without any default."""
    if '"default"' not in schema_text:
        return None
    found: dict[str, Any] = json.loads(schema_text)
    return found


class _Filling:
    """One filling of arguments, in a bounded number of steps for each value that was given."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        self._steps = 0

    def filled(self, schema: Any, value: JSON, *, given: bool = True) -> JSON:
        """The value with the defaults that this part of the schema gives; one that is a default itself was not `given`."""
        if given:
            self._steps = 0
        if isinstance(value, dict):
            filled = dict(value)
            for shape in self._shapes(schema, value):
                for name, part in shape.get("properties", {}).items():
                    if name in filled:
                        filled[name] = self.filled(part, filled[name], given=given and name in value)
                    elif isinstance(part, dict) and "default" in part:
                        filled[name] = self.filled(part, clean_json(part["default"]), given=False)
            return filled
        if isinstance(value, list):
            items = [shape["items"] for shape in self._shapes(schema, value) if isinstance(shape.get("items"), dict)]
            return [self.filled(items[0], item, given=given) for item in value] if len(items) == 1 else value
        return value

    def _shapes(self, schema: Any, value: JSON) -> list[dict[str, Any]]:
        """All that a schema says of an object or a list: behind references, all of `allOf`, the one that is chosen of several."""
        self._steps += 1
        if self._steps > _STEPS_MOST:
            raise TooEntangled
        if not isinstance(schema, dict):
            return []
        found = [schema]
        reference = schema.get("$ref")
        if isinstance(reference, str) and reference.startswith(_REFERENCE):
            found += self._shapes(_at(self._root, reference.removeprefix(_REFERENCE)), value)
        for one in schema.get("allOf", ()):
            found += self._shapes(one, value)
        for word in ("anyOf", "oneOf"):
            chosen = [shapes for one in schema.get(word, ()) if _fits(shapes := self._shapes(one, value), value)]
            found += chosen[0] if len(chosen) == 1 else []
        return found


def _at(root: dict[str, Any], path: str) -> Any:
    """The part of the schema that a reference names; None where there is none."""
    found: Any = root
    for part in path.split("/"):
        found = found.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found


def _fits(shapes: list[dict[str, Any]], value: JSON) -> bool:
    """Whether these shapes are of what the value is, and none of its constants is another one."""
    kind = "object" if isinstance(value, dict) else "array"
    kinds = [shape["type"] for shape in shapes if "type" in shape]
    if kind not in kinds:
        return False
    said = value if isinstance(value, dict) else {}
    for shape in shapes:
        for name, part in shape.get("properties", {}).items():
            if name in said and isinstance(part, dict) and not _is_constant(part, said[name]):
                return False
    return True


def _is_constant(part: dict[str, Any], value: JSON) -> bool:
    """Whether a part of a schema allows this value, as far as it names the values that it allows."""
    return value in part.get("enum", [value]) and part.get("const", value) == value
