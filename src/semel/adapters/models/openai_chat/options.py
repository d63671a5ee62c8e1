"""What differs from server to server, and what a caller may set; all of it is frozen into the run's bundle (P4, P9).

The defaults here are the generic compatible server. They belong to renderer version 1: a bundle omits what has its default, so a
default may only change together with `RENDERER`.
"""

from decimal import Decimal, InvalidOperation
from typing import Literal

import msgspec
from msgspec.structs import replace

from semel.core.values import JSON, Frozen, Money, Usage
from semel.errors import BadSettings

RENDERER = 1
RENDERERS = frozenset({1})  # the versions that this build can still render (P6)
REASONING_FORMATS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
CALL_EXTRA_FORMAT = "tool_call_extra"  # further members of the tool call before it, as some gateways need them back
_OURS = frozenset({"model", "messages", "stream", "stream_options", "tools", "max_tokens", "max_completion_tokens", "store", "n"})


class Dialect(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How one server's chat completions differ from the plain ones."""

    system_role: Literal["system", "developer"] = "system"
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    include_usage: bool = True  # ask for the usage chunk; a server that always sends it may not know the field
    store: bool | None = None  # whether the vendor may keep the exchange; None leaves the field out
    call_content: Literal["null", "empty", "absent"] = "null"  # `content` of an answer that holds only calls
    echo_reasoning: bool = True  # send reasoning back under the name it came with
    done_required: bool = True  # False for a server known to end its stream without [DONE]
    cost_currency: str | None = None  # the currency of `usage.cost`, where the server reports one


PLAIN = Dialect()


class Price(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Prices per million tokens as decimal text. Cache reads and writes cost what input does unless they have a price."""

    currency: str
    input: str
    output: str
    cache_read: str | None = None
    cache_write: str | None = None


class ChatOptions(Frozen, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The family's part of a bundle. `body` holds further members of the request, such as temperature."""

    dialect: Dialect = PLAIN
    body: dict[str, JSON] = msgspec.field(default_factory=dict)
    price: Price | None = None


def encode_options(options: ChatOptions) -> str:
    """Canonical JSON text: fixed field order, members of `body` sorted, defaults omitted. Raises BadSettings."""
    if taken := _OURS.intersection(options.body):
        raise BadSettings(f"the model option body.{min(taken)} is set by semel itself; remove it")
    if not _plain(options.body):
        raise BadSettings("the model option body holds a value that JSON cannot carry")
    if options.price is not None:
        for text in (options.price.input, options.price.output, options.price.cache_read, options.price.cache_write):
            _micros(text or "0")
    if options.dialect == PLAIN:
        options = replace(options, dialect=PLAIN)  # a default is left out only if it is the very object
    return msgspec.json.encode(options, order="deterministic").decode()


def decode_options(text: str) -> ChatOptions:
    """The options of a bundle. Raises msgspec.ValidationError or msgspec.DecodeError."""
    return msgspec.json.decode(text.encode(), type=ChatOptions)


def cost_of(usage: Usage, price: Price | None) -> Money | None:
    """What an answer costs, rounded up to a millionth; None without a price, or where input or output were not reported."""
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


def _micros(text: str) -> int:
    """Millionths of a currency unit per million tokens."""
    try:
        value = Decimal(text) * 1_000_000
        if not value.is_finite() or value < 0 or value != value.to_integral_value():
            raise BadSettings(f"the price {text!r} is not a positive decimal number with at most six places")
    except InvalidOperation:
        raise BadSettings(f"the price {text!r} is not a decimal number") from None
    return int(value)


def _plain(value: object) -> bool:
    """Whether a value is JSON through and through; a TOML date, for one, is not."""
    if isinstance(value, dict):
        return all(isinstance(name, str) and _plain(item) for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    if isinstance(value, float):
        return value - value == 0
    return value is None or isinstance(value, (str, int))
