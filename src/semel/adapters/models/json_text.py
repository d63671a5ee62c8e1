"""JSON on the wire: equal values give equal bytes (wire 0.3), and nothing that a server sends can raise."""

import json

from semel.core.values import JSON, clean_text


def dump(value: JSON) -> bytes:
    """The bytes of a value whose members are in their fixed order: no spaces, no escapes but the needed ones, no NaN."""
    return to_bytes(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def compact(value: JSON) -> str:
    """The clean text of a value that a server sent, as it is stored and sent back (wire 0.2). Raises ValueError for NaN and such.

    `parse` lets numbers through that are no JSON or more than a double holds; what holds one could never be sent back.
    """
    return clean_text(json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False))


def to_bytes(text: str) -> bytes:
    """UTF-8. Half a surrogate pair, from a log whose writer did not clean what entered, becomes U+FFFD (B19)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return clean_text(text).encode()


def parse(text: str | bytes) -> JSON:
    """The value of a text, None if it is none. `json` and not msgspec: it lets half a surrogate pair through (B19)."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def member(value: JSON, *path: str) -> JSON:
    """What lies at a path of object members, None where the path breaks off."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def text_of(value: JSON) -> str:
    """A string as it is; empty for anything else."""
    return value if isinstance(value, str) else ""


def items_of(value: JSON) -> list[dict[str, JSON]]:
    """The objects of a list; empty for anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count_of(value: JSON, *path: str) -> int | None:
    """A token count at a path; None where there is none, or a number that cannot be one (FACT12)."""
    found = member(value, *path)
    if isinstance(found, float) and found.is_integer():
        found = int(found)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**53 else None
