"""The limits of a run. Every loop, wait and size has one; the defaults are finite and printed (design 14)."""

from semel.core.values import Frozen, Money


class Limits(Frozen, frozen=True, kw_only=True):
    """Where a run stops by name. Counts, tokens, milliseconds and bytes; `cost` None means that cost is not limited."""

    steps: int = 50
    tokens: int = 5_000_000
    cost: Money | None = None
    wall_ms: int = 3_600_000
    result_bytes: int = 256 * 1024
    output_retries: int = 3
    parallel_calls: int = 16
    truncations: int = 3
    repeated_calls: int = 25
    reruns: int = 3
    step_attempts: int = 10
    model_retries: int = 5
    retry_wait_ms: int = 300_000
    reconcile_ms: int = 30_000


WARNED_AT_PERCENT = 80
"""How much of a budget is used when its run is warned, once."""

MODEL_RETRY_SYNCED_FROM_MS = 1_000
"""A wait longer than this is made durable first, so that a restart does not shorten it (design 4)."""

BACKOFF_FIRST_MS = 500
BACKOFF_MOST_MS = 30_000


def backoff_ms(used: int, retry_after_ms: int | None) -> int:
    """How long to wait before redelivery number `used` + 1: doubling, and never less than the server asked for (X16)."""
    own = min(BACKOFF_MOST_MS, BACKOFF_FIRST_MS << min(used, 16))
    return max(own, retry_after_ms or 0)


def cut_output(text: str, limit_bytes: int) -> str:
    """Bound a tool's output for the model: its beginning and a notice of what was cut, on a code point border (B18, B19)."""
    if len(text) * 4 <= limit_bytes or len(raw := text.encode()) <= limit_bytes:
        return text
    notice = f"\n[output cut: {len(raw)} bytes, the limit is {limit_bytes}]"
    return raw[: max(0, limit_bytes - len(notice))].decode("utf-8", "ignore") + notice
