"""A service that gave a session back, or is about to, and people who answer from another process: nobody has to ask twice."""

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.support import ANSWER_SECONDS_MOST, OwnedShop
from tests.faces.support import AGENT, ANSWERS, open_shop

ASKS = "ask = true\n"
NOT_INTERRUPTIBLE = "interruptible = false\n"


def shop_at(place: Path, more: str) -> OwnedShop:
    shop = OwnedShop(open_shop(place, *ANSWERS, {"text": "Hurried."}).place)
    (place / "agent.toml").write_text(AGENT.format(model="scripted:script.json", effect="once") + more)
    return shop


@contextmanager
def service_of(shop: OwnedShop) -> "Iterator[subprocess.Popen[str]]":
    """A service that has sent its message."""
    service = shop.start("service", "send")
    try:
        assert [heard(service), heard(service)] == ["ready", "sent"], service.communicate()
        yield service
    finally:
        if service.poll() is None:
            service.kill()
        service.communicate()


def heard(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def waiting_call(shop: OwnedShop) -> str:
    """The call that waits, once nobody holds the session any more."""
    while not (found := shop.semel("inbox", "--json").lines):
        pass
    return str(found[0]["call_key"])


@pytest.mark.parametrize(("verb", "payments"), [("approve", 1), ("deny", 0)])
def test_a_service_goes_on_with_what_another_process_has_answered(tmp_path: Path, verb: str, payments: int) -> None:
    shop = shop_at(tmp_path, ASKS)
    with service_of(shop) as service:
        done = shop.semel(verb, waiting_call(shop)[:8], "--json")
        assert done.exit == 0, done
        assert heard(service) == "completed"
        assert len(shop.ledger) == payments
        service.send_signal(signal.SIGTERM)
        assert service.wait(ANSWER_SECONDS_MOST) == 0
    assert shop.types().count("run_started") == 1


def test_an_approval_while_its_service_is_down_is_taken_up_by_the_next_one(tmp_path: Path) -> None:
    shop = shop_at(tmp_path, ASKS)
    with service_of(shop) as service:
        call = waiting_call(shop)
        service.send_signal(signal.SIGTERM)
        assert service.wait(ANSWER_SECONDS_MOST) == 0
    assert shop.semel("approve", call).exit == 0
    with service_of(shop) as service:
        assert heard(service) == "completed"
    assert len(shop.ledger) == 1


def test_a_service_takes_over_what_the_one_before_it_hands_over(tmp_path: Path) -> None:
    shop = shop_at(tmp_path, NOT_INTERRUPTIBLE)
    before, after = shop.start_and_pay("service", "send"), shop.start("service")
    assert heard(after) == "ready"
    before.send_signal(signal.SIGTERM)
    shop.let_pay()
    assert before.wait(ANSWER_SECONDS_MOST) == 0
    assert heard(after) == "completed"
    after.send_signal(signal.SIGTERM)
    for service in (before, after):
        service.communicate()
    assert (len(shop.ledger), shop.types().count("run_started")) == (1, 1)


@pytest.mark.parametrize("verb", ["steer", "cancel"])
def test_what_is_asked_of_an_owner_that_is_stopping_is_done_when_it_has_gone(tmp_path: Path, verb: str) -> None:
    shop = shop_at(tmp_path, NOT_INTERRUPTIBLE)
    owner = shop.start_and_pay("run", "Pay 17", "--session", "s", "--json")
    owner.send_signal(signal.SIGTERM)
    assert owner.stderr is not None
    assert "stopping" in owner.stderr.readline()
    words = ("steer", "Hurry", "--session", "s", "--key", "k") if verb == "steer" else ("cancel", "s")
    asked = shop.start(*words, "--json")
    assert asked.stderr is not None
    assert f"process {owner.pid} on " in (told := asked.stderr.readline()), told
    assert "is stopping" in told
    shop.let_pay()
    owner.communicate()
    out, err = asked.communicate()
    assert (asked.returncode, json.loads(out)["owner"]) == (0, None), err
    assert (verb == "cancel", "steered" in shop.types()) in [(True, False), (False, True)]
    ended = [record["reason"] for record in shop.records() if record["type"] == "run_finished"]
    assert ended == (["cancelled"] if verb == "cancel" else [])
    assert len(shop.ledger) == 1
    assert shop.semel("resume", "s").exit == (5 if verb == "cancel" else 0)
