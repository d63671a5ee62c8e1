"""Whether the arguments that a model wrote can be sent back to a server as they are (B14)."""

import json
import re

_NESTED_MAX = 64


def is_json_object(text: str) -> bool:
    """Whether a strict parser reads `text` as one JSON object: no NaN, no lone surrogate, nested 64 deep at most.

    The answer decides bytes of a request, so it depends on nothing but the text: not on the interpreter's limits for digits or
    recursion, nor on a library's version.
    """
    if not text.lstrip(" \t\r\n").startswith("{") or _depth(text) > _NESTED_MAX:
        return False
    try:
        value = json.loads(text, parse_int=float, parse_constant=_refuse)
        json.dumps(value, ensure_ascii=False).encode()
    except ValueError:  # bad JSON, a constant, a lone surrogate
        return False
    return isinstance(value, dict)


def _depth(text: str) -> int:
    """How deeply brackets nest outside of strings, at most."""
    depth = deepest = 0
    for token in re.finditer(r'"(?:[^"\\]|\\.)*"?|[\[{]|[\]}]', text, re.DOTALL):
        if token[0] in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif token[0] in "]}":
            depth -= 1
    return deepest


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is not JSON")
