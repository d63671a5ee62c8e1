"""A Python function as a tool."""

import asyncio
import contextvars
import dataclasses
import datetime
import decimal
import enum
import json
import subprocess
import sys
import threading
from typing import Annotated, Any, Literal

import msgspec
import pydantic
import pytest
from tool_support import a_call

from semel.adapters.tools.function import FunctionTool, tool
from semel.core.arguments import check_arguments
from semel.core.outcomes import Dispatched, Outcome, classify_exception, completed, settle
from semel.core.values import Effect
from semel.errors import CallNotSent, OutcomeUnknown, ToolFailed
from semel.ports.tool import Call, Done

pytestmark = pytest.mark.anyio


class Colour(enum.Enum):
    RED = "red"


class Item(pydantic.BaseModel):
    sku: str
    count: int = pydantic.Field(ge=1)


class Basket(pydantic.BaseModel):
    items: list[Item]


@dataclasses.dataclass
class Deps:
    ledger: list[str]


@dataclasses.dataclass
class Receipt:
    cents: int
    at: datetime.date


@tool(effect="read", timeout=2.5, interruptible=False, sequential=True)
async def find_order(
    order_id: Annotated[str, "As printed on the invoice."],
    limit: Annotated[int, msgspec.Meta(ge=1, le=9), "How many."] = 3,
    colour: Colour = Colour.RED,
    tags: list[str] = ["new"],  # noqa: B006 - copied for every call
    *,
    call: Call[Deps],
) -> Any:
    """Find an order.

    Looks in the ledger.
    """
    call.deps.ledger.append(order_id)
    tags.append("seen")
    return {"order": order_id, "limit": limit, "colour": colour, "tags": tags, "key": call.key, "context": call.context}


def schema_of(found: FunctionTool) -> Any:
    return json.loads(found.spec.parameters)


def test_a_spec_is_read_from_the_signature() -> None:
    spec = find_order.spec
    assert (spec.name, spec.effect, spec.timeout_ms) == ("find_order", Effect.READ, 2500)
    assert (spec.interruptible, spec.sequential, spec.reconciles) == (False, True, False)
    assert spec.description == "Find an order.\n\nLooks in the ledger."
    assert schema_of(find_order) == {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "description": "As printed on the invoice."},
            "limit": {"type": "integer", "minimum": 1, "maximum": 9, "default": 3, "description": "How many."},
            "colour": {"$ref": "#/$defs/Colour", "default": "red"},
            "tags": {"type": "array", "items": {"type": "string"}, "default": ["new"]},
        },
        "required": ["order_id"],
        "additionalProperties": False,
        "$defs": {"Colour": {"title": "Colour", "enum": ["red"]}},
    }


def test_the_schema_text_is_canonical() -> None:
    text = find_order.spec.parameters
    assert text == json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))


def test_a_bare_tool_is_called_once_at_most_and_may_be_cancelled() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert (ping.spec.effect, ping.spec.interruptible, ping.spec.sequential) == (Effect.ONCE, True, False)
    assert (ping.spec.description, ping.spec.timeout_ms) == ("", None)
    assert check_arguments(ping.spec.parameters, {}) is None
    assert ping() == "pong"


async def test_arguments_are_converted_and_the_call_is_injected_by_its_annotation() -> None:
    ledger: list[str] = []
    for _ in range(2):
        text = await find_order.run({"order_id": "17"}, a_call("key-9", deps=Deps(ledger)))
        assert json.loads(str(text)) == {
            "order": "17",
            "limit": 3,
            "colour": "red",
            "tags": ["new", "seen"],
            "key": "key-9",
            "context": {"tenant": "acme"},
        }
    assert ledger == ["17", "17"]


async def test_arguments_that_do_not_convert_are_not_sent() -> None:
    ran: list[str] = []

    @tool
    def pay(due: datetime.date) -> None:
        ran.append("paid")

    with pytest.raises(CallNotSent, match="do not convert"):
        await pay.run({"due": "tomorrow"}, a_call())
    with pytest.raises(CallNotSent, match="do not convert"):
        await pay.run({"due": "2026-01-01", "more": 1}, a_call())
    assert ran == []
    await pay.run({"due": "2026-01-01"}, a_call())
    assert ran == ["paid"]


async def test_pydantic_models_are_accepted_as_parameters_and_results() -> None:
    @tool
    def buy(basket: Basket, extra: list[Item]) -> Item:
        return basket.items[0]

    assert check_arguments(buy.spec.parameters, {"basket": {"items": [{"sku": "a", "count": 2}]}, "extra": []}) is None
    assert check_arguments(buy.spec.parameters, {"basket": {"items": [{"sku": "a", "count": 0}]}, "extra": []}) is not None
    text = await buy.run({"basket": {"items": [{"sku": "a", "count": 2}]}, "extra": []}, a_call())
    assert text == '{"sku":"a","count":2}'
    with pytest.raises(CallNotSent, match="greater than or equal to 1"):
        await buy.run({"basket": {"items": [{"sku": "a", "count": 0}]}, "extra": []}, a_call())


def test_a_tool_without_pydantic_models_does_not_import_pydantic() -> None:
    code = (
        "import sys\nfrom semel.adapters.tools.function import tool\n@tool\ndef add(a: int) -> int: return a\n"
        "print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", ""),
        (None, ""),
        (b"latin1 \xb2", "latin1 \ufffd"),
        ("lone \udcb2", "lone \ufffd"),
        ({"name": "\udcb2"}, '{"name":"\ufffd"}'),
        (Receipt(cents=5, at=datetime.date(2026, 1, 2)), '{"cents":5,"at":"2026-01-02"}'),
        (Item(sku="a", count=1), '{"sku":"a","count":1}'),
        ([decimal.Decimal("1.50"), Colour.RED], '["1.50","red"]'),
        ({1: "one"}, '{"1":"one"}'),
        (17, "17"),
        (True, "true"),
    ],
)
async def test_a_returned_value_is_told_as_text(value: Any, text: str) -> None:
    @tool
    def give() -> Any:
        return value

    @tool
    async def give_done() -> Done:
        return Done(value=value)

    assert await give.run({}, a_call()) == text
    assert await give_done.run({}, a_call()) == Done(value=text)


@pytest.mark.parametrize("value", [float("nan"), {"rate": float("inf")}, object(), {object(): 1}, [threading.Lock()]])
async def test_a_value_that_json_cannot_carry_is_a_failure_that_says_the_tool_ran(value: Any) -> None:
    @tool
    def give() -> Any:
        return value

    with pytest.raises(ToolFailed, match="the tool ran, but its result cannot be shown"):
        await give.run({}, a_call())


async def test_a_sync_function_runs_beside_the_loop_with_the_callers_context() -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant")
    tenant.set("acme")

    @tool
    def where() -> Any:
        return {"tenant": tenant.get(), "main": threading.current_thread() is threading.main_thread()}

    assert await where.run({}, a_call()) == '{"tenant":"acme","main":false}'


async def test_a_function_that_returns_an_awaitable_is_awaited() -> None:
    async def later() -> str:
        return "awaited"

    @tool
    def start() -> Any:
        return later()

    assert await start.run({}, a_call()) == "awaited"


async def test_cancelling_reaches_an_async_function_and_goes_on() -> None:
    started, seen = asyncio.Event(), []

    @tool
    async def wait() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    task = asyncio.create_task(wait.run({}, a_call()))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


class Weird(BaseException):
    """Like KeyboardInterrupt, but of a library."""


def raising(kind: str) -> None:
    match kind:
        case "empty connection error":
            raise ConnectionError("")
        case "cancelled":
            raise asyncio.CancelledError
        case "base exception":
            raise Weird
        case "keyboard interrupt":
            raise KeyboardInterrupt
        case "exit":
            sys.exit(3)
        case "timeout":
            raise TimeoutError
        case "stop iteration":
            raise StopIteration(1)


KINDS = ("empty connection error", "cancelled", "base exception", "exit", "timeout", "stop iteration", "keyboard interrupt")


async def settled(found: FunctionTool) -> Dispatched:
    try:
        return completed(await found.run({}, a_call()))
    except BaseException as error:
        return classify_exception(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("style", ["sync", "async"])
async def test_b07_each_parallel_call_settles_on_its_own(kind: str, style: Literal["sync", "async"]) -> None:
    if (kind, style) == ("keyboard interrupt", "async"):
        kind = "base exception"  # on the loop's own thread it may be a person's second Ctrl-C, and passes
    failed, order = asyncio.Event(), []

    @tool(effect="read")
    async def search() -> str:
        order.append("search")
        return "found"

    @tool(effect="read", name="get_weather")
    async def async_weather() -> None:
        raising(kind)

    @tool(effect="read", name="get_weather")
    def sync_weather() -> None:
        raising(kind)

    @tool(effect="read")
    async def read_file() -> str:
        await failed.wait()
        order.append("read_file")
        return "text"

    async def get_weather() -> Dispatched:
        try:
            return await settled(sync_weather if style == "sync" else async_weather)
        finally:
            failed.set()

    outcomes = await asyncio.gather(settled(search), get_weather(), settled(read_file))
    found = [settle(Effect.READ, happening, after_crash=False) for happening in outcomes]
    assert [(one.outcome, one.is_error, one.stops_run) for one in found] == [
        (Outcome.COMPLETED, False, False),
        (Outcome.COMPLETED, True, False),
        (Outcome.COMPLETED, False, False),
    ]
    assert found[1].text.strip()
    assert order == ["search", "read_file"]


async def test_sys_exit_inside_a_task_of_its_own_does_not_end_the_loop() -> None:
    @tool
    async def leave() -> None:
        sys.exit(3)

    task = asyncio.create_task(leave.run({}, a_call()))
    with pytest.raises(RuntimeError, match=r"the tool called sys.exit\(3\)"):
        await task


async def test_keyboard_interrupt_in_a_thread_leaves_the_outcome_unknown() -> None:
    @tool
    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(OutcomeUnknown):
        await interrupt.run({}, a_call())
