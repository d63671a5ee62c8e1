"""What every kind of tool declares of itself, checked in one place when it is registered."""

import re
from typing import Literal

from semel.core.arguments import schema_problem
from semel.core.values import Effect, ToolSpec
from semel.errors import BadAgent

EffectName = Effect | Literal["once", "idempotent", "read"]
TIMEOUT_SECONDS_MAX = 7 * 24 * 3600.0

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def declare(
    name: str,
    *,
    description: str,
    parameters: str,
    effect: EffectName,
    interruptible: bool,
    sequential: bool,
    timeout: float | None,
    reconciles: bool,
) -> ToolSpec:
    """The spec of a tool; `parameters` is its JSON Schema as text, `timeout` is in seconds. Raises BadAgent."""
    if not _NAME.fullmatch(name):
        raise BadAgent(f"tool name {name!r}: use 1 to 64 of the letters A to Z, a to z, digits, '_' and '-'.")
    try:
        kind = Effect(effect)
    except ValueError:
        raise BadAgent(f"tool {name!r}: effect is 'once', 'idempotent' or 'read', not {effect!r}.") from None
    if timeout is not None and not (isinstance(timeout, (int, float)) and 0 < timeout <= TIMEOUT_SECONDS_MAX):
        raise BadAgent(f"tool {name!r}: timeout is in seconds, above 0 and at most {TIMEOUT_SECONDS_MAX:.0f}, not {timeout!r}.")
    if problem := schema_problem(parameters):
        raise BadAgent(f"tool {name!r}: {problem}.")
    return ToolSpec(
        name=name,
        description=description,
        parameters=parameters,
        effect=kind,
        interruptible=interruptible,
        sequential=sequential,
        reconciles=reconciles,
        timeout_ms=None if timeout is None else max(1, round(timeout * 1000)),
    )
