"""A conversation at the terminal: each line is a message, durable and in order."""

import json
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.control.support import OwnedShop
from tests.faces.support import open_shop

CALL = {"text": "I pay.", "calls": [{"name": "pay", "args": {"cents": 125}}]}


@pytest.fixture
def shop(tmp_path: Path) -> OwnedShop:
    return OwnedShop(open_shop(tmp_path, CALL, {"text": "It is paid."}, {"text": "Goodbye."}).place)


def test_a_line_while_the_agent_works_steers_it_and_the_answers_are_on_stdout(shop: OwnedShop) -> None:
    chat = shop.start_and_pay("chat", "--session", "s", stdin="Pay 17\n")
    assert chat.stdin is not None
    chat.stdin.write("Hurry\n")
    chat.stdin.flush()
    assert shop.semel("steer", "You, too", "--session", "s").exit == 0, "another process reaches a chat as any run"
    while shop.types().count("steered") < 2:
        time.sleep(0.01)
    shop.let_pay()
    out, err = chat.communicate()
    assert (chat.returncode, out) == (0, "I pay.\nIt is paid.\n"), err
    assert shop.types().count("run_started") == 1
    assert shop.types().count("steered") == 2


def test_a_line_behind_an_answer_starts_a_run_and_a_refused_one_says_why(shop: OwnedShop) -> None:
    (shop.place / "script.json").write_text(json.dumps({"answers": [{"text": "one"}, {"text": "two"}]}))
    done = shop.semel("chat", "--session", "s", stdin="\nHello\n")
    assert (done.exit, done.out) == (0, "one\n")
    assert shop.semel("chat", "--session", "s", stdin="And?\n").out == "two\n"
    refused = shop.semel("chat", "--session", "s", stdin="Too long\n")
    assert refused.exit == 1
    assert "failed" in refused.err


def test_a_chat_that_is_stopped_leaves_its_run_for_a_resume(shop: OwnedShop) -> None:
    chat = shop.start_and_pay("chat", "--session", "s", stdin="Pay 17\n")
    chat.send_signal(signal.SIGINT)
    hear_until(chat, "stopping")
    shop.let_pay()
    assert chat.wait(20) == 130
    assert "`semel resume s` goes on" in chat.communicate()[1]
    done = shop.semel("resume", "s")
    assert (done.exit, done.out, len(shop.ledger)) == (0, "It is paid.\n", 1)


def hear_until(process: "subprocess.Popen[str]", words: str) -> None:
    """Read what a process says on stderr up to a line with these words."""
    assert process.stderr is not None
    lines: list[str] = []
    while not lines or words not in lines[-1]:
        lines.append(process.stderr.readline())
        assert lines[-1], lines


def say(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def test_a_chat_shows_what_another_process_runs_and_its_lines_reach_that(shop: OwnedShop) -> None:
    owner = shop.start_and_pay("run", "Pay 17", "--session", "s", "--json")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, f"process {owner.pid} on ")
    say(chat, "Hurry")
    while "steered" not in shop.types():
        time.sleep(0.01)
    shop.let_pay()
    owner.communicate()
    out, err = chat.communicate()
    assert (chat.returncode, out) == (0, "It is paid.\n"), err
    assert (shop.types().count("run_started"), len(shop.ledger)) == (1, 1)


def test_a_chat_goes_on_with_a_run_whose_process_was_killed(tmp_path: Path) -> None:
    shop = OwnedShop(open_shop(tmp_path, CALL, {"text": "It is paid."}, effect="idempotent").place)
    owner = shop.start_and_pay("run", "Pay 17", "--session", "s", "--json")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, f"process {owner.pid} on ")
    shop.kill(owner)
    hear_until(chat, "this one goes on with it")
    out, err = chat.communicate()
    assert (chat.returncode, out) == (0, "It is paid.\n"), err
    first, second = shop.ledger
    assert first == second


def test_a_chat_goes_on_at_once_with_a_run_that_a_dead_process_left(tmp_path: Path) -> None:
    shop = OwnedShop(open_shop(tmp_path, CALL, {"text": "It is paid."}, effect="idempotent").place)
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    done = shop.semel("chat", "--session", "s")
    assert (done.exit, done.out) == (0, "It is paid.\n"), done
    assert "this one goes on with it" in done.err


def test_a_chat_without_the_agent_of_its_session_still_reaches_who_has_it(shop: OwnedShop) -> None:
    owner = shop.start_and_pay("run", "Pay 17", "--session", "s", "--json")
    (shop.place / "agent.toml").rename(shop.place / "elsewhere.toml")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, f"process {owner.pid} on ")
    say(chat, "Hurry")
    while "steered" not in shop.types():
        time.sleep(0.01)
    shop.let_pay()
    owner.communicate()
    assert "It is paid." in chat.communicate()[0]
    refused = shop.semel("chat", "--session", "s", stdin="More\n")
    assert refused.exit == 2


def test_a_chat_shows_how_a_run_goes_on_that_somebody_answers_from_a_second_terminal(shop: OwnedShop) -> None:
    with (shop.place / "agent.toml").open("a") as agent:
        agent.write("ask = true\n")
    chat = shop.start("chat", "--session", "s")
    say(chat, "Pay 17")
    hear_until(chat, "is paused")
    say(chat, "Please")
    hear_until(chat, "still waits")
    (waiting,) = shop.semel("inbox", "--json").lines
    assert shop.semel("approve", waiting["call_key"]).exit == 0
    assert chat.stdout is not None
    assert [chat.stdout.readline() for _ in range(2)] == ["I pay.\n", "It is paid.\n"]
    err = chat.communicate()[1]
    assert (chat.returncode, len(shop.ledger)) == (0, 1), err


def test_a_chat_takes_up_no_other_session_of_its_agent(shop: OwnedShop) -> None:
    shop.kill(shop.start_and_pay("run", "Pay 17", "--session", "s"))
    before = shop.log("s").read_bytes()
    assert shop.semel("chat", "--session", "t", stdin="Pay 18\n").exit == 0
    assert shop.log("s").read_bytes() == before


def paused_by(shop: OwnedShop, *words: str) -> str:
    """Let another process begin a run that waits for an approval, and leave it; the key of the call."""
    with (shop.place / "agent.toml").open("a") as agent:
        agent.write("ask = true\n")
    assert shop.semel(*words, "Pay 17", "--session", "s").exit == 4
    return str(shop.semel("inbox", "--json").lines[0]["call_key"])


def test_a_chat_goes_on_with_a_run_of_another_process_that_waited_and_is_answered_from_a_third(shop: OwnedShop) -> None:
    call = paused_by(shop, "run")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, "is paused")
    assert shop.semel("approve", call).exit == 0
    hear_until(chat, "this one goes on with it")
    assert chat.stdout is not None
    assert chat.stdout.readline() == "It is paid.\n"
    err = chat.communicate()[1]
    assert (chat.returncode, len(shop.ledger), shop.types()[-1]) == (0, 1, "run_finished"), err


def test_a_chat_over_an_owner_that_pauses_and_leaves_goes_on_with_what_is_answered(tmp_path: Path) -> None:
    refund = {"text": "I pay more.", "calls": [{"name": "refund", "args": {}}]}
    shop = OwnedShop(open_shop(tmp_path, CALL, refund, {"text": "It is paid."}).place)
    with (tmp_path / "agent.toml").open("a") as agent:
        agent.write('\n[tools.refund]\ncommand = ["true"]\nask = true\n')
    owner = shop.start_and_pay("run", "Pay 17", "--session", "s", "--json")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, f"process {owner.pid} on ")
    shop.let_pay()
    owner.communicate()
    assert owner.returncode == 4
    hear_until(chat, "is paused")
    assert shop.semel("approve", shop.semel("inbox", "--json").lines[0]["call_key"]).exit == 0
    hear_until(chat, "this one goes on with it")
    out, err = chat.communicate()
    assert (chat.returncode, out) == (0, "I pay more.\nIt is paid.\n"), err


def test_a_chat_whose_input_ends_behind_an_answer_sees_the_run_to_its_end(shop: OwnedShop) -> None:
    call = paused_by(shop, "run")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, "is paused")
    with stopped(chat):  # so that it sees the answer and the end of its input at once
        assert shop.semel("approve", call).exit == 0
        assert chat.stdin is not None
        chat.stdin.close()
        chat.stdin = None
    out, err = chat.communicate()
    assert (chat.returncode, out, len(shop.ledger)) == (0, "It is paid.\n", 1), err


def test_a_chat_that_may_not_go_on_with_an_answered_run_says_that_it_is_open(shop: OwnedShop) -> None:
    call = paused_by(shop, "run")
    with (shop.place / "agent.toml").open("a") as agent:
        agent.write("sequential = true\n")
    chat = shop.start("chat", "--session", "s")
    hear_until(chat, "is paused")
    assert shop.semel("approve", call).exit == 0
    err = chat.communicate()[1]
    assert "the run of session 's' is open; `semel resume s` goes on with it" in err, err
    assert (chat.returncode, shop.ledger) == (2, [])


@contextmanager
def stopped(process: "subprocess.Popen[str]") -> Iterator[None]:
    """The process stands still meanwhile."""
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)
