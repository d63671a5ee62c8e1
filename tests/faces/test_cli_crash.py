"""Runs that are killed, stopped and gone on with from the command line, and readers that watch them from outside."""

import json
import signal
import subprocess
from pathlib import Path

import pytest

from semel.testing.model_server import serve_in_thread
from tests.faces.support import ANSWERS, Shop, open_shop, tree


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return open_shop(tmp_path)


def test_a_payment_that_a_kill_made_unknown_is_resolved_and_the_job_is_finished_in_one_command(tmp_path: Path) -> None:
    with serve_in_thread({"answers": list(ANSWERS)}) as server:
        shop = open_shop(tmp_path, model=f"openai_chat:clerk@{server.url}")
        shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
        assert shop.status("s")["state"] == "running"
        (open_run,) = shop.semel("inbox", "--json").lines
        assert (open_run["kind"], open_run["next"]) == ("run", "semel resume s")

        resumed = shop.semel("resume", "s", "--json")
        assert (resumed.exit, resumed.json["state"], resumed.json["output"]) == (3, "interrupted", None)
        assert len(server.requests) == 1, "a resume of an unknown call asks no model"

        (item,) = shop.semel("inbox", "--json").lines
        (named,) = resumed.json["unknown_calls"]
        assert item["call_key"] == named["call_key"] == shop.ledger[0].split()[1]
        assert (item["kind"], item["tool"], item["arguments"], item["session"]) == ("call", "pay", {"cents": 125}, "s")

        done = shop.semel("resolve", item["call_key"][:6], "--happened", "--continue", "--json")
        assert (done.exit, done.json["state"], done.json["output"]) == (0, "completed", "It is paid.")
        assert len(server.requests) == 2
    assert len(shop.ledger) == 1
    assert shop.semel("inbox", "--json").out == ""


def test_an_idempotent_payment_is_made_again_under_its_key(tmp_path: Path) -> None:
    shop = open_shop(tmp_path, effect="idempotent")
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    assert shop.semel("resume", "s").exit == 0
    first, second = shop.ledger
    assert first == second


def test_a_command_with_a_key_that_is_tried_again_after_a_kill_resumes(shop: Shop) -> None:
    shop.kill(shop.start_and_pay("run", "Pay 17", "--key", "k"))
    again = shop.semel("run", "Pay 17", "--key", "k", "--json")
    assert (again.exit, again.json["state"], len(shop.ledger)) == (3, "interrupted", 1)


def test_resume_takes_every_run_that_nobody_carries_and_asks_for_a_person(tmp_path: Path) -> None:
    shop = open_shop(tmp_path)
    for session in ("a", "b"):
        shop.kill(shop.start_and_pay("run", "Pay 17", "--session", session))
    busy = shop.start_and_pay("run", "Pay 17", "--session", "held")
    done = shop.semel("resume", "--json")
    shop.let_pay()
    busy.communicate()
    assert (done.exit, [line["session"] for line in done.lines]) == (3, ["a", "b"])
    assert shop.status("held")["state"] == "completed"


def test_a_message_is_not_accepted_over_a_call_that_was_just_found_unknown(shop: Shop) -> None:
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    sent = shop.semel("send", "Pay 18", "--session", "s")
    assert sent.exit == 3
    assert "was not accepted" in sent.refusal()
    assert shop.semel("send", "Pay 18", "--session", "s").exit == 0, "asked again, it is a new run"


@pytest.mark.parametrize(("number", "exit_code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stop_waits_for_the_call_under_way_and_says_how_to_go_on(shop: Shop, number: signal.Signals, exit_code: int) -> None:
    process = shop.start_and_pay("run", "Pay 17", "--session", "s")
    process.send_signal(number)
    assert process.stderr is not None
    assert "calls under way" in process.stderr.readline()
    shop.let_pay()
    out, err = process.communicate()
    assert (process.returncode, out) == (exit_code, "")
    assert err == "semel: stopped. The run is safe in the log; `semel resume s` goes on with it\n"
    done = shop.semel("resume", "s")
    assert (done.exit, done.out, len(shop.ledger)) == (0, "It is paid.\n", 1)


def test_a_second_stop_leaves_at_once_as_a_crash_would(shop: Shop) -> None:
    process = shop.start_and_pay("run", "Pay 17", "--session", "s")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130
    assert err == "semel: left at once. The log is safe; `semel resume` goes on\n"
    shop.end_tool()
    assert shop.semel("resume", "s").exit == 3


def test_verdicts_stand_an_equal_one_changes_nothing_another_is_refused(shop: Shop) -> None:
    key = shop.interrupted()
    (shop.place / "receipt.txt").write_text("receipt 9")
    first = shop.semel("resolve", key, "--happened", "--output", "receipt.txt", "--note", "seen at the bank", "--json")
    assert first.json == {"session": "s", "call_key": key, "tool": "pay", "verdict": "happened"}
    before = tree(shop.state)
    assert shop.semel("resolve", key, "--happened", "--output", "receipt.txt", "--json").json == first.json
    other = shop.semel("resolve", key, "--abandon")
    assert other.exit == 2
    assert "a verdict stands" in other.refusal()
    assert tree(shop.state) == before
    assert "receipt 9" in shop.semel("preview", "s").out
    assert shop.semel("send", "Go on", "--session", "s").out == "It is paid.\n"


def test_resolve_with_continue_again_gives_the_same_answer(shop: Shop) -> None:
    key = shop.interrupted()
    first, second = (shop.semel("resolve", key, "--did-not-happen", "--continue", "--json") for _ in range(2))
    assert first.exit == second.exit == 0
    assert first.json == second.json
    run_id = shop.semel("show", "s", "--json").json["runs"][0]["run_id"]
    assert first.json["run_id"] != run_id


def follow(shop: Shop, *words: str) -> "subprocess.Popen[str]":
    return shop.start("tail", "s", "--follow", "--json", *words)


def test_a_follower_gets_every_record_of_another_process_once_and_ends_with_it(shop: Shop) -> None:
    running = shop.start_and_pay("run", "Pay 17", "--session", "s")
    follower = follow(shop)
    assert follower.stdout is not None
    first = [json.loads(follower.stdout.readline()) for _ in range(2)]
    late = follow(shop, "--after", "1")
    shop.let_pay()
    running.communicate()
    late_out = late.communicate()[0]
    events = first + [json.loads(line) for line in follower.stdout]
    follower.communicate()
    head = shop.status("s")["head_seq"]
    assert [event["seq"] for event in events] == list(range(1, head + 1))
    assert [json.loads(line)["seq"] for line in late_out.splitlines()] == list(range(2, head + 1))
    assert events[-1]["type"] == events[-1]["record"]["type"] == "run_finished"
    assert follower.returncode == late.returncode == 0


def test_a_follower_outlives_the_process_that_it_follows(shop: Shop) -> None:
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    follower = follow(shop)
    assert follower.stderr is not None
    assert "nobody carries the open run" in follower.stderr.readline()
    assert shop.semel("resume", "s").exit == 3
    out, _ = follower.communicate()
    seqs = [json.loads(line)["seq"] for line in out.splitlines()]
    assert seqs == list(range(1, shop.status("s")["head_seq"] + 1))


def test_a_reader_that_goes_away_ends_the_follower_quietly(shop: Shop) -> None:
    running = shop.start_and_pay("run", "Pay 17", "--session", "s")
    follower = follow(shop)
    assert follower.stdout is not None
    assert follower.stderr is not None
    follower.stdout.readline()
    follower.stdout.close()
    shop.let_pay()
    running.communicate()
    assert follower.stderr.read() == ""
    assert follower.wait() == 141
    follower.stderr.close()
    assert follower.stdin is not None
    follower.stdin.close()
