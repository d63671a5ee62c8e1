"""A conversation at the terminal: each line is a message, durable and in order."""

import json
import signal
import time
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
    shop.let_pay()
    assert chat.wait(20) == 130
    assert "`semel resume s` goes on" in chat.communicate()[1]
    done = shop.semel("resume", "s")
    assert (done.exit, done.out, len(shop.ledger)) == (0, "It is paid.\n", 1)
