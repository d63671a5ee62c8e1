"""A provider's own account of a failure as a record may hold it: small, and without control characters (R25, T4). Pure."""

from collections.abc import Sequence

from msgspec import json

from semel.core.values import JSON, finite, printable

BYTES_MOST = 4096
CHARS_MOST = 500
MEMBERS_MOST = 32
DEPTH_MOST = 6
_CUT = "…"


def bounded_details(details: Sequence[JSON]) -> tuple[JSON, ...]:
    """The details in their order, as many as there is room for; what is too deep or too long in one is cut and marked."""
    kept: list[JSON] = []
    left = BYTES_MOST
    for detail in details[:MEMBERS_MOST]:
        small = _small(detail, DEPTH_MOST)
        left -= len(json.encode(small))
        if left < 0:
            break
        kept.append(small)
    return tuple(kept)


def _small(value: JSON, depth: int) -> JSON:
    if isinstance(value, str):
        return printable(value[: 4 * CHARS_MOST], limit=CHARS_MOST)
    if isinstance(value, bool | None) or (isinstance(value, int) and abs(value) < 2**63):
        return value
    if isinstance(value, float) and finite(value):
        return value
    if depth == 0 or not isinstance(value, dict | list | tuple):
        return _CUT
    if isinstance(value, dict):
        members = list(value.items())[:MEMBERS_MOST]
        return {printable(str(name), limit=100): _small(item, depth - 1) for name, item in members}
    return [_small(item, depth - 1) for item in value[:MEMBERS_MOST]]
