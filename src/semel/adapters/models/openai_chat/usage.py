"""Token counts of a chat completion in the neutral form (wire 0.7). Missing is None, never zero (FACT12)."""

from msgspec.structs import replace

from semel.adapters.models.json_text import count_of
from semel.adapters.models.openai_chat.options import ChatOptions
from semel.adapters.models.pricing import cost_of, reported_cost
from semel.core.values import JSON, Usage


def usage_of(raw: dict[str, JSON] | None, options: ChatOptions) -> Usage:
    """The counts of a `usage` object. Counts in a stream are running totals, so the last object is the one to pass."""
    if raw is None:
        return Usage()
    prompt = count_of(raw, "prompt_tokens")
    cache_read = count_of(raw, "prompt_tokens_details", "cached_tokens")
    if cache_read is None:
        cache_read = count_of(raw, "prompt_cache_hit_tokens")
    cache_write = count_of(raw, "prompt_tokens_details", "cache_write_tokens")
    uncached = count_of(raw, "prompt_cache_miss_tokens")
    if uncached is None and prompt is not None:
        uncached = max(0, prompt - (cache_read or 0) - (cache_write or 0))
    usage = Usage(
        input=uncached,
        output=count_of(raw, "completion_tokens"),
        cache_read=cache_read,
        cache_write=cache_write,
        reasoning=count_of(raw, "completion_tokens_details", "reasoning_tokens"),
    )
    cost = reported_cost(raw.get("cost"), options.dialect.cost_currency) or cost_of(usage, options.price)
    return replace(usage, cost=cost)
