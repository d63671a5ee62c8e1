"""What an answer costs, from its token counts and a price list (K14): exact, rounded up to a millionth."""

from decimal import ROUND_CEILING, Decimal, InvalidOperation

from msgspec.structs import replace

from semel.core.values import JSON, Frozen, Money, Usage
from semel.errors import BadSettings


class Price(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices per million tokens as decimal text. Cache reads and writes cost what input does unless they have a price."""

    currency: str
    input: str
    output: str
    cache_read: str | None = None
    cache_write: str | None = None


def check_price(price: Price | None) -> None:
    """Raise BadSettings unless every part is a decimal number."""
    if price is not None:
        for text in (price.input, price.output, price.cache_read, price.cache_write):
            _micros(text or "0")


def priced(usage: Usage, price: Price | None) -> Usage:
    """The usage with its cost; without one where there is no price, or where input or output were not reported."""
    return replace(usage, cost=cost_of(usage, price))


def cost_of(usage: Usage, price: Price | None) -> Money | None:
    """What an answer costs; None without a price, or where input or output were not reported."""
    if price is None or usage.input is None or usage.output is None:
        return None
    cache_read = price.input if price.cache_read is None else price.cache_read
    cache_write = price.input if price.cache_write is None else price.cache_write
    total = (
        usage.input * _micros(price.input)
        + usage.output * _micros(price.output)
        + (usage.cache_read or 0) * _micros(cache_read)
        + (usage.cache_write or 0) * _micros(cache_write)
    )
    return Money(micros=-(-total // 1_000_000), currency=price.currency)


def reported_cost(raw: JSON, currency: str | None) -> Money | None:
    """A cost that a server states as a number, in the currency it is known to bill in; None for anything else."""
    if currency is None or isinstance(raw, bool) or not isinstance(raw, (int, float, str)):
        return None
    try:
        micros = Decimal(str(raw)) * 1_000_000
    except InvalidOperation:
        return None
    if not micros.is_finite() or not 0 <= micros < 2**53:
        return None
    return Money(micros=int(micros.to_integral_value(ROUND_CEILING)), currency=currency)


def _micros(text: str) -> int:
    """Millionths of a currency unit per million tokens."""
    try:
        value = Decimal(text) * 1_000_000
        if not value.is_finite() or value < 0 or value != value.to_integral_value():
            raise BadSettings(f"the price {text!r} is not a positive decimal number with at most six places")
    except InvalidOperation:
        raise BadSettings(f"the price {text!r} is not a decimal number") from None
    return int(value)
