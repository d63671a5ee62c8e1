"""An answer of the owner stands for what is durable, and whatever breaks off happens once (P9, design 3)."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.control.support import ROOT, Caller, OwnedShop, Owner, owned
from tests.faces.support import SRC, Done

ROUND_TRIPS = 20


def answered_before_its_sync(owner: Owner) -> bool:
    """Whether a steer is answered while its sync is held; meanwhile the owner answers others, so it is not just slow."""
    with Caller(owner.shop) as caller, Caller(owner.shop) as other:
        owner.ask("hold")
        caller.send(caller.request("send", text="hurry", key="k", delivery="steer"))
        owner.ask("held")
        for _ in range(ROUND_TRIPS):
            assert "ok" in other.ask("state")
        early = not caller.is_silent()
        owner.ask("go")
        assert "ok" in caller.hear()
        return early


def test_p9_a_steer_is_answered_only_behind_the_sync_of_its_record(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        assert not answered_before_its_sync(owner)
        assert owner.shop.types().count("steered") == 1


def test_canary_an_owner_that_answers_early_is_seen(tmp_path: Path) -> None:
    with owned(tmp_path, "early") as owner:
        assert answered_before_its_sync(owner)


def deliveries(shop: OwnedShop) -> int:
    """How often the message of the test is in the log, in any form of delivery."""
    return sum(b"Only once" in line for line in shop.log("s").read_bytes().splitlines())


STEER = ("steer", "Only once", "--session", "s", "--json")


def warm_up(shop: OwnedShop) -> None:
    """Messages of both kinds, so that the floor holds what they need: then the next write and sync are of the record itself."""
    with Caller(shop) as caller:
        assert "ok" in caller.ask("send", text="warm", key="w1", delivery="steer")
        assert "ok" in caller.ask("send", text="warm", key="w2", delivery="queue")
        assert "ok" in caller.ask("retract", key="w2")


def retry_of(shop: OwnedShop, fault: str = "") -> Done:
    """`semel steer` from a second process; FAULT plants one in it."""
    if not fault:
        return shop.semel(*STEER)
    done = subprocess.run(
        [sys.executable, "-m", "tests.control.programs.client", fault, *STEER],
        cwd=shop.place,
        env={**shop.environment({}), "PYTHONPATH": f"{ROOT}:{SRC}"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("death", ["die_before", "die_behind"])
def test_p9_a_steer_whose_owner_dies_before_it_answers_is_in_the_log_once(tmp_path: Path, death: str) -> None:
    with owned(tmp_path) as owner:
        warm_up(owner.shop)
        owner.ask(death)
        done = retry_of(owner.shop)
        owner.died()
        assert done.exit == 0, done
        assert done.json["owner"] is None, "this process took the lease itself"
        assert done.json["next"] == "semel resume s"
        assert deliveries(owner.shop) == 1
        assert owner.shop.types().count("steered") == 2, "the one before, and this one"


def test_canary_a_client_that_makes_a_new_key_when_it_asks_again_is_seen(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        warm_up(owner.shop)
        owner.ask("die_behind")
        done = retry_of(owner.shop, "new_key")
        owner.died()
        assert done.exit == 0, done
        assert deliveries(owner.shop) == 2


def test_an_interrupting_message_whose_owner_dies_before_it_answers_is_there_once_and_starts_one_run(tmp_path: Path) -> None:
    with owned(tmp_path, effect="read") as owner:
        shop = owner.shop
        warm_up(shop)
        owner.ask("die_behind")
        sent = shop.start("send", "Only once", "--session", "s", "--delivery", "interrupt", "--json")
        owner.died()
        out, err = sent.communicate()
        assert (sent.returncode, err) == (0, "")
        assert deliveries(shop) == 1
        ended = [record["reason"] for record in shop.records() if record["type"] == "run_finished"]
        assert ended == ["cancelled", "completed"], out


def test_a_refusal_crosses_with_its_code_its_words_and_its_exit_code(tmp_path: Path) -> None:
    with owned(tmp_path) as owner:
        shop = owner.shop
        assert shop.semel("steer", "one", "--session", "s", "--key", "k").exit == 0
        refused = {
            "key_reuse": shop.semel("steer", "two", "--session", "s", "--key", "k", "--json"),
            "unknown_message": shop.semel("retract", "nothing", "--session", "s", "--json"),
            "session_busy": shop.semel("send", "three", "--session", "s", "--json"),
            "bad_settings": shop.semel("send", "three", "--session", "s", "--model", "openai:x", "--json"),
        }
        assert {code: done.json["error"]["code"] for code, done in refused.items()} == {code: code for code in refused}
        assert [done.exit for done in refused.values()] == [2, 2, 7, 2]
        assert all(len(done.err.splitlines()) == 1 for done in refused.values())
