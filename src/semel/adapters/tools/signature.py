"""From a Python signature to a JSON Schema, and from checked arguments back to the annotated types.

What msgspec understands is accepted, and pydantic models beside it, recognised by their methods so that pydantic is
never imported. An `Annotated[..., "text"]` describes a parameter. A parameter annotated `Call` is not the model's to fill.
"""

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from semel.core.outcomes import describe
from semel.core.rules import Predicate, UnfitArguments
from semel.core.values import JSON
from semel.errors import BadAgent, CallNotSent
from semel.ports.tool import Call

_FILLABLE = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Signature:
    """The parameters of one function: `schema` is canonical JSON text of what the model fills."""

    def __init__(self, function: Callable[..., Any], tool: str) -> None:
        """Raises BadAgent for a parameter that a model cannot fill by name, or whose type has no JSON Schema."""
        hints = _hints(function, tool)
        self._call_names: list[str] = []
        fields: list[Any] = []
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind not in _FILLABLE:
                raise BadAgent(f"tool {tool!r}: parameter {name!r} must be one that can be passed by name.")
            if name not in hints:
                raise BadAgent(f"tool {tool!r}: parameter {name!r} has no annotation, so the model cannot be told its type.")
            if _is_call(hints[name]):
                self._call_names.append(name)
            else:
                fields.append(_field(name, hints[name], parameter.default))
        try:
            self._arguments = msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)
            self.schema = msgspec.json.encode(_schema(self._arguments, tool), order="deterministic").decode()
        except (TypeError, ValueError) as error:
            raise BadAgent(f"tool {tool!r}: its parameters have no JSON Schema: {describe(error)}") from error

    def bind(self, arguments: dict[str, JSON], call: Call[Any]) -> dict[str, Any]:
        """The keyword arguments for the function. Raises CallNotSent if a value does not convert to its type."""
        try:
            filled = self._filled(arguments)
        except UnfitArguments as error:
            raise CallNotSent(f"the arguments do not convert: {error}") from error
        bound = {name: getattr(filled, name) for name in self._arguments.__struct_fields__}
        return bound | dict.fromkeys(self._call_names, call)

    def asks(self, predicate: Callable[[Any], bool]) -> Predicate:
        """A condition that asks `predicate` about the arguments as the function gets them; its `Call` is not there yet.

        The condition raises UnfitArguments where a value does not convert to its type: such a call would not be sent.
        """

        @functools.wraps(predicate)
        def condition(arguments: dict[str, JSON]) -> bool:
            return predicate(Arguments(self._filled(arguments), arguments))

        return condition

    def _filled(self, arguments: dict[str, JSON]) -> msgspec.Struct:
        try:
            return msgspec.convert(arguments, self._arguments, dec_hook=_from_json)
        except Exception as error:  # a validator in an annotation is foreign code; nothing was handed over yet
            raise UnfitArguments(describe(error)) from error


class Arguments:
    """What an `ask` function is given: an attribute for each argument, of the type that the tool's function gets, defaults too.

    An item, `arguments["cents"]`, is the argument in JSON, as a function of a `Rule` gets it: KeyError where it has none.
    """

    __slots__ = ("__filled", "__given")  # mangled, so that no parameter's name meets them

    def __init__(self, filled: msgspec.Struct, given: dict[str, JSON]) -> None:
        """Made by `Signature.asks`."""
        self.__filled = filled
        self.__given = given

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__filled, name)

    def __getitem__(self, name: str) -> JSON:
        return self.__given[name]


def to_json(value: Any) -> JSON:
    """A returned value as JSON. Raises whatever the value's own encoder raises, TypeError for what has none."""
    return msgspec.to_builtins(value, str_keys=True, enc_hook=_to_json)


def _hints(function: Callable[..., Any], tool: str) -> dict[str, Any]:
    target = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(target, include_extras=True)
    except (NameError, TypeError) as error:
        raise BadAgent(f"tool {tool!r}: its annotations cannot be read ({describe(error)}). Name types of the module.") from error


def _is_call(hint: Any) -> bool:
    bare = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return bare is Call or get_origin(bare) is Call


def _field(name: str, hint: Any, default: Any) -> tuple[str, Any] | tuple[str, Any, Any]:
    if get_origin(hint) is Annotated:
        base, *extras = get_args(hint)
        for extra in extras:
            base = Annotated[base, msgspec.Meta(description=extra) if isinstance(extra, str) else extra]
        hint = base
    if default is inspect.Parameter.empty:
        return name, hint
    if isinstance(default, (list, dict, set, bytearray)):
        said = Annotated[hint, msgspec.Meta(extra_json_schema={"default": to_json(default)})]  # of a factory msgspec says nothing
        return name, said, msgspec.field(default_factory=lambda: copy.deepcopy(default))
    return name, hint, default


def _schema(arguments: type[msgspec.Struct], tool: str) -> dict[str, JSON]:
    """The schema with its definitions at the root, where every provider and every `$ref` looks for them."""
    lifted: dict[str, JSON] = {}

    def model_schema(kind: type) -> dict[str, JSON]:
        if not hasattr(kind, "model_json_schema"):
            raise TypeError(f"type {kind.__name__} is not supported")
        found: dict[str, JSON] = kind.model_json_schema(ref_template=f"#/$defs/{kind.__name__}_{{model}}")
        for name, definition in found.pop("$defs", {}).items():
            if lifted.setdefault(f"{kind.__name__}_{name}", definition) != definition:
                raise BadAgent(f"tool {tool!r}: two different models are called {kind.__name__}.")
        return found

    _, definitions = msgspec.json.schema_components((arguments,), schema_hook=model_schema)
    root: dict[str, JSON] = definitions.pop("Arguments")
    del root["title"]
    definitions.update(lifted)
    return root | ({"$defs": definitions} if definitions else {})


def _from_json(kind: type, value: Any) -> Any:
    return kind.model_validate(value)  # type: ignore[attr-defined]  # only pydantic models got past the schema


def _to_json(value: Any) -> JSON:
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a {type(value).__name__} is not JSON")
