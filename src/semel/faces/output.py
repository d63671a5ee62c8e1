"""The typed output of an agent: the schema that the model fills in, and the value that a caller gets."""

from typing import Any, TypeVar

import msgspec

from semel.core.arguments import parse_arguments, schema_problem
from semel.core.keys import canonical
from semel.core.outcomes import Refusal
from semel.core.values import JSON
from semel.errors import BadAgent

OutputT = TypeVar("OutputT")


def output_schema(kind: type[Any]) -> str:
    """The JSON Schema of an output type as canonical text. Raises BadAgent unless it describes an object.

    A pydantic model is known by its methods; semel does not import pydantic.
    """
    try:
        own = getattr(kind, "model_json_schema", None)
        schema: dict[str, JSON] = own() if own is not None else msgspec.json.schema(kind)
    except (TypeError, ValueError) as error:
        raise BadAgent(f"the output type {kind!r} has no JSON Schema: {error}") from error
    target = schema
    while "$ref" in target:
        target = schema["$defs"][str(target["$ref"]).rsplit("/", 1)[-1]]
    if target.get("type") != "object":
        raise BadAgent(f"the output type {kind!r} is no object; use a dataclass, a msgspec Struct or a pydantic model")
    definitions = {"$defs": schema["$defs"]} if '"$ref"' in canonical(target) else {}
    text = canonical({**target, **definitions})
    problem = schema_problem(text)
    if problem is not None:
        raise BadAgent(f"the output type {kind!r} has a JSON Schema that cannot be used: {problem}")
    return text


def convert_output(text: str | None, kind: type[OutputT] | None) -> Any:
    """The output of a run as the agent's output type; plain text where it has none. Raises BadAgent where it no longer fits."""
    if kind is None or text is None:
        return text
    value = parse_arguments(text)
    if isinstance(value, Refusal):
        raise BadAgent(f"the recorded output is no object: {value.message}")
    try:
        own = getattr(kind, "model_validate", None)
        return own(value) if own is not None else msgspec.convert(value, type=kind)
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadAgent(f"the recorded output does not fit {kind.__name__}: {error}; was the type changed?") from error
