"""A function that says which calls a person has to approve sees the arguments as the tool's own function gets them."""

import enum
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any

import msgspec
import pydantic
import pytest

from semel.adapters.tools.function import FunctionTool, tool
from semel.core.policy import Allow, Ask, Ruling, Undecidable, Unfit
from semel.core.rules import Rule, Rulebook
from semel.core.values import JSON
from semel.ports.tool import Call
from tests.tools.tool_support import a_call

pytestmark = pytest.mark.anyio


class Way(enum.Enum):
    CARD = "card"
    CASH = "cash"


class Address(msgspec.Struct):
    country: str


class Limit(pydantic.BaseModel):
    cents: int = pydantic.Field(ge=0)


@dataclass
class Money:
    cents: int
    currency: str = "EUR"


ALL: dict[str, JSON] = {
    "order_id": "17",
    "amount": {"cents": 6000},
    "day": "2026-11-30",
    "to": {"country": "DE"},
    "limit": {"cents": 5},
    "way": "card",
}


def teller(asks: Callable[[Any], Any], seen: list[dict[str, Any]] | None = None) -> FunctionTool:
    """A tool of many types that asks by a function, and writes down what its own function got."""

    @tool(name="pay", ask=asks)
    async def pay(
        order_id: str,
        amount: Money,
        day: date,
        to: Address,
        limit: Limit,
        way: Way,
        *,
        call: Call[Any],
        get: int = 3,
        tags: list[str] = ["a"],  # noqa: B006  what a user may write
    ) -> str:
        if seen is not None:
            seen.append({name: value for name, value in locals().items() if name not in ("call", "seen")})
        return "paid"

    return pay


def ruled(paying: FunctionTool, arguments: dict[str, JSON]) -> Ruling:
    assert paying.ask_rule is not None
    return Rulebook(tools=[paying.ask_rule])(paying.spec, arguments)


async def test_each_argument_is_an_attribute_equal_to_what_the_function_gets_defaults_too() -> None:
    asked: list[dict[str, Any]] = []
    got: list[dict[str, Any]] = []
    names = [*ALL, "get", "tags"]

    def asks(a: Any) -> bool:
        asked.append({name: getattr(a, name) for name in names})
        return False

    paying = teller(asks, got)
    assert ruled(paying, ALL) == Allow()
    await paying.run(ALL, a_call())
    assert asked == got
    assert asked[0]["amount"] == Money(6000)
    assert asked[0]["way"] is Way.CARD
    assert asked[0]["get"] == 3


@pytest.mark.parametrize(
    "asks",
    [
        lambda a: a.amount.cents > 5000,
        lambda a: a.day > date(2026, 1, 1) and a.to.country == "DE",
        lambda a: a.limit.cents == 5 and a.way is Way.CARD and a.get == 3 and a.tags == ["a"],
        lambda a: a["amount"]["cents"] > 5000 and a["way"] == "card",
    ],
)
def test_a_person_is_asked_where_the_function_says_so(asks: Callable[[Any], bool]) -> None:
    assert isinstance(ruled(teller(asks), ALL), Ask)


def test_an_item_is_what_the_model_wrote_so_that_one_function_serves_a_rule_too() -> None:
    def by_card(arguments: Any) -> bool:
        return bool(arguments["way"] == "card" and arguments["day"] == "2026-11-30")

    assert isinstance(ruled(teller(by_card), ALL), Ask)
    assert Rule("ask", when=by_card).matches(teller(by_card).spec, ALL)


@pytest.mark.parametrize(
    ("asks", "why"),
    [
        (lambda a: a.euros > 5, "no attribute 'euros'"),
        (lambda a: a["euros"] > 5, "KeyError: 'euros'"),
        (lambda a: a["get"] > 5, "KeyError: 'get'"),
        (lambda a: a.call.key == "k", "no attribute 'call'"),
        (lambda a: a.get("amount") is None, "'int' object is not callable"),
        (lambda a: "amount" in a, "KeyError: 0"),
        (lambda a: a.day, "it returned date, not a bool"),
        (lambda a: setattr(a, "day", None) or False, "AttributeError"),
    ],
)
def test_con4_a_function_that_cannot_tell_is_no_no_and_no_yes(asks: Callable[[Any], bool], why: str) -> None:
    found = ruled(teller(asks), ALL)
    assert isinstance(found, Undecidable)
    assert why in found.why


@pytest.mark.parametrize(
    "wrong", [{"day": "2026-02-30"}, {"limit": {"cents": -1}}, {"way": "gold"}, {"amount": {"cents": "many"}}]
)
def test_a_call_whose_arguments_do_not_convert_is_unfit_whatever_the_function_would_say(wrong: dict[str, JSON]) -> None:
    def never(_a: object) -> bool:
        raise AssertionError("nobody is asked about a call that the tool would not take")

    assert isinstance(ruled(teller(never), ALL | wrong), Unfit)


def test_a_validator_in_an_annotation_that_says_no_makes_the_call_unfit() -> None:
    @tool(ask=lambda a: a.limit.cents > 1)
    def pay(limit: Annotated[Limit, "At most."]) -> None: ...

    found = ruled(pay, {"limit": {"cents": -1}})
    assert isinstance(found, Unfit)
    assert found.why.startswith("They do not convert: ValidationError: ")


def test_a_function_that_asks_cannot_change_what_is_sent() -> None:
    @tool(ask=lambda a: bool(a.free["tags"].clear() or a["free"]["tags"].clear()))
    def pay(free: dict[str, Any]) -> None: ...

    arguments: dict[str, JSON] = {"free": {"tags": ["vip"]}}
    assert ruled(pay, arguments) == Allow()
    assert arguments == {"free": {"tags": ["vip"]}}


def test_the_rule_is_told_by_the_name_of_the_function() -> None:
    def large(a: Any) -> bool:
        return bool(a.amount.cents > 5000)

    paying = teller(large)
    assert paying.ask_rule is not None
    assert paying.ask_rule.told() == "ask pay when large"
