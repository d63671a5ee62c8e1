"""The arguments that a model wrote: how they are kept, and whether they can be sent back to a server as they are (B14, B19)."""

import json
import re

from semel.core.values import JSON, clean_text

_NESTED_MAX = 64
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"  # a pair, which is one character
    r"|(?P<lone>\\u(?:[dD][89a-fA-F][0-9a-fA-F]{2}|0000))"
    r"|\\.",
    re.DOTALL,
)


def received(text: str) -> str:
    """The text of a call's arguments as it is kept: its own, but for characters that no JSON may carry on; blank is `{}` (B13).

    Half a surrogate pair and NUL are U+FFFD, also where they are written as an escape, so that what is stored can be sent.
    """
    text = clean_text(text)
    if "\\u" in text:
        text = _ESCAPE.sub(lambda match: "\ufffd" if match["lone"] else match[0], text)
    return text if text.strip() else "{}"


def of_value(value: JSON) -> str:
    """The arguments of a server that sends the object itself instead of its text."""
    return received(json.dumps(value, ensure_ascii=False, separators=(",", ":")))


def sendable(text: str) -> str:
    """The text of one JSON object: `text` itself if it is one, else `{}`; the call's own result says what was wrong (B14)."""
    text = received(text).strip(" \t\r\n")
    return text if is_json_object(text) else "{}"


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
