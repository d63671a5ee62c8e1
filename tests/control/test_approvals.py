"""Answers for calls that wait, from the command line: nobody holds such a session, so whoever answers takes its lease."""

import asyncio
from pathlib import Path

import pytest

from semel import Deferred, Runtime
from tests.control.support import OwnedShop
from tests.engine.test_held_calls import holding
from tests.faces.support import AGENT, open_shop

ASKS = "ask = true\n"


@pytest.fixture
def shop(tmp_path: Path) -> OwnedShop:
    """A shop whose payment waits for an approval."""
    shop = OwnedShop(open_shop(tmp_path).place)
    (tmp_path / "agent.toml").write_text(AGENT.format(model="scripted:script.json", effect="once") + ASKS)
    assert shop.semel("run", "Pay 17", "--session", "s").exit == 4
    assert shop.ledger == []
    return shop


def call_of(shop: OwnedShop) -> str:
    (item,) = shop.semel("inbox", "--json").lines
    assert item["kind"] == "approval"
    return str(item["call_key"])


def test_an_approval_is_recorded_once_and_a_resume_goes_on(shop: OwnedShop) -> None:
    call = call_of(shop)
    first = shop.semel("approve", call[:6], "--by", "anna", "--json")
    assert (first.exit, first.json["call_key"], first.json["tool"], first.json["owner"]) == (0, call, "pay", None)
    assert first.json["next"] == "semel resume s"
    assert shop.types()[-1] == "approval_resolved"
    assert shop.semel("approve", call, "--json").json == first.json, "the same answer again changes nothing"
    assert shop.types().count("approval_resolved") == 1
    other = shop.semel("deny", call)
    assert (other.exit, "was approved by anna" in other.refusal()) == (2, True)
    done = shop.semel("resume", "s")
    assert (done.exit, done.out, len(shop.ledger)) == (0, "It is paid.\n", 1)


def test_an_approval_with_other_arguments_sends_those_and_goes_on_if_it_is_asked_to(shop: OwnedShop) -> None:
    refused = shop.semel("approve", call_of(shop)[:6], "--arguments", '{"cents": "many"}')
    assert refused.exit == 2
    done = shop.semel("approve", call_of(shop)[:6], "--arguments", '{"cents": 5}', "--continue", "--json")
    assert (done.exit, done.json["state"]) == (0, "completed"), done
    (payment,) = shop.ledger
    assert payment.startswith("5 ")


def test_a_denial_is_told_to_the_model_and_nothing_is_paid(shop: OwnedShop) -> None:
    done = shop.semel("deny", call_of(shop)[:6], "--note", "not today", "--continue")
    assert (done.exit, done.out, shop.ledger) == (0, "It is paid.\n", [])


def test_a_cancel_closes_what_waits_and_an_answer_comes_too_late(shop: OwnedShop) -> None:
    call = call_of(shop)
    assert shop.semel("cancel", "s").exit == 0
    assert shop.records()[-1]["reason"] == "cancelled"
    late = shop.semel("approve", call, "--json")
    assert late.exit == 2
    assert shop.ledger == []


def test_a_call_that_nobody_asked_about_is_named_in_one_line(shop: OwnedShop) -> None:
    for words in (("approve", "ffff"), ("deny", "ffff"), ("deliver", "ffff", "x"), ("approve", "")):
        refused = shop.semel(*words)
        assert (refused.exit, "semel inbox" in refused.refusal()) == (2, True)


def test_a_result_is_delivered_by_its_handle_and_the_same_again_changes_nothing(tmp_path: Path) -> None:
    shop = OwnedShop(open_shop(tmp_path).place)

    async def order() -> None:
        agent = holding(tmp_path, Deferred("order-7", "It is on its way."))
        async with Runtime(tmp_path / ".semel", agents=[agent]) as runtime:
            await (await runtime.session("s", agent=agent).send("go")).result()

    asyncio.run(order())
    first = shop.semel("deliver", "order-7", "It is here.", "--json")
    assert (first.exit, first.json["tool"]) == (0, "order")
    assert shop.semel("deliver", "order-7", "It is here.", "--json").json == first.json
    other = shop.semel("deliver", "order-7", "It is lost.")
    assert (other.exit, "another result" in other.refusal()) == (2, True)
    assert shop.types().count("late_result") == 1
