"""Every verb from a second process, on a run that another one carries; and from one alone, where nobody does (design 3)."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.control.support import Caller, OwnedShop
from tests.faces.support import AGENT, Done, open_shop

ORDER_PY = """\
from semel import Deferred


async def order() -> str:
    return Deferred("order-7", "It is on its way.")
"""
CALLS = [{"name": "pay", "args": {"cents": 125}}]
ANSWERS = ({"text": "I pay.", "calls": CALLS}, *({"text": f"answer {number}"} for number in range(2, 9)))
RUN = ("run", "Pay 17", "--session", "s", "--json")


@pytest.fixture
def shop(tmp_path: Path) -> OwnedShop:
    return OwnedShop(open_shop(tmp_path, *ANSWERS).place)


def ended(process: "subprocess.Popen[str]") -> Done:
    out, err = process.communicate()
    return Done(process.returncode, out, err)


def wait_for(shop: OwnedShop, kind: str, count: int = 1) -> None:
    """Follow the log until so many records of a type are in it: an event, no time that has to pass."""
    follower = shop.start("tail", "s", "--follow", "--forever", "--json")
    assert follower.stdout is not None
    for line in follower.stdout:
        count -= json.loads(line)["type"] == kind
        if not count:
            break
    follower.kill()
    follower.communicate()


def test_messages_reach_the_run_of_another_process_and_are_in_its_log_when_they_are_answered(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    steered = shop.semel("steer", "Hurry", "--session", "s", "--key", "k1", "--json")
    assert f"process {owner.pid} on " in steered.json["owner"]
    assert shop.types()[-1] == "steered"
    follow_up = shop.start("send", "Then that", "--session", "s", "--delivery", "follow-up", "--json")
    queued = shop.start("send", "And then this", "--session", "s", "--delivery", "queue", "--key", "q", "--json")
    gone = shop.start("send", "Not this", "--session", "s", "--delivery", "queue", "--key", "gone", "--json")
    wait_for(shop, "queued", 2)
    wait_for(shop, "follow_up_queued")
    assert shop.semel("retract", "gone", "--session", "s").exit == 0
    assert shop.types()[-1] == "retracted"
    shop.let_pay()
    assert ended(owner).exit == 0
    first, second = ended(follow_up), ended(queued)
    assert (first.exit, second.exit) == (0, 0), (first, second)
    assert first.json["run_id"] == steered.json["run_id"] != second.json["run_id"]
    assert "taken back" in ended(gone).err
    started = [record["key"] for record in shop.records() if record["type"] == "run_started"]
    assert (len(started), started[-1]) == (2, "q")


@pytest.mark.parametrize("at", ["now", "step-boundary", "step_boundary"])
def test_a_cancel_ends_the_run_of_another_process_and_is_answered_when_it_is_durable(shop: OwnedShop, at: str) -> None:
    owner = shop.start_and_pay(*RUN)
    done = shop.semel("cancel", "s", "--at", at, "--by", "anna", "--json")
    assert (done.exit, f"process {owner.pid} on " in done.json["owner"]) == (0, True)
    assert "run_cancel_requested" in shop.types()
    shop.let_pay() if at != "now" else None
    assert ended(owner).exit in (3, 5), "a payment that was cut short is unknown"
    assert shop.records()[-1]["reason"] == "cancelled"
    asked = next(record for record in shop.records() if record["type"] == "run_cancel_requested")
    assert asked["at"] == at.replace("-", "_")
    again = shop.semel("cancel", "s", "--json")
    assert (again.exit, again.json["run_id"], again.json["owner"]) == (0, None, None)
    other = shop.semel("cancel", "s", "--at", "step boundary")
    assert (other.exit, "step-boundary" in other.err) == (2, True)


def test_a_stop_ends_the_run_of_another_process_behind_its_turn(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    assert shop.semel("stop", "s").exit == 0
    shop.let_pay()
    ended(owner)
    assert shop.records()[-1]["reason"] == "max_steps"


def test_an_interrupting_message_cancels_the_run_and_is_answered_by_the_same_process(shop: OwnedShop) -> None:
    (shop.place / "agent.toml").write_text(AGENT.format(model="scripted:script.json", effect="read"))
    owner = shop.start_and_pay(*RUN)
    done = shop.semel("send", "That instead", "--session", "s", "--delivery", "interrupt", "--json")
    assert (done.exit, done.json["state"]) == (0, "completed"), done
    owner.communicate()
    reasons = [record["reason"] for record in shop.records() if record["type"] == "run_finished"]
    assert reasons == ["cancelled", "completed"]


def test_a_result_and_a_verdict_reach_the_process_that_runs_the_session(tmp_path: Path) -> None:
    calls = [{"name": "order", "args": {}}, *CALLS]
    shop = OwnedShop(open_shop(tmp_path, {"calls": CALLS}, {"calls": calls}, *({"text": "done"} for _ in range(4))).place)
    (tmp_path / "wares.py").write_text(ORDER_PY)
    with (tmp_path / "agent.toml").open("a") as agent:
        agent.write('\n[tools.order]\npython = "wares:order"\n')
    unknown = shop.interrupted("s")
    owner = shop.start_and_pay("send", "Order it", "--session", "s", "--json")
    wait_for(shop, "tool_call_deferred")
    verdict = shop.semel("resolve", unknown[:8], "--happened", "--json")
    assert (verdict.exit, shop.types()[-1]) == (0, "indeterminate_resolved"), verdict
    given = shop.semel("deliver", "order-7", "It is here.", "--json")
    assert (given.exit, shop.types()[-1]) == (0, "late_result"), given
    assert f"process {owner.pid} on " in given.json["owner"]
    shop.let_pay()
    assert ended(owner).exit == 0


def test_a_resume_and_the_same_key_watch_the_run_of_another_process_and_end_as_it_does(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN, "--key", "k")
    watchers = [shop.start("resume", "s", "--json"), shop.start(*RUN, "--key", "k")]
    with Caller(shop) as caller:
        assert caller.ask("state")["ok"]["status"]["state"] == "running"
    shop.let_pay()
    first, *others = [ended(process) for process in (owner, *watchers)]
    assert first.exit == 0
    assert all((other.exit, other.json) == (0, first.json) for other in others), others
    assert len(shop.ledger) == 1


def test_who_watches_a_run_goes_on_with_it_when_its_process_is_killed(tmp_path: Path) -> None:
    shop = OwnedShop(open_shop(tmp_path, *ANSWERS, effect="idempotent").place)
    owner = shop.start_and_pay(*RUN)
    watcher = shop.start("resume", "s", "--json")
    wait_for(shop, "tool_dispatch_intent")
    shop.kill(owner)
    done = ended(watcher)
    assert (done.exit, done.json["state"]) == (0, "completed"), done
    first, second = shop.ledger
    assert first == second


def test_a_queued_message_whose_process_is_killed_is_answered_behind_the_run_that_was_cut_short(tmp_path: Path) -> None:
    shop = OwnedShop(open_shop(tmp_path, *ANSWERS, effect="idempotent").place)
    owner = shop.start_and_pay(*RUN)
    sender = shop.start("send", "Then that", "--session", "s", "--delivery", "queue", "--json")
    wait_for(shop, "queued")
    shop.kill(owner)
    done = ended(sender)
    assert (done.exit, done.json["state"]) == (0, "completed"), done
    reasons = [record["reason"] for record in shop.records() if record["type"] == "run_finished"]
    assert (reasons, shop.types().count("queued")) == (["completed"] * 2, 1)


def test_a_message_behind_an_unknown_call_is_in_the_inbox_and_goes_on_when_a_person_says_so(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    sender = shop.start("send", "Then that", "--session", "s", "--delivery", "queue")
    wait_for(shop, "queued")
    shop.kill(owner)
    sent = ended(sender)
    assert (sent.exit, "behind a call whose outcome is unknown; `semel inbox` says which" in sent.err) == (4, True), sent
    *_, queue = shop.semel("inbox", "--json").lines
    assert (queue["kind"], queue["count"], queue["next"]) == ("queue", 1, "semel resume s --continue")
    assert "1 message in the queue of session s behind a call whose outcome is unknown" in shop.semel("inbox").out
    assert shop.semel("resume", "s", "--json").json["state"] == "interrupted"
    done = shop.semel("resume", "s", "--continue", "--json")
    assert (done.exit, done.json["state"]) == (0, "completed"), done
    assert [one["kind"] for one in shop.semel("inbox", "--json").lines] == ["call"]


def test_a_follower_sees_each_record_when_it_is_durable_without_a_gap_and_text_that_is_marked_as_live(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    follower = shop.start("tail", "s", "--follow", "--live", "--after", "3", "--json")
    assert follower.stdout is not None
    shop.semel("steer", "Hurry", "--session", "s")
    events: list[dict[str, Any]] = []
    while not events or events[-1]["type"] != "steered":  # the newest record, so no later one tells of its sync
        events.append(json.loads(follower.stdout.readline()))
    assert shop.types()[-1] == "steered"
    shop.let_pay()
    events += [json.loads(line) for line in follower.stdout]
    follower.communicate()
    owner.communicate()
    durable = [event["seq"] for event in events if "seq" in event]
    assert durable == list(range(4, shop.status("s")["head_seq"] + 1))
    live = [event for event in events if "seq" not in event]
    assert live
    assert all(event["live"] == "text" for event in live)
    assert "".join(event["text"] for event in live) == "answer 2"
    finished = [at for at, event in enumerate(events) if event.get("type") == "model_step_finished"]
    assert events.index(live[-1]) < finished[-1], "text comes before the record of the answer"


def test_a_follower_outlives_the_process_that_told_it(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    follower = shop.start("tail", "s", "--follow", "--json")
    assert follower.stdout is not None
    seqs = [json.loads(follower.stdout.readline())["seq"] for _ in range(6)]
    shop.kill(owner)
    assert shop.semel("resume", "s").exit == 3
    seqs += [json.loads(line)["seq"] for line in follower.stdout]
    follower.communicate()
    assert seqs == list(range(1, shop.status("s")["head_seq"] + 1))


def test_eight_clients_at_once_are_all_answered_and_each_message_is_there_once(shop: OwnedShop) -> None:
    owner = shop.start_and_pay(*RUN)
    clients = [shop.start("steer", f"Word {number}", "--session", "s", "--key", f"k{number}", "--json") for number in range(8)]
    answers = [ended(client) for client in clients]
    assert [answer.exit for answer in answers] == [0] * 8, answers
    keys = [record["send_id"] for record in shop.records() if record["type"] == "steered"]
    assert sorted(keys) == [f"k{number}" for number in range(8)]
    shop.let_pay()
    assert ended(owner).exit == 0


@pytest.mark.prove
def test_eight_clients_at_once_without_an_owner_take_turns(shop: OwnedShop) -> None:
    shop.kill(shop.start_and_pay(*RUN))
    clients = [shop.start("steer", f"Word {number}", "--session", "s", "--key", f"k{number}", "--json") for number in range(8)]
    answers = [ended(client) for client in clients]
    assert [answer.exit for answer in answers] == [0] * 8, answers
    keys = [record["send_id"] for record in shop.records() if record["type"] == "steered"]
    assert sorted(keys) == [f"k{number}" for number in range(8)]


def test_without_an_owner_a_verb_records_and_says_what_goes_on_with_the_run(shop: OwnedShop) -> None:
    shop.kill(shop.start_and_pay(*RUN))
    done = shop.semel("steer", "Hurry", "--session", "s")
    assert (done.exit, done.err) == (0, "told\nnobody carries the open run; `semel resume s` goes on, if no service does\n")
    assert shop.types()[-1] == "steered"
    cancelled = shop.semel("cancel", "s")
    assert cancelled.exit == 0
    assert "unknown" in cancelled.err, "the payment that its process left is a person's matter"
    assert shop.records()[-1]["reason"] == "cancelled"
