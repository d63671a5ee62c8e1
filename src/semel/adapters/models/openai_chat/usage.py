"""Token counts of a chat completion in the neutral form (wire 0.7). Missing is None, never zero (FACT12)."""

from decimal import ROUND_CEILING, Decimal, InvalidOperation

from msgspec.structs import replace

from semel.adapters.models.openai_chat.options import ChatOptions, cost_of
from semel.core.values import JSON, Money, Usage


def usage_of(raw: dict[str, JSON] | None, options: ChatOptions) -> Usage:
    """The counts of a `usage` object. Counts in a stream are running totals, so the last object is the one to pass."""
    if raw is None:
        return Usage()
    prompt = _count(raw, "prompt_tokens")
    cache_read = _count(raw, "prompt_tokens_details", "cached_tokens")
    if cache_read is None:
        cache_read = _count(raw, "prompt_cache_hit_tokens")
    cache_write = _count(raw, "prompt_tokens_details", "cache_write_tokens")
    uncached = _count(raw, "prompt_cache_miss_tokens")
    if uncached is None and prompt is not None:
        uncached = max(0, prompt - (cache_read or 0) - (cache_write or 0))
    usage = Usage(
        input=uncached,
        output=_count(raw, "completion_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=_count(raw, "completion_tokens_details", "reasoning_tokens"),
    )
    cost = _reported_cost(raw.get("cost"), options.dialect.cost_currency) or cost_of(usage, options.price)
    return replace(usage, cost=cost)


def _count(raw: JSON, *path: str) -> int | None:
    for name in path:
        raw = raw.get(name) if isinstance(raw, dict) else None
    if isinstance(raw, float) and raw.is_integer():
        raw = int(raw)
    return raw if isinstance(raw, int) and not isinstance(raw, bool) and 0 <= raw < 2**53 else None


def _reported_cost(raw: JSON, currency: str | None) -> Money | None:
    if currency is None or isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    try:
        micros = Decimal(str(raw)) * 1_000_000
    except InvalidOperation:
        return None
    if not micros.is_finite() or not 0 <= micros < 2**53:
        return None
    return Money(micros=int(micros.to_integral_value(ROUND_CEILING)), currency=currency)
